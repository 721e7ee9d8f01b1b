"""Arrow types to Spark's and back; pyspark's own mapping and docs/reference/types.md are the
oracles. JSON columns are strings, which Spark's own functions parse.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from lance_spark.errors import InvalidOptionError, SchemaMismatchError, UnsupportedTypeError
from lance_spark.spark.types import mapping as types
from tests.support.spark.versions import HAS_TIME, demanded_schema

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "types.md"
#: By the name in the docs: the Arrow type, the name of the Spark type that it is read as, and the
#: Arrow type that this Spark type is written as.
TYPES: dict[str, tuple[pa.DataType, str, pa.DataType]] = {
    "bool": (pa.bool_(), "boolean", pa.bool_()),
    "int8": (pa.int8(), "tinyint", pa.int8()),
    "int16": (pa.int16(), "smallint", pa.int16()),
    "int32": (pa.int32(), "int", pa.int32()),
    "int64": (pa.int64(), "bigint", pa.int64()),
    "uint8": (pa.uint8(), "smallint", pa.int16()),
    "uint16": (pa.uint16(), "int", pa.int32()),
    "uint32": (pa.uint32(), "bigint", pa.int64()),
    "uint64": (pa.uint64(), "bigint", pa.int64()),
    "float16": (pa.float16(), "float", pa.float16()),
    "float32": (pa.float32(), "float", pa.float32()),
    "float64": (pa.float64(), "double", pa.float64()),
    "string": (pa.string(), "string", pa.string()),
    "large_string": (pa.large_string(), "string", pa.large_string()),
    "binary": (pa.binary(), "binary", pa.binary()),
    "large_binary": (pa.large_binary(), "binary", pa.large_binary()),
    "fixed_size_binary": (pa.binary(4), "binary", pa.binary(4)),
    "json": (pa.json_(), "string", pa.string()),
    "date32": (pa.date32(), "date", pa.date32()),
    "date64": (pa.date64(), "date", pa.date32()),
    "timestamp with a zone": (
        pa.timestamp("ns", "Asia/Tokyo"),
        "timestamp",
        pa.timestamp("us", "UTC"),
    ),
    "timestamp without": (pa.timestamp("s"), "timestamp_ntz", pa.timestamp("us")),
    "time32, time64": (
        (pa.time32("ms"), "time(6)", pa.time64("ns"))
        if HAS_TIME
        else (pa.time32("ms"), "bigint", pa.int64())
    ),
    "duration": (pa.duration("s"), "interval day to second", pa.duration("us")),
    "decimal128": (pa.decimal128(12, 3), "decimal(12,3)", pa.decimal128(12, 3)),
    "null": (pa.null(), "void", pa.null()),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "string", pa.string()),
    "list": (pa.list_(pa.int8()), "array<tinyint>", pa.list_(pa.int8())),
    "large_list": (pa.large_list(pa.int8()), "array<tinyint>", pa.list_(pa.int8())),
    "fixed_size_list": (pa.list_(pa.int8(), 3), "array<tinyint>", pa.list_(pa.int8(), 3)),
    "struct": (
        pa.struct([("a", pa.list_(pa.float16(), 2))]),
        "struct<a:array<float>>",
        pa.struct([("a", pa.list_(pa.float16(), 2))]),
    ),
    "map": (
        pa.map_(pa.string(), pa.int8()),
        "map<string,tinyint>",
        pa.map_(pa.string(), pa.int8()),
    ),
}
MARK = {"ARROW:extension:name": "arrow.json"}


@pytest.mark.parametrize(
    ("name", "nullable"),
    [
        (name, nullable)
        for name in TYPES
        for nullable in (True, False)
        if nullable or name != "null"
    ],
)
def test_each_type_has_its_counterpart(name: str, nullable: bool) -> None:
    arrow, shown, back = TYPES[name]
    schema = types.to_spark_schema(pa.schema([pa.field("c", arrow, nullable)]))
    assert schema["c"].dataType.simpleString() == shown
    assert schema["c"].nullable == nullable
    assert types.to_arrow_schema(schema) == pa.schema([pa.field("c", back, nullable)])


@pytest.mark.parametrize("name", TYPES)
def test_the_docs_have_each_type_and_say_the_same(name: str) -> None:
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith(f"| {name} |")]
    assert len(lines) == 1, f"docs/reference/types.md has no line for {name}, or several"
    shown = TYPES[name][1].split("<")[0].split("(")[0]
    cells = lines[0].lower().split("|")
    cell = cells[2] if HAS_TIME or not name.startswith("time32") else cells[4]
    assert shown in cell


def test_lists_are_written_with_a_child_named_item() -> None:
    schema = types.to_arrow_schema(
        spark.StructType().add("c", spark.ArrayType(spark.LongType(), False))
    )
    assert schema.field("c").type.value_field == pa.field("item", pa.int64(), False)


@pytest.mark.parametrize(
    "arrow",
    [
        pa.decimal256(50, 2),
        pa.decimal128(10, -2),
        pa.decimal128(3, 5),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.struct([("deep", pa.list_(pa.decimal256(40, 1)))]),
    ],
    ids=str,
)
def test_types_without_spark_counterpart_are_refused_by_column_name(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedTypeError, match="column here"):
        types.to_spark_schema(pa.schema([("here", arrow)]))


@pytest.mark.parametrize(
    "data_type",
    [
        spark.YearMonthIntervalType(),
        spark.CalendarIntervalType(),
        spark.ArrayType(spark.CalendarIntervalType()),
    ],
    ids=str,
)
def test_types_without_lance_counterpart_are_refused_by_column_name(
    data_type: spark.DataType,
) -> None:
    schema = spark.StructType().add("here", data_type)
    with pytest.raises(UnsupportedTypeError, match="column here"):
        types.to_arrow_schema(schema)
    with pytest.raises(UnsupportedTypeError, match="column here"):
        types.batch_schema(schema)


def test_batches_have_the_schema_that_pyspark_expects() -> None:
    table = pa.schema([pa.field(f"c{i}", arrow) for i, (arrow, *_) in enumerate(TYPES.values())])
    schema = types.to_spark_schema(table)
    assert types.batch_schema(schema).equals(demanded_schema(schema))


@pytest.mark.parametrize(
    ("ddl", "options", "expected"),
    [
        (spark.ArrayType(spark.FloatType()), {types.VECTOR_SIZE: "8"}, pa.list_(pa.float32(), 8)),
        (spark.ArrayType(spark.ShortType()), {types.VECTOR_SIZE: "8"}, pa.list_(pa.int16(), 8)),
        (
            spark.ArrayType(spark.FloatType()),
            {types.VECTOR_SIZE: "8", types.FLOAT16: "true"},
            pa.list_(pa.float16(), 8),
        ),
        (
            spark.MapType(spark.StringType(), spark.ArrayType(spark.FloatType())),
            {types.VECTOR_SIZE: "8"},
            pa.map_(pa.string(), pa.list_(pa.float32(), 8)),
        ),
        (spark.StringType(), {types.LARGE_STRING: "true"}, pa.large_string()),
        (spark.BinaryType(), {types.LARGE_BINARY: "true"}, pa.large_binary()),
        (spark.BinaryType(), {types.BYTE_WIDTH: "16"}, pa.binary(16)),
        (spark.StringType(), {types.LARGE_STRING: "false"}, pa.string()),
    ],
)
def test_options_of_columns_choose_the_type(
    ddl: spark.DataType, options: dict[str, str], expected: pa.DataType
) -> None:
    schema = spark.StructType().add("C", ddl)
    assert types.to_arrow_schema(schema, {"c": options}).field("C").type == expected


def test_field_metadata_and_options_choose_the_same_type() -> None:
    schema = spark.StructType().add(
        "v", spark.ArrayType(spark.FloatType()), True, {"arrow.fixed-size-list.size": 8}
    )
    assert types.to_arrow_schema(schema).field("v").type == pa.list_(pa.float32(), 8)
    wider = types.to_arrow_schema(schema, {"v": {types.VECTOR_SIZE: "9"}})
    assert wider.field("v").type.list_size == 9


def test_encoding_hints_stay_in_the_field_metadata() -> None:
    table = pa.schema([pa.field("c", pa.string(), metadata={"lance-encoding:compression": "zstd"})])
    schema = types.to_spark_schema(table)
    assert types.to_arrow_schema(schema).field("c").metadata == {
        b"lance-encoding:compression": b"zstd"
    }


def test_large_types_can_be_requested() -> None:
    schema = (
        spark.StructType()
        .add("s", spark.ArrayType(spark.StringType()))
        .add("b", spark.BinaryType())
    )
    made = types.to_arrow_schema(schema, large_var_types=True)
    assert made.types == [pa.list_(pa.large_string()), pa.large_binary()]


@pytest.mark.parametrize(
    ("names", "options", "error", "message"),
    [
        (["a"], {"b": {types.VECTOR_SIZE: "8"}}, InvalidOptionError, "column b"),
        (["a"], {"a": {types.VECTOR_SIZE: "8"}}, InvalidOptionError, "does not apply"),
        (["a", "A"], {"a": {types.LARGE_STRING: "true"}}, InvalidOptionError, "twice"),
        (["a", "a"], {}, SchemaMismatchError, "several columns 'a'"),
        (["a.b"], {}, SchemaMismatchError, "must not be empty or contain a dot"),
        ([""], {}, SchemaMismatchError, "must not be empty or contain a dot"),
    ],
)
def test_schemas_that_cannot_be_written_are_refused(
    names: list[str], options: Any, error: type[Exception], message: str
) -> None:
    schema = spark.StructType([spark.StructField(name, spark.StringType()) for name in names])
    with pytest.raises(error, match=message):
        types.to_arrow_schema(schema, options)


@pytest.mark.parametrize("size", ["nan", "0", "-3", "2.5", str(2**31), ""])
def test_sizes_of_vectors_are_checked(size: str) -> None:
    schema = spark.StructType().add("v", spark.ArrayType(spark.FloatType()))
    with pytest.raises(InvalidOptionError, match=r"v\.arrow\.fixed-size-list\.size"):
        types.to_arrow_schema(schema, {"v": {types.VECTOR_SIZE: size}})


@pytest.mark.parametrize("metadata", [{"ARROW:extension:name": "arrow.json"}, {"arrow.json": True}])
def test_strings_marked_as_json(metadata: dict[str, Any]) -> None:
    inner = spark.StructType().add("j", spark.StringType(), True, metadata)
    schema = (
        spark.StructType()
        .add("j", spark.StringType(), False, metadata)
        .add("s", inner)
        .add("o", spark.StringType())
        .add("t", spark.StringType())
        # The mark stays after a cast.
        .add("i", spark.IntegerType(), True, metadata)
    )
    made = types.to_arrow_schema(schema, {"o": {types.JSON: "true"}})
    for field in (made.field("j"), made.field("s").type.field("j"), made.field("o")):
        assert field.type == pa.string()
        assert field.metadata == {b"ARROW:extension:name": b"arrow.json"}
    assert made.field("t").metadata is None
    assert made.field("i").type == pa.int32()
    again = types.to_arrow_schema(types.to_spark_schema(made))
    assert again.equals(made, check_metadata=True)
    with pytest.raises(InvalidOptionError, match=r"i\.arrow\.json does not apply"):
        types.to_arrow_schema(schema, {"i": {types.JSON: "true"}})


def test_tables_of_pylance_are_read_appended_to_and_copied(
    spark: Any, read: Callable[..., Any], write: Callable[..., None], tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    texts = ['{"b": {"c": 5}, "a": [1]}', None, '"x"']
    table = pa.table({"i": [1, 2, 3], "j": pa.array(texts, pa.json_())})
    lance.write_dataset(table, str(tmp_path / "t.lance"))
    frame = read()
    assert frame.schema["j"].metadata == MARK
    result = frame.select("i", F.get_json_object("j", "$.b.c").alias("c")).orderBy("i").collect()
    assert [row.c for row in result] == ["5", None, None]

    copy = str(tmp_path / "copy.lance")
    write(frame, path=copy)
    assert lance.dataset(copy).schema.field("j").type == pa.json_()
    write(spark.createDataFrame([(4, '{"z": 1, "y": 2}')], "i int, j string"))
    for path, rows in ((copy, 3), (str(tmp_path / "t.lance"), 4)):
        values = lance.dataset(path).to_table().sort_by("i")["j"].to_pylist()
        assert values == ['{"a":[1],"b":{"c":5}}', None, '"x"', '{"y":2,"z":1}'][:rows]


def test_marked_strings_become_json(spark: Any, write: Callable[..., None], tmp_path: Path) -> None:
    frame = spark.createDataFrame([("[1, 2]", "{}", "{}")], "j string, k string, t string")
    write(frame.withMetadata("j", MARK), **{"k.arrow.json": True})
    schema = lance.dataset(str(tmp_path / "t.lance")).schema
    assert schema.types == [pa.json_(), pa.json_(), pa.string()]


def test_text_that_is_not_json_fails_the_write(
    spark: Any, write: Callable[..., None], tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("nil",)], "j string")
    with pytest.raises(Exception, match="column 'j', row 0: 'nil' cannot be stored as JSON"):
        write(frame, **{"j.arrow.json": True})
    assert not (tmp_path / "t.lance" / "_versions").exists()
