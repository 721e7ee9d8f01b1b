"""Partial overwrites, as Spark runs them: removed rows, kept rows, refusals, and one version for
each write.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    SchemaMismatchError,
)
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.spark.write.planning import make_writer

DYNAMIC = {"partitionOverwriteMode": "dynamic"}


def rows(*ids_and_days: tuple[int, str | None], word: str = "new") -> pa.RecordBatch:
    """Return rows of (id, day)."""
    return pa.record_batch(
        {
            "id": pa.array([item[0] for item in ids_and_days], pa.int64()),
            "day": pa.array([item[1] for item in ids_and_days], pa.string()),
            "word": pa.array([word] * len(ids_and_days), pa.string()),
            "vector": pa.array(
                [[float(item[0])] * 4 for item in ids_and_days], pa.list_(pa.float32())
            ),
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write four fragments of three rows: days a, b, and a mixture."""
    path = tmp_path / "t"
    ids_and_days = [(0, "a"), (1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, None)]
    ids_and_days += [(6, "a"), (7, "b"), (8, "c"), (9, "b"), (10, "b"), (11, "b")]
    table = pa.Table.from_batches([rows(*ids_and_days, word="old")])
    vector = table["vector"].cast(pa.list_(pa.float32(), 4))
    table = table.set_column(3, "vector", vector)
    lance.write_dataset(table, str(path), max_rows_per_file=3, enable_stable_row_ids=True)
    return path


def schema_of(batch: pa.RecordBatch) -> StructType:
    return to_spark_schema(batch.schema)


def writer_for(path: Path, batch: pa.RecordBatch, *, overwrite: bool = True, **options: str) -> Any:
    parsed = WriteOptions.parse({"path": str(path), **{k.lower(): v for k, v in options.items()}})
    return pickle.loads(pickle.dumps(make_writer(parsed, schema_of(batch), overwrite)))


def run(writer: Any, tasks: Iterable[Iterable[pa.RecordBatch]]) -> list[Any]:
    """Run tasks, each by a copy of the writer; return their messages."""
    return [
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter(batches))))
        for batches in tasks
    ]


def replace(path: Path, *tasks: pa.RecordBatch, **options: str) -> None:
    writer = writer_for(path, tasks[0], **options)
    messages = run(writer, [[task] for task in tasks])
    pickle.loads(pickle.dumps(writer)).commit(messages)


def content(path: Path) -> list[tuple[int, str]]:
    dataset = lance.dataset(str(path))
    dataset.validate()
    result = dataset.to_table(columns=["id", "word"]).to_pydict()
    return sorted(zip(result["id"], result["word"], strict=True))


def files(path: Path) -> set[str]:
    return {str(item.relative_to(path)) for item in path.rglob("*") if item.is_file()}


def old(*ids: int) -> list[tuple[int, str]]:
    return [(number, "old") for number in ids]


def new(*ids: int) -> list[tuple[int, str]]:
    return [(number, "new") for number in ids]


def test_rows_that_meet_the_condition_are_replaced(path: Path) -> None:
    replace(
        path,
        rows((20, "b")),
        rows((21, "b"), (22, "b")),
        replaceWhere="day = 'b'",
        commit_message="again",
    )
    assert content(path) == old(0, 1, 2, 5, 6, 8) + new(20, 21, 22)
    dataset = lance.dataset(str(path))
    assert dataset.version == 2
    kept = {item.fragment_id: item for item in dataset.get_fragments()}
    assert 3 not in kept, "a fragment that loses all rows goes"
    assert kept[0].metadata.deletion_file is None
    assert len(list((path / "_deletions").iterdir())) == 2
    assert dataset.read_transaction(2).transaction_properties == {"__lance_commit_message": "again"}
    versions = dataset.to_table(columns=["id", "_row_created_at_version"]).to_pylist()
    assert {item["id"]: item["_row_created_at_version"] for item in versions} == {
        **dict.fromkeys((0, 1, 2, 5, 6, 8), 1),
        **dict.fromkeys((20, 21, 22), 2),
    }


