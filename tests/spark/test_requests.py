"""What the rule of Spark's optimizer asks is answered exactly, or refused; by no more reading
than is needed.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import types as spark
from pyspark.sql.datasource import CaseInsensitiveDict

from lance_spark.errors import InvalidInputError, InvalidOptionError, LanceError, UnsupportedError
from lance_spark.spark.datasource import LanceDataSource
from tests.support.spark.requests import aggregates, ask, col, lit, op, truth

NAN, INF = float("nan"), float("inf")
F32 = float(np.float32(0.1))
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [None, -128, 0, 1, 5, 127]),
    "short": (pa.uint8(), [None, 0, 255, 1, 5, 7]),
    "number": (pa.int32(), [None, -(1 << 31), 0, 1, 5, 7]),
    "big": (pa.int64(), [None, -(1 << 63), (1 << 53) + 1, 0, 5, (1 << 63) - 1]),
    "small": (pa.float32(), [None, NAN, INF, -INF, -0.0, F32]),
    "double": (pa.float64(), [None, NAN, INF, -INF, 0.0, 1e300]),
    "money": (
        pa.decimal128(12, 2),
        [None, *map(Decimal, ["-1.50", "0.00", "0.10", "1.05", "9999999999.99"])],
    ),
    "flag": (pa.bool_(), [None, True, False, True, None, False]),
    "word": (pa.string(), [None, "", "a", "a_b", "A%b", "né\nz"]),
    "long": (pa.large_string(), ["x", "", None, "a_b", "ab", "b"]),
    "bytes": (pa.binary(), [None, b"", b"\x00", b"\x1f\x2a", b"\xff", b"abc"]),
    "day": (
        pa.date32(),
        [None, date(1, 1, 1), date(1970, 1, 1), date(2024, 1, 31), date(9999, 12, 31), date(1969, 12, 31)],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [None, datetime(2024, 1, 31, 12, 30, 15, 123456, UTC), datetime(1970, 1, 1, tzinfo=UTC)]
        + [datetime(2024, month, 1, tzinfo=UTC) for month in (1, 2, 3)],
    ),
    "clock": (
        pa.timestamp("us"),
        [None, datetime(2024, 1, 31, 12, 30, 15, 123456), datetime(1900, 1, 1)]
        + [datetime(2024, month, 1) for month in (1, 2, 3)],
    ),
    "seconds": (
        pa.timestamp("s"),
        [None, datetime(2024, 1, 31, 12, 30, 15), datetime(1900, 1, 1)]
        + [datetime(2024, month, 1) for month in (1, 2, 3)],
    ),
    "with-hyphen": (pa.int32(), [1, 2, None, 4, 5, 6]),
    "deep": (
        pa.struct([("x", pa.int32()), ("in ner", pa.struct([("y.z", pa.string())]))]),
        [None, {"x": None, "in ner": None}]
        + [{"x": i, "in ner": {"y.z": text}} for i, text in enumerate(["a", None, "b"])]
        + [{"x": 9, "in ner": None}],
    ),
    "words": (pa.list_(pa.string()), [None, [], ["a"], [None], ["b", "c"], ["d"]]),
}  # fmt: skip
#: Spark's name of a column's type, and a path to compare.
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "tiny": (("tiny",), "tinyint"),
    "short": (("short",), "smallint"),
    "number": (("number",), "int"),
    "big": (("big",), "bigint"),
    "small": (("small",), "float"),
    "double": (("double",), "double"),
    "money": (("money",), "decimal(12,2)"),
    "flag": (("flag",), "boolean"),
    "word": (("word",), "string"),
    "long": (("long",), "string"),
    "bytes": (("bytes",), "binary"),
    "day": (("day",), "date"),
    "instant": (("instant",), "timestamp"),
    "clock": (("clock",), "timestamp_ntz"),
    "seconds": (("seconds",), "timestamp_ntz"),
    "with-hyphen": (("with-hyphen",), "int"),
    "x": (("deep", "x"), "int"),
    "y.z": (("deep", "in ner", "y.z"), "string"),
}
ROWS = 24


def table(rows: int = ROWS) -> pa.Table:
    """Return the values of COLUMNS, again and again, each column at another step."""
    named = {"row": pa.array(range(rows), pa.int64())}
    for step, (name, (kind, values)) in enumerate(COLUMNS.items()):
        named[name] = pa.array([values[(i + i // 6 * step) % 6] for i in range(rows)], kind)
    return pa.table(named)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of three fragments, with two rows deleted."""
    where = str(tmp_path_factory.mktemp("requests") / "t.lance")
    lance.write_dataset(table(), where, max_rows_per_file=9)
    lance.dataset(where).delete("row IN (3, 12)")
    return where


