"""Coercion: predicates on columns and literals of any types, with Spark's rules for comparisons.

`common_types` chooses the type in which both sides are compared. A literal is cast to it
(`literal_casts`). The column is not cast: the comparison is turned into bounds on the column's own
values (`cast_bounds`), so that statistics apply. Two columns are both cast. Comparisons for which
Spark would cast each string of a column, or which depend on clocks that are put back, are refused.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.logical_types import SPARK_TYPE
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates.cast_bounds import bounded, order_of, ordinals
from lance_spark.scan.predicates.column_predicates import (
    ColumnMatch,
    Compare,
    CompareColumns,
    In,
    IsNull,
)
from lance_spark.scan.predicates.common_types import (
    NoCommonTypeError,
    comparison_type,
    decimal_for,
    list_type,
)
from lance_spark.scan.predicates.comparison import Op, kernel_type, like_regex
from lance_spark.scan.predicates.literal_casts import CastError, cast
from lance_spark.scan.predicates.sql_settings import DEFAULTS, SqlSettings
from lance_spark.scan.predicates.tree import And, Column, Constant, Or, Predicate
from lance_spark.scan.predicates.typed_values import (
    DURATION,
    INSTANT,
    TIME,
    Typed,
    is_bytes,
    is_datetime,
    is_number,
    is_text,
    shown_type,
    type_name,
)

_INT64 = range(-(1 << 63), 1 << 63)
_ORDERED: tuple[Op, ...] = ("<", "<=", ">", ">=")


def column(
    schema: Schema, path: Sequence[str], exact: bool | None = None, *, takes_blobs: bool = False
) -> Column:
    """Find a column by its path.

    - `schema`: Of the table.
    - `path`: Names from the top-level column down.
    - `exact`: Whether the case of letters matters. If left out, an exact match comes before other
      matches.
    - `takes_blobs`: Whether the column may be a blob: only `IsNull` can test one.

    Raises InvalidInputError: the column is not found or ambiguous, is inside a list or map, or is a
    blob.
    """
    result: list[Field] = []
    fields: Sequence[Field] = schema.fields
    for depth, name in enumerate(path):
        if result and (result[-1].is_blob or not pat.is_struct(result[-1].arrow_field.type)):
            raise InvalidInputError(
                f"filter: column {'.'.join(path[:depth])} is not a struct and has no child {name!r}"
            )
        result.append(_named(name, fields, path, exact))
        fields = result[-1].children
    if result[-1].is_blob and not takes_blobs:
        raise InvalidInputError(
            f"filter: column {'.'.join(path)} is a blob, which a filter tests only by IS [NOT] "
            "NULL; compare the bytes of a read with blob_handling=all_binary"
        )
    return Column(tuple(result))


def check_compared_by_bytes(column: Column) -> None:
    """Refuse a column whose strings Spark does not compare by their bytes.

    Raises InvalidInputError: the strings have a collation, or the type char(n), whose values Spark
    pads.
    """
    dtype = column.field.metadata.get(SPARK_TYPE, b"").decode(errors="replace")
    if dtype.startswith("char(") or " collate " in dtype:
        raise InvalidInputError(
            f"filter: column {column} is {dtype}, which Spark does not compare by bytes; filter by "
            "DataFrame.where or by SQL"
        )


def _named(name: str, fields: Sequence[Field], path: Sequence[str], exact: bool | None) -> Field:
    if exact is not False:
        for field in fields:
            if field.name == name:
                return field
    matches = [] if exact else [field for field in fields if field.name.lower() == name.lower()]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(field.name for field in (matches or fields))
    if matches:
        raise InvalidInputError(
            f"filter: column {'.'.join(path)} is ambiguous: the names {names} differ only in the "
            "case of letters; set spark.sql.caseSensitive=true to distinguish them"
        )
    hint = ""
    if len(path) > 1 and any(field.name.lower() == ".".join(path).lower() for field in fields):
        hint = f"; write a name with a dot in backticks, as `{'.'.join(path)}`"
    raise InvalidInputError(
        f"filter: column {'.'.join(path)} not found; the columns are {names}{hint}"
    )


def compare(column: Column, op: Op, value: Any, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the comparison of a column with a literal.

    - `value`: A literal, or a value that `Typed.of` accepts. The comparison with null is null for
      all rows.

    Raises InvalidInputError: Spark does not compare the types, or this package does not.
    """
    literal, shown = _typed(column, value), type_of(column)
    if literal.value is None:
        # Spark refuses also a null of a type that cannot be compared.
        _common(column, literal, settings)
        return Constant(None)
    is_decimal = literal.written and pat.is_decimal(literal.dtype)
    if is_decimal and op in _ORDERED and pat.is_integer(shown):
        return _compare_integers(column, op, literal.value, settings)
    return _compare_as(column, op, literal, _common(column, literal, settings), settings)


