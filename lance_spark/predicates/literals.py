"""Conversion of Python values to Arrow without loss.

pyarrow truncates values: 2.7 becomes the integer 2, a date loses a time of day, seconds lose
microseconds, and a value too large for a float becomes infinite. A filter or an update with such a
value would not do what the caller meant. Only floats are rounded to the precision of their type:
0.1 equals 0.1 in a column of float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import WIDEST_NULL, is_too_wide

#: Digits of the widest decimal.
_MAX_DIGITS = 76
_COLLECTIONS = (list, tuple, set, frozenset, KeysView, ValuesView)


def to_scalar(value: Any, dtype: pa.DataType) -> pa.Scalar:
    """Return a value as a scalar of a type.

    - `dtype`: Not a dictionary and not an extension type.

    Raises pa.ArrowException, TypeError, ValueError, OverflowError: the type cannot represent the
    value exactly.
    """
    if isinstance(value, pa.ExtensionScalar | pa.DictionaryScalar):
        value = value.value
    if isinstance(value, pa.Scalar):
        if value.type == dtype:
            return value
        if not pat.is_nested(dtype):
            array = pa.array([value])
            cast = array.cast(dtype)
            check_exact(array, cast)
            return cast[0]
        value = value.as_py()
    return to_array([value], dtype)[0]


def to_array(values: Any, dtype: pa.DataType) -> pa.Array:
    """Return values, a sequence or an array of NumPy, as an array of a type; see `to_scalar`."""
    if is_too_wide(dtype):
        # Arrow allocates memory for a value before it checks it.
        raise ValueError(f"a value of type {dtype} takes more than {WIDEST_NULL} bytes")
    _check_digits(values)
    array = _as_array(values, dtype)
    _check_nanoseconds(values, dtype)
    if pat.is_map(dtype) or any(pat.is_map(d) or _is_coarse(d) for d in _descendants(dtype)):
        # Without a type, Arrow converts mappings to structs.
        _check_parts(list(values), dtype)
        return array
    try:
        untyped = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Arrow cannot infer a type for values of several types.
        _check_parts(list(values), dtype)
        return array
    check_exact(untyped, array)
    return array


def is_too_long(number: Decimal) -> bool:
    """Return whether a decimal has more digits than any type.

    Arrow would write all digits, also of 1E+999999999.
    """
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return False
    return max(len(digits), len(digits) + exponent, -exponent) > _MAX_DIGITS


def _check_digits(values: Any) -> None:
    if isinstance(values, Mapping):
        _check_digits(values.keys())
        _check_digits(values.values())
    elif isinstance(values, _COLLECTIONS):
        for value in values:
            if isinstance(value, Decimal):
                if is_too_long(value):
                    raise ValueError(f"a decimal has at most {_MAX_DIGITS} digits")
            elif isinstance(value, (Mapping, *_COLLECTIONS)):
                _check_digits(value)


def _as_array(values: Any, dtype: pa.DataType) -> pa.Array:
    """Return values as an array of a type. pyarrow 19 takes only NumPy's float16 for float16."""
    wide = _widened(dtype)
    if wide == dtype or isinstance(values, pa.Array):
        return pa.array(values, dtype)
    if not hasattr(values, "__array__"):
        values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    # `check_exact` refuses values that become infinite.
    return pa.array(values, wide).cast(dtype)


def _widened(dtype: pa.DataType) -> pa.DataType:
    """Return a type with float64 in place of float16, at any depth."""
    if pat.is_float16(dtype):
        return pa.float64()
    if pat.is_map(dtype):
        key, item = _widened_field(dtype.key_field), _widened_field(dtype.item_field)
        return pa.map_(key, item, dtype.keys_sorted)
    if pat.is_struct(dtype):
        return pa.struct([_widened_field(child) for child in dtype])
    if pat.is_fixed_size_list(dtype):
        return pa.list_(_widened_field(dtype.value_field), dtype.list_size)
    if pat.is_large_list(dtype):
        return pa.large_list(_widened_field(dtype.value_field))
    return pa.list_(_widened_field(dtype.value_field)) if pat.is_list(dtype) else dtype


def _widened_field(field: pa.Field) -> pa.Field:
    return field.with_type(_widened(field.type))