@pytest.mark.parametrize(
    ("condition", "gone"),
    [
        ("id >= 4 AND id < 8", {4, 5, 6, 7}),
        ("day IS NULL", {5}),
        ("day IN ('b', 'c') OR id = 0", {0, 3, 4, 7, 8, 9, 10, 11}),
        ("id < 0", set()),
        ("true", set(range(12))),
    ],
)
def test_conditions(path: Path, condition: str, gone: set[int]) -> None:
    """Rows with a null condition stay. A write without new rows is allowed."""
    replace(path, rows(), replaceWhere=condition)
    assert content(path) == old(*(set(range(12)) - gone))
    assert lance.dataset(str(path)).version == 2


def test_new_rows_must_meet_the_condition(path: Path) -> None:
    before = files(path)
    for wrong in ("a", None):
        writer = writer_for(path, rows((1, "b")), replaceWhere="day = 'b'")
        messages = run(writer, [[rows((20, "b"))], [rows((21, "b"), (22, wrong))]])
        assert files(path) != before
        with pytest.raises(InvalidInputError, match=rf"replaceWhere.*day is {wrong!r}"):
            writer.commit(messages)
        writer.abort(messages)
        assert files(path) == before


def test_partitions_are_replaced(path: Path) -> None:
    """Partitions are replaced if a row of any task belongs to them. Null is a partition too."""
    replace(
        path, rows((20, "c"), (21, "c")), rows(), rows((22, None)), **DYNAMIC, partitionBy="Day"
    )
    assert content(path) == old(0, 1, 2, 3, 4, 6, 7, 9, 10, 11) + new(20, 21, 22)
    assert lance.dataset(str(path)).version == 2


def test_partitions_by_several_columns(path: Path) -> None:
    """Only combinations of values that rows have are replaced."""
    replace(path, rows((3, "b"), (5, None), (8, "b"), (40, "a")), **DYNAMIC, partitionBy="day,id")
    assert content(path) == sorted(old(0, 1, 2, 4, 6, 7, 8, 9, 10, 11) + new(3, 5, 8, 40))


def test_a_dataframe_without_rows_replaces_no_partition(path: Path) -> None:
    replace(path, rows(), **DYNAMIC, partitionBy="day")
    assert content(path) == old(*range(12))


def test_a_static_overwrite_replaces_all(path: Path) -> None:
    """As in Spark, partitionBy alone does not choose rows to replace."""
    replace(path, rows((20, "c")), partitionOverwriteMode="static", partitionBy="day")
    assert content(path) == new(20)


