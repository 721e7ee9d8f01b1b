"""Replaced columns: the same result as in pylance for the same files, and refusals."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile as TheirFile

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.columns import DataReplacement
from tests.support.tables.pylance_written import new_table

Kinds = lance.LanceOperation


def newest(path: Path) -> Manifest:
    return read_latest(ObjectStore.from_uri(path))


def write(path: Path, table: pa.Table, fields: list[int], version: str = "2.2") -> TheirFile:
    """Write a data file into a table, and into its copy that this package changes."""
    name = f"f{len(list((path / 'data').iterdir()))}.lance"
    file = path / "data" / name
    with LanceFileWriter(str(file), table.schema, version=version) as writer:
        writer.write_batch(table)
    major, minor = map(int, version.split("."))
    columns = list(range(len(fields)))
    return TheirFile(name, fields, columns, major, minor, file.stat().st_size)


def ours(file: TheirFile) -> DataFile:
    return DataFile(
        file.path,
        tuple(file.fields),
        tuple(file.column_indices),
        file.file_major_version,
        file.file_minor_version,
        file.file_size_bytes,
    )


def replace_by_us(path: Path, files: list[tuple[int, TheirFile]], base: Manifest) -> Manifest:
    operation = DataReplacement(tuple((number, ours(file)) for number, file in files))
    return commit(ObjectStore.from_uri(path), Transaction.new(base.version, operation), base)


def replace_by_pylance(path: Path, files: list[tuple[int, TheirFile]], version: int) -> None:
    groups = [Kinds.DataReplacementGroup(number, file) for number, file in files]
    lance.LanceDataset.commit(str(path), Kinds.DataReplacement(groups), read_version=version)


def content(path: Path) -> tuple[list[table_pb2.DataFragment], bytes | None, tuple[int, int]]:
    manifest = newest(path)
    proto = manifest.to_proto()
    flags = proto.reader_feature_flags, proto.writer_feature_flags
    return list(proto.fragments), manifest.index_section, flags


def numbers(start: int, name: str = "id") -> pa.Table:
    return pa.table({name: pa.array(range(start, start + 3), pa.int64())})


WORDS = pa.table({"word": ["x", "y", "z"]})


@pytest.mark.parametrize("stable", [False, True])
def test_replacements_equal_those_of_pylance(tmp_path: Path, stable: bool) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    dataset = new_table(theirs, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("word", "BITMAP")
    dataset.delete("id = 4")
    dataset.add_columns({"y": "id * 2"})
    dataset.add_columns(pa.field("later", pa.int64()))
    shutil.copytree(theirs, mine)
    steps = [
        # one column of a file with two
        [(0, numbers(10), [0], "2.2")],
        # both of them, whose file of before goes
        [(0, numbers(20).append_column("word", WORDS["word"]), [0, 1], "2.2")],
        # a file of its own
        [(1, numbers(30, "y"), [2], "2.2"), (0, numbers(40, "y"), [2], "2.2")],
        # a column without values yet
        [(0, numbers(50, "later"), [3], "2.2")],
        # columns of two files
        [(0, numbers(60, "later").append_column("y", numbers(70)["id"]), [3, 2], "2.2")],
        # a file of another version
        [(1, numbers(80), [0], "2.1")],
    ]
    for step in steps:
        files = [(number, write(theirs, *rest)) for number, *rest in step]
        for _, file in files:
            shutil.copy(theirs / "data" / file.path, mine / "data" / file.path)
        replace_by_pylance(theirs, files, newest(theirs).version)
        replace_by_us(mine, files, newest(mine))
        assert content(mine) == content(theirs)
        read = lance.dataset(str(mine))
        read.validate()
        assert read.to_table() == lance.dataset(str(theirs)).to_table()
        assert open_dataset(str(theirs)).to_table() == open_dataset(str(mine)).to_table()
        assert read.to_table() == open_dataset(str(mine)).to_table()
        assert read.to_table(filter="id = 80 or word = 'y'") == lance.dataset(str(theirs)).to_table(
            filter="id = 80 or word = 'y'"
        )


def test_invalid_replacements_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    base = newest(path)
    file, second_file, words = (
        write(path, numbers(9), [0]),
        write(path, numbers(9), [0]),
        write(path, WORDS, [1]),
    )
    strange = write(path, numbers(9), [7])
    for files, message in [
        ([(0, file), (0, second_file)], "two files"),
        ([(0, file), (1, words)], "different fields"),
        ([(0, strange)], r"fields \[7\]"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            replace_by_us(path, files, base)
    with pytest.raises(
        CommitConflictError, match="fragment 9, whose columns the change replaces, was removed"
    ):
        replace_by_us(path, [(9, file)], base)
    assert newest(path).version == 1