def _compare_integers(column: Column, op: Op, value: Decimal, settings: SqlSettings) -> Predicate:
    """Return the comparison of integers with a decimal literal, which Spark rounds first."""
    unsigned = pat.is_uint64(dtype_of(column.field))
    above = value > _INT64.stop - 1
    # Spark decides this while it plans, so that the result is the same for null.
    holds = above == (op in ("<", "<="))
    if value < _INT64.start or value > (_INT64.stop << unsigned) - 1:
        return Constant(holds)
    integer = math.floor(value) if op in (">", "<=") else math.ceil(value)
    literal = Typed(integer, pa.int64())
    compared = _compare_as(column, op, literal, pa.int64(), settings)
    if not above:
        return compared
    # A uint64 column can have values past int64, which Spark does not have.
    if holds:
        return Or((IsNull(column), compared))
    return And((IsNull(column, inverted=True), compared))


def compare_columns(
    left: Column, op: Op, right: Column, settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the comparison of two columns.

    Raises InvalidInputError: the types cannot be compared.
    """
    types = type_of(left), type_of(right)
    try:
        common = comparison_type(*types, settings)
    except NoCommonTypeError as error:
        raise InvalidInputError(f"filter on {str(left)!r} and {str(right)!r}: {error}") from None
    return _compare_columns_as(left, op, right, common)


def null_safe_equal(column: Column, value: Any, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the condition that a column equals a literal, where null equals null. Never null.

    Raises InvalidInputError.
    """
    literal = _typed(column, value)
    if literal.value is None:
        if not pat.is_null(literal.dtype):
            _common(column, literal, settings)
        return IsNull(column)
    equal = compare(column, "==", literal, settings)
    # False if the column is null, where the comparison is null.
    return And((IsNull(column, inverted=True), equal))


def null_safe_equal_columns(
    left: Column, right: Column, settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that two columns are equal, or both null. Never null.

    Raises InvalidInputError.
    """
    equal = compare_columns(left, "==", right, settings)
    valid = And((IsNull(left, inverted=True), IsNull(right, inverted=True), equal))
    return Or((And((IsNull(left), IsNull(right))), valid))


def is_in(column: Column, values: Sequence[Any], settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the condition that a column equals one of some values.

    - `values`: The column and all values are compared in one type.

    Raises InvalidInputError: a value cannot be compared with the column.
    """
    shown = type_of(column)
    items = [item if isinstance(item, Column) else _typed(column, item) for item in values]
    types = [type_of(item) if isinstance(item, Column) else item.dtype for item in items]
    try:
        common = list_type([shown, *types], settings)
    except NoCommonTypeError as error:
        raise InvalidInputError(f"filter on {str(column)!r}: {error}") from None
    parts: list[Predicate] = [
        _compare_columns_as(column, "==", item, common)
        for item in items
        if isinstance(item, Column)
    ]
    literals = [item for item in items if isinstance(item, Typed)]
    if literals:
        parts = [*_in_parts(column, literals, common, settings), *parts]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def match(column: Column, match_kind: str, text: Any) -> Predicate:
    """Return the condition that a column of strings or bytes matches a text or a pattern.

    - `match_kind`: "starts", "ends", "contains" or "like".

    Raises InvalidInputError: the column has another type, or the pattern is not valid.
    """
    dtype = dtype_of(column.field)
    if text is None:
        return Constant(None)
    if is_text(dtype):
        fits = isinstance(text, str)
    else:
        fits = isinstance(text, bytes) and match_kind != "like" and is_bytes(dtype)
    if not fits:
        raise InvalidInputError(
            f"filter on {str(column)!r}: {dtype} cannot be matched with {text!r}"
        )
    if match_kind == "like":
        return like(column, text)
    if match_kind not in ("starts", "ends", "contains"):
        raise InvalidInputError(
            f"filter on {str(column)!r}: a match must be one of starts, ends, contains, like, not "
            f"{match_kind!r}"
        )
    return ColumnMatch(column, match_kind, text)  # type: ignore[arg-type]


def like(column: Column, pattern: str, escape: str = "\\") -> Predicate:
    """Return the condition that a column of strings is ``LIKE`` a pattern; see `like_regex`.

    Raises InvalidInputError: the pattern is not valid.
    """
    try:
        match_kind, text = like_regex(pattern, escape)
    except ValueError as error:
        raise InvalidInputError(f"filter on {str(column)!r}: {error}") from None
    return ColumnMatch(column, match_kind, text)


def dtype_of(field: Field) -> pa.DataType:
    """Return the type of a field's values, without dictionary and extension type."""
    dtype = field.arrow_field.type
    if isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    return dtype.value_type if pat.is_dictionary(dtype) else dtype


def _typed(column: Column, value: Any) -> Typed:
    try:
        return Typed.of(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"filter on {str(column)!r}: {error}") from None


def type_of(column: Column) -> pa.DataType:
    """Return the type of a column in Spark, or the type that it is cast to."""
    shown = shown_type(column.cast_type or column.field.arrow_field.type)
    if shown is None or pat.is_null(shown):
        raise InvalidInputError(
            f"filter on {str(column)!r}: comparisons of {column.field.arrow_field.type} are not "
            "supported; compare its children, or leave it to DataFrame.where"
        )
    return shown


def _common(column: Column, literal: Typed, settings: SqlSettings) -> pa.DataType:
    shown = type_of(column)
    try:
        return comparison_type(shown, literal, settings)
    except NoCommonTypeError as error:
        raise _not_compared(column, literal, str(error)) from None


def _compare_as(
    column: Column, op: Op, literal: Typed, common: pa.DataType, settings: SqlSettings
) -> Predicate:
    value = _cast(column, literal, common, settings)
    uncast = Column(column.path)
    spark_type, order = type_of(uncast), order_of(kernel_type(dtype_of(column.field)))
    if order is None:
        scalar = _scalar_of_column(uncast, value)
        if scalar is not None:
            return Compare(uncast, op, scalar)
        return Compare(Column(column.path, pa.binary()), op, pa.scalar(value.value, pa.binary()))
    try:
        return bounded(uncast, order, spark_type, op, value, settings)
    except (ValueError, OverflowError) as error:
        raise _not_compared(column, literal, str(error)) from None


def _in_parts(
    column: Column, literals: Sequence[Typed], common: pa.DataType, settings: SqlSettings
) -> list[Predicate]:
    """Return an `In` for literals that one value equals, and ranges for literals that more values
    equal.

    Several values of a column can be equal to a literal after the cast to the common type.
    """
    uncast, dtype = Column(column.path), kernel_type(dtype_of(column.field))
    valid = [literal for literal in literals if literal.value is not None]
    spark_type, order = type_of(uncast), order_of(dtype)
    types = {dtype, common, *(literal.dtype for literal in valid)}
    if order is not None and all(map(pat.is_integer, types)):
        # A cast to a wider integer changes no value; other values equal none of the column.
        numbers = [item.value for item in valid if order.low <= item.value <= order.high]
        return [In(uncast, pa.array(numbers, dtype), len(valid) < len(literals))]
    values: list[pa.Scalar] = []
    ranges: list[Predicate] = []
    for literal in valid:
        value = _cast(column, literal, common, settings)
        if order is None:
            scalar = _scalar_of_column(uncast, value)
            # Bytes of another length do not equal any value.
            values += [] if scalar is None else [scalar]
            continue
        try:
            first, after = ordinals(order, spark_type, value, settings)
        except (ValueError, OverflowError) as error:
            raise _not_compared(column, literal, str(error)) from None
        if after == first + 1:
            values.append(order.scalar(first))
        elif after > first:
            ranges.append(bounded(uncast, order, spark_type, "==", value, settings))
    parts: list[Predicate] = [In(uncast, pa.array(values, dtype), len(valid) < len(literals))]
    return [*parts, *ranges]


def _cast(column: Column, literal: Typed, common: pa.DataType, settings: SqlSettings) -> Typed:
    if is_text(type_of(column)) and not is_text(common):
        raise _not_compared(
            column, literal, f"Spark casts each string to {type_name(common)}; write a string"
        )
    if not literal.dtype.equals(common) and pat.is_decimal256(common):
        # Spark does not have such a column. The literal is compared without a cast.
        if not isinstance(literal.value, int | Decimal):
            raise _not_compared(column, literal, "write a decimal")
        return Typed(literal.value, common)
    try:
        return cast(literal, common, settings)
    except CastError as error:
        raise _not_compared(column, literal, str(error)) from None


def _scalar_of_column(column: Column, literal: Typed) -> pa.Scalar | None:
    """Return a string, bytes or bool in the column's type; None for bytes of another length."""
    dtype = dtype_of(column.field)
    if pat.is_fixed_size_binary(dtype) and len(literal.value) != dtype.byte_width:
        return None
    try:
        return pa.scalar(literal.value, dtype)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _not_compared(column, literal, str(error)) from None


def _compare_columns_as(left: Column, op: Op, right: Column, common: pa.DataType) -> Predicate:
    dtypes = dtype_of(left.field), dtype_of(right.field)
    if dtypes[0].equals(dtypes[1]) and shown_type(dtypes[0]) == common:
        return CompareColumns(Column(left.path), op, Column(right.path))
    cast_type = _cast_type([type_of(left), type_of(right)], dtypes, common)
    if cast_type is None:
        raise InvalidInputError(
            f"filter: the comparison of {left}, which is {dtypes[0]}, with {right}, which is "
            f"{dtypes[1]}, is not supported; leave it to DataFrame.where"
        )
    return CompareColumns(Column(left.path, cast_type), op, Column(right.path, cast_type))


def _cast_type(
    spark_types: Sequence[pa.DataType], dtypes: Sequence[pa.DataType], common: pa.DataType
) -> pa.DataType | None:
    """Return a type for columns in which they compare as Spark compares them; None if not known.

    - `spark_types`: Types of the columns in Spark.
    - `dtypes`: Types of the stored values, which can be finer: nanoseconds, or uint64.
    - `common`: The type in which Spark compares them.
    """
    if is_text(common):
        return pa.large_string() if all(map(is_text, spark_types)) else None
    if is_bytes(common):
        return pa.large_binary() if all(map(is_bytes, spark_types)) else None
    if pat.is_timestamp(common):
        if not all(map(is_datetime, spark_types)):
            return None
        if common.equals(INSTANT) and any(not dtype.equals(INSTANT) for dtype in spark_types):
            return None
        units = [dtype.unit for dtype in dtypes if pat.is_timestamp(dtype)]
        return pa.timestamp("ns" if "ns" in units else "us", common.tz)
    if common in (TIME, DURATION):
        if not all(dtype.equals(common) for dtype in spark_types):
            return None
        if all(dtype.unit != "ns" for dtype in dtypes):
            return common
        return pa.time64("ns") if common.equals(TIME) else pa.duration("ns")
    if not all(map(is_number, spark_types)):
        return common if all(dtype.equals(common) for dtype in spark_types) else None
    if pat.is_integer(common):
        # Spark does not have a type for all values of uint64.
        return pa.decimal128(20, 0) if any(map(pat.is_uint64, dtypes)) else common
    if pat.is_decimal(common):
        decimals = [decimal_for(t) if pat.is_integer(t) else t for t in spark_types]
        digits = common.precision - common.scale
        if any(t.scale > common.scale or t.precision - t.scale > digits for t in decimals):
            return None
    return common


def _not_compared(column: Column, literal: Typed, reason: str) -> InvalidInputError:
    value = literal.value
    if pat.is_temporal(literal.dtype):
        value = _shown_time(value, literal.dtype)
    elif isinstance(value, Decimal | datetime.date):
        value = str(value)
    text = value if isinstance(value, str) and not is_text(literal.dtype) else repr(value)
    text = text if len(text) <= 100 else f"{text[:100]}..."
    return InvalidInputError(
        f"filter on {str(column)!r}: {dtype_of(column.field)} is not compared with {text}: {reason}"
    )


def _shown_time(value: int, dtype: pa.DataType) -> str:
    try:
        return str(pa.scalar(value, dtype))
    except (OverflowError, ValueError):
        # The dates of Python end with the year 9999.
        return f"{value} {'days' if pat.is_date(dtype) else 'microseconds'} since 1970"
