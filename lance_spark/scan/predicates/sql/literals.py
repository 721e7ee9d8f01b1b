"""Literals: numbers, and strings with a prefix such as ``DATE '2024-01-31'``. Casts of operands."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates import coercion
from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.literal_casts import cast, to_float32
from lance_spark.scan.predicates.sql import computed
from lance_spark.scan.predicates.sql.computed import Operand
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.times import has_zone
from lance_spark.scan.predicates.tree import Column
from lance_spark.scan.predicates.typed_values import CLOCK, INSTANT, TIME, Typed, decimal, integer

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIME": TIME,
    "TIMESTAMP_LTZ": INSTANT,
    "TIMESTAMP_NTZ": CLOCK,
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VOID": pa.null(),
}
_INTEGERS = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_LARGEST_FLOAT = Decimal(2**128 - 2**104)
_LARGEST_DOUBLE = Decimal(2**1024 - 2**970)
_NOT_FUNCTIONS = (
    "byte",
    "short",
    "integer",
    "long",
    "real",
    "void",
    "timestamp_ltz",
    "timestamp_ntz",
)
#: Types that are also functions of one argument, which cast it.
CAST_FUNCTIONS: dict[str, pa.DataType] = {
    **{name.lower(): dtype for name, dtype in TYPES.items() if name.lower() not in _NOT_FUNCTIONS},
    # Unlike the type of a cast, the function `timestamp` has a zone under every setting.
    "timestamp": INSTANT,
    "decimal": pa.decimal128(10, 0),
}
_FINE_TIME = re.compile(r"\.[0-9]{7}")
#: Casts of columns that keep every value as it is.
_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.int64(): (pa.float64(),),
    pa.float32(): (pa.float64(),),
    pa.date32(): (CLOCK,),
}


def typed_number(text: str, suffix: str, settings: SqlSettings) -> Typed:
    """Return the literal of a number.

    - `text`: The digits, with or without a sign.
    - `suffix`: In upper case; empty for none.

    Raises TypeError: the number does not fit its type, or has more digits than any type.
    """
    number = Decimal(text)
    is_whole = not set(text) & set(".eE")
    if suffix in _INTEGERS:
        dtype = _INTEGERS[suffix]
        limit = 1 << dtype.bit_width - 1
        if not -limit <= number < limit:
            raise TypeError(f"the number does not fit its suffix {suffix}")
        return Typed(int(number), dtype, True)
    if suffix == "" and is_whole:
        # The size is checked first, because Python is slow to parse an integer of many digits.
        return decimal(number) if number.adjusted() > 18 else integer(int(number))
    if suffix in ("F", "D") or (
        suffix == "" and set(text) & set("eE") and not settings.exponent_literals_as_decimals
    ):
        largest = _LARGEST_FLOAT if suffix == "F" else _LARGEST_DOUBLE
        # Unlike `abs`, it does not round, which raises an error for huge exponents.
        if number.copy_abs() > largest:
            raise TypeError("the number is too large for its type")
        if suffix == "F":
            return Typed(to_float32(number), pa.float32(), True)
        return Typed(float(text), pa.float64(), True)
    exponent = number.as_tuple().exponent
    if settings.negative_scale and isinstance(exponent, int) and exponent > 0:
        raise TypeError(
            "decimals with a negative scale are not read; write the digits, or set "
            "spark.sql.legacy.allowNegativeScaleOfDecimal=false"
        )
    return decimal(number)


def typed_literal(prefix: str, text: str, settings: SqlSettings) -> Typed:
    """Return the literal of a string with a prefix.

    - `prefix`: A value of `syntax.LITERAL_TYPES`.

    Raises NoCommonTypeError, CastError.
    """
    if prefix == "x":
        return _bytes(text)
    if prefix == "time" and _FINE_TIME.search(text):
        # Releases of Spark give such a literal different types.
        raise NoCommonTypeError("write at most six digits after the second of a TIME")
    dtypes = {"date": pa.date32(), "time": TIME, "timestamp_ntz": CLOCK}
    dtype = dtypes.get(prefix, INSTANT)
    if prefix == "timestamp" and settings.timestamp_type == "TIMESTAMP_NTZ":
        dtype = INSTANT if has_zone(text) else CLOCK
    return cast(Typed(text, pa.string(), True), dtype, settings)


def _bytes(text: str) -> Typed:
    try:
        # `fromhex` skips white space, which Spark does not.
        if text and not text.isalnum():
            raise ValueError(text)
        data = bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}")
    except ValueError:
        raise NoCommonTypeError("X'...' must have hexadecimal digits") from None
    return Typed(data, pa.binary(), True)


def cast_to(
    operand: Operand, dtype: pa.DataType, settings: SqlSettings, *, null_if_failed: bool = False
) -> Operand:
    """Return an operand cast to a type. A column stays a column if the cast keeps every value.

    - `null_if_failed`: Whether it is a ``TRY_CAST``.

    Raises NoCommonTypeError, CastError, EvaluationError.
    """
    if isinstance(operand, Column):
        source = coercion.type_of(operand)
        if source.equals(dtype):
            return operand
        if dtype in _WIDER.get(source, ()) or (
            pat.is_decimal(source)
            and pat.is_decimal(dtype)
            and source.scale <= dtype.scale
            and source.precision - source.scale <= dtype.precision - dtype.scale
        ):
            return Column(operand.path, dtype)
    value = casted(computed.value_of(operand), dtype, settings, null_if_failed=null_if_failed)
    return computed.operand_of(value)
