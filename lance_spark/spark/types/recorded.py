"""Types of Spark that Arrow lacks: a column is stored as another type, and its metadata records
which type it has in Spark.

| type in Spark | stored as | metadata of the field |
| --- | --- | --- |
| char(n), varchar(n), strings with a collation, both | string | `spark.sql.type`: the type in SQL |
| intervals from DAY to SECOND of fewer fields | duration[us] | the same |
| time(p), other than time(6) | time64[ns] | the same |
| GEOMETRY, GEOGRAPHY of one SRID | WKB in binary | the same, and the extension `geoarrow.wkb` |
| user-defined types | their SQL type | `spark.sql.type`: Spark's JSON of the type |
| VARIANT | struct of metadata and value | the extension `arrow.parquet.variant` |

A recorded type that does not fit the stored type any more is ignored: another client has changed
the column. So is a user-defined type whose class Python cannot import, or may not: a table must not
choose which modules run. Classes come from modules that are loaded already, from Spark ML, and from
the packages that the environment variable `LANCE_SPARK_UDT_PACKAGES` names, separated by commas.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.errors import SchemaMismatchError, UnsupportedTypeError
from lance_spark.file.schema.types import EXTENSION_METADATA, EXTENSION_NAME, SPARK_TYPE
from lance_spark.spark.jvm.shims.pyspark_names import RELEASE

#: Variable that names the packages from which classes of user-defined types are imported.
UDT_PACKAGES = "LANCE_SPARK_UDT_PACKAGES"
_ML_MODULES = ("pyspark.ml.linalg", "pyspark.mllib.linalg")
VARIANT = "arrow.parquet.variant"
GEOARROW = "geoarrow.wkb"
#: Key of the metadata of a Spark column that has char(n) or varchar(n) in its type: that type.
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"

#: Types that not all versions of Spark have; None where they are missing.
TIME_TYPE: Any = getattr(spark, "TimeType", None)
_GEOMETRY: Any = getattr(spark, "GeometryType", None)
_GEOGRAPHY: Any = getattr(spark, "GeographyType", None)

_VARIANT_TYPE = pa.struct(
    [pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)]
)
_SIZED = re.compile(r"(char|varchar|time|geometry|geography)\((\d+)\)")
_COLLATED = re.compile(r"(string|(?:char|varchar)\((\d+)\)) collate (\w+)")
_LIMITED = re.compile(r"(char|varchar)\((\d+)\)(?: collate \w+)?")
_BY_BYTES = " collate UTF8_BINARY"
_INTERVAL = re.compile(r"interval (day|hour|minute|second)(?: to (hour|minute|second))?")
_UNITS = ("day", "hour", "minute", "second")
_CLASS = re.compile(r"[A-Za-z_][\w.]*\.[A-Za-z_]\w*")
#: Whether Spark has char(n) and varchar(n) with a collation.
_HAS_COLLATED_LENGTHS = RELEASE >= (4, 3)


class _CollatedText:
    """char(n) or varchar(n) with a collation: types of Spark 4.3 that pyspark lacks."""

    def __init__(self, length: int, collation: str) -> None:
        super().__init__(length)  # type: ignore[call-arg]
        self.collation = collation

    def simpleString(self) -> str:  # noqa: N802 - as in pyspark
        return f"{super().simpleString()} collate {self.collation}"  # type: ignore[misc]


class _CollatedChar(_CollatedText, spark.CharType):
    pass


class _CollatedVarchar(_CollatedText, spark.VarcharType):
    pass


def stored_type(dtype: spark.DataType, column: str) -> pa.DataType | None:
    """Return the Arrow type of a Spark type that Arrow lacks; None for all others.

    Raises UnsupportedTypeError: the geometries have more than one SRID.
    """
    if isinstance(dtype, spark.VariantType):
        return _VARIANT_TYPE
    if _is_geo(dtype):
        if _srid(dtype) is None:
            raise UnsupportedTypeError(
                f"column {column}: {dtype.simpleString()} has values of several reference systems, "
                "and a column of a Lance table has one; cast it to a type with an SRID, such as "
                "GEOMETRY(4326)"
            )
        return pa.binary()
    return None


def record(dtype: spark.DataType) -> dict[str, str]:
    """Return the metadata that records a type; empty for a type that Arrow has."""
    if isinstance(dtype, spark.VariantType):
        return {EXTENSION_NAME: VARIANT, EXTENSION_METADATA: ""}
    if isinstance(dtype, spark.UserDefinedType):
        known = dtype.jsonValue()
        known.pop("serializedClass", None)
        known["pyClass"] = _place_of(type(dtype)) or known["pyClass"]
        return {SPARK_TYPE: json.dumps(known)}
    text = dtype.simpleString()
    if _is_geo(dtype):
        crs: dict[str, Any] = {}
        if _srid(dtype):
            crs = {"crs": f"EPSG:{_srid(dtype)}", "crs_type": "authority_code"}
        if isinstance(dtype, _GEOGRAPHY):
            crs["edges"] = "spherical"
        extension = {EXTENSION_NAME: GEOARROW, EXTENSION_METADATA: json.dumps(crs)}
        return {SPARK_TYPE: text, **extension}
    is_default = dtype == spark.DayTimeIntervalType()
    is_named = isinstance(dtype, (spark.CharType, spark.VarcharType, spark.DayTimeIntervalType))
    is_time = TIME_TYPE is not None and isinstance(dtype, TIME_TYPE) and dtype != TIME_TYPE()
    is_collated = isinstance(dtype, spark.StringType) and text != "string"
    return {SPARK_TYPE: text} if (is_named and not is_default) or is_time or is_collated else {}


def _place_of(cls: type) -> str | None:
    """Return the module and the name by which a class can be imported; None without one.

    A type may name another module (`UserDefinedType.module`), which need not have the class: Spark
    then reads it from a pickle of the class, which is not stored in tables.
    """
    module = sys.modules.get(cls.__module__)
    is_found = getattr(module, cls.__name__, None) is cls
    return f"{cls.__module__}.{cls.__name__}" if is_found else None


def has_extension(dtype: spark.DataType) -> bool:
    """Return whether `record` names an extension type of Arrow for a type."""
    return isinstance(dtype, spark.VariantType) or _is_geo(dtype)


def recorded_type(field: pa.Field, stored: spark.DataType) -> spark.DataType:
    """Return the type that the metadata of a field records, or the type that it is stored as.

    - `stored`: Spark's type for the Arrow type of the field.
    """
    metadata = field.metadata or {}
    if metadata.get(EXTENSION_NAME.encode()) == VARIANT.encode():
        parts = {child.name: child.type for child in _children(field.type)}
        if parts == {"metadata": pa.binary(), "value": pa.binary()}:
            return spark.VariantType()
    text = metadata.get(SPARK_TYPE.encode())
    if text is None:
        return stored
    dtype = _parsed(text.decode(errors="replace"))
    if dtype is None:
        return stored
    if isinstance(dtype, (spark.CharType, spark.VarcharType)):
        return dtype if isinstance(stored, spark.StringType) else stored
    if isinstance(dtype, spark.UserDefinedType):
        return dtype if _shape(dtype.sqlType()) == _shape(stored) else stored
    carriers = {
        _GEOMETRY: spark.BinaryType,
        _GEOGRAPHY: spark.BinaryType,
    }
    return dtype if type(stored) is carriers.get(type(dtype), type(dtype)) else stored


def text_limit(field: pa.Field) -> tuple[str, int, bool] | None:
    """Return the type of a column of char(n) or varchar(n), its length, and whether values are
    padded; None for other columns.
    """
    text = (field.metadata or {}).get(SPARK_TYPE.encode())
    match = None if text is None else _LIMITED.fullmatch(text.decode(errors="replace"))
    if match is None or not (
        pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ):
        return None
    return match[0], int(match[2]), match[1] == "char"


def changed_record(old: pa.Field, new: pa.Field) -> dict[str, str | None]:
    """Return what changes in the metadata of a field if its column gets another type in Spark.

    A string without a collation does not end the collation of a column: Spark means by ``ALTER
    COLUMN c TYPE STRING`` that the collation stays.
    """
    before, after = ((field.metadata or {}).get(SPARK_TYPE.encode()) for field in (old, new))
    if before == after:
        return {}
    if after is None and before is not None and before.startswith(b"string collate "):
        return {}
    return {SPARK_TYPE: None if after is None else after.decode()}


def without_char_varchar(field: spark.StructField) -> spark.StructField:
    """Return a column as Spark's plans have it: char(n) and varchar(n) are strings, and the
    metadata has the type.
    """
    plain = _with_strings(field.dataType)
    if plain is field.dataType:
        return field
    metadata = {**(field.metadata or {}), CHAR_VARCHAR: field.dataType.simpleString()}
    return spark.StructField(field.name, plain, field.nullable, metadata)


def with_char_varchar(field: spark.StructField) -> spark.DataType:
    """Return the type of a column with the char(n) and varchar(n) that its metadata has."""
    text = (field.metadata or {}).get(CHAR_VARCHAR)
    if not isinstance(text, str):
        return field.dataType
    match = re.fullmatch(_pattern(field.dataType), text)
    # The metadata of a column stays when its type changes.
    return field.dataType if match is None else _replaced(field.dataType, iter(match.groups()))


def check_records(source: pa.Field, target: pa.Field, column: str) -> None:
    """Refuse a column whose values would get another meaning in the column of the table.

    Raises SchemaMismatchError: only one of both is a VARIANT, or they are geometries of different
    reference systems.
    """
    new_meaning, table_meaning = (_meaning(field) for field in (source, target))
    if new_meaning != table_meaning:
        raise SchemaMismatchError(
            f"column {column} is {table_meaning} in the table, and {new_meaning} cannot be "
            "written to it; cast the column, or overwrite the table"
        )
    children = _children(target.type)
    if pa.types.is_struct(target.type):
        by_name = {child.name.lower(): child for child in children}
        children = [by_name.get(child.name.lower()) for child in _children(source.type)]
    for child, target_child in zip(_children(source.type), children, strict=False):
        if target_child is not None:
            check_records(child, target_child, f"{column}.{child.name}")


def _meaning(field: pa.Field) -> str:
    metadata = field.metadata or {}
    extension = metadata.get(EXTENSION_NAME.encode(), b"").decode(errors="replace")
    if extension == VARIANT:
        return "variant"
    if extension == GEOARROW and SPARK_TYPE.encode() in metadata:
        return str(metadata[SPARK_TYPE.encode()], errors="replace")
    return "another type"


def _children(dtype: pa.DataType) -> list[pa.Field]:
    return [dtype.field(i) for i in range(dtype.num_fields)]


def _is_geo(dtype: spark.DataType) -> bool:
    return _GEOMETRY is not None and isinstance(dtype, (_GEOMETRY, _GEOGRAPHY))


def _srid(dtype: Any) -> int | None:
    """Return the reference system of all values of a type; None if each has its own."""
    srid = int(dtype.srid)
    return None if srid == dtype.MIXED_SRID else srid


def _interval(first: str, last: str) -> spark.DayTimeIntervalType:
    return spark.DayTimeIntervalType(_UNITS.index(first), _UNITS.index(last))


def _parsed(text: str) -> spark.DataType | None:
    """Return the type of a text; None if this version of Spark does not have it."""
    if text.startswith("{"):
        return _user_defined(text)
    # SHOW CREATE TABLE of Spark 4.3 names the collation of each char(n) and varchar(n).
    text = text.removesuffix(_BY_BYTES)
    collated = _COLLATED.fullmatch(text)
    if collated is not None:
        if collated[2] is None or not _HAS_COLLATED_LENGTHS:
            return spark.StringType(collated[3])
        cls = _CollatedChar if text.startswith("char") else _CollatedVarchar
        return cls(int(collated[2]), collated[3])
    interval = _INTERVAL.fullmatch(text)
    if interval is not None:
        return _interval(interval[1], interval[2] or interval[1])
    sized = _SIZED.fullmatch(text)
    if sized is None:
        return None
    classes: Mapping[str, Any] = {
        "char": spark.CharType,
        "varchar": spark.VarcharType,
        "time": TIME_TYPE,
        "geometry": _GEOMETRY,
        "geography": _GEOGRAPHY,
    }
    make = classes[sized[1]]
    try:
        return None if make is None else make(int(sized[2]))
    except Exception:
        # Another version of Spark has other reference systems.
        return None


def _user_defined(text: str) -> spark.DataType | None:
    try:
        name = str(json.loads(text)["pyClass"])
        if _CLASS.fullmatch(name) is None:
            return None
        module, _, attribute = name.rpartition(".")
        if module not in sys.modules and not _is_trusted(module):
            return None
        cls = getattr(import_module(module), attribute)
        if not (isinstance(cls, type) and issubclass(cls, spark.UserDefinedType)):
            return None
        instance: spark.DataType = cls()
    except Exception:
        # The module is another program, which can fail in any way.
        return None
    return instance


def _is_trusted(module: str) -> bool:
    """Return whether a module is one of Spark ML, or of a package that the user trusts."""
    packages = os.environ.get(UDT_PACKAGES, "").split(",")
    return module in _ML_MODULES or module.partition(".")[0] in packages


def _shape(dtype: spark.DataType) -> Any:
    """Return a type without nullability and metadata."""
    if isinstance(dtype, spark.StructType):
        return {field.name: _shape(field.dataType) for field in dtype}
    if isinstance(dtype, spark.ArrayType):
        return [_shape(dtype.elementType)]
    if isinstance(dtype, spark.MapType):
        return (_shape(dtype.keyType), _shape(dtype.valueType))
    return dtype.simpleString()


def _with_strings(dtype: spark.DataType) -> spark.DataType:
    """Return a type with strings for char(n) and varchar(n); the same object without them."""
    if isinstance(dtype, _CollatedText):
        return spark.StringType(dtype.collation)
    if isinstance(dtype, (spark.CharType, spark.VarcharType)):
        return spark.StringType()
    if isinstance(dtype, spark.ArrayType):
        element = _with_strings(dtype.elementType)
        is_unchanged = element is dtype.elementType
        return dtype if is_unchanged else spark.ArrayType(element, dtype.containsNull)
    if isinstance(dtype, spark.MapType):
        key, value = _with_strings(dtype.keyType), _with_strings(dtype.valueType)
        is_unchanged = key is dtype.keyType and value is dtype.valueType
        return dtype if is_unchanged else spark.MapType(key, value, dtype.valueContainsNull)
    if isinstance(dtype, spark.StructType):
        types = [_with_strings(field.dataType) for field in dtype]
        if all(new is field.dataType for new, field in zip(types, dtype, strict=True)):
            return dtype
        return _struct_of(dtype, types)
    return dtype


def _struct_of(struct: spark.StructType, types: list[spark.DataType]) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(field.name, dtype, field.nullable, field.metadata)
            for field, dtype in zip(struct, types, strict=True)
        ]
    )


def _pattern(dtype: spark.DataType) -> str:
    """Return a pattern for the names of a type, in which each string is a group."""
    if isinstance(dtype, spark.StringType):
        return r"((?:string|(?:var)?char\(\d+\))(?: collate \w+)?)"
    if isinstance(dtype, spark.ArrayType):
        return f"array<{_pattern(dtype.elementType)}>"
    if isinstance(dtype, spark.MapType):
        return f"map<{_pattern(dtype.keyType)},{_pattern(dtype.valueType)}>"
    if isinstance(dtype, spark.StructType):
        fields = [f"{re.escape(field.name)}:{_pattern(field.dataType)}" for field in dtype]
        return f"struct<{','.join(fields)}>"
    return re.escape(dtype.simpleString())


def _replaced(dtype: spark.DataType, texts: Iterator[Any]) -> spark.DataType:
    """Return a type whose strings have the types of some texts."""
    if isinstance(dtype, spark.StringType):
        text = next(texts)
        return dtype if text.startswith("string") else (_parsed(text) or dtype)
    if isinstance(dtype, spark.ArrayType):
        return spark.ArrayType(_replaced(dtype.elementType, texts), dtype.containsNull)
    if isinstance(dtype, spark.MapType):
        key = _replaced(dtype.keyType, texts)
        return spark.MapType(key, _replaced(dtype.valueType, texts), dtype.valueContainsNull)
    if isinstance(dtype, spark.StructType):
        return _struct_of(dtype, [_replaced(field.dataType, texts) for field in dtype])
    return dtype