@pytest.mark.parametrize(
    "options", [{"replaceWhere": "day = 'b'"}, {**DYNAMIC, "partitionBy": "day"}]
)
def test_a_missing_table_is_created(tmp_path: Path, options: dict[str, str]) -> None:
    path = tmp_path / "made"
    replace(path, rows((1, "b"), (2, "b")), **options)
    assert content(path) == new(1, 2)
    if "replaceWhere" in options:
        writer = writer_for(tmp_path / "other", rows((1, "b")), **options)
        with pytest.raises(InvalidInputError, match="replaceWhere"):
            writer.commit(run(writer, [[rows((1, "a"))]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replaceWhere": "day ="}, "option replaceWhere: .* LanceTable.replace_where"),
        ({"replaceWhere": "id IN (SELECT 1)"}, "LanceTable.replace_where"),
        ({"replaceWhere": "nothing = 1"}, "nothing"),
        ({"replaceWhere": "day = 'b'", **DYNAMIC, "partitionBy": "day"}, "exclude each other"),
        (DYNAMIC, "needs the option partitionBy"),
        ({"partitionBy": "day"}, "partitionOverwriteMode to dynamic or static"),
        ({**DYNAMIC, "partitionBy": "nothing"}, "no column 'nothing'"),
        ({**DYNAMIC, "partitionBy": "vector"}, "cannot define partitions"),
        ({"partitionOverwriteMode": "maybe"}, "static, dynamic"),
        (
            {"replaceWhere": "day = 'b'", "mergeSchema": "true"},
            "mergeSchema applies to appends only",
        ),
        ({"mergeSchema": "true"}, "mergeSchema applies to appends only"),
    ],
)
def test_contradictory_options_are_refused(
    path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        writer_for(path, rows((1, "b")), **options)


def test_an_append_replaces_nothing(path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="overwrite"):
        writer_for(path, rows((1, "b")), overwrite=False, replaceWhere="day = 'b'")


def test_columns_of_the_condition_must_be_in_the_dataframe(path: Path) -> None:
    batch = rows((1, "b")).select(["id", "word"])
    for options in ({"replaceWhere": "day = 'b'"}, {**DYNAMIC, "partitionBy": "day"}):
        with pytest.raises(SchemaMismatchError, match="the DataFrame has no day"):
            writer_for(path, batch, **options)
    replace(path, batch, replaceWhere="id < 3")
    assert content(path) == sorted(new(1) + old(*range(3, 12)))


def test_concurrent_changes_of_other_clients(path: Path) -> None:
    """Appended rows stay. Deleted rows are no obstacle. Changed rows are searched again."""
    writer = writer_for(path, rows((20, "b")), replaceWhere="day = 'b'")
    messages = run(writer, [[rows((20, "b"))]])
    dataset = open_dataset(str(path))
    lance.write_dataset(
        lance.dataset(str(path)).to_table(filter="id = 3"), str(path), mode="append"
    )
    writer.commit(messages)
    assert content(path) == sorted(old(0, 1, 2, 3, 5, 6, 8) + new(20))
    # Another client deleted one row to replace, and changed the day of another.
    writer = writer_for(path, rows((30, "a")), replaceWhere="day = 'a'")
    messages = run(writer, [[rows((30, "a"))]])
    dataset = open_dataset(str(path)).delete([("id", "==", 0)])
    dataset.update({"day": "z"}, [("id", "==", 1)])
    before = files(path)
    writer.commit(messages)
    assert content(path) == sorted(old(1, 3, 5, 8) + new(20, 30))
    deletions = {item for item in files(path) - before if item.startswith("_deletions")}
    named = {
        item.metadata.deletion_file.path(item.fragment_id)
        for item in lance.dataset(str(path)).get_fragments()
        if item.metadata.deletion_file is not None
    }
    assert deletions <= {f"_deletions/{Path(item).name}" for item in named}


def test_a_concurrent_change_of_a_column_type_is_refused(path: Path) -> None:
    """Values of the changed column would be lost: no row is replaced, and no file is left."""
    writer = writer_for(path, rows((20, "b")), replaceWhere="id > 3")
    messages = run(writer, [[rows((20, "b"))]])
    open_dataset(str(path)).alter_columns({"path": "id", "data_type": pa.int32()})
    before = content(path)
    with pytest.raises(
        CommitConflictError, match="'id' was dropped, renamed or given another type"
    ):
        writer.commit(messages)
    assert content(path) == before
    existing_names = {item.rpartition("/")[2] for item in files(path) if item.startswith("data/")}
    named = {
        Path(file.path).name
        for version in (1, 2)
        for item in lance.dataset(str(path), version=version).get_fragments()
        for file in item.metadata.files
    }
    assert existing_names == named


def test_a_repeated_partial_overwrite_is_skipped(path: Path) -> None:
    """A job that runs again, or runs twice: the second run changes nothing and leaves no file."""
    txn = {"txnAppId": "nightly", "txnVersion": "7", "replaceWhere": "day = 'b'"}
    two = [writer_for(path, rows((20, "b")), **txn) for _ in range(2)]
    messages = [run(writer, [[rows((20, "b"))]]) for writer in two]
    two[0].commit(messages[0])
    after = files(path) - {item for item in files(path) if item.startswith("data/")}
    two[1].commit(messages[1])
    replace(path, rows((21, "b")), **txn)
    replace(path, rows((22, "b")), **{**txn, "txnVersion": "3"})
    assert content(path) == old(0, 1, 2, 5, 6, 8) + new(20)
    assert lance.dataset(str(path)).version == 2
    assert files(path) - {item for item in files(path) if item.startswith("data/")} == after
    assert len([item for item in files(path) if item.startswith("data/")]) == 5
    replace(path, rows((23, "b")), **{**txn, "txnVersion": "8"})
    assert content(path) == old(0, 1, 2, 5, 6, 8) + new(23)


def test_too_many_partitions(path: Path) -> None:
    many = pa.Table.from_batches([rows(*((i, "x") for i in range(10_001)))])
    writer = writer_for(path, rows((1, "b")), **DYNAMIC, partitionBy="id")
    with pytest.raises(LanceError, match="more than 10000 combinations"):
        run(writer, [many.to_batches(max_chunksize=4_000)])
