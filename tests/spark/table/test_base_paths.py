"""Base paths through Spark: targets of writes, streams and changes; pylance reads the tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lance import DatasetBasePath
from pyspark.sql import functions as F

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.table import LanceTable
from tests.support.settled import settled
from tests.support.tables.pylance_written import rows

HOT, COLD = 1, 2


def bases_of(tmp_path: Path) -> str:
    return json.dumps(
        [
            {"path": str(tmp_path / "hot"), "name": "hot"},
            {"path": str(tmp_path / "cold"), "name": "cold", "is_dataset_root": True},
        ]
    )


def new_table(tmp_path: Path, **options: Any) -> Path:
    """Write fragments by pylance: 0 and 1 in the root, 2 and 3 in "hot", 4 and 5 in "cold"."""
    path = tmp_path / "t"
    bases = [
        DatasetBasePath(str(tmp_path / "hot"), "hot"),
        DatasetBasePath(str(tmp_path / "cold"), "cold", True),
    ]
    lance.write_dataset(rows(0, 6), path, max_rows_per_file=3, initial_bases=bases, **options)
    for first, name in ((6, "hot"), (12, "cold")):
        appended = rows(first, 6)
        lance.write_dataset(appended, path, mode="append", max_rows_per_file=3, target_bases=[name])
    return path


def places(path: Path) -> list[list[int | None]]:
    """Return the base paths of the data files of each fragment, as pylance reads them."""
    dataset = lance.dataset(path)
    dataset.validate()
    return [
        [file.base_id for file in fragment.data_files()] for fragment in dataset.get_fragments()
    ]


def data_files(tmp_path: Path) -> set[str]:
    return {str(file) for file in tmp_path.rglob("*.lance") if file.is_file()}


def ids(path: Path) -> list[int]:
    return sorted(lance.dataset(path).to_table()["id"].to_pylist())


def test_writes_to_base_paths(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = spark.range(0, 40, 1, 4).write.format("lance").mode("append")
    options = {"initial_bases": bases_of(tmp_path), "target_bases": "hot, cold"}
    writer.options(**options).save(str(path))
    # Each task writes one file. Different tasks begin with different base paths.
    assert sorted(places(path)) == [[HOT], [HOT], [COLD], [COLD]]
    # A job that runs again names the base paths again.
    writer.options(**options).save(str(path))
    writer = spark.range(40, 60, 1, 3).write.format("lance").mode("append")
    writer.option("target_all_bases", True).save(str(path))
    assert sorted(places(path)[-3:], key=repr) == [[HOT], [COLD], [None]]
    assert ids(path) == sorted([*range(40), *range(40), *range(40, 60)])
    frame = spark.read.format("lance").load(str(path))
    assert frame.count() == 100
    assert frame.where("id >= 30").count() == 40
    overwrite = spark.range(3).coalesce(1).write.format("lance").mode("overwrite")
    overwrite.option("target_bases", json.dumps([str(tmp_path / "cold")])).save(str(path))
    assert places(path) == [[COLD]]
    part = spark.range(2, 4).coalesce(1).write.format("lance").mode("overwrite")
    part.options(target_bases="hot", replaceWhere="id >= 2").save(str(path))
    assert places(path) == [[COLD], [HOT]]
    assert ids(path) == [0, 1, 2, 3]


def test_a_failed_job_leaves_no_files(spark: Any, tmp_path: Path) -> None:
    path = new_table(tmp_path)
    before = data_files(tmp_path)

    @F.udf("long")
    def fail(number: int) -> int:
        if number == 399:
            raise ValueError("no")
        return number

    frame = spark.range(0, 400, 1, 4).select(fail("id").alias("id"), F.lit("x").alias("word"))
    writer = frame.write.format("lance").mode("append")
    with pytest.raises(Exception, match="no"):
        writer.options(target_bases="hot,cold", max_rows_per_file=10).save(str(path))
    assert settled(lambda: data_files(tmp_path), before) == before
    table = LanceTable.forPath(spark, str(path), target_bases=["cold"])
    with pytest.raises(Exception, match=r"(?i)divi"):
        table.update("id >= 0", {"word": "string(1 / (id - 17))"}, mode="rows")
    assert settled(lambda: data_files(tmp_path), before) == before
    assert ids(path) == list(range(18))


def test_streams_to_base_paths(spark: Any, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "t"
    source.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), source / f"{number}.parquet")
    frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    writer = frame.parquet(str(source)).writeStream.format("lance")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.options(initial_bases=bases_of(tmp_path), target_all_bases=True)
    query = writer.trigger(availableNow=True).start(str(path))
    assert query.awaitTermination(300)
    assert places(path) == [[None], [HOT], [COLD]]
    assert ids(path) == [0, 1, 2]


@pytest.mark.parametrize("stable", [False, True])
def test_changes_stay_in_the_base_of_the_fragment(spark: Any, tmp_path: Path, stable: bool) -> None:
    path = new_table(tmp_path, enable_stable_row_ids=stable)
    table = LanceTable.forPath(spark, str(path))
    table.update("id IN (1, 7, 8, 13)", {"word": "'x'"}, mode="rows")
    before = [[None], [None], [HOT], [HOT], [COLD], [COLD]]
    assert sorted(places(path), key=repr) == sorted([*before, [None], [HOT], [COLD]], key=repr)
    table.optimize().executeCompaction()
    assert places(path) == [[None], [HOT], [COLD]]
    table.update("id IN (1, 7)", {"word": "'y'"}, mode="columns")
    assert places(path) == [[None, None], [HOT, HOT], [COLD]]
    table.add_columns({"more": "id + 1"})
    assert [base_ids[-1] for base_ids in places(path)] == [None, HOT, COLD]
    table.optimize(sort_by="word")
    assert places(path) == [[None], [HOT], [COLD]]
    source = spark.createDataFrame(
        [(2, "m", 0), (9, "m", 0), (50, "n", 0)], "id long, word string, more long"
    )
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert {tuple(base_ids) for base_ids in places(path)} == {(None,), (HOT,), (COLD,)}
    words = {row["id"]: row["word"] for row in lance.dataset(path).to_table().to_pylist()}
    changed = {1: "y", 7: "y", 8: "x", 13: "x", 2: "m", 9: "m", 50: "n"}
    assert words == {n: changed.get(n, f"w{n}") for n in [*range(18), 50]}


def test_changes_go_to_chosen_bases(spark: Any, tmp_path: Path) -> None:
    path = new_table(tmp_path)
    table = LanceTable.forPath(spark, str(path)).with_target_bases(["cold"])
    table.update("id = 1", {"word": "'x'"}, mode="rows")
    assert places(path)[-1] == [COLD]
    table.replace_where(spark.createDataFrame([(5, "r")], "id long, word string"), "id = 5")
    assert places(path)[-1] == [COLD]
    table.add_columns({"more": "id + 1"})
    assert {base_ids[-1] for base_ids in places(path)} == {COLD}
    everywhere = table.with_target_bases(target_all_bases=True)
    everywhere.optimize(target_rows_per_fragment=4)
    assert {place for base_ids in places(path) for place in base_ids} == {None, HOT, COLD}
    LanceTable.forPath(spark, str(path), target_bases="hot").optimize(sort_by="id")
    assert {tuple(base_ids) for base_ids in places(path)} == {(HOT,)}
    assert ids(path) == list(range(18))


def test_fragments_move_between_base_paths(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_dataset(rows(0, 12), str(path), max_rows_per_file=3, enable_stable_row_ids=True)
    table = LanceTable.forPath(spark, str(path))
    table.add_bases([DatasetBasePath(str(tmp_path / "cold"), "cold")], commit_message="a tier")
    moved = table.move_fragments("cold", "id < 4").first()
    assert (moved.fragments_removed, moved.fragments_added) == (2, 2)
    assert sorted(places(path), key=repr) == [[1], [1], [None], [None]]
    (root, cold) = table.bases().orderBy("id").collect()
    assert (root.id, root.num_fragments, cold.name, cold.num_fragments) == (None, 2, "cold", 2)
    sizes = sum(file.stat().st_size for file in (tmp_path / "cold").rglob("*.lance"))
    assert cold.size_bytes == sizes
    assert table.move_fragments("cold", fragment_ids=[3]).first().fragments_added == 1
    assert table.move_fragments(str(path)).first().fragments_added == 3
    assert places(path) == [[None]] * 4
    assert lance.dataset(path).to_table().sort_by("id") == rows(0, 12)
    assert table.move_fragments(str(path)).first().fragments_added == 0
    with pytest.raises(InvalidInputError, match="not both"):
        table.move_fragments("cold", "id < 4", fragment_ids=[3])
    with pytest.raises(InvalidInputError, match="a name or a path"):
        table.move_fragments("")


def test_a_table_is_created_with_base_paths(spark: Any, tmp_path: Path) -> None:
    builder = LanceTable.create(spark).location(str(tmp_path / "t")).addColumn("id", "long")
    table = builder.option("initial_bases", bases_of(tmp_path)).execute()
    assert [base.name for base in table.bases().orderBy("id").collect()] == [None, "hot", "cold"]
    assert set(lance.dataset(tmp_path / "t").base_paths()) == {HOT, COLD}
    assert set(open_dataset(str(tmp_path / "t")).base_paths()) == {HOT, COLD}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_bases": "/data/cold"}, "JSON list"),
        ({"initial_bases": '[{"name": "cold"}]'}, "JSON list"),
        ({"initial_bases": '[{"path": "/a", "root": true}]'}, "JSON list"),
        (
            {"initial_bases": '[{"path": "/a"}, {"path": "/a"}]'},
            "two base paths have the same path",
        ),
        ({"target_bases": "a,,b"}, "must be comma-separated names"),
        ({"target_bases": "a", "target_all_bases": "true"}, "not both"),
        ({"target_all_bases": "some"}, "true or false"),
        ({"base_store_params": "[]"}, "option base_store_params must be a JSON object"),
        ({"base_store_params": '{"s3://b/c": "k"}'}, "storage option base_store_params"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        WriteOptions.parse({"path": "/t", **options})


def test_unknown_base_paths_are_refused(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rows = spark.range(4)
    rows.write.format("lance").mode("append").save(uri)
    settings = '{"s3://other/base": {"region": "secret-region"}}'
    writer = rows.write.format("lance").mode("append").option("base_store_params", settings)
    with pytest.raises(Exception, match="no base path s3://other/base") as raised:
        writer.save(uri)
    assert "secret-region" not in str(raised.value)
    table = LanceTable.forPath(spark, uri)
    for options in ({}, {"sort_by": "id"}):
        with pytest.raises(InvalidOptionError, match="no fragment 99"):
            table.optimize(excluded_fragment_ids=[99], **options)
    assert lance.dataset(uri).version == 1
