"""`head`, `sample`, `slice`, `to_pandas`, `sort_by` and `join`: as in pylance."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from lance_spark import Dataset, open_dataset
from lance_spark.errors import InvalidInputError

BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
VALUES = [b"abc", None, b"", b"x" * 5000, b"yy"]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, Dataset]:
    path = str(tmp_path_factory.mktemp("rows") / "t.lance")
    table = pa.table({"id": range(40), "name": [f"n{i % 7}" for i in range(40)]})
    written = lance.write_dataset(table, path, max_rows_per_file=9)
    written.delete("id % 10 = 3")
    return written, open_dataset(path)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, Dataset]:
    path = str(tmp_path_factory.mktemp("blobs") / "t.lance")
    schema = pa.schema([pa.field("id", pa.int64()), BLOB, pa.field("n", pa.int64())])
    table = pa.table([range(5), VALUES, range(5)], schema=schema)
    written = lance.write_dataset(table, path, max_rows_per_file=3, data_storage_version="2.1")
    return written, open_dataset(path)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("handling", [None, "all_binary", "all_descriptions"])
def test_a_blob_column_under_another_name(
    version: str, handling: str | None, tmp_path: Path
) -> None:
    blob = BLOB if version == "2.1" else lance.blob_field("b")
    values = VALUES if version == "2.1" else lance.blob_array(VALUES)
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    theirs = lance.write_dataset(
        pa.table([range(5), values], schema=schema),
        str(tmp_path / "t.lance"),
        data_storage_version=version,
    )
    ours = open_dataset(str(tmp_path / "t.lance"))
    columns = {"x": "b", "n": "id + 1"}
    expected = theirs.scanner(columns, blob_handling=handling).to_table()
    scanned = ours.scanner(columns, blob_handling=handling).to_table()
    taken = ours.take(range(5), columns=columns, blob_handling=handling)
    assert expected.to_pylist() == scanned.to_pylist() == taken.to_pylist()
    assert expected.schema.types == scanned.schema.types == taken.schema.types


@pytest.mark.parametrize("count", [0, 1, 12, 100])
@pytest.mark.parametrize("options", [{}, {"columns": ["name"]}, {"filter": "id > 20"}])
def test_head(both: Any, count: int, options: dict[str, Any]) -> None:
    theirs, ours = both
    assert ours.head(count, **options) == theirs.head(count, **options)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 5), (7, 23), (30, 99), (50, 60)])
def test_slice(both: Any, start: int, end: int) -> None:
    theirs, ours = both
    assert ours.slice(start, end) == theirs.slice(start, end)
    assert ours.slice(start, end, ["name"]) == theirs.slice(start, end, ["name"])


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_slice_refuses_what_pylance_refuses(both: Any, start: int, end: int) -> None:
    for dataset in both:
        with pytest.raises(ValueError, match="start"):
            dataset.slice(start, end)


@pytest.mark.parametrize("count", [0, 3, 36])
@pytest.mark.parametrize("shuffled", [True, False])
def test_sample_has_the_rows_of_pylance_for_a_seed(both: Any, count: int, shuffled: bool) -> None:
    samples = []
    for dataset in both:
        random.seed(7)
        samples.append(dataset.sample(count, ["id"], randomize_order=shuffled).to_pydict())
    assert samples[0] == samples[1]
    assert len(samples[0]["id"]) == count


def test_sample_refuses_more_rows_than_there_are(both: Any) -> None:
    for dataset in both:
        with pytest.raises(ValueError, match=r"36|larger"):
            dataset.sample(37)


def test_sort_and_join_are_those_of_pyarrow(both: Any) -> None:
    """pylance ends the process in `sort_by`, and refuses `join`."""
    ours = both[1]
    rows = pads.dataset(ours.to_table())
    sorting = [("name", "descending"), ("id", "ascending")]
    assert ours.sort_by(sorting).to_table() == rows.sort_by(sorting).to_table()
    other = pa.table({"id": [4, 5, 99], "x": [1, 2, 3]})
    joined = ours.join(other, "id", join_type="inner").to_table().sort_by("id")
    assert joined.to_pylist() == [
        {"id": 4, "name": "n4", "x": 1},
        {"id": 5, "name": "n5", "x": 2},
    ]
    assert ours.join(ours, "id", right_suffix="_r", join_type="inner").count_rows() == 36
    nearest = ours.join_asof(pa.table({"id": [1, 20], "y": [1, 2]}), "id", [], 100)
    assert nearest.to_table()["y"].to_pylist()[:2] == [1, 1]


def test_to_pandas(both: Any) -> None:
    theirs, ours = both
    for options in ({}, {"columns": ["name"], "limit": 3}, {"filter": "id > 20"}):
        assert ours.to_pandas(**options).equals(theirs.to_pandas(**options))
    frame = ours.to_pandas(["name"], strings_to_categorical=True)
    assert str(frame.dtypes["name"]) == "category"


def test_to_pandas_with_blobs(blobs: Any) -> None:
    theirs, ours = blobs
    assert ours.to_pandas(blob_mode="bytes").equals(theirs.to_pandas(blob_mode="bytes"))
    lazy = [frame["b"].tolist() for frame in (theirs.to_pandas(), ours.to_pandas())]
    for files in lazy:
        assert [None if file is None else file.readall() for file in files] == VALUES
    assert list(ours.to_pandas().columns) == ["id", "b", "n"]
    assert list(ours.to_pandas(["n"]).columns) == ["n"]
    assert list(ours.to_pandas(with_row_address=True).columns) == ["id", "b", "n", "_rowaddr"]
    for dataset in blobs:
        with pytest.raises(ValueError, match="blob_mode must be one of"):
            dataset.to_pandas(blob_mode="x")


@pytest.mark.parametrize(
    "rows",
    [
        {"indices": [4, 0, 1, 2, 0]},
        {"ids": [2, 1]},
        {"addresses": [1 << 32, 0, 1]},
        {"indices": []},
    ],
)
def test_read_blobs(blobs: Any, rows: dict[str, list[int]]) -> None:
    theirs, ours = blobs
    assert ours.read_blobs("b", **rows) == theirs.read_blobs("b", **rows, preserve_order=True)


def test_read_blob_ranges(blobs: Any) -> None:
    theirs, ours = blobs
    requests = [(4, 0, 1), (0, 1, 2), (1, 0, 5), (2, 0, 0), (0, 0, 3), (3, 4000, 900)]
    expected = theirs.read_blob_ranges("b", requests, selector="indices", preserve_order=True)
    assert ours.read_blob_ranges("b", requests, selector="indices") == expected
    assert ours.read_blob_ranges("b", [], selector="ids") == []


@pytest.mark.parametrize(
    "call",
    [
        lambda data: data.read_blobs("b"),
        lambda data: data.read_blobs("b", ids=[1], indices=[1]),
        lambda data: data.read_blobs("id", ids=[1]),
        lambda data: data.read_blobs("b", indices=[9]),
        lambda data: data.read_blobs("b", ids=[77]),
        lambda data: data.read_blob_ranges("b", [(0, 1, 9)], selector="indices"),
        lambda data: data.read_blob_ranges("b", [(77, 0, 1)], selector="ids"),
        lambda data: data.read_blob_ranges("b", [(0, 0, 1)], selector="x"),
    ],
)
def test_reads_of_blobs_refuse_what_pylance_refuses(blobs: Any, call: Any) -> None:
    theirs, ours = blobs
    with pytest.raises(ValueError, match=r"."):
        call(theirs)
    with pytest.raises(InvalidInputError):
        call(ours)


def test_nested_blobs(tmp_path: Path) -> None:
    dtype = pa.struct([pa.field("id", pa.int64()), BLOB])
    table = pa.table({"s": pa.array([{"id": 1, "b": b"q"}, {"id": 2, "b": None}], dtype)})
    written = lance.write_dataset(table, str(tmp_path / "t"), data_storage_version="2.1")
    ours = open_dataset(tmp_path / "t")
    expected = written.read_blobs("s.b", indices=[1, 0], preserve_order=True)
    assert ours.read_blobs("s.b", indices=[1, 0]) == expected == [(1, None), (0, b"q")]


@pytest.mark.parametrize("options", [{}, {"limit": 7, "offset": 2}, {"filter": "id > 20"}])
def test_ordered_rows_without_columns(both: Any, options: dict[str, Any]) -> None:
    theirs, ours = both
    expected = theirs.scanner(columns=[], order_by=["name"], **options).to_table()
    scanned = ours.scanner(columns=[], order_by=["name"], batch_size=4, **options).to_table()
    assert scanned.num_rows == expected.num_rows > 0
    assert ours.take([5, 3, 5], columns=[]).num_rows == 3


@pytest.mark.parametrize(
    "columns", [["_rowaddr"], ["id", "_rowaddr"], ["_rowid", "_rowaddr", "id"], ["_rowoffset"]]
)
def test_metadata_columns_of_deleted_rows(both: Any, columns: list[str]) -> None:
    options = {"columns": columns, "include_deleted_rows": True, "with_row_id": True}
    expected, scanned = (data.scanner(**options).to_table() for data in both)
    assert scanned.schema.names == expected.schema.names
    assert scanned.to_pylist() == expected.to_pylist()
