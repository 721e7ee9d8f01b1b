"""Limits, sizes, aggregates and versions in requests of the rule: no more is read than needed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import types as spark
from pyspark.sql.datasource import CaseInsensitiveDict

from lance_spark.errors import UnsupportedError
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.spark.pushdown.request import FIELD
from tests.support.spark.requests import aggregates, ask, col, lit, op, parsed
from tests.support.spark.typed_rows import COLUMNS, table


def test_a_limit_without_filters_plans_only_the_needed_rows(path: str) -> None:
    everything = ask(path, ["row"], {}, target_rows_per_partition="1")
    assert len(everything.partitions) > 10
    for limit in range(24):
        answer = ask(path, ["row"], {"limit": limit}, target_rows_per_partition="4")
        assert answer.column("row")[:limit] == everything.column("row")[:limit]
        assert answer.rows == min(limit, 22)
        planned = [
            piece
            for partition in answer.partitions
            if partition.task
            for piece in partition.task.slices
        ]
        assert sum(piece.num_rows for piece in planned) <= limit + 2
    assert ask(path, ["row"], {"limit": 2}).num_rows == 2


def test_limit_with_filters_ends_each_partition(path: str) -> None:
    filters = [op("is_not_null", col("row"))]
    answer = ask(path, ["row"], {"limit": 2, "filters": filters}, target_rows_per_partition="9")
    assert answer.column("row") == [0, 1, 9, 10, 18, 19]
    assert answer.rows >= 6


@pytest.mark.parametrize("limit", [None, 10])
def test_a_task_logs_its_metrics(
    path: str, capfd: pytest.CaptureFixture[str], limit: int | None
) -> None:
    request = {"filters": [op(">=", col("row"), lit(0, "bigint"))], "tasks": True}
    if limit is not None:
        request["limit"] = limit
    ask(path, ["row"], request)
    assert "lance_spark scan" not in capfd.readouterr().err
    answer = ask(path, ["row"], request, scan_metrics="true")
    lines = [line for line in capfd.readouterr().err.splitlines() if "lance_spark scan of" in line]
    counted = [dict(part.split("=") for part in line.split(": ")[1].split()) for line in lines]
    assert len(lines) == len(answer.partitions) > 0
    rows = sum(int(item["numRowsScanned"]) for item in counted)
    assert rows == answer.num_rows if limit is None else rows >= answer.num_rows > 0
    assert all(int(item["numBytesRead"]) > 0 for item in counted)


def test_sizes_are_those_in_files_and_at_least_a_third_of_those_in_spark(tmp_path: Path) -> None:
    random_text = np.random.default_rng(3).bytes(60_000).hex()
    columns = {
        "id": pa.array(range(1000), pa.int64()),
        "text": pa.array([random_text[i * 100 : i * 100 + 100] for i in range(1000)]),
        "vector": pa.FixedSizeListArray.from_arrays(np.arange(64_000, dtype=np.float32), 64),
        "words": pa.array([[random_text[i : i + 50], "x"] for i in range(1000)]),
    }
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(columns), uri)
    least = {"id": 8, "text": 100, "vector": 256, "words": 51}
    for names in (["id"], ["text"], ["vector"], ["words"], list(columns)):
        answer = ask(uri, names, {})
        assert answer.rows == 1000
        meant = 1000 * sum(least[name] for name in names)
        assert meant / 3 <= answer.size <= 8 * meant + 200_000
    assert ask(uri, ["vector"], {}).size < 270_000
    assert 8000 / 3 - 1 <= ask(uri, [], {}).size <= 8000
    # Of columns alike, each counts for its share: Spark then broadcasts what it would of Parquet.
    names = [f"name{number}" for number in range(9)]
    texts = {
        name: [random_text[i * 90 + number * 10 :][:10] for i in range(1000)]
        for number, name in enumerate(names)
    }
    lance.write_dataset(pa.table(texts), str(tmp_path / "names.lance"))
    sizes = [ask(str(tmp_path / "names.lance"), names[:count], {}).size for count in (1, 3, 9)]
    limits = zip((1, 3, 9), sizes, strict=True)
    assert all(10_000 * count / 3 <= size <= 60_000 * count for count, size in limits)


def test_planning_opens_no_data_file(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lance_spark.table.paths import TablePaths

    def refuse(*_: object) -> None:
        raise AssertionError("a data file was opened")

    monkeypatch.setattr(TablePaths, "open_data_file", refuse)
    schema, request = aggregates(("count_star", None, spark.LongType()))
    assert ask(path, schema, request).to_pylist() == [{"agg0": 22}]
    assert ask(path, [], {}).num_rows == 22
    with pytest.raises(AssertionError):
        ask(path, ["row"], {})


def test_aggregates(path: str) -> None:
    whole = lance.dataset(path).to_table()
    exact = ["tiny", "number", "big", "money", "day", "instant", "clock", "seconds", "with-hyphen"]
    schema = LanceDataSource(CaseInsensitiveDict({"path": path})).schema()
    functions: list[tuple[str, list[str] | None, spark.DataType]] = [
        (item, [name], schema[name].dataType) for name in exact for item in ("min", "max")
    ]
    functions += [("count", [name], spark.LongType()) for name in COLUMNS]
    functions += [
        ("count_star", None, spark.LongType()),
        ("min", ["deep", "x"], spark.IntegerType()),
        ("count", ["deep", "in ner"], spark.LongType()),
        ("count", ["deep", "in ner", "y.z"], spark.LongType()),
    ]
    filters: list[Any] = [op(">", col("row"), lit(4, "bigint")), op("is_not_null", col("word"))]
    for kept, more in ((whole, {}), (_where(whole), {"filters": filters})):
        deep = kept["deep"].to_pylist()
        inner = [(item or {}).get("in ner") for item in deep]
        meant = [pc.min_max(kept[name])[item] for name in exact for item in ("min", "max")]
        meant += [len(kept) - kept[name].null_count for name in COLUMNS]
        meant += [len(kept), min(item["x"] for item in deep if item and item["x"] is not None)]
        meant += [sum(item is not None for item in inner)]
        meant += [sum((item or {}).get("y.z") is not None for item in inner)]
        wanted, request = aggregates(*functions)
        answer = ask(path, wanted, {**request, **more}, target_rows_per_partition="5")
        assert len(answer.batches) == len(answer.partitions) > 2
        together = pa.Table.from_batches(answer.batches)
        for index, (item, _, _) in enumerate(functions):
            column = together.column(index)
            result = pc.sum(column) if item.startswith("count") else pc.min_max(column)[item]
            expected = meant[index].as_py() if isinstance(meant[index], pa.Scalar) else meant[index]
            assert result.as_py() == expected, functions[index]
            assert result.type == together.schema.field(index).type


def _where(whole: pa.Table) -> pa.Table:
    return whole.filter(pc.and_(pc.greater(whole["row"], 4), pc.is_valid(whole["word"])))


def test_aggregates_of_no_rows(tmp_path: Path, path: str) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(table().slice(0, 0), uri)
    functions = (
        ("count_star", None, spark.LongType()),
        ("count", ["deep", "x"], spark.LongType()),
        ("min", ["money"], spark.DecimalType(12, 2)),
    )
    nothing = [{"agg0": 0, "agg1": 0, "agg2": None}]
    assert ask(uri, *aggregates(*functions)).to_pylist() == nothing
    schema, request = aggregates(*functions)
    never = {"filters": [op("<", col("row"), lit(0, "bigint"))]}
    assert ask(path, schema, {**request, **never}).to_pylist() == nothing
    assert ask(uri, *aggregates(functions[0])).to_pylist() == [{"agg0": 0}]


def test_counts_of_columns_without_nulls_come_from_the_manifest(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), False), pa.field("x", pa.int32())])
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(
        pa.table([[1, 2, 3], [1, None, None]], schema=schema), uri, max_rows_per_file=1
    )
    functions = aggregates(
        ("count", ["id"], spark.LongType()), ("count_star", None, spark.LongType())
    )
    answer = ask(uri, *functions)
    assert answer.to_pylist() == [{"agg0": 3, "agg1": 3}]
    assert answer.partitions[0].task is None
    counts = ask(uri, *aggregates(("count", ["x"], spark.LongType())))
    assert sum(counts.column("agg0")) == 1
    assert counts.local_rows is not None
    assert counts.local_rows.to_pylist() == [{"agg0": 1}]


def test_tasks_read_the_planned_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2]}), uri)
    source = LanceDataSource(CaseInsensitiveDict({"path": uri}))
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    lance.write_dataset(pa.table({"id": [3]}), uri, mode="overwrite")
    result = [batch.to_pydict() for partition in partitions for batch in reader.read(partition)]
    assert result == [{"id": [1, 2]}]


def test_a_table_of_the_catalog_is_found_by_the_request(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2], "x": ["a", "b"]}), uri)
    options = {"path": uri, "provider": "lance", "filter": "id > 1"}
    kept = LanceDataSource(CaseInsensitiveDict(options)).schema()
    text = json.dumps({"limit": 5})
    # The column that says where the table is may be one that is not wanted.
    field = spark.StructField(
        "__lance_request", spark.NullType(), True, {**kept[0].metadata, "request": text}
    )
    for names in (["x"], []):
        schema = spark.StructType([*(kept[name] for name in names), field])
        reader = LanceDataSource(CaseInsensitiveDict({})).reader(schema)
        batches = [batch for item in reader.partitions()[1:] for batch in reader.read(item)]
        assert [batch.num_rows for batch in batches] == [1]
        assert [batch.to_pylist() for batch in batches] == [[dict.fromkeys(names, "b")]]


def test_the_reply_names_a_version_that_later_scans_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"row": [1]}), uri)
    first = ask(uri, ["row"], {})
    made = lance.dataset(uri)
    made.tags.create("old", 1)
    made.create_branch("side/way", 1)
    lance.write_dataset(pa.table({"row": [2]}), uri, mode="append")
    later = ask(uri, ["row"], {})
    assert later.column("row") == [1, 2]
    for options in (
        {},
        {"version": "2"},
        {"branch": "main"},
        {"timestamp": "2999-01-01T00:00:00Z"},
    ):
        assert ask(uri, ["row"], {"at": first.at}, **options).column("row") == [1]
        assert ask(uri, ["row"], {"at": later.at}, **options).column("row") == [1, 2]
    assert ask(uri, ["row"], {"at": first.at}, tag="old").column("row") == [1]
    side = ask(uri, ["row"], {}, branch="side/way")
    lance.dataset(uri).checkout_version(("side/way", None)).insert(pa.table({"row": [3]}))
    assert ask(uri, ["row"], {}, branch="side/way").column("row") == [1, 3]
    assert ask(uri, ["row"], {"at": side.at}, branch="side/way").column("row") == [1]


def test_without_a_request_nothing_heavy_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    code = (
        "import sys; import lance_spark.spark.pushdown.request, lance_spark.spark.read.reader, "
        "lance_spark.spark.read.planning\n"
        "assert not {'pyarrow.compute', 'lance_spark.predicates.tree'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_stream_is_only_asked_for_columns(path: str) -> None:
    def reader_of(request: dict[str, Any]) -> tuple[Any, spark.StructType]:
        request_field = spark.StructField(
            FIELD, spark.NullType(), True, {"request": json.dumps(request)}
        )
        schema = spark.StructType([spark.StructField("row", spark.LongType()), request_field])
        return LanceDataSource(CaseInsensitiveDict({"path": path})).streamReader(schema), schema

    for shared in (False, True):
        reader, schema = reader_of({"columnar": True, "shared_memory": shared})
        assert schema.fieldNames() == ["memory", "id", "number", "offset", "length", "batch"]
        assert reader.shared_memory is shared
    assert parsed(pickle.dumps(reader)) == ({"kind": "stream", "columnar": "yes"}, b"")
    refused, _ = reader_of({"columnar": True, "limit": 1})
    with pytest.raises(UnsupportedError, match="only asked for columns"):
        refused.initialOffset()
