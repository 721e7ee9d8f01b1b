"""The oracle: pylance, as a fixture."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest


class Pylance:
    """What pylance writes and reads."""

    def write(self, table: pa.Table, path: Path, version: str, **kwargs: object) -> None:
        """Write a table as a new Lance table of a file version."""
        lance.write_dataset(table, str(path), data_storage_version=version, **kwargs)

    def read(self, path: Path, version: int | None = None) -> pa.Table:
        """Read a table with pylance, which validates it first."""
        dataset = lance.dataset(str(path), version=version)
        dataset.validate()
        return dataset.to_table()


@pytest.fixture(scope="session")
def pylance() -> Pylance:
    return Pylance()
