"""Collecting the statistics of a version 0.1 file; `statistics` documents their content and form.

The rules are the same as in pylance, so that both write the same bounds, except for NaN:

- Integers, dates and decimals: the least and the greatest value.
- Floats: a least value of zero is -0.0, a greatest one 0.0. A column of a file that has a NaN has
  no statistics at all. pylance writes bounds that leave NaN out, and then loses rows by them: ``f >
  3.0`` skips pages whose NaN it would find, and ``f <= 0.0`` takes the NaN of pages whose bounds
  are not above 0.0.
- Strings and bytes: of values of more than 64 bytes, a prefix of at most 64 bytes, whole characters
  of a string. If a page has such a value, its greatest value is raised by one in its last byte that
  can be raised; if none can, the bound is null. A page of nulls has null bounds.
- Strings and bytes of a page that has nulls, and one value besides: the greatest value is that
  value with a zero byte after it. pylance writes the value itself. Where both bounds are one value,
  it takes the nulls of the page for that value: ``s = 'b'`` finds them, ``s is null`` does not.

pylance cuts strings before it compares them, which can leave a value above its bound where two
strings differ in the characters that stand across byte 64. Here the greatest string is found first
and then cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import flags_of, is_text, is_variable
from lance_spark.encoding.v0_1.pages import Numbers
from lance_spark.file.schema.field import Field

#: Maximum bytes of a bound of strings or byte strings.
MAX_BYTES = 64


@dataclass(slots=True)
class Collected:
    """The statistics of one field, batch by batch.

    - `minimums`, `maximums`: Bounds of the field's type.
    - `is_unknown`: Whether the field has a value without an order, such as NaN.
    """

    field: Field
    null_counts: list[Numbers] = dataclasses.field(default_factory=list)
    minimums: list[pa.Array] = dataclasses.field(default_factory=list)
    maximums: list[pa.Array] = dataclasses.field(default_factory=list)
    is_unknown: bool = False

    def add(self, array: pa.Array, cuts: Numbers) -> None:
        """Add the statistics of some batches, which are not empty.

        - `array`: Array of the type of the field; only strings and bytes may contain nulls.
        - `cuts`: First row of each batch, and the number of all rows.
        """
        has_nan = pat.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py()
        if self.is_unknown or has_nan:
            self.is_unknown = True
            return
        if is_variable(array.type):
            nulls, low, high = _of_strings(array, cuts)
        else:
            nulls = np.zeros(len(cuts) - 1, np.int64)
            low, high = _of_numbers(array, cuts)
        self.null_counts.append(nulls)
        self.minimums.append(low)
        self.maximums.append(high)

    def to_arrow(self) -> tuple[pa.Field, pa.StructArray]:
        """Return the field's column in the table of statistics."""
        dtype = self.minimums[0].type
        fields = [
            pa.field("null_count", pa.int64(), nullable=False),
            pa.field("min_value", dtype),
            pa.field("max_value", dtype),
        ]
        arrays = [
            pa.array(np.concatenate(self.null_counts)),
            pa.concat_arrays(self.minimums),
            pa.concat_arrays(self.maximums),
        ]
        column = pa.StructArray.from_arrays(arrays, fields=fields)
        return pa.field(str(self.field.id), column.type, nullable=False), column


class StatisticsCollector:
    """Collects the statistics of all fields that have some, at the top and in structs, in the order
    of their ids.

    - `fields`: The top-level fields of the file.
    """

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self._columns = [_with_statistics(field) for field in fields]

    def add(self, column: int, array: pa.Array, cuts: Numbers) -> None:
        """Add the statistics of some batches of a top-level field; see `Collected.add`."""
        for path, collected in self._columns[column]:
            inner = array
            for position in path:
                inner = inner.field(position)
            collected.add(inner, cuts)

    def to_arrow(self) -> tuple[pa.Schema, list[pa.StructArray]] | None:
        """Return the table of statistics; None if no field has any, or no batch was added."""
        every = [collected for column in self._columns for _, collected in column]
        every = sorted(
            (item for item in every if item.null_counts and not item.is_unknown),
            key=lambda item: item.field.id,
        )
        if not every:
            return None
        fields, arrays = zip(*(item.to_arrow() for item in every), strict=True)
        return pa.schema(fields), list(arrays)


def _with_statistics(field: Field) -> list[tuple[tuple[int, ...], Collected]]:
    def visit(node: Field, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Collected]]:
        # pylance would compare the bytes of JSONB, which have no order.
        if node.logical_type == "json":
            return
        dtype = node.arrow_field.type
        if pat.is_struct(dtype):
            for index, child in enumerate(node.children):
                yield from visit(child, (*path, index))
        elif _is_compared(dtype):
            yield path, Collected(node)

    return list(visit(field, ()))


def _is_compared(dtype: pa.DataType) -> bool:
    return bool(
        pat.is_boolean(dtype)
        or pat.is_integer(dtype)
        or pat.is_float32(dtype)
        or pat.is_float64(dtype)
        or pat.is_date(dtype)
        or pat.is_decimal128(dtype)
        or is_variable(dtype)
    )


