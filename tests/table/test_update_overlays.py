"""Updates of fragments that have overlays: no value of before comes back, whoever reads, with an index or without."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile

import lance_spark
from lance_spark.changes.update import Mode

VALUES = [10, 11, 12, 13, 14, 15]
OVERLAID = [10, 100, 12, 200, 14, 15]


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without it pylance refuses such tables: they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Write a table with an index on `a`, some of whose values an overlay replaces afterwards."""
    uri = str(tmp_path / "table")
    rows = pa.table({"id": range(6), "a": VALUES})
    dataset = lance.write_dataset(rows, uri, data_storage_version="2.2", enable_stable_row_ids=True)
    dataset.create_scalar_index("a", "BITMAP")
    file = tmp_path / "table" / "data" / "overlay.lance"
    with LanceFileWriter(str(file), rows.schema.remove(0), version="2.2") as writer:
        writer.write_batch(pa.table({"a": [100, 200]}))
    kinds = lance.LanceOperation
    overlay = kinds.DataOverlayFile(DataFile(file.name, [1], [0], 2, 2), [1, 3])
    operation = kinds.DataOverlay([kinds.DataOverlayGroup(0, [overlay])])
    lance.LanceDataset.commit(uri, operation, read_version=dataset.version)
    assert lance_spark.open_dataset(uri).to_table(["a"])["a"].to_pylist() == OVERLAID
    return uri


def check(uri: str, expected: list[int]) -> None:
    theirs = lance.dataset(uri)
    assert theirs.to_table(["a"])["a"].to_pylist() == expected
    assert lance_spark.open_dataset(uri).to_table(["a"])["a"].to_pylist() == expected
    for value in {*VALUES, *OVERLAID, *expected}:
        found = theirs.to_table(["a"], filter=f"a = {value}")["a"].to_pylist()
        assert found == [value] * expected.count(value)


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_new_values(table: str, mode: Mode) -> None:
    lance_spark.open_dataset(table).update({"a": 7}, filters=[("id", ">=", 3)], mode=mode)
    check(table, [10, 100, 12, 7, 7, 7])


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_values_of_other_columns(table: str, mode: Mode) -> None:
    """Rows that move take what the overlay said along; an index that is older must not cover them."""
    lance_spark.open_dataset(table).update({"id": 50}, filters=[("id", ">=", 1)], mode=mode)
    check(table, OVERLAID)
