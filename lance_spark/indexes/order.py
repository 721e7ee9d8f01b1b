"""The order of values in indexes: nulls first, floats in the total order of IEEE 754.

Values become unsigned integers with the same order: strings and binary values become their next
eight bytes. An integer and its position are packed into one word of 64 bits: numpy sorts words
several times as fast as it sorts positions by words. Bits that do not fit into a word, and the next
bytes of strings, decide among values that are equal so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers, is_in
from lance_spark.predicates.comparison import compared, has_nan, is_nan, with_one_zero
from lance_spark.predicates.conditions import Bound

#: Signed integers in the order of the floats of the same width.
_KEY_TYPES = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
#: Types of values with as many bits as integers, and their order.
_LIKE_INTEGERS = (pat.is_integer, pat.is_temporal)
_TEXT = (pat.is_string, pat.is_binary, pat.is_large_string, pat.is_large_binary)
_KEY_BYTES = 8
#: Parts of `_KEY_BYTES` bytes of a text that are compared; Arrow compares what is left.
_MAX_PARTS = 8
#: Values by which the number of distinct values is judged.
_SAMPLE = 1 << 14

_Keys = npt.NDArray[np.uint64]


def order_of(values: pa.Array, *, in_runs: bool = False) -> RowNumbers:
    """Return the positions of values in the order of indexes; equal values in their given order.

    - `in_runs`: Whether the values consist of a few sorted runs, which take less time.

    Raises pa.ArrowNotImplementedError: the type has no order.
    """
    dtype = values.type
    is_text = any(test(dtype) for test in _TEXT)
    is_number = pat.is_floating(dtype) or any(test(dtype) for test in _LIKE_INTEGERS)
    if not is_text and not is_number:
        return _arrow_order(values)
    if not values.null_count:
        return (
            _text_order(values, in_runs) if is_text else _key_order(_number_keys(values), in_runs)
        )
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(~is_null)
    return np.concatenate(
        [np.flatnonzero(is_null), places[order_of(values.drop_null(), in_runs=in_runs)]]
    )


def _arrow_order(values: pa.Array) -> RowNumbers:
    import pyarrow.compute as pc

    indices: RowNumbers = pc.array_sort_indices(values, null_placement="at_start").to_numpy()
    return indices.astype(np.int64)


def _number_keys(values: pa.Array) -> _Keys:
    """Return unsigned integers in the order of numbers, which are not null."""
    if pat.is_floating(values.type):
        values = float_keys(values)
    if pat.is_unsigned_integer(values.type):
        unsigned: _Keys = values.to_numpy().astype(np.uint64)
        return unsigned
    integers = values.view(_KEY_TYPES.get(values.type.bit_width, pa.int8())).to_numpy()
    keys: _Keys = integers.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    return keys


def _key_order(keys: _Keys, in_runs: bool = False) -> RowNumbers:
    """Return the positions of keys in increasing order; equal keys in their given order."""
    if in_runs:
        # The stable sort of numpy merges runs.
        return np.argsort(keys, kind="stable")
    if len(keys) < 2:
        return np.arange(len(keys))
    keys, bits = _shortened(keys)
    low_bits = bits + _bits(len(keys) - 1) - 64
    if low_bits <= 0:
        return _packed_order(keys)
    # The bits that fit, and then the others among keys that are equal so far.
    order = _packed_order(keys >> np.uint64(low_bits))
    for places, group in _tied((keys >> np.uint64(low_bits))[order]):
        tail = keys[order[places]] & np.uint64((1 << low_bits) - 1)
        words = (group.astype(np.uint64) << np.uint64(low_bits)) | tail
        order[places] = order[places][np.argsort(words, kind="stable")]
    return order


def _shortened(keys: _Keys) -> tuple[_Keys, int]:
    """Return keys in the same order, without bits that all have, and the number of bits."""
    keys = keys - keys.min()
    varying = int(np.bitwise_or.reduce(keys))
    zeros = max((varying & -varying).bit_length() - 1, 0)
    return keys >> np.uint64(zeros), _bits(varying >> zeros)


def _packed_order(keys: _Keys) -> RowNumbers:
    """Return the order of keys which leave enough bits for their positions."""
    bits = _bits(len(keys) - 1)
    words = (keys << np.uint64(bits)) | np.arange(len(keys), dtype=np.uint64)
    words.sort()
    words &= np.uint64((1 << bits) - 1)
    order: RowNumbers = words.view(np.int64)
    return order


def _bits(number: int) -> int:
    return max(number.bit_length(), 1)


def _tied(ordered: npt.NDArray[Any]) -> Iterator[tuple[RowNumbers, RowNumbers]]:
    """Yield the places of equal neighbours, and a number for each group of them, if there are any.

    Groups are numbered in increasing order, and not without gaps.
    """
    is_same = ordered[1:] == ordered[:-1]
    if is_same.any():
        starts = np.concatenate([[True], ~is_same])
        places = np.flatnonzero(~starts | np.concatenate([is_same, [False]]))
        yield places, np.cumsum(starts[places]) - 1


def _text_order(values: pa.Array, in_runs: bool = False) -> RowNumbers:
    """Return the order of strings or binary values, which are not null."""
    import pyarrow.compute as pc

    if not len(values):
        return np.arange(0)
    if not in_runs and _repeats(values):
        encoded = values.dictionary_encode()
        rank = np.empty(len(encoded.dictionary), np.uint64)
        rank[_text_order(encoded.dictionary)] = np.arange(len(rank))
        return _key_order(rank[encoded.indices.to_numpy()])
    bounds = pc.min_max(values)
    first, last = (bounds[name].as_buffer().to_pybytes() for name in ("min", "max"))
    text = _Text(values, _common_bytes(first, last))
    keys = text.part(0, slice(None))
    order = _key_order(keys, in_runs)
    # Values that are equal so far are together.
    tied = next(_tied(keys[order]), None)
    part = 1
    while tied is not None:
        places, group = tied
        rows = order[places]
        if not text.has_part(part, rows):
            # A value is less than the same value with zero bytes after it.
            order[places] = rows[_grouped_order(group, text.lengths[rows].astype(np.uint64))[0]]
            break
        if part == _MAX_PARTS:
            columns = pa.table({"group": group, "value": values.take(pa.array(rows))})
            by = [("group", "ascending"), ("value", "ascending")]
            order[places] = rows[pc.sort_indices(columns, sort_keys=by).to_numpy()]
            break
        by_key, runs = _grouped_order(group, text.part(part, rows))
        order[places] = rows[by_key]
        tied = next(((places[same], group) for same, group in _tied(runs)), None)
        part += 1
    return order


def _common_bytes(first: bytes, last: bytes) -> int:
    """Return the number of bytes at the beginning that are equal."""
    shorter = min(len(first), len(last))
    return next((place for place in range(shorter) if first[place] != last[place]), shorter)


def _repeats(values: pa.Array) -> bool:
    """Return whether most values seem to occur often."""
    sample = values.take(pa.array(np.arange(0, len(values), -(-len(values) // _SAMPLE))))
    return len(values) >= _SAMPLE and len(sample.unique()) < len(sample) // 2


def _grouped_order(group: RowNumbers, keys: _Keys) -> tuple[RowNumbers, RowNumbers]:
    """Return the order by group, which increases, and by key in it; and numbers of equal pairs."""
    keys, bits = _shortened(keys)
    if bits + _bits(int(group[-1])) + _bits(len(keys) - 1) <= 64:
        order = _packed_order((group.astype(np.uint64) << np.uint64(bits)) | keys)
    else:
        order = _key_order(keys)
        order = order[_key_order(group[order].astype(np.uint64))]
    keys = keys[order]
    is_new = (group[1:] != group[:-1]) | (keys[1:] != keys[:-1])
    return order, np.cumsum(np.concatenate([[True], is_new]))


class _Text:
    """The bytes of strings or binary values, which are not null.

    - `skipped`: Bytes at the beginning of all values that are equal.
    - `lengths` (int64 array): Bytes of each value, without the skipped bytes.
    """

    def __init__(self, values: pa.Array, skipped: int) -> None:
        is_large = pat.is_large_string(values.type) or pat.is_large_binary(values.type)
        _, raw, data = values.buffers()
        offsets = np.frombuffer(raw, np.int64 if is_large else np.int32)
        offsets = offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
        self._starts = offsets[:-1] - offsets[0] + skipped
        self.lengths: RowNumbers = np.diff(offsets) - skipped
        size = int(offsets[-1] - offsets[0])
        content = np.zeros(size + 2 * _KEY_BYTES, np.uint8)
        if size:
            content[:size] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        #: The eight bytes from each byte on.
        self._windows: npt.NDArray[Any] = np.ndarray(
            (size + _KEY_BYTES,), ">u8", content, strides=(1,)
        )

    def has_part(self, part: int, rows: RowNumbers) -> bool:
        """Return whether one of the values has bytes in a part."""
        return bool((self.lengths[rows] > part * _KEY_BYTES).any())

    def part(self, part: int, rows: RowNumbers | slice) -> _Keys:
        """Return the eight bytes of a part as integers; zeros stand for missing bytes."""
        left = self.lengths[rows] - part * _KEY_BYTES
        starts = self._starts[rows] + part * _KEY_BYTES
        keys: _Keys = self._windows[np.where(left > 0, starts, 0)].astype(np.uint64)
        if left.min() < _KEY_BYTES:
            missing = np.clip(_KEY_BYTES - left, 0, _KEY_BYTES).astype(np.uint64) * np.uint64(8)
            # In two steps, as numpy does not shift by 64 bits.
            half_shift = missing >> np.uint64(1)
            remaining_shift = missing - half_shift
            keys = np.left_shift(
                np.left_shift((keys >> half_shift) >> remaining_shift, half_shift), remaining_shift
            )
        return keys


def float_keys(values: pa.Array) -> pa.Array:
    """Return integers in the order of floats."""
    integers = values.view(_KEY_TYPES[values.type.bit_width])
    bits = integers.fill_null(0).to_numpy()
    is_null = integers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(_ordered(bits), mask=is_null)


def floats_of_keys(keys: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return the floats whose `float_keys` are given."""
    bits = _ordered(keys.fill_null(0).to_numpy())
    return pa.array(bits, mask=keys.is_null().to_numpy(zero_copy_only=False)).view(dtype)