def _of_numbers(array: pa.Array, cuts: Numbers) -> tuple[pa.Array, pa.Array]:
    dtype, starts = array.type, cuts[:-1]
    data = np.frombuffer(array.buffers()[1], np.uint8)
    if pat.is_boolean(dtype):
        flags = flags_of(data, array.offset, len(array))
        bounds = (np.logical_and.reduceat(flags, starts), np.logical_or.reduceat(flags, starts))
        return pa.array(bounds[0]), pa.array(bounds[1])
    width = dtype.bit_width // 8
    data = data[array.offset * width : (array.offset + len(array)) * width]
    if pat.is_decimal128(dtype):
        return _of_decimals(data, dtype, cuts)
    if pat.is_floating(dtype):
        return _of_floats(data.view(f"<f{width}"), dtype, starts)
    values = data.view(f"<{'u' if pat.is_unsigned_integer(dtype) else 'i'}{width}")
    return (
        _from_numpy(np.minimum.reduceat(values, starts), dtype),
        _from_numpy(np.maximum.reduceat(values, starts), dtype),
    )


def _of_floats(
    values: np.ndarray[tuple[int], np.dtype[np.floating]], dtype: pa.DataType, starts: Numbers
) -> tuple[pa.Array, pa.Array]:
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    low[low == 0] = -0.0
    high[high == 0] = 0.0
    return _from_numpy(low, dtype), _from_numpy(high, dtype)


def _of_decimals(
    data: np.ndarray[tuple[int], np.dtype[np.uint8]], dtype: pa.DataType, cuts: Numbers
) -> tuple[pa.Array, pa.Array]:
    """Compare numbers of 128 bits by their upper halves, then by their lower halves."""
    upper, lower = data.view("<i8")[1::2], data.view("<u8")[::2]
    starts, sizes = cuts[:-1], np.diff(cuts)
    bounds = []
    for compare, last in ((np.minimum, np.iinfo(np.uint64).max), (np.maximum, 0)):
        high = compare.reduceat(upper, starts)
        candidates = np.where(upper == np.repeat(high, sizes), lower, np.uint64(last))
        pair = np.empty((len(sizes), 2), "<u8")
        pair[:, 0] = compare.reduceat(candidates, starts)
        pair[:, 1] = high.view("<u8")
        bounds.append(_from_numpy(pair, dtype))
    return bounds[0], bounds[1]


def _from_numpy(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], dtype: pa.DataType
) -> pa.Array:
    return pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(values)])


def _of_strings(array: pa.Array, cuts: Numbers) -> tuple[Numbers, pa.Array, pa.Array]:
    is_string = is_text(array.type)
    # Compared as bytes: the order of strings is the same, and no string has to be decoded.
    values = array.cast(pa.large_binary()) if is_string else array
    lengths = pc.binary_length(values)
    nulls = np.zeros(len(cuts) - 1, np.int64)
    lows: list[bytes | None] = []
    highs: list[bytes | None] = []
    for page, start in enumerate(cuts[:-1].tolist()):
        part = values.slice(start, int(cuts[page + 1]) - start)
        nulls[page] = part.null_count
        bounds = pc.min_max(part)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        longest = pc.max(lengths.slice(start, len(part))).as_py() or 0
        lows.append(None if low is None else _cut(low, is_string))
        if high is not None and longest > MAX_BYTES:
            high = _raised(_cut(high, is_string), is_string)
        elif high is not None and low == high and part.null_count:
            high = _above(high, is_string)
        highs.append(high)
    return nulls, _strings(lows, array.type), _strings(highs, array.type)


def _strings(values: list[bytes | None], dtype: pa.DataType) -> pa.Array:
    return pa.array(values, pa.large_binary()).cast(dtype)


def _cut(value: bytes, is_text: bool) -> bytes:
    if len(value) <= MAX_BYTES:
        return value
    cut = value[:MAX_BYTES]
    # An incomplete character at the end is dropped.
    return cut.decode(errors="ignore").encode() if is_text else cut


def _above(value: bytes, is_text: bool) -> bytes | None:
    """Return a value of at most `MAX_BYTES` that is greater than `value`, or None."""
    return value + b"\0" if len(value) < MAX_BYTES else _raised(value, is_text)


def _raised(value: bytes, is_text: bool) -> bytes | None:
    """Return a value of this length that is greater than all values that begin with `value`, or
    None.
    """
    if not is_text:
        # Arithmetic on the whole value: a byte of 255 becomes 0 and raises the previous byte.
        number = int.from_bytes(value) + 1
        return None if number >> (8 * len(value)) else number.to_bytes(len(value))
    for position in reversed(range(len(value))):
        for byte in range(value[position] + 1, 256):
            raised = value[:position] + bytes([byte]) + value[position + 1 :]
            try:
                raised.decode()
            except UnicodeDecodeError:
                continue
            return raised
    return None
