"""Tables of many columns and few rows, and of many fragments of few rows: values, errors, and the
work for each of them.

Work is counted in calls of functions, of which every run has the same number: time depends on the
machine. Most of what a column or a fragment of few rows costs is calls.
"""

from __future__ import annotations

import datetime
import decimal
import pickle
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.encoding.v2_1.layouts import mini_block_write
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import open_file
from lance_spark.storage.local import LocalSource
from tests.file.sources import file_bytes

#: Writes files of thousands of columns.
pytestmark = pytest.mark.slow


def calls(action: Callable[[], object]) -> int:
    """Return how many functions an action calls, in all threads."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return count


def calls_of_each(run: Callable[[int], Callable[[], object]]) -> float:
    """Return how many calls one more column or fragment takes, and check that it takes as many
    among more of them.

    `run` prepares a table of some columns or fragments, and returns what is measured. Schemas are
    kept: of the threads that need a new one at the same time, each makes it, so that a second run
    is measured.
    """
    sizes = (100, 200, 400)
    for size in sizes:
        run(size)()
    few, more, many = (calls(run(size)) for size in sizes)
    first, second = (more - few) / 100, (many - more) / 200
    assert second < 1.3 * first + 10
    return second


def nulls_at(array: pa.Array, place: int) -> pa.Array:
    return pa.array(
        [None if position == place else value for position, value in enumerate(array.to_pylist())],
        array.type,
    )


def columns_of_all_types(rows: int, *, null_structs: bool) -> pa.Table:
    """Return columns of plain types, equal and different values, with nulls and in slices."""
    numbers = np.arange(rows)
    arrays = [
        pa.array(numbers),
        pa.array(numbers.astype(np.uint8)),
        pa.array(np.zeros(rows)),
        pa.array(numbers * 0.1),
        pa.array(numbers % 2 == 0),
        pa.array([True] * rows),
        pa.array([False] * rows),
        pa.array([str(number) * (number % 7) for number in range(rows)]),
        pa.array(["x"] * rows),
        pa.array([""] * rows),
        pa.array([b"%d" % number for number in range(rows)], pa.large_binary()),
        pa.array([decimal.Decimal(number) for number in range(rows)], pa.decimal128(20, 2)),
        pa.array([datetime.date(2020, 1, 1)] * rows),
        pa.array([b"abc"] * rows, pa.binary(3)),
        pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32(), 2)),
        pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32())),
        pa.array([{"a": number, "b": str(number)} for number in range(rows)]),
    ]
    columns = {}
    for at, array in enumerate(arrays):
        columns[f"whole{at}"] = array
        if null_structs or not pa.types.is_struct(array.type):
            twice = pa.concat_arrays([array, array])
            columns[f"first{at}"] = nulls_at(array, 0)
            columns[f"middle{at}"] = nulls_at(array, rows // 2)
            columns[f"sliced{at}"] = nulls_at(twice, rows // 2 + 1).slice(rows // 2, rows)
    return pa.table(columns)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("rows", [1, 3, 64, 65])
def test_pages_of_few_values(tmp_path: Path, version: str, rows: int) -> None:
    table = columns_of_all_types(rows, null_structs=version != "2.0")
    uri = str(tmp_path / "t.lance")
    lance_spark.write_dataset(table, uri, data_storage_version=version)
    theirs = lance.dataset(uri)
    theirs.validate()
    for read in (theirs.to_table(), lance_spark.open_dataset(uri).to_table()):
        for name in table.column_names:
            assert read[name].to_pylist() == table[name].to_pylist(), name
    chosen = [0, rows - 1]
    assert theirs.take(chosen).to_pylist() == table.take(chosen).to_pylist()


def wide(columns: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(columns)
    numbers = {f"c{at}": rng.integers(0, 1 << 30, rows) for at in range(columns)}
    return pa.table(
        numbers | {f"k{at}": [at] * rows for at in range(8)} | {"text": [str(rows)] * rows}
    )


def many_values(rows: int) -> pa.Table:
    """Return columns whose pages are decoded together, some of each kind."""
    rng = np.random.default_rng(rows)
    numbers = rng.integers(0, 1 << 40, (6, rows))
    words = np.array([f"word {number}" * 3 for number in range(200)])
    columns = {}
    for at in range(6):
        texts = pa.array([f"{number:x} and more" for number in numbers[at].tolist()])
        mask = rng.random(rows) < 0.3
        columns |= {
            f"number{at}": pa.array(numbers[at]),
            f"null{at}": pa.array(numbers[at], mask=mask),
            f"text{at}": texts,
            f"maybe{at}": pa.array(texts.to_pylist(), mask=mask),
            f"word{at}": pa.array(words[numbers[at] % 200]),
            f"vector{at}": pa.FixedSizeListArray.from_arrays(
                pa.array(rng.random(rows * 4, np.float32)), 4
            ),
            f"flag{at}": pa.array(mask),
            f"list{at}": pa.array([[1, None], [], None, [4]] * (rows // 4)),
        }
    return pa.table(columns)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("client", [lance, lance_spark])
def test_ranges_of_columns_that_are_read_together(
    tmp_path: Path, version: str, client: Any
) -> None:
    table = many_values(5000)
    client.write_dataset(table, str(tmp_path), data_storage_version=version)
    (path,) = tmp_path.glob("data/*.lance")
    reader = open_file(LocalSource(str(path)))
    fields = reader.schema.fields
    for rows in (range(5000), range(1024), range(3, 4), range(1000, 3333), range(4096, 5000)):
        arrays = reader.read(fields, rows)
        expected = table.slice(rows.start, len(rows)).combine_chunks()
        for field, array in zip(fields, arrays, strict=True):
            assert array.to_pylist() == expected[field.name].to_pylist(), field.name
    reader.close()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("rows", [100, 2048, 5000])
def test_few_chunks_have_the_bytes_of_many(
    monkeypatch: pytest.MonkeyPatch, version: str, rows: int
) -> None:
    table = many_values(rows)
    few = file_bytes(table, version)
    monkeypatch.setattr(mini_block_write, "_FEW_CHUNKS", 0)
    assert file_bytes(table, version) == few


@pytest.mark.parametrize("files", [1, 3])
def test_rows_of_columns_that_are_read_together(tmp_path: Path, files: int) -> None:
    table, uri = wide(20, 12), str(tmp_path / "t.lance")
    lance.write_dataset(table, uri, max_rows_per_file=12 // files)
    dataset = lance_spark.open_dataset(uri)
    assert dataset.to_table() == table
    for chosen in ([5], [0, 1, 2], [3, 11], list(range(12))):
        assert dataset.take(chosen).equals(table.take(chosen)), chosen
    kept = table.filter(pa.compute.greater(table["c3"], 1 << 29))
    assert dataset.to_table(filters=[("c3", ">", 1 << 29)]).equals(kept)


def test_the_column_that_is_damaged_is_named(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lance.write_dataset(wide(20, 12), str(uri))
    (path,) = uri.glob("data/*.lance")
    reader = open_file(LocalSource(str(path)))
    column = reader.schema.field("c7")
    table_of_chunks = reader.column_metas([column])[0].pages[0].buffers[0]
    reader.close()
    data = bytearray(path.read_bytes())
    data[table_of_chunks.offset : table_of_chunks.offset + table_of_chunks.length] = (
        b"\xff" * table_of_chunks.length
    )
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="'c7'"):
        lance_spark.open_dataset(str(uri)).to_table()


def test_work_for_a_column(tmp_path: Path) -> None:
    made = iter(range(1000))

    def new() -> str:
        return str(tmp_path / f"{next(made)}.lance")

    def writing(columns: int) -> Callable[[], object]:
        table, uri = wide(columns, 3), new()
        return lambda: lance_spark.write_dataset(table, uri)

    def reading(columns: int) -> Callable[[], object]:
        uri = new()
        lance.write_dataset(wide(columns, 3), uri)
        return lambda: lance_spark.open_dataset(uri).to_table()

    def compacting(columns: int) -> Callable[[], object]:
        uri = new()
        lance.write_dataset(wide(columns, 4), uri, max_rows_per_file=1)
        return lambda: lance_spark.open_dataset(uri).compact_files()

    def writing_structs(columns: int) -> Callable[[], object]:
        parts = [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
        struct = pa.StructArray.from_arrays(parts, ["number", "text"])
        table, uri = pa.table({f"s{at}": struct for at in range(columns)}), new()
        return lambda: lance_spark.write_dataset(table, uri)

    def updating(columns: int) -> Callable[[], object]:
        uri = new()
        lance.write_dataset(wide(columns, 4), uri, max_rows_per_file=1)
        return lambda: lance_spark.open_dataset(uri).update({"c0": 1}, [("_rowid", "==", 0)])

    assert calls_of_each(writing) < 240
    assert calls_of_each(writing_structs) < 640
    assert calls_of_each(reading) < 350
    assert calls_of_each(compacting) < 660
    assert calls_of_each(updating) < 460


@pytest.mark.parametrize(("kind", "most"), [("number", 290), ("text", 420), ("vector", 330)])
def test_work_for_a_column_of_some_thousand_values(tmp_path: Path, kind: str, most: int) -> None:
    rows = 1100
    column = many_values(rows)[f"{kind}0"]

    def uri(columns: int) -> str:
        path = tmp_path / str(columns)
        if not path.exists():
            lance.write_dataset(pa.table({f"c{at}": column for at in range(columns)}), str(path))
        return str(path)

    def reading(columns: int) -> Callable[[], object]:
        return lance_spark.open_dataset(uri(columns)).to_table

    def taking(columns: int) -> Callable[[], object]:
        dataset = lance_spark.open_dataset(uri(columns))
        return lambda: dataset.take([rows // 2])

    assert calls_of_each(reading) < most
    assert calls_of_each(taking) < 400


def test_work_for_a_fragment(tmp_path: Path) -> None:
    made = iter(range(1000))

    def table(fragments: int) -> str:
        source, uri = tmp_path / f"of {fragments}", tmp_path / f"{next(made)}.lance"
        if not source.exists():
            rows = np.arange(2 * fragments)
            data = pa.table({"odd": rows // 2 % 2, "text": [str(row) for row in rows]})
            lance.write_dataset(data, str(source), max_rows_per_file=2)
        shutil.copytree(source, uri)
        return str(uri)

    def deleting(fragments: int) -> Callable[[], object]:
        dataset = lance_spark.open_dataset(table(fragments))
        return lambda: dataset.delete([("odd", "==", 1)])

    def updating(fragments: int) -> Callable[[], object]:
        dataset = lance_spark.open_dataset(table(fragments))
        return lambda: dataset.update({"text": "new"}, [("odd", "==", 1)])

    def compacting(fragments: int) -> Callable[[], object]:
        dataset = lance_spark.open_dataset(table(fragments))
        return dataset.compact_files

    assert calls_of_each(deleting) < 400
    assert calls_of_each(updating) < 400
    assert calls_of_each(compacting) < 600


def test_columns_that_are_read_together_have_memory_of_their_own(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(wide(200, 100), uri)
    table = lance_spark.open_dataset(uri).to_table()
    assert len(pickle.dumps(table)) < 2 * table.nbytes + 400 * table.num_columns
