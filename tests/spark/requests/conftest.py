"""The table that requests read, and its rows."""

from __future__ import annotations

from typing import Any

import lance
import pytest

from tests.support.spark.typed_rows import table


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of three fragments, with two rows deleted."""
    uri = str(tmp_path_factory.mktemp("requests") / "t.lance")
    lance.write_dataset(table(), uri, max_rows_per_file=9)
    lance.dataset(uri).delete("row IN (3, 12)")
    return uri


@pytest.fixture(scope="module")
def rows(path: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = lance.dataset(path).to_table().to_pylist()
    return results
