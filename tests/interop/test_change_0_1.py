"""Changes of tables of version 0.1 give the same rows as changes of tables of version 2.2, and
pylance reads them.

The tables have three fragments of several batches; new files must be of version 0.1 again, whoever
writes after whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.dataset import LanceOperation, write_fragments
from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from tests.interop.files.test_read_0_1 import early

ROWS = 2_500
COLOURS = pa.array(["red", "green", "blue"])


def rows(first: int, count: int = ROWS) -> pa.Table:
    ids = np.arange(first, first + count)
    texts = pa.array([f"name {i}" if i % 5 else None for i in ids.tolist()])
    lists = pa.array([[f"{j}" for j in range(i % 4)] for i in ids.tolist()], pa.list_(pa.string()))
    numbers = pa.array(ids * 3, pa.int32())
    return pa.table(
        {
            "id": ids,
            "s": pa.StructArray.from_arrays([numbers, texts], ["a", "b"]),
            "l": lists,
            "v": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(ids, 2) * 0.5), 2),
            "colour": pa.DictionaryArray.from_arrays(pa.array(ids % 3, pa.int8()), COLOURS),
            "flag": ids % 7 == 0,
        }
    )


def create(path: Path, version: str) -> Dataset:
    for first in (0, ROWS, 2 * ROWS):
        lance_spark.write_dataset(
            rows(first),
            str(path),
            mode="append" if first else "create",
            data_storage_version=version,
        )
    return lance_spark.open_dataset(str(path))


def by_id(table: pa.Table) -> list[dict[str, object]]:
    sorted_rows: list[dict[str, object]] = table.sort_by("id").to_pylist()
    return sorted_rows


def check(path: Path, model: Path) -> None:
    """Compare a table of version 0.1 with a table of version 2.2 after the same changes."""
    theirs = lance.dataset(str(path))
    theirs.validate()
    assert theirs.data_storage_version == "0.1"
    for fragment in theirs.get_fragments():
        for file in fragment.data_files():
            assert (file.file_major_version, file.file_minor_version) < (0, 3)
    expected = by_id(lance_spark.open_dataset(str(model)).to_table())
    assert by_id(theirs.to_table()) == expected
    assert by_id(lance_spark.open_dataset(str(path)).to_table()) == expected
    for text in ("id > 100 and id < 140", "s.b = 'name 2501'", "flag"):
        wanted = theirs.to_table(filter=text, use_stats=False)
        assert by_id(theirs.to_table(filter=text)) == by_id(wanted)
        assert by_id(lance_spark.open_dataset(str(path)).to_table(filter=text)) == by_id(wanted)


def append(table: Dataset) -> None:
    lance_spark.write_dataset(rows(50_000, 10), table.uri, mode="append")


def delete(table: Dataset) -> None:
    table.delete([("id", ">", 1_000), ("id", "<", 3_000)]).delete([("flag", "==", True)])


def update(table: Dataset) -> None:
    table.update({"id": double, "flag": True}, [("id", ">=", 2_400), ("id", "<", 2_600)])


def update_columns(table: Dataset) -> None:
    table.update({"s": other_structs, "flag": True}, [("id", "<", 40)], mode="columns")


def update_dictionary(table: Dataset) -> None:
    # Here, pylance 14.0.2 gives rows the first value of the dictionary.
    table.update({"colour": repaint}, [("id", "<", 40)])


def double(batch: pa.RecordBatch) -> pa.Array:
    return pc.multiply(batch["id"], 1_000)


def other_structs(batch: pa.RecordBatch) -> pa.Array:
    numbers, texts = batch["s"].flatten()
    return pa.StructArray.from_arrays([pc.add(numbers, 1).cast(pa.int32()), texts], ["a", "b"])


def repaint(batch: pa.RecordBatch) -> pa.Array:
    places = pa.array(np.zeros(batch.num_rows), pa.int8())
    return pa.DictionaryArray.from_arrays(places, pa.array(["blue", "red"]))


def compact(table: Dataset) -> None:
    table.delete([("id", "in", [5, 70, 2_501])]).compact_files(target_rows_per_fragment=100_000)


def add_columns(table: Dataset) -> None:
    table.add_columns({"twice": double, "flag2": lambda batch: batch["flag"]})


def drop_and_add(table: Dataset) -> None:
    table = table.drop_columns(["l"]).add_columns({"l": double})
    table.update({"l": 7}, [("id", "<", 9)]).compact_files(target_rows_per_fragment=100_000)


def cast(table: Dataset) -> None:
    table.alter_columns({"path": "id", "data_type": pa.int32()})


def restore(table: Dataset) -> None:
    delete(table)
    lance_spark.open_dataset(table.uri, 2).restore()
    append(lance_spark.open_dataset(table.uri))


CHANGES: list[Callable[[Dataset], None]] = [
    append,
    delete,
    update,
    update_columns,
    update_dictionary,
    compact,
    add_columns,
    drop_and_add,
    cast,
    restore,
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes(tmp_path: Path, change: Callable[[Dataset], None]) -> None:
    path, model = tmp_path / "t", tmp_path / "model"
    for table in (create(path, "0.1"), create(model, "2.2")):
        change(table)
    check(path, model)


def test_columns_that_have_no_place(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "0.1")
    with pytest.raises(UnsupportedFeatureError, match="must have all columns"):
        table.add_columns(pa.field("n", pa.int32()))
    # pylance refuses them, too.
    with pytest.raises(
        UnsupportedTypeError, match=r"'c'.*cannot get new columns of type dictionary"
    ):
        table.add_columns({"c": lambda batch: batch["colour"]})
    with pytest.raises(InvalidInputError, match=r"column 'flag', row .* be read as false"):
        table.update({"flag": None}, [("id", "==", 3)])
    with pytest.raises(InvalidInputError, match=r"'id', row .* be read as 0"):
        table.update({"id": None}, [("id", "==", 3)])
    # pylance reads pages of other columns from a file without its first column.
    with pytest.raises(UnsupportedFeatureError, match=r'the first column .* use mode "rows"'):
        table.update({"id": double}, [("id", "==", 3)], mode="columns")
    assert lance.dataset(str(tmp_path / "t")).version == table.version
    names = {file.path for fragment in table.fragments for file in fragment.files}
    assert {file.name for file in (tmp_path / "t" / "data").iterdir()} == names


def test_both_clients_change_one_table(tmp_path: Path) -> None:
    """Compaction by either client reads files of pylance and of this package."""
    for last in ("pylance", "we"):
        path, model = tmp_path / last, tmp_path / f"{last}.model"
        for place, version in ((path, "0.1"), (model, "2.2")):
            create(place, version)
            lance.write_dataset(rows(20_000, 1_500), str(place), mode="append")
            lance.dataset(str(place)).delete("id % 4 = 1")
            append(lance_spark.open_dataset(str(place)))
            if last == "we":
                compact(lance_spark.open_dataset(str(place)))
            else:
                lance.dataset(str(place)).optimize.compact_files(target_rows_per_fragment=100_000)
        check(path, model)


@pytest.mark.parametrize("change", [update, update_columns, compact])
def test_files_marked_0_0_beside_0_2(tmp_path: Path, change: Callable[[Dataset], None]) -> None:
    path, model = tmp_path / "t", tmp_path / "model"
    create(model, "2.2")
    create(path, "0.1")
    # A table as releases around 0.4 wrote it: the table has no file version, and its files are
    # marked 0.0.
    early(path)
    for table in (path, model):
        append(lance_spark.open_dataset(str(table)))
        change(lance_spark.open_dataset(str(table)))
    check(path, model)


@pytest.mark.parametrize("who", ["own", "pylance"])
def test_fields_whose_ids_decrease(tmp_path: Path, who: str) -> None:
    """pylance takes the first field id of a file for the start of the file's page table."""
    path = str(tmp_path / "t")
    data = pa.table({"id": pa.array([1, 2], pa.int32()), "a": ["x", "y"], "b": [3, 4]})
    lance_spark.write_dataset(data, path, data_storage_version="0.1")
    lance_spark.open_dataset(path).update({"b": 5, "a": "z"}, "id = 2", mode="columns")
    dataset = lance_spark.open_dataset(path) if who == "own" else lance.dataset(path)
    dataset.alter_columns({"path": "id", "data_type": pa.int64()})
    more = pa.table({"id": pa.array([3, 4], pa.int64()), "a": ["p", "q"], "b": [5, 6]})
    lance_spark.write_dataset(more, path, mode="append")
    lance_spark.open_dataset(path).update({"b": 7}, "id = 4")
    expected = {"id": [1, 2, 3, 4], "a": ["x", "z", "p", "q"], "b": [3, 5, 5, 7]}
    assert lance_spark.open_dataset(path).to_table().to_pydict() == expected
    assert lance.dataset(path).to_table().to_pydict() == expected
    assert lance.dataset(path).take([2]).to_pylist() == [{"id": 3, "a": "p", "b": 5}]
    lance_spark.open_dataset(path).compact_files()
    assert lance.dataset(path).to_table().to_pydict() == expected


def test_an_append_beside_a_new_column_is_refused(tmp_path: Path) -> None:
    """pylance could neither filter nor change the table, and compacts the rows to zeros."""
    path = str(tmp_path / "t")

    def numbers(*values: int) -> pa.Table:
        return pa.table({"id": pa.array(values, pa.int64())})

    lance.write_dataset(numbers(0, 1), path, data_storage_version="legacy")

    def batches() -> Iterator[pa.RecordBatch]:
        lance.dataset(path).add_columns({"twice": "id * 2"})
        yield from numbers(2).to_batches()

    reader = pa.RecordBatchReader.from_batches(numbers().schema, batches())
    with pytest.raises(CommitConflictError, match=r"lack the column 'twice'.* write the rows"):
        lance_spark.write_dataset(reader, path, mode="append")
    new = write_fragments(numbers(2), str(tmp_path / "t"), mode="overwrite")
    for read_version in (1, 2):
        with pytest.raises(CommitConflictError, match="lack the column 'twice'"):
            Dataset.commit(path, LanceOperation.Append(new), read_version)
    assert lance.dataset(path).to_table(filter="twice = 2").to_pylist() == [{"id": 1, "twice": 2}]
    lance.dataset(path).validate()
