"""Types of Spark that Arrow lacks: how they are stored, and how they are restored."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.linalg import MatrixUDT, VectorUDT
from pyspark.sql import types as spark

from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedTypeError
from lance_spark.spark.types import mapping
from lance_spark.spark.types.convert import BatchConverter
from lance_spark.spark.types.recorded import CHAR_VARCHAR, check_records
from tests.support.spark.versions import HAS_TIME, demanded_schema

VARIANT = pa.struct([pa.field(n, pa.binary(), False) for n in ("metadata", "value")])
#: Spark's type, and the type as which it is stored.
TYPES: list[tuple[spark.DataType, pa.DataType | None]] = [
    (spark.CharType(4), pa.string()),
    (spark.VarcharType(4), pa.string()),
    (spark.StringType("UTF8_LCASE"), pa.string()),
    (spark.StringType("de_CI"), pa.string()),
    (spark.DayTimeIntervalType(0, 0), pa.duration("us")),
    (spark.DayTimeIntervalType(1, 2), pa.duration("us")),
    (spark.VariantType(), VARIANT),
    (VectorUDT(), None),
    (MatrixUDT(), None),
]
if HAS_TIME:
    TYPES += [
        (spark.TimeType(0), pa.time64("ns")),
        (spark.GeometryType(4326), pa.binary()),
        (spark.GeographyType(4326), pa.binary()),
    ]
UDT = {"type": "udt", "pyClass": "pyspark.ml.linalg.VectorUDT"}


def test_writes_fit_texts_into_their_columns() -> None:
    plain = pa.field("x", pa.string())
    char = plain.with_metadata({"spark.sql.type": "char(4)"})
    varchar = plain.with_metadata({"spark.sql.type": "varchar(3) collate UNICODE"})

    def schema(first: pa.Field, second: pa.Field) -> pa.Schema:
        nested = [pa.field("s", pa.struct([first])), pa.field("a", pa.list_(first))]
        return pa.schema([first.with_name("c"), second.with_name("v"), *nested])

    rows = [
        {"c": "ä", "v": "ab  ", "s": {"x": "b"}, "a": ["c", None]},
        {"c": None, "v": None, "s": None, "a": None},
        {"c": "abcd  ", "v": "", "s": {"x": None}, "a": []},
    ]
    convert = BatchConverter(schema(plain, plain), schema(char, varchar), reading=False)
    (written,) = convert(pa.RecordBatch.from_pylist(rows, schema=schema(plain, plain)))
    assert written.to_pylist() == [
        {"c": "ä   ", "v": "ab ", "s": {"x": "b   "}, "a": ["c   ", None]},
        rows[1],
        {"c": "abcd", "v": "", "s": {"x": None}, "a": []},
    ]
    too_long = pa.RecordBatch.from_pylist([{"c": "abcde"}], schema=schema(plain, plain))
    with pytest.raises(
        InvalidInputError, match=r"column c is char\(4\), which cannot hold 'abcde'"
    ):
        list(convert(too_long))


def declared(schema: pa.Schema) -> spark.DataType:
    return mapping.to_declared_schema(schema).fields[0].dataType


@pytest.mark.parametrize(("dtype", "stored"), TYPES, ids=str)
@pytest.mark.parametrize("place", ["column", "struct", "array", "map"])
def test_a_type_is_stored_as_another_and_given_back(
    dtype: spark.DataType, stored: pa.DataType | None, place: str
) -> None:
    nested = {
        "column": dtype,
        "struct": spark.StructType().add("f", dtype, False),
        "array": spark.ArrayType(dtype, False),
        "map": spark.MapType(spark.StringType(), spark.ArrayType(dtype)),
    }[place]
    arrow = mapping.to_arrow_schema(spark.StructType().add("c", nested))
    assert declared(arrow) == nested
    if stored is not None and place == "column":
        assert arrow.field("c").type == stored
    # Plans of Spark have strings for char(n) and varchar(n); the metadata names the type.
    planned = mapping.to_spark_schema(arrow)
    assert mapping.to_arrow_schema(planned).equals(arrow, check_metadata=True)
    assert mapping.batch_schema(planned).equals(demanded_schema(planned))


def test_types_that_arrow_has_are_not_recorded() -> None:
    types = [spark.StringType(), spark.DayTimeIntervalType(), spark.BinaryType()]
    schema = spark.StructType([spark.StructField(str(t), t) for t in types])
    assert [field.metadata for field in mapping.to_arrow_schema(schema)] == [None] * len(types)


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.int32(), "char(4)"),
        (pa.string(), "interval day"),
        (pa.string(), "char(x)"),
        (pa.duration("us"), "interval week"),
        (pa.string(), "no type"),
        (pa.string(), json.dumps(UDT)),
        (pa.string(), json.dumps({**UDT, "pyClass": "missing.module.VectorUDT"})),
        (pa.string(), json.dumps({**UDT, "pyClass": "os.path"})),
        (pa.string(), json.dumps({**UDT, "pyClass": "os;system"})),
        (pa.string(), "{}"),
        (pa.string(), "{"),
    ],
)
def test_a_record_that_does_not_fit_is_ignored(arrow: pa.DataType, text: str) -> None:
    plain = mapping.to_spark_schema(pa.schema([("c", arrow)]))
    marked = pa.field("c", arrow, metadata={"spark.sql.type": text})
    assert mapping.to_spark_schema(pa.schema([marked])) == plain


def test_classes_are_named_and_not_stored() -> None:
    arrow = mapping.to_arrow_schema(spark.StructType().add("v", VectorUDT()))
    record = json.loads((arrow.field("v").metadata or {})[b"spark.sql.type"])
    assert record["pyClass"] == "pyspark.ml.linalg.VectorUDT"
    assert "serializedClass" not in record


class Year(spark.UserDefinedType):
    """A type that names a module which does not have its class."""

    @classmethod
    def sqlType(cls) -> spark.DataType:
        return spark.IntegerType()

    @classmethod
    def module(cls) -> str:
        return "pyspark.ml.linalg"


def test_a_type_is_found_where_its_class_is() -> None:
    arrow = mapping.to_arrow_schema(spark.StructType().add("y", Year()))
    (field,) = mapping.to_spark_schema(arrow)
    assert isinstance(field.dataType, Year)


def test_a_table_does_not_choose_which_modules_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_a_stranger.py").write_text(
        "from pyspark.sql.types import IntegerType, UserDefinedType\n\n"
        "class Year(UserDefinedType):\n"
        "    def sqlType(self=None):\n        return IntegerType()\n"
        "    def simpleString(self):\n        return 'year'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    record = json.dumps({"type": "udt", "pyClass": "of_a_stranger.Year"})
    field = pa.field("c", pa.int32(), metadata={"spark.sql.type": record})
    assert mapping.to_spark_schema(pa.schema([field]))[0].dataType == spark.IntegerType()
    assert "of_a_stranger" not in sys.modules
    monkeypatch.setenv("LANCE_SPARK_UDT_PACKAGES", "others,of_a_stranger")
    try:
        assert mapping.to_spark_schema(pa.schema([field]))[0].dataType.simpleString() == "year"
    finally:
        sys.modules.pop("of_a_stranger", None)


def test_a_variant_in_shreds_is_a_struct() -> None:
    parts = [*VARIANT, pa.field("typed_value", pa.int64())]
    field = pa.field(
        "c", pa.struct(parts), metadata={"ARROW:extension:name": "arrow.parquet.variant"}
    )
    assert isinstance(declared(pa.schema([field])), spark.StructType)


def test_columns_of_plans_have_char_and_varchar_in_their_metadata() -> None:
    nested = spark.StructType().add("a", spark.ArrayType(spark.StringType())).add("b", "integer")
    metadata = {CHAR_VARCHAR: "struct<a:array<varchar(3)>,b:int>"}
    schema = spark.StructType().add("c", nested, True, metadata)
    arrow = mapping.to_arrow_schema(schema)
    assert declared(arrow).simpleString() == metadata[CHAR_VARCHAR]
    # The metadata stays after a change of the type.
    changed = spark.StructType().add("c", "integer", True, {CHAR_VARCHAR: "char(4)"})
    assert mapping.to_arrow_schema(changed) == pa.schema([pa.field("c", pa.int32())])


@pytest.mark.skipif(not HAS_TIME, reason="Spark 4.0 has no geometries")
def test_geometries_of_several_reference_systems_are_refused() -> None:
    for dtype in (spark.GeometryType("ANY"), spark.GeographyType("ANY")):
        with pytest.raises(UnsupportedTypeError, match=r"column s\.g: .* several reference"):
            mapping.to_arrow_schema(spark.StructType().add("s", spark.StructType().add("g", dtype)))


def test_intervals_of_months_are_refused_with_the_way_out() -> None:
    schema = spark.StructType().add("i", spark.YearMonthIntervalType())
    with pytest.raises(UnsupportedTypeError, match=r"column i: .* passes no intervals of months"):
        mapping.to_arrow_schema(schema)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("place", ["column", "struct", "array"])
def test_bytes_do_not_become_variants_nor_the_reverse(place: str, reverse: bool) -> None:
    plain = spark.StructType().add("metadata", "binary", False).add("value", "binary", False)
    fields: list[Any] = []
    for dtype in (plain, spark.VariantType()):
        nested = {
            "column": dtype,
            "struct": spark.StructType().add("f", dtype),
            "array": spark.ArrayType(dtype),
        }[place]
        fields.append(mapping.to_arrow_schema(spark.StructType().add("c", nested)).field("c"))
        check_records(fields[-1], fields[-1], "c")
    with pytest.raises(SchemaMismatchError, match=r"column c.* variant"):
        check_records(*(fields[::-1] if reverse else fields), "c")