def _check_parts(values: Sequence[Any], dtype: pa.DataType) -> None:
    """Check children separately, and values of different Python types separately."""
    valid = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    valid = [value for value in valid if value is not None]
    if pat.is_map(dtype):
        pairs = [
            pair
            for value in valid
            for pair in (value.items() if isinstance(value, Mapping) else value)
        ]
        to_array([key for key, _ in pairs], dtype.key_type)
        to_array([item for _, item in pairs], dtype.item_type)
    elif _is_list(dtype):
        to_array([item for value in valid for item in value], dtype.value_type)
    elif pat.is_struct(dtype):
        names = {child.name for child in dtype}
        unknown = {
            key
            for value in valid
            if isinstance(value, Mapping)
            for key in value
            if key not in names
        }
        if unknown:
            raise _unknown_field(min(unknown), sorted(names))
        for index, child in enumerate(dtype):
            items = [
                value.get(child.name) if isinstance(value, Mapping) else tuple(value)[index]
                for value in valid
            ]
            to_array(items, child.type)
    else:
        by_type: dict[type, list[Any]] = {}
        for value in valid:
            by_type.setdefault(type(value), []).append(value)
        for of_type in by_type.values():
            try:
                untyped = pa.array(of_type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                # For example integers of more than 64 bits, for a decimal type.
                continue
            check_exact(untyped, _as_array(of_type, dtype))


def _unknown_field(name: str, names: Iterable[str]) -> ValueError:
    return ValueError(f"field {name!r} not found in the struct, which has {', '.join(names)}")


def _check_nanoseconds(values: Any, dtype: pa.DataType) -> None:
    """Refuse nanoseconds of pandas if the unit is coarser.

    Arrow converts pandas' values like Python's, which have no nanoseconds.
    """
    if not _is_coarse(dtype) or isinstance(values, np.ndarray):
        return
    for value in values:
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise ValueError(f"{value} has nanoseconds, but {dtype} does not")


def _descendants(dtype: pa.DataType) -> Iterator[pa.DataType]:
    for index in range(dtype.num_fields):
        child = dtype.field(index).type
        yield child
        yield from _descendants(child)


def check_exact(original: pa.Array, array: pa.Array) -> None:
    """Check that the conversion of an array to another type has lost nothing.

    Raises ValueError, pa.ArrowException.
    """
    dtype, source = array.type, original.type
    if _is_list(dtype) and _is_list(source):
        check_exact(original.flatten(), array.flatten())
    elif pat.is_struct(dtype) and pat.is_struct(source):
        for field in source:
            index = dtype.get_field_index(field.name)
            if index < 0:
                raise _unknown_field(field.name, (child.name for child in dtype))
            check_exact(original.field(field.name), array.field(index))
    elif pat.is_integer(dtype) and (pat.is_floating(source) or pat.is_decimal(source)):
        original.cast(dtype)
    elif pat.is_floating(dtype) and (pat.is_floating(source) or pat.is_integer(source)):
        wide, narrow = (side.cast(pa.float64()).to_numpy(False) for side in (original, array))
        overflows = np.isinf(narrow) & ~np.isinf(wide)
        if overflows.any():
            raise ValueError(f"{wide[overflows][0]} is too large")
        if pat.is_integer(source) and (wide != narrow)[~np.isnan(wide)].any():
            raise ValueError(f"an integer is not exact as {dtype}")
    elif pat.is_date(dtype) and pat.is_timestamp(source):
        clock = pa.timestamp(source.unit)
        wide = original.cast(pa.timestamp(source.unit, source.tz)).cast(pa.int64())
        if not array.cast(clock).cast(pa.int64()).equals(wide):
            raise ValueError("it has a time of day, but a date does not")
    elif _has_unit(dtype) and _has_unit(source):
        if pat.is_timestamp(dtype) and pat.is_timestamp(source):
            # The zone of a timestamp does not change the instant.
            original = original.cast(pa.timestamp(source.unit, dtype.tz))
        original.cast(dtype)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_fixed_size_list(dtype))


def _is_coarse(dtype: pa.DataType) -> bool:
    return _has_unit(dtype) and dtype.unit != "ns"


def _has_unit(dtype: pa.DataType) -> bool:
    return bool(pat.is_timestamp(dtype) or pat.is_duration(dtype) or pat.is_time(dtype))
