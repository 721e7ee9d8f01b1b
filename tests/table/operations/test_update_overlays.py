"""Updates of fragments with overlays: no old value comes back, in any client, with an index or
without.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile

import lance_spark
from lance_spark.mutations.columns.assignments import parse_assignments
from lance_spark.mutations.rows.update import Mode, commit_updates, plan_update
from lance_spark.table.open import open_table

VALUES = [10, 11, 12, 13, 14, 15]
OVERLAID = [10, 100, 12, 200, 14, 15]


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this variable, pylance refuses such tables, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")


def put_overlay(uri: str, values: dict[int, int]) -> None:
    """Replace values of `a` of some rows of the first fragment."""
    dataset = lance.dataset(uri)
    file = Path(uri) / "data" / f"overlay{dataset.version}.lance"
    with LanceFileWriter(str(file), pa.schema([("a", pa.int64())]), version="2.2") as writer:
        writer.write_batch(pa.table({"a": list(values.values())}))
    operations = lance.LanceOperation
    overlay = operations.DataOverlayFile(DataFile(file.name, [1], [0], 2, 2), list(values))
    operation = operations.DataOverlay([operations.DataOverlayGroup(0, [overlay])])
    lance.LanceDataset.commit(uri, operation, read_version=dataset.version)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Write a table with an index on `a`. An overlay replaces some values of `a` afterwards."""
    uri = str(tmp_path / "table")
    rows = pa.table({"id": range(6), "a": VALUES})
    dataset = lance.write_dataset(rows, uri, data_storage_version="2.2", enable_stable_row_ids=True)
    dataset.create_scalar_index("a", "BITMAP")
    put_overlay(uri, {1: 100, 3: 200})
    assert lance_spark.open_dataset(uri).to_table(["a"])["a"].to_pylist() == OVERLAID
    return uri


def check(uri: str, expected: list[int]) -> None:
    theirs = lance.dataset(uri)
    assert theirs.to_table(["a"])["a"].to_pylist() == expected
    assert lance_spark.open_dataset(uri).to_table(["a"])["a"].to_pylist() == expected
    for value in {*VALUES, *OVERLAID, *expected}:
        rows = theirs.to_table(["a"], filter=f"a = {value}")["a"].to_pylist()
        assert rows == [value] * expected.count(value)


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_new_values(table: str, mode: Mode) -> None:
    lance_spark.open_dataset(table).update({"a": 7}, filters=[("id", ">=", 3)], mode=mode)
    check(table, [10, 100, 12, 7, 7, 7])


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_values_of_other_columns(table: str, mode: Mode) -> None:
    """Moved rows take the values of the overlay with them. An older index must not cover them."""
    lance_spark.open_dataset(table).update({"id": 50}, filters=[("id", ">=", 1)], mode=mode)
    check(table, OVERLAID)


def test_versions_of_rows_that_an_overlay_of_another_client_changed(table: str) -> None:
    base = open_table(table)
    updates = {"id": 50}
    tasks = plan_update(base, updates, [("id", "<=", 1)], mode="columns")
    results = [task.run() for task in tasks]
    put_overlay(table, {1: 101, 5: 500})
    assignments = parse_assignments(updates, base.schema)
    made = commit_updates(base, results, assignments, mode="columns")
    assert made.version == 5
    column = "_row_last_updated_at_version"
    expected = {
        "id": [50, 50, 2, 3, 4, 5],
        "a": [10, 101, 12, 200, 14, 500],
        column: [5, 5, 1, 3, 1, 4],
    }
    for dataset in (lance_spark.open_dataset(table), lance.dataset(table)):
        assert dataset.to_table(["id", "a", column]).to_pydict() == expected
