"""Handles of a table that was deleted, and made anew at the same place."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import Dataset
from lance_spark.errors import TableNotFoundError
from lance_spark.table import commit
from lance_spark.table.manifest_file import read_version


@pytest.fixture(params=["disk", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(commit, "_KNOWN_SECONDS", 0.0)
    return str(tmp_path / "t") if request.param == "disk" else "memory://made-anew/t"


def made(uri: str, first: int) -> Dataset:
    if "://" in uri:
        fs = fsspec.filesystem("memory")
        if fs.exists("/made-anew/t"):
            fs.rm("/made-anew/t", recursive=True)
    else:
        shutil.rmtree(uri, ignore_errors=True)
    return lance_spark.write_dataset(pa.table({"a": [first, first + 1]}), uri)


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.update_config({"x": "y"}),
        lambda dataset: dataset.add_columns(pa.field("b", pa.int64())),
        lambda dataset: dataset.alter_columns({"path": "a", "name": "b"}),
    ],
)
def test_a_change_is_not_built_on_another_table(
    uri: str, change: Callable[[Dataset], object]
) -> None:
    old = made(uri, 0)
    new = made(uri, 100)
    assert old.version == new.version
    with pytest.raises(TableNotFoundError, match="the table was deleted and made anew"):
        change(old)
    found = lance_spark.open_dataset(uri)
    assert found.version == 1
    assert found.to_table()["a"].to_pylist() == [100, 101]
    change(new)
    assert lance_spark.open_dataset(uri).version == 2


def test_a_version_of_another_process_is_always_looked_at(uri: str) -> None:
    manifest = read_version(made(uri, 0)._table.store, 1)
    assert manifest.read_at > 0
    assert pickle.loads(pickle.dumps(manifest)).read_at < 0
