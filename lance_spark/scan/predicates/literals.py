"""Python values as Arrow has them, without loss.

pyarrow cuts what does not fit: 2.7 becomes the integer 2, a time of day is left out of a date,
microseconds are left out of seconds, and what is too large for a small float becomes infinite. Rows
that are chosen by such a value are not those that were meant. Floats are rounded to the precision
of their type all the same: 0.1 is meant to equal 0.1 in a column of float32.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping, Sequence, ValuesView
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.row_size import WIDEST, is_too_wide

#: Digits of the widest decimal.
_MOST_DIGITS = 76
_SEVERAL = (list, tuple, set, frozenset, KeysView, ValuesView)


def to_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value as a scalar of a type.

    Parameters
    ----------
    value : object or pa.Scalar
    kind : pa.DataType
        No dictionary and no extension type.

    Raises
    ------
    pa.ArrowException, TypeError, ValueError, OverflowError
        It is no value of the type.
    """
    if isinstance(value, pa.ExtensionScalar | pa.DictionaryScalar):
        value = value.value
    if isinstance(value, pa.Scalar):
        if value.type == kind:
            return value
        if not pat.is_nested(kind):
            array = pa.array([value])
            cast = array.cast(kind)
            check_exact(array, cast)
            return cast[0]
        value = value.as_py()
    return to_array([value], kind)[0]


def to_array(values: Any, kind: pa.DataType) -> pa.Array:
    """Return values, a sequence or an array of NumPy, as an array of a type; see `to_scalar`."""
    if is_too_wide(kind):
        # Arrow makes room for a value before it looks whether it is one.
        raise ValueError(f"a value of type {kind} takes more than {WIDEST} bytes")
    _check_digits(values)
    array = pa.array(_halves(values) if pat.is_float16(kind) else values, kind)
    _check_finer(values, kind)
    if pat.is_map(kind) or any(pat.is_map(one) or _is_coarse(one) for one in _below(kind)):
        # Mappings, on their own, are structs to Arrow.
        _check_parts(list(values), kind)
        return array
    try:
        meant = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Values of several types are no array of their own.
        _check_parts(list(values), kind)
        return array
    check_exact(meant, array)
    return array


def is_too_long(number: Decimal) -> bool:
    """Tell whether no decimal type has so many digits: Arrow would write all of them, of 1E+999999999 too."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return False
    return max(len(digits), len(digits) + exponent, -exponent) > _MOST_DIGITS


def _check_digits(values: Any) -> None:
    if isinstance(values, Mapping):
        _check_digits(values.keys())
        _check_digits(values.values())
    elif isinstance(values, _SEVERAL):
        for one in values:
            if isinstance(one, Decimal):
                if is_too_long(one):
                    raise ValueError(f"a decimal has {_MOST_DIGITS} digits at most")
            elif isinstance(one, (Mapping, *_SEVERAL)):
                _check_digits(one)


def _halves(values: Any) -> Any:
    """Return numbers as NumPy's float16: pyarrow 16 takes no others for them."""
    if isinstance(values, pa.Array | np.ndarray):
        return values
    # What becomes infinite is refused by those who look what it was.
    with np.errstate(over="ignore"):
        return [np.float16(one) if type(one) in (int, float) else one for one in values]


def _check_parts(values: Sequence[Any], kind: pa.DataType) -> None:
    """Check values of one type after those of another, and children on their own."""
    there = [one.as_py() if isinstance(one, pa.Scalar) else one for one in values]
    there = [one for one in there if one is not None]
    if pat.is_map(kind):
        pairs = [p for one in there for p in (one.items() if isinstance(one, Mapping) else one)]
        to_array([key for key, _ in pairs], kind.key_type)
        to_array([item for _, item in pairs], kind.item_type)
    elif _is_list(kind):
        to_array([item for one in there for item in one], kind.value_type)
    elif pat.is_struct(kind):
        names = {child.name for child in kind}
        others = {
            key for one in there if isinstance(one, Mapping) for key in one if key not in names
        }
        if others:
            raise ValueError(f"there is no {min(others)!r} in it, only {', '.join(sorted(names))}")
        for at, child in enumerate(kind):
            items = [
                one.get(child.name) if isinstance(one, Mapping) else tuple(one)[at] for one in there
            ]
            to_array(items, child.type)
    else:
        by_type: dict[type, list[Any]] = {}
        for one in there:
            by_type.setdefault(type(one), []).append(one)
        for alike in by_type.values():
            try:
                meant = pa.array(alike)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                # Integers for decimals that are no 64-bit ones, for example.
                continue
            check_exact(meant, pa.array(alike, kind))


def _check_finer(values: Any, kind: pa.DataType) -> None:
    """Refuse nanoseconds of pandas where the unit is coarser: Arrow takes its values for those of Python, which have none."""
    if not _is_coarse(kind) or isinstance(values, np.ndarray):
        return
    for one in values:
        if getattr(one, "nanosecond", 0) or getattr(one, "nanoseconds", 0):
            raise ValueError(f"{one} has nanoseconds, which {kind} has not")


def _below(kind: pa.DataType) -> Iterator[pa.DataType]:
    for at in range(kind.num_fields):
        child = kind.field(at).type
        yield child
        yield from _below(child)


def check_exact(meant: pa.Array, array: pa.Array) -> None:
    """Compare values with what another type has made of them.

    Raises
    ------
    ValueError, pa.ArrowException
    """
    kind = array.type
    if _is_list(kind) and _is_list(meant.type):
        check_exact(meant.flatten(), array.flatten())
    elif pat.is_struct(kind) and pat.is_struct(meant.type):
        for field in meant.type:
            place = kind.get_field_index(field.name)
            if place < 0:
                names = ", ".join(one.name for one in kind)
                raise ValueError(f"there is no {field.name!r} in it, only {names}")
            check_exact(meant.field(field.name), array.field(place))
    elif pat.is_integer(kind) and (pat.is_floating(meant.type) or pat.is_decimal(meant.type)):
        meant.cast(kind)
    elif pat.is_floating(kind) and (pat.is_floating(meant.type) or pat.is_integer(meant.type)):
        wide, narrow = (one.cast(pa.float64()).to_numpy(False) for one in (meant, array))
        lost = np.isinf(narrow) & ~np.isinf(wide)
        if lost.any():
            raise ValueError(f"{wide[lost][0]} is too large")
        if pat.is_integer(meant.type) and (wide != narrow)[~np.isnan(wide)].any():
            raise ValueError(f"an integer cannot be told from others as {kind}")
    elif pat.is_date(kind) and pat.is_timestamp(meant.type):
        clock = pa.timestamp(meant.type.unit)
        wide = meant.cast(pa.timestamp(meant.type.unit, meant.type.tz)).cast(pa.int64())
        if not array.cast(clock).cast(pa.int64()).equals(wide):
            raise ValueError("there is a time of day in it, which a date has not")
    elif _has_unit(kind) and _has_unit(meant.type):
        _check_unit(meant, kind)


def _check_unit(meant: pa.Array, kind: pa.DataType) -> None:
    if pat.is_timestamp(kind) and pat.is_timestamp(meant.type):
        # The zone moves no instant.
        meant.cast(pa.timestamp(meant.type.unit, kind.tz)).cast(kind)
    else:
        meant.cast(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind))


def _is_coarse(kind: pa.DataType) -> bool:
    return _has_unit(kind) and kind.unit != "ns"


def _has_unit(kind: pa.DataType) -> bool:
    return bool(pat.is_timestamp(kind) or pat.is_duration(kind) or pat.is_time(kind))
