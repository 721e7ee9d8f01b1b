"""CHECK constraints without Spark: each way to write rows that nobody checked is refused."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset import (
    Dataset,
    LanceOperation,
    open_dataset,
    write_dataset,
    write_fragments,
)
from lance_spark.errors import CommitConflictError, InvalidInputError, UnsupportedError
from lance_spark.mutations.constraints import add_check
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.constraints import Constraint

ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "s": [{"n": 1, "m": 1}, {"n": 2, "m": 2}],
        "free": [0.5, 1.5],
    }
)
CHECK = Constraint("positive", "id > 0 AND s.n > 0", (("id",), ("s", "n")))
UNCHECKED = r"constraint positive \(CHECK id > 0 AND s.n > 0\).*only Spark does"


@pytest.fixture
def table(tmp_path: Path) -> Dataset:
    write_dataset(ROWS, str(tmp_path / "t.lance"))
    return _constrained(str(tmp_path / "t.lance"))


def _constrained(path: str) -> Dataset:
    add_check(open_dataset(path)._table, CHECK, CommitOptions())
    return open_dataset(path)


def test_unchecked_rows_and_values_are_refused(table: Dataset) -> None:
    path, version = table.uri, table.version
    for write in (
        lambda: write_fragments(ROWS, path),
        lambda: write_dataset(ROWS, path, mode="append"),
        lambda: write_dataset(ROWS, path, mode="overwrite"),
        lambda: table.insert(ROWS),
        lambda: table.update({"id": 3}),
        lambda: table.update({"s.n": 3}, mode="columns"),
        lambda: table.merge_insert("id").when_not_matched_insert_all().execute(ROWS),
        table.initialize_mem_wal,
    ):
        with pytest.raises(UnsupportedError, match="constraint positive"):
            write()
    assert open_dataset(path).version == version


def test_other_changes_pass(table: Dataset) -> None:
    table = table.update({"free": 2.5})
    table = table.update({"free": 3.5}, mode="columns")
    table = table.add_columns({"more": pa.scalar(1)})
    table = table.delete("id = 1")
    table, _ = table.compact_files()
    table = table.create_scalar_index("id", "BTREE")
    table = table.drop_columns(["more", "free"])
    table = table.alter_columns({"path": "s.m", "name": "k"})
    assert table.to_table().to_pylist() == [{"id": 2, "s": {"n": 2, "k": 2}}]
    assert list(lance.dataset(table.uri).config()) == [CHECK.key]


def test_columns_of_conditions_stay(table: Dataset) -> None:
    for change in (
        lambda: table.drop_columns(["id"]),
        lambda: table.drop_columns(["s"]),
        lambda: table.drop_columns(["s.n"]),
        lambda: table.alter_columns({"path": "id", "name": "x"}),
        lambda: table.alter_columns({"path": "s", "name": "x"}),
        lambda: table.alter_columns({"path": "id", "data_type": pa.int16()}),
    ):
        with pytest.raises(InvalidInputError, match=r"constraint positive.*drop the constraint"):
            change()
    table = table.alter_columns({"path": "id", "data_type": pa.int64()})
    assert table.schema.field("id").type == pa.int64()
    table = table.delete_config_keys([CHECK.key])
    table.drop_columns(["id"])
    write_dataset(ROWS, table.uri, mode="overwrite")


def test_keys_are_not_set_or_lost_with_other_keys(table: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="ADD CONSTRAINT"):
        table.update_config({"spark.constraints.more": "{}"})
    with pytest.raises(InvalidInputError, match="replace=True would drop"):
        table.update_config({"lance.x": "1"}, replace=True)
    with pytest.raises(InvalidInputError, match="POSITIVE exists already"):
        add_check(table._table, Constraint("POSITIVE", "id < 9", (("id",),)), CommitOptions())


def test_versions_branches_and_copies_have_their_own(table: Dataset, tmp_path: Path) -> None:
    old = table.checkout_version(1)
    table.create_branch("b")
    copies = [
        table.shallow_clone(str(tmp_path / "shallow.lance")),
        table.deep_clone(str(tmp_path / "deep.lance")),
        table.checkout_version(("b", None)),
    ]
    for copy in copies:
        with pytest.raises(UnsupportedError, match=UNCHECKED):
            copy.insert(ROWS)
    old.restore()
    write_dataset(ROWS, table.uri, mode="append")


def test_concurrent_changes(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    before = write_dataset(ROWS, path)._table
    write_dataset(ROWS, path, mode="append")
    with pytest.raises(CommitConflictError, match="run the statement again"):
        add_check(before, CHECK, CommitOptions())
    planned = open_dataset(path)
    planned.delete("id = 1")
    appended = LanceOperation.Append(write_fragments(ROWS, path))
    add_check(open_dataset(path, version=2)._table, CHECK, CommitOptions())
    with pytest.raises(CommitConflictError, match="another client added the constraint positive"):
        Dataset.commit(path, appended, read_version=2)
    for detached in (False, True):
        with pytest.raises(UnsupportedError, match=UNCHECKED):
            Dataset.commit(path, appended, read_version=4, detached=detached)


def test_pylance_keeps_the_key_and_does_not_check(table: Dataset) -> None:
    bad = ROWS.set_column(0, "id", pa.array([-1, -2], pa.int32()))
    other = lance.write_dataset(bad, table.uri, mode="append")
    assert other.config() == {CHECK.key: CHECK.value()}
    assert open_dataset(table.uri).count_rows() == 4