@pytest.fixture(scope="module")
def rows(path: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = lance.dataset(path).to_table().to_pylist()
    return results


class Trees:
    """Random filters, and the values of their literals."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.values: dict[int, Any] = {}
        self.kept: list[Any] = []

    def literal(self, name: str) -> dict[str, Any]:
        path, kind = KINDS[name]
        values = COLUMNS[path[0]][1]
        value = self.draw.choice([*values, None])
        for step in path[1:]:
            value = None if value is None else value[step]
        if name == "seconds" and value is not None and self.draw.random() < 0.5:
            value = value.replace(microsecond=500000)
        made = lit(value, kind)
        self.values[id(made)] = value
        self.kept.append(made)
        return made

    def leaf(self) -> dict[str, Any]:
        name = self.draw.choice(list(KINDS))
        path, kind = KINDS[name]
        where = col(*path)
        ways = ["compare", "compare", "compare", "in", "null"]
        ways += ["match", "like"] if kind == "string" else ["truth"] if kind == "boolean" else []
        way = self.draw.choice(ways)
        if way == "truth":
            return where
        if way == "null":
            where = self.draw.choice([where, col("deep"), col("words"), col("deep", "in ner")])
            return op(self.draw.choice(["is_null", "is_not_null"]), where)
        if way == "in":
            number = self.draw.randint(1, 4)
            return op("in", where, *(self.literal(name) for _ in range(number)))
        if way in ("match", "like"):
            text = self.draw.choice(["", "a", "b", "%b", "a!_b", "_", "%", "%\n%", "A!%%"])
            literal = lit(text, "string")
            self.values[id(literal)] = text
            self.kept.append(literal)
            if way == "like":
                return op("like", where, literal, escape="!")
            return op(self.draw.choice(["starts_with", "ends_with", "contains"]), where, literal)
        other = self.literal(name)
        alike = [item for item, (_, same) in KINDS.items() if same == kind]
        if self.draw.random() < 0.25:
            other = col(*KINDS[self.draw.choice(alike)][0])
        sides = [where, other]
        self.draw.shuffle(sides)
        return op(self.draw.choice(["=", "<=>", "<", "<=", ">", ">="]), *sides)

    def tree(self, depth: int) -> dict[str, Any]:
        if depth == 0 or self.draw.random() < 0.2:
            return self.leaf()
        if self.draw.random() < 0.25:
            return op("not", self.tree(depth - 1))
        return op(self.draw.choice(["and", "or"]), self.tree(depth - 1), self.tree(depth - 1))


@pytest.mark.parametrize("seed", range(6))
def test_filters_keep_the_rows_for_which_they_are_true(
    path: str, rows: list[dict[str, Any]], seed: int
) -> None:
    trees = Trees(seed)
    kept = 0
    for _ in range(40):
        filters = [trees.tree(trees.draw.randint(0, 3)) for _ in range(trees.draw.randint(1, 2))]
        meant = [
            row["row"]
            for row in rows
            if all(truth(item, row, trees.values) is True for item in filters)
        ]
        answer = ask(path, ["row"], {"filters": filters})
        assert answer.column("row") == meant, filters
        assert answer.rows >= len(meant)
        kept += len(meant)
    assert 100 < kept < 240 * 22


def test_filters_on_columns_that_are_also_read(path: str, rows: list[dict[str, Any]]) -> None:
    # Met after the scan, for the literal has more digits than the column; the struct is wanted with
    # one child.
    late = op(">", col("seconds"), lit(datetime(2024, 1, 1, 0, 0, 0, 1), "timestamp_ntz"))
    deep = op(">=", col("deep", "x"), lit(1, "int"))
    wanted = spark.StructType(
        [
            spark.StructField("deep", spark.StructType([spark.StructField("x", spark.LongType())])),
            spark.StructField("seconds", spark.TimestampNTZType()),
        ]
    )
    for filters in ([late], [late, deep], [deep]):
        answer = ask(path, wanted, {"filters": filters})
        meant = [
            {"deep": {"x": row["deep"]["x"]} if row["deep"] else None, "seconds": row["seconds"]}
            for row in rows
            if (late not in filters or (row["seconds"] or datetime.min) > datetime(2024, 1, 1))
            and (deep not in filters or ((row["deep"] or {}).get("x") or 0) >= 1)
        ]
        assert answer.to_pylist() == meant
        counted = ask(path, [], {"filters": filters})
        assert counted.num_rows == len(meant)
        assert not counted.batches[0].schema.names


def test_dates_and_timestamps_outside_the_range_of_python(tmp_path: Path) -> None:
    days, micros = [-1_000_000, 0, 5_000_000, None], [-(1 << 61), 0, 1 << 61, None]
    columns = {
        "row": pa.array(range(4), pa.int32()),
        "day": pa.array(days, pa.int32()).view(pa.date32()),
        "instant": pa.array(micros, pa.int64()).view(pa.timestamp("us", "UTC")),
        "nanos": pa.array([0, 1000, 2000, None], pa.int64()).view(pa.timestamp("ns", "UTC")),
    }
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(columns), where)

    def kept(*filters: Any) -> list[int]:
        return ask(where, ["row"], {"filters": list(filters)}).column("row")

    day, instant, nanos = col("day"), col("instant"), col("nanos")
    assert kept(op("<", day, {"lit": "-999999", "type": "date"})) == [0]
    assert kept(op("=", day, {"lit": "5000000", "type": "date"})) == [2]
    assert kept(op("in", day, *({"lit": text, "type": "date"} for text in ("5000000", None)))) == [
        2
    ]
    assert kept(op(">=", instant, {"lit": str(1 << 61), "type": "timestamp"})) == [2]
    assert kept(op("<", nanos, {"lit": str(1 << 61), "type": "timestamp"})) == [0, 1, 2]
    assert kept(op(">", nanos, {"lit": "1", "type": "timestamp"})) == [2]
    kinds = (("min", ["day"], spark.DateType()), ("max", ["instant"], spark.TimestampType()))
    (batch,) = ask(where, *aggregates(*kinds)).batches
    assert batch.column(0).cast(pa.int32()).to_pylist() == [-1_000_000]
    assert batch.column(1).cast(pa.int64()).to_pylist() == [1 << 61]


def test_row_columns_json_and_blobs(tmp_path: Path) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("row", pa.int32()), blob, pa.field("doc", pa.json_())])
    values = [[0, 1, 2], [b"abc", None, b"d"], ['{"a": 1}', '{"a": 2}', None]]
    where = str(tmp_path / "t.lance")
    data = pa.table([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema)
    lance.write_dataset(data, where, data_storage_version="2.1")
    missing, small = op("is_null", col("blob")), op("<", col("blob", "size"), lit(2, "bigint"))
    assert ask(where, ["row"], {"filters": [missing]}).column("row") == [1]
    assert ask(where, ["row"], {"filters": [op("not", missing), small]}).column("row") == [2]
    is_d = op("=", col("blob"), lit(b"d", "binary"))
    read = ask(where, ["row", "blob"], {"filters": [is_d]}, blob_handling="all_binary")
    assert read.to_pylist() == [{"row": 2, "blob": b"d"}]
    assert read.size == -1
    text = LanceDataSource(CaseInsensitiveDict({"path": where})).schema()["doc"]
    assert text.dataType == spark.StringType()
    docs = ask(where, ["doc"], {}).column("doc")
    asked = op("=", col("doc"), lit(docs[1], "string"))
    assert ask(where, ["row"], {"filters": [asked]}).column("row") == [1]
    by_id = op("<", col("_rowid"), lit(1, "bigint"))
    assert ask(where, ["row"], {"filters": [by_id]}).column("row") == [0]


def test_limit_without_filters_plans_no_more_than_it_needs(path: str) -> None:
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
    said = [line for line in capfd.readouterr().err.splitlines() if "lance_spark scan of" in line]
    counted = [dict(part.split("=") for part in line.split(": ")[1].split()) for line in said]
    assert len(said) == len(answer.partitions) > 0
    rows = sum(int(item["numRowsScanned"]) for item in counted)
    assert rows == answer.num_rows if limit is None else rows >= answer.num_rows > 0
    assert all(int(item["numBytesRead"]) > 0 for item in counted)


def test_sizes_are_never_too_small(tmp_path: Path) -> None:
    random_text = np.random.default_rng(3).bytes(60_000).hex()
    columns = {
        "id": pa.array(range(1000), pa.int64()),
        "text": pa.array([random_text[i * 100 : i * 100 + 100] for i in range(1000)]),
        "vector": pa.FixedSizeListArray.from_arrays(np.arange(64_000, dtype=np.float32), 64),
        "words": pa.array([[random_text[i : i + 50], "x"] for i in range(1000)]),
    }
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(columns), where)
    least = {"id": 8, "text": 100, "vector": 256, "words": 51}
    for names in (["id"], ["text"], ["vector"], ["words"], list(columns)):
        answer = ask(where, names, {})
        assert answer.rows == 1000
        meant = 1000 * sum(least[name] for name in names)
        assert meant <= answer.size <= 8 * meant + 200_000
    assert ask(where, ["vector"], {}).size < 270_000
    assert ask(where, [], {}).size == 8000


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
    asked: list[tuple[str, list[str] | None, spark.DataType]] = [
        (item, [name], schema[name].dataType) for name in exact for item in ("min", "max")
    ]
    asked += [("count", [name], spark.LongType()) for name in COLUMNS]
    asked += [
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
        wanted, request = aggregates(*asked)
        answer = ask(path, wanted, {**request, **more}, target_rows_per_partition="5")
        assert len(answer.batches) == len(answer.partitions) > 2
        together = pa.Table.from_batches(answer.batches)
        for index, (item, _, _) in enumerate(asked):
            column = together.column(index)
            result = pc.sum(column) if item.startswith("count") else pc.min_max(column)[item]
            expected = meant[index].as_py() if isinstance(meant[index], pa.Scalar) else meant[index]
            assert result.as_py() == expected, asked[index]
            assert result.type == together.schema.field(index).type


def _where(whole: pa.Table) -> pa.Table:
    return whole.filter(pc.and_(pc.greater(whole["row"], 4), pc.is_valid(whole["word"])))


def test_aggregates_of_no_rows(tmp_path: Path, path: str) -> None:
    where = str(tmp_path / "t.lance")
    lance.write_dataset(table().slice(0, 0), where)
    asked = (
        ("count_star", None, spark.LongType()),
        ("count", ["deep", "x"], spark.LongType()),
        ("min", ["money"], spark.DecimalType(12, 2)),
    )
    nothing = [{"agg0": 0, "agg1": 0, "agg2": None}]
    assert ask(where, *aggregates(*asked)).to_pylist() == nothing
    schema, request = aggregates(*asked)
    never = {"filters": [op("<", col("row"), lit(0, "bigint"))]}
    assert ask(path, schema, {**request, **never}).to_pylist() == nothing
    assert ask(where, *aggregates(asked[0])).to_pylist() == [{"agg0": 0}]


def test_counts_of_columns_without_nulls_come_from_the_manifest(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), False), pa.field("x", pa.int32())])
    where = str(tmp_path / "t.lance")
    lance.write_dataset(
        pa.table([[1, 2, 3], [1, None, None]], schema=schema), where, max_rows_per_file=1
    )
    asked = aggregates(("count", ["id"], spark.LongType()), ("count_star", None, spark.LongType()))
    answer = ask(where, *asked)
    assert answer.to_pylist() == [{"agg0": 3, "agg1": 3}]
    assert answer.partitions[0].task is None
    assert ask(where, *aggregates(("count", ["x"], spark.LongType()))).to_pylist() == [{"agg0": 1}]


def test_tasks_read_the_planned_version(tmp_path: Path) -> None:
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2]}), where)
    source = LanceDataSource(CaseInsensitiveDict({"path": where}))
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    lance.write_dataset(pa.table({"id": [3]}), where, mode="overwrite")
    result = [batch.to_pydict() for partition in partitions for batch in reader.read(partition)]
    assert result == [{"id": [1, 2]}]


def test_a_table_of_the_catalog_is_found_by_the_request(tmp_path: Path) -> None:
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2], "x": ["a", "b"]}), where)
    options = {"path": where, "provider": "lance", "filter": "id > 1"}
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
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"row": [1]}), where)
    first = ask(where, ["row"], {})
    made = lance.dataset(where)
    made.tags.create("old", 1)
    made.create_branch("side/way", 1)
    lance.write_dataset(pa.table({"row": [2]}), where, mode="append")
    later = ask(where, ["row"], {})
    assert later.column("row") == [1, 2]
    for options in ({}, {"version": "2"}, {"branch": "main"}, {"timestamp": "2999-01-01"}):
        assert ask(where, ["row"], {"at": first.at}, **options).column("row") == [1]
        assert ask(where, ["row"], {"at": later.at}, **options).column("row") == [1, 2]
    assert ask(where, ["row"], {"at": first.at}, tag="old").column("row") == [1]
    side = ask(where, ["row"], {}, branch="side/way")
    lance.dataset(where).checkout_version(("side/way", None)).insert(pa.table({"row": [3]}))
    assert ask(where, ["row"], {}, branch="side/way").column("row") == [1, 3]
    assert ask(where, ["row"], {"at": side.at}, branch="side/way").column("row") == [1]


@pytest.mark.parametrize(
    "request_",
    [
        "no json", "[]", {"limits": 1}, {"limit": -1}, {"limit": "3"}, {"limit": True}, {"at": "x"}, {"at": 1}, {"at": "77"}, {"filters": {}}, {"filters": ["x"]},
        {"aggregates": [{"op": "sum", "col": ["row"]}]}, {"aggregates": [{"op": "min"}]}, {"aggregates": [{"op": "count_star", "col": ["row"]}]},
        {"aggregates": [{"op": "min", "col": ["row"], "distinct": True}]}, {"aggregates": [{"op": "count", "col": ["missing"]}]},
        {"aggregates": [{"op": "count", "col": ["row", "x"]}]},
        *({"filters": [tree]} for tree in (
            {}, op("xor", col("flag"), col("flag")), op("=", col("row")), op("=", col("row"), "x"), op("not"), op("and"), {"op": "="},
            op("=", col("row"), {"lit": "1", "type": "interval"}), op("=", col("row"), {"lit": "x", "type": "bigint"}),
            op("=", col("row"), {"lit": 1, "type": "bigint"}), op("=", col("row"), {"lit": "1"}), lit(1, "int"), op("in", col("row")),
            op("=", col("flag"), {"lit": "yes", "type": "boolean"}), op("=", col("bytes"), {"lit": "zz", "type": "binary"}),
            op("=", {"col": "row"}, lit(1, "bigint")), op("=", {"col": []}, lit(1, "bigint")), op("=", col("missing"), lit(1, "bigint")),
            op("like", col("word"), lit("a", "string")), op("like", col("word"), lit("a", "string"), escape="xx"),
            op("starts_with", col("word"), col("word")), op("=", col("row"), lit(1, "bigint"), escape="x"),
            op("like", col("word"), lit("a!", "string"), escape="!"), op("=", col("word"), lit(1, "int")), op("is_null", lit(1, "int")),
            op("=", col("clock"), lit(datetime(2024, 1, 1, tzinfo=UTC), "timestamp")), op("=", col("money"), {"lit": "1,5", "type": "decimal(12,2)"}),
        )),
    ],
)  # fmt: skip
def test_malformed_requests_are_refused(path: str, request_: Any) -> None:
    with pytest.raises(LanceError):
        ask(path, ["row"], request_)


def test_nesting(path: str, rows: list[dict[str, Any]]) -> None:
    # Spark nests a chain of conditions to the left.
    chain = op("=", col("row"), lit(0, "bigint"))
    for number in range(1, 400):
        chain = op("or", chain, op("=", col("row"), lit(number, "bigint")))
    assert ask(path, ["row"], {"filters": [chain]}).column("row") == [row["row"] for row in rows]
    mixed = col("flag")
    for _ in range(45):
        mixed = op("or", op("and", mixed, col("flag")), col("flag"))
    meant = [row["row"] for row in rows if row["flag"]]
    assert ask(path, ["row"], {"filters": [mixed]}).column("row") == meant
    for levels in (200, 100_000):
        text = '{"op":"not","args":[' * levels + '{"col":["flag"]}' + "]}" * levels
        with pytest.raises(UnsupportedError, match="deep"):
            ask(path, ["row"], f'{{"filters":[{text}]}}')


def test_a_table_column_with_the_name_of_the_request_field(tmp_path: Path) -> None:
    where = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1], "__lance_request": ["x"]}), where)
    source = LanceDataSource(CaseInsensitiveDict({"path": where}))
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    (batch,) = reader.read(partition)
    assert batch.to_pylist() == [{"id": 1, "__lance_request": "x"}]


def test_without_a_request_nothing_heavy_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    code = (
        "import sys; import lance_spark.spark.pushdown.request, lance_spark.spark.read.reader, "
        "lance_spark.spark.read.planning\n"
        "assert not {'pyarrow.compute', 'lance_spark.scan.predicates.tree'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class TestOptionFilter:
    """`.option("filter", ...)`"""

    def kept(self, path: str, text: str, request: Any = None, **options: str) -> list[int]:
        return ask(path, ["row"], request or {}, filter=text, **options).column("row")

    def test_rows(self, path: str, rows: list[dict[str, Any]]) -> None:
        meant = [row["row"] for row in rows if row["word"] == "a_b" or (row["number"] or 0) > 5]
        assert self.kept(path, "word = 'a_b' OR number > 5") == meant
        both = [number for number in meant if number > 9]
        more = {"filters": [op(">", col("row"), lit(9, "bigint"))]}
        assert self.kept(path, "word = 'a_b' OR number > 5", more) == both
        assert self.kept(path, "word = 'a_b' OR number > 5", {"limit": 1})[:1] == meant[:1]
        schema, request = aggregates(("count_star", None, spark.LongType()))
        counted = ask(path, schema, request, filter="word = 'a_b' OR number > 5")
        assert counted.to_pylist() == [{"agg0": len(meant)}]

    def test_without_a_request(self, path: str, rows: list[dict[str, Any]]) -> None:
        options = {"path": path, "filter": "flag", "columns": "row"}
        source = LanceDataSource(CaseInsensitiveDict(options))
        reader = source.reader(source.schema())
        result = [
            n for p in reader.partitions() for b in reader.read(p) for n in b["row"].to_pylist()
        ]
        assert result == [row["row"] for row in rows if row["flag"]]

    def test_time_zone(self, path: str, rows: list[dict[str, Any]]) -> None:
        text = "instant < TIMESTAMP '2024-02-01 01:30:00'"
        for zone, instant in (
            ("UTC", datetime(2024, 2, 1, 1, 30, tzinfo=UTC)),
            ("Europe/Berlin", datetime(2024, 2, 1, 0, 30, tzinfo=UTC)),
            ("+02:00", datetime(2024, 1, 31, 23, 30, tzinfo=UTC)),
        ):
            meant = [row["row"] for row in rows if row["instant"] and row["instant"] < instant]
            assert self.kept(path, text, timezone=zone) == meant
        with pytest.raises(InvalidInputError, match="zone"):
            self.kept(path, text)
        with pytest.raises(InvalidOptionError, match="timezone"):
            self.kept(path, text, timezone="Mars")

    def test_refused(self, path: str) -> None:
        for text in ("missing = 1", "number +", "rand() < 0.5"):
            with pytest.raises(InvalidInputError, match="filter"):
                self.kept(path, text)
        with pytest.raises(InvalidOptionError, match="empty"):
            self.kept(path, " ")
