"""Filters, row columns and the option `filter` in requests of the rule: answers are exact, or the
request is refused.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.datasource import CaseInsensitiveDict

from lance_spark.errors import InvalidInputError, InvalidOptionError, LanceError, UnsupportedError
from lance_spark.spark.datasource import LanceDataSource
from tests.support.spark.requests import aggregates, ask, col, lit, op, truth
from tests.support.spark.typed_rows import COLUMNS, KINDS


class Trees:
    """Random filters, and the values of their literals."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.values: dict[int, Any] = {}
        self.kept: list[Any] = []

    def literal(self, name: str) -> dict[str, Any]:
        path, type_name = KINDS[name]
        values = COLUMNS[path[0]][1]
        value = self.draw.choice([*values, None])
        for step in path[1:]:
            value = None if value is None else value[step]
        if name == "seconds" and value is not None and self.draw.random() < 0.5:
            value = value.replace(microsecond=500000)
        made = lit(value, type_name)
        self.values[id(made)] = value
        self.kept.append(made)
        return made

    def leaf(self) -> dict[str, Any]:
        name = self.draw.choice(list(KINDS))
        path, type_name = KINDS[name]
        column = col(*path)
        ways = ["compare", "compare", "compare", "in", "null"]
        ways += (
            ["match", "like"]
            if type_name == "string"
            else ["truth"]
            if type_name == "boolean"
            else []
        )
        way = self.draw.choice(ways)
        if way == "truth":
            return column
        if way == "null":
            column = self.draw.choice([column, col("deep"), col("words"), col("deep", "in ner")])
            return op(self.draw.choice(["is_null", "is_not_null"]), column)
        if way == "in":
            number = self.draw.randint(1, 4)
            return op("in", column, *(self.literal(name) for _ in range(number)))
        if way in ("match", "like"):
            text = self.draw.choice(["", "a", "b", "%b", "a!_b", "_", "%", "%\n%", "A!%%"])
            literal = lit(text, "string")
            self.values[id(literal)] = text
            self.kept.append(literal)
            if way == "like":
                return op("like", column, literal, escape="!")
            return op(self.draw.choice(["starts_with", "ends_with", "contains"]), column, literal)
        operand = self.literal(name)
        alike = [item for item, (_, same) in KINDS.items() if same == type_name]
        if self.draw.random() < 0.25:
            operand = col(*KINDS[self.draw.choice(alike)][0])
        sides = [column, operand]
        self.draw.shuffle(sides)
        return op(self.draw.choice(["=", "<=>", "<", "<=", ">", ">="]), *sides)

    def tree(self, depth: int) -> dict[str, Any]:
        if depth == 0 or self.draw.random() < 0.2:
            return self.leaf()
        if self.draw.random() < 0.25:
            return op("not", self.tree(depth - 1))
        return op(self.draw.choice(["and", "or"]), self.tree(depth - 1), self.tree(depth - 1))


@pytest.mark.sample(3)
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
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(columns), uri)

    def kept(*filters: Any) -> list[int]:
        return ask(uri, ["row"], {"filters": list(filters)}).column("row")

    day, instant, nanos = col("day"), col("instant"), col("nanos")
    assert kept(op("<", day, {"lit": "-999999", "type": "date"})) == [0]
    assert kept(op("=", day, {"lit": "5000000", "type": "date"})) == [2]
    assert kept(op("in", day, *({"lit": text, "type": "date"} for text in ("5000000", None)))) == [
        2
    ]
    assert kept(op(">=", instant, {"lit": str(1 << 61), "type": "timestamp"})) == [2]
    assert kept(op("<", nanos, {"lit": str(1 << 61), "type": "timestamp"})) == [0, 1, 2]
    assert kept(op(">", nanos, {"lit": "1", "type": "timestamp"})) == [2]
    bounds = (("min", ["day"], spark.DateType()), ("max", ["instant"], spark.TimestampType()))
    (batch,) = ask(uri, *aggregates(*bounds)).batches
    assert batch.column(0).cast(pa.int32()).to_pylist() == [-1_000_000]
    assert batch.column(1).cast(pa.int64()).to_pylist() == [1 << 61]


