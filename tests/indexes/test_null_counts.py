"""Rows without nulls are counted from page metadata; other rows have to be read."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.file.reader import FileReader
from lance_spark.indexes.aggregates import split_valid
from tests.interop.test_overlays import commit, overlay

ROWS = 30_000


def table(nulls: bool) -> pa.Table:
    """Return columns without nulls, or with one in the second half of each; the schema allows
    nulls anyway.
    """
    ids = np.arange(ROWS)
    mask = pa.array(ids == ROWS - 7) if nulls else pa.array(np.zeros(ROWS, np.bool_))

    def with_null(array: pa.Array) -> pa.Array:
        if not nulls:
            return array
        chosen = pa.array(np.where(np.asarray(mask), None, ids), pa.int64())
        return array.take(chosen)

    inner = pa.StructArray.from_arrays(
        [with_null(pa.array(ids)), pa.array(ids, mask=ids % 2 == 0)], ["a", "b"]
    )
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(ROWS * 4, np.float32)), 4)
    lists = pa.ListArray.from_arrays(pa.array(np.append(0, ids // 2), pa.int32()), pa.array(ids))
    columns = {
        "number": with_null(pa.array(ids)),
        "flat": with_null(pa.array(np.full(ROWS, 7))),
        "text": with_null(pa.array([f"text {i}" for i in ids.tolist()])),
        "wide": with_null(pa.array([f"{i}" * 60 for i in ids.tolist()])),
        "vector": with_null(vectors),
        "list": with_null(lists),
        "ok": with_null(pa.array(ids % 3 == 0)),
        "date": with_null(pa.array(ids, pa.int32()).cast(pa.date32())),
    }
    return pa.table({**columns, "inner": inner, "outer": with_null(inner)})


COLUMNS = [
    *("number", "flat", "text", "wide", "vector", "list", "ok", "date", "inner.a", "outer"),
    "outer.a",
]


def counted(path: Path, column: str) -> tuple[int, int]:
    """Return the number of counted rows and of rows left to read, after their sum was checked."""
    tasks = lance_spark.open_dataset(str(path)).plan([column], rows_per_task=8_000)
    count = left = values = 0
    names = column.split(".")
    for task in tasks:
        result, rest = split_valid(task, names)
        count += result
        left += rest.num_rows
        for batch in rest.batches():
            array = batch.column(0)
            for _ in names[1:]:
                (array,) = array.flatten()
            values += len(array) - array.null_count
    real = lance.dataset(str(path)).count_rows(f"{column} IS NOT NULL")
    assert count + values == real
    return count, left


@pytest.fixture(scope="module", params=["2.1", "2.2", "2.3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    for nulls in (False, True):
        name = str(folder / str(nulls))
        lance.write_dataset(
            table(nulls), name, max_rows_per_file=ROWS // 2, data_storage_version=request.param
        )
    return folder


@pytest.mark.sample(3)
@pytest.mark.parametrize("column", COLUMNS)
def test_every_type(folder: Path, column: str) -> None:
    assert counted(folder / "False", column) == (ROWS, 0)
    result = counted(folder / "True", column)
    # For lists, pylance marks pages as nullable if the whole array has nulls.
    assert result == (ROWS // 2, ROWS // 2) or (column == "list" and result == (0, ROWS))


def test_child_with_nulls(folder: Path) -> None:
    for name in ("False", "True"):
        assert counted(folder / name, "inner.b") == (0, ROWS)
        assert counted(folder / name, "outer.b") == (0, ROWS)


def test_no_values_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileReader, "read", None)
    assert counted(folder / "False", "wide") == (ROWS, 0)


def test_deletions_and_appends(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(table(False), str(path), max_rows_per_file=ROWS // 2)
    dataset.delete("number % 5 = 2 OR number < 9000")
    dataset.insert(pa.table({"number": [None, 1, 2]}, pa.schema([("number", pa.int64())])))
    assert counted(path, "number")[1] == 3
    assert counted(path, "text")[1] == 3
    assert counted(path, "inner.a")[1] == 3


def test_older_file_versions_are_left_to_read(tmp_path: Path) -> None:
    for version in ("legacy", "2.0"):
        path = tmp_path / version
        lance.write_dataset(pa.table({"x": [1, 2]}), str(path), data_storage_version=version)
        assert counted(path, "x") == (0, 2)


def test_overlays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = tmp_path / "t.lance"
    values = pa.table({"number": pa.array(range(200)), "word": ["w"] * 200})
    lance.write_dataset(values, str(path), max_rows_per_file=100)
    new = pa.table({"number": pa.array([None], pa.int64())})
    commit(path, 0, overlay(path, "o.lance", new, [5]))
    assert counted(path, "number") == (100, 100)
    assert counted(path, "word") == (200, 0)


def test_tasks_with_filters_are_left_to_read(folder: Path) -> None:
    (task, *_) = lance_spark.open_dataset(str(folder / "False")).plan(["ok"], filter="number > 3")
    assert split_valid(task, ["ok"]) == (0, task)
