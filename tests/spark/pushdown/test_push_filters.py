"""Filters that Spark pushes itself: both settings give the same rows, and one of them passes fewer
rows to Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.types import StringType, StructField, StructType

from lance_spark.file.schema.schema import Schema
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.spark.pushdown.filter_trees import push
from lance_spark.spark.types.mapping import to_spark_schema
from tests.support.spark.requests import col, op, truth
from tests.support.spark.typed_rows import COLUMNS, KINDS, table
from tests.support.spark.versions import SPARK

pytestmark = pytest.mark.skipif(SPARK < (4, 1), reason="Spark pushes to Python sources from 4.1 on")

SETTING = "spark.sql.python.filterPushdown.enabled"
OPS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
#: Conditions of each type, with Spark's forms of their literals.
PUSHED = [
    "number <> 5",
    "NOT (tiny >= 1) AND big <> 0",
    "big = 9007199254740993",
    "small = float('0.1')",
    "small = float('NaN')",
    "double >= double('Infinity')",
    "NOT (double = double('-Infinity'))",
    "money IN (0.10, -1.50)",
    "NOT flag",
    "word = 'a_b'",
    "NOT (word LIKE 'a%')",
    "bytes > X'00'",
    "day < DATE '1970-01-01'",
    "instant > TIMESTAMP '2024-01-31 19:00:00'",
    "clock = TIMESTAMP_NTZ '2024-01-31 12:30:15.123456'",
    "`with-hyphen` > 4",
    "deep.`in ner`.`y.z` = 'b'",
    "number NOT IN (1, 5) AND NOT (number <=> 7)",
    "words IS NULL",
]
#: Conditions that are returned to Spark, which evaluates them.
RETURNED = ["seconds > TIMESTAMP_NTZ '2024-01-31 12:30:15.5'", "word LIKE 'a%b' AND row > 3"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("pushed") / "t.lance")
    lance.write_dataset(table(), uri, max_rows_per_file=9)
    return uri


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Any]:
    yield lambda value: spark.conf.set(SETTING, value)
    spark.conf.unset(SETTING)


def reader_of(path: str, schema: StructType | None = None, **options: str) -> Any:
    source = LanceDataSource(CaseInsensitiveDict({"path": path, **options}))
    return source.reader(source.schema() if schema is None else schema)


def kept(reader: Any) -> list[int]:
    """Return the rows of a reader, called as by pyspark: the reader is pickled before it plans."""
    copied = pickle.loads(pickle.dumps(reader))
    partitions = [pickle.loads(pickle.dumps(item)) for item in reader.partitions()]
    return [
        row
        for item in partitions
        for batch in copied.read(item)
        for row in batch["row"].to_pylist()
    ]


def all_filters() -> list[Any]:
    """Return filters of each type on each column, and their negations."""
    results: list[Any] = []
    for path, _ in KINDS.values():
        values = COLUMNS[path[0]][1]
        for name in path[1:]:
            values = [None if item is None else item[name] for item in values]
        distinct = list({repr(item): item for item in values if item is not None}.values())
        for name in OPS:
            results += [getattr(ds, name)(path, item) for item in distinct[1:4]]
        results += [ds.EqualNullSafe(path, None), ds.EqualTo(path, None)]
        results += [ds.In(path, tuple(distinct[:2])), ds.In(path, (distinct[0], None))]
        results += [ds.IsNull(path), ds.IsNotNull(path)]
        if isinstance(distinct[0], str):
            results += [
                filter_class(path, text)
                for filter_class in (ds.StringStartsWith, ds.StringEndsWith, ds.StringContains)
                for text in ("a", "%b", "")
            ]
    results += [ds.IsNull(("deep",)), ds.IsNotNull(("deep", "in ner")), ds.IsNull(("words",))]
    results += [ds.EqualTo(("bytes",), bytearray(b"\xff")), ds.EqualTo(("short",), 300)]
    return [item for part in results for item in (part, ds.Not(part))]


def meant(spark_filter: Any, row: dict[str, Any]) -> bool | None:
    if isinstance(spark_filter, ds.Not):
        inner = meant(spark_filter.child, row)
        return None if inner is None else not inner
    name, column = type(spark_filter).__name__, col(*spark_filter.attribute)
    if name in ("IsNull", "IsNotNull"):
        return truth(op("is_null" if name == "IsNull" else "is_not_null", column), row, {})
    values = spark_filter.value if name == "In" else (spark_filter.value,)
    literals = [{"lit": "", "at": index} for index in range(len(values))]
    by_identity = {id(literal): v for literal, v in zip(literals, values, strict=True)}
    matched = {
        "In": "in",
        "StringStartsWith": "starts_with",
        "StringEndsWith": "ends_with",
        "StringContains": "contains",
    }
    tree = op(OPS.get(name) or matched[name], column, *literals)
    return truth(tree, row, by_identity)


def test_each_predicate_agrees_with_its_filter() -> None:
    data = table()
    rows = data.to_pylist()
    (batch,) = data.combine_chunks().to_batches()
    wanted, known = to_spark_schema(data.schema), Schema.from_arrow(data.schema)
    filters = all_filters()
    assert len(filters) > 700
    predicates, left = push(filters, wanted, known)
    assert not left
    for item, predicate in zip(filters, predicates, strict=True):
        result = batch["row"].filter(predicate.holds(batch)).to_pylist()
        assert result == [row["row"] for row in rows if meant(item, row) is True], item


def test_filters_of_a_read(path: str) -> None:
    rows = table().to_pylist()
    reader = reader_of(path, push_filters="true")
    filters = [ds.IsNotNull(("word",)), ds.Not(ds.EqualTo(("flag",), True))]
    assert reader.pushFilters(filters) == []
    numbers = [row["row"] for row in rows if all(meant(item, row) is True for item in filters)]
    assert numbers
    assert kept(reader) == numbers


def test_filters_with_other_comparison_rules_go_back_to_spark(path: str) -> None:
    unknown = type("Unknown", (ds.EqualTo,), {})
    clock, instant = datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)
    returned = [
        unknown(("number",), 1),
        ds.Not(unknown(("number",), 1)),
        ds.EqualTo(("missing",), 1),
        ds.EqualTo(("number",), True),
        ds.EqualTo(("flag",), 1),
        ds.EqualTo(("number",), "1"),
        ds.EqualTo(("number",), 1.5),
        ds.EqualTo(("words",), ["a"]),
        ds.EqualTo(("deep",), {"x": 1}),
        ds.EqualTo(("words", "element"), "a"),
        ds.EqualTo(("day",), clock),
        ds.EqualTo(("clock",), instant),
        ds.EqualTo(("instant",), clock),
        ds.EqualTo(("clock",), date(2024, 1, 1)),
        ds.In(("number",), ()),
        ds.In(("number",), (1, "2")),
        # pyspark has rounded the value.
        ds.EqualTo(("money",), Decimal("1234567890123456789012345678")),
    ]
    reader = reader_of(path, push_filters="true")
    taken = ds.GreaterThan(("row",), 20)
    assert all(
        a is b for a, b in zip(reader.pushFilters([taken, *returned]), returned, strict=True)
    )
    assert kept(reader) == [21, 22, 23]


def test_filters_on_collations_go_back_to_spark(path: str) -> None:
    plain = StructField("word", StringType())
    row = reader_of(path).spark_schema["row"]
    collated = StructField("word", StringType("UTF8_LCASE"))
    equal = ds.EqualTo(("word",), "A_B")
    for field, left in ((plain, []), (collated, [equal])):
        reader = reader_of(path, StructType([row, field]), push_filters="true")
        assert reader.pushFilters([equal]) == left


def test_filters_and_plan_use_the_same_version(path: str, tmp_path: Any) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"row": [1, 2, 3]}), uri)
    reader = reader_of(uri, push_filters="true")
    reader.pushFilters([ds.GreaterThan(("row",), 1)])
    lance.write_dataset(pa.table({"row": ["x"]}), uri, mode="overwrite")
    assert kept(reader) == [2, 3]


def test_push_filters_passes_the_check_of_pyspark(path: str) -> None:
    for options in ({}, {"push_filters": "true"}):
        reader = reader_of(path, **options)
        assert reader.pushFilters.__func__ is DataSourceReader.pushFilters


def handed_over(frame: DataFrame) -> int:
    """Return how many rows the source passed to the last query."""
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    result: int = leaf.metrics().apply("numOutputRows").value()
    return result


def test_push_down_returns_the_same_result_from_fewer_rows(
    spark: SparkSession, path: str, setting: Any
) -> None:
    load = spark.read.format("lance").option("push_filters", "true")
    texts = PUSHED + RETURNED
    setting("false")
    frame = load.load(path)
    result = frame.selectExpr(
        "row", *(f"({item}) AS c{index}" for index, item in enumerate(texts))
    ).collect()
    setting("true")
    frame = load.load(path)
    for index, text in enumerate(texts):
        wanted = [row["row"] for row in result if row[f"c{index}"]]
        query = frame.where(text)
        assert [row["row"] for row in query.collect()] == wanted, text
        assert len(wanted) < 24
        if text in PUSHED:
            assert handed_over(query) == len(wanted), text
            assert " Filter " not in query._jdf.queryExecution().executedPlan().toString(), text


def test_without_the_option_a_frame_can_be_filtered_twice(
    spark: SparkSession, path: str, setting: Any
) -> None:
    for value in ("true", "false"):
        setting(value)
        frame = spark.read.format("lance").load(path)
        assert frame.where("number = 5").count() == 4
        assert frame.count() == 24
        union = frame.where("row = 1").union(frame.where("row = 2"))
        assert sorted(row["row"] for row in union.collect()) == [1, 2]