def _ordered(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Turn the bits of floats into their keys, and keys into bits."""
    # Negative floats have the reverse order of their bits.
    return np.where(bits < 0, bits ^ np.array(np.iinfo(bits.dtype).max, bits.dtype), bits)


# --------------------------------------------------------------------------------------------------
# Comparisons of the values in indexes, with the meaning that they have in conditions.

#: The comparisons that a `between` consists of, or one comparison.
Bounds = list[Bound]


def typed(op: str, value: Any, dtype: pa.DataType) -> Bounds | pa.Array | None:
    """Return the other side of a comparison in the type of an index.

    - `op`: ``in``, ``between``, or a comparison; see `conditions.RangePruner`.

    Returns an array for ``in`` and ``not_in``. None if a value is not of the type, or is NaN.
    """
    if op in ("in", "not_in"):
        # Arrow has no sets of float16.
        if value.type != dtype or pat.is_float16(dtype) or has_nan(value):
            return None
        return with_both_zeros(value)
    bounds = value if op == "between" else [Bound(op, value)]
    scalars = [Bound(bound.op, _scalar(bound.value, dtype)) for bound in bounds]
    return None if any(bound.value is None for bound in scalars) else scalars


def matching(values: pa.Array, op: str, sides: Bounds | pa.Array) -> pa.BooleanArray:
    """Return for which values a comparison holds, with the other side as `typed` returns it."""
    import pyarrow.compute as pc

    if op == "in":
        return is_in(values, sides)
    if op == "not_in":
        return pc.and_(values.is_valid(), pc.invert(is_in(values, sides)))
    (first_op, first), *further = sides
    matches = holds(values, first_op, first)
    for op_of_side, side in further:
        matches = pc.and_(matches, holds(values, op_of_side, side))
    return matches


def holds(values: pa.Array, op: str, value: pa.Scalar) -> pa.BooleanArray:
    """Return for which values a comparison holds; null for null."""
    if pat.is_float16(values.type):
        values, value = values.cast(pa.float32()), value.cast(pa.float32())
    return compared(values, op, value)  # type: ignore[arg-type]


def filled(truths: pa.BooleanArray, unknown: bool = True) -> npt.NDArray[np.bool_]:
    """Return truth values, with a value for those that are null."""
    flags: npt.NDArray[np.bool_] = truths.fill_null(unknown).to_numpy(zero_copy_only=False)
    return flags.astype(np.bool_)


def with_both_zeros(values: pa.Array) -> pa.Array:
    """Return a set of floats with both zeros, if it has one of them."""
    if not pat.is_floating(values.type):
        return values
    zeros = pa.array([0.0, -0.0], values.type)
    values = with_one_zero(values)
    return pa.concat_arrays([values, zeros]) if 0.0 in values.to_pylist() else values


def _scalar(value: Any, dtype: pa.DataType) -> pa.Scalar | None:
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if not scalar.is_valid or scalar.type != dtype or is_nan(scalar):
        return None
    return scalar