def test_row_columns_json_and_blobs(tmp_path: Path) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("row", pa.int32()), blob, pa.field("doc", pa.json_())])
    values = [[0, 1, 2], [b"abc", None, b"d"], ['{"a": 1}', '{"a": 2}', None]]
    uri = str(tmp_path / "t.lance")
    data = pa.table([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema)
    lance.write_dataset(data, uri, data_storage_version="2.1")
    missing, small = op("is_null", col("blob")), op("<", col("blob", "size"), lit(2, "bigint"))
    assert ask(uri, ["row"], {"filters": [missing]}).column("row") == [1]
    asked = {"filters": [op("not", missing), small]}
    described = ask(uri, ["row"], asked, blob_handling="blobs_descriptions")
    assert described.column("row") == [2]
    is_d = op("=", col("blob"), lit(b"d", "binary"))
    read = ask(uri, ["row", "blob"], {"filters": [is_d]})
    assert read.to_pylist() == [{"row": 2, "blob": b"d"}]
    assert read.size == -1
    text = LanceDataSource(CaseInsensitiveDict({"path": uri})).schema()["doc"]
    assert text.dataType == spark.StringType()
    docs = ask(uri, ["doc"], {}).column("doc")
    is_value = op("=", col("doc"), lit(docs[1], "string"))
    assert ask(uri, ["row"], {"filters": [is_value]}).column("row") == [1]
    by_id = op("<", col("_rowid"), lit(1, "bigint"))
    assert ask(uri, ["row"], {"filters": [by_id]}).column("row") == [0]


@pytest.mark.parametrize(
    "request_",
    [
        "no json", "[]", {"limits": 1}, {"limit": -1}, {"limit": "3"}, {"limit": True}, {"at": "x"}, {"at": 1}, {"at": "77"}, {"filters": {}}, {"filters": ["x"]},
        {"aggregates": [{"op": "avg", "col": ["row"]}]}, {"aggregates": [{"op": "min"}]}, {"aggregates": [{"op": "count_star", "col": ["row"]}]},
        {"aggregates": [{"op": "min", "col": ["row"], "distinct": True}]}, {"aggregates": [{"op": "count", "col": ["missing"]}]},
        {"aggregates": [{"op": "count", "col": ["row", "x"]}]}, {"groups": [{"col": ["row"]}]}, {"aggregates": [{"op": "count_star"}], "groups": ["row"]},
        {"aggregates": [{"op": "count_star"}], "groups": [{"col": ["missing"]}]}, {"aggregates": [{"op": "count_star"}], "limit": 1, "exact": True}, {"top": {"rows": 3}}, {"top": {"rows": 3, "order": []}},
        {"top": {"rows": -1, "order": [{"col": ["row"], "descending": True, "nulls_first": True}]}}, {"top": {"rows": 1, "order": [{"col": ["row"]}]}},
        *({"filters": [tree]} for tree in (
            {}, op("xor", col("flag"), col("flag")), op("=", col("row")), op("=", col("row"), "x"), op("not"), op("and"), {"op": "="},
            op("=", col("row"), {"lit": "1", "type": "interval"}), op("=", col("row"), {"lit": "x", "type": "bigint"}),
            op("=", col("row"), {"lit": 1, "type": "bigint"}), op("=", col("row"), {"lit": "1"}), lit(1, "int"), op("in", col("row")),
            op("=", col("flag"), {"lit": "yes", "type": "boolean"}), op("=", col("bytes"), {"lit": "zz", "type": "binary"}),
            op("=", {"col": "row"}, lit(1, "bigint")), op("=", {"col": []}, lit(1, "bigint")), op("=", col("missing"), lit(1, "bigint")),
            op("like", col("word"), lit("a", "string")), op("like", col("word"), lit("a", "string"), escape="xx"),
            op("starts_with", col("word"), col("word")), op("=", col("row"), lit(1, "bigint"), escape="x"),
            op("like", col("word"), lit("a!", "string"), escape="!"), op("=", col("word"), lit(1, "int")), op("is_null", lit(1, "int")),
            op("array_contains", col("words")), op("array_contains", col("row"), lit(1, "bigint")), op("array_contains", col("words"), lit(1, "int")),
            op("array_contains", col("words"), col("word")), op("array_contains", lit("a", "string"), col("words")), op("arrays_overlap"),
            op("arrays_overlap", col("words"), "x"), op("arrays_overlap", col("words"), lit("a", "string"), lit(1, "int")),
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
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1], "__lance_request": ["x"]}), uri)
    source = LanceDataSource(CaseInsensitiveDict({"path": uri}))
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    (batch,) = reader.read(partition)
    assert batch.to_pylist() == [{"id": 1, "__lance_request": "x"}]


class TestOptionFilter:
    """`.option("filter", ...)`"""

    def kept(self, path: str, text: str, request: Any = None, **options: str) -> list[int]:
        return ask(path, ["row"], request or {}, filter=text, **options).column("row")

    def test_rows(self, path: str, rows: list[dict[str, Any]]) -> None:
        meant = [row["row"] for row in rows if row["word"] == "a_b" or (row["number"] or 0) > 5]
        assert self.kept(path, "word = 'a_b' OR number > 5") == meant
        numbers = [number for number in meant if number > 9]
        more = {"filters": [op(">", col("row"), lit(9, "bigint"))]}
        assert self.kept(path, "word = 'a_b' OR number > 5", more) == numbers
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
