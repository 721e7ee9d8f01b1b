"""Number literals, and the names of types."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lance_spark.scan.predicates.rounding import to_float32
from lance_spark.scan.predicates.sql_settings import SqlSettings
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


def typed_number(text: str, suffix: str, settings: SqlSettings) -> Typed:
    """Return the literal of a number.

    Parameters
    ----------
    text : str
        The digits, with or without a sign.
    suffix : str
        In upper case; empty for none.
    settings : SqlSettings

    Raises
    ------
    TypeError
        The number does not fit its type, or has more digits than any type.
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
        if abs(number) > largest:
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
