"""Basis of all encodings of version 0.1: the pages of a field, and the values of pages that rows
need.

A file is cut into batches (by default of 1,024 rows), and every field that has values has one page
per batch. Fields below a list count items instead of rows, but have one page per batch too. A page
is given by its position in the file and its *length*, which counts values and not bytes. It has no
header, and can start at any address.

Pages are small and many. The requested rows are therefore turned into *spans*, arrays with one
entry for each run of values of one page. The bytes of all spans are requested at once and joined,
so decoders get one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import (
    VariableWidthBlock,
    bitmap,
    fixed_width,
    flags_of,
    from_bytes,
    innermost_items,
    is_text,
    is_variable,
    offset_type,
    strings_of,
    vector_items,
)
from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import ranges
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedTypeError
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class FieldPages:
    """The pages of one field, one for each batch.

    - `positions`: Position of each page in the file.
    - `lengths`: Values of each page.
    """

    positions: Numbers
    lengths: Numbers

    def check(self, bits: int, size: int, extra: int = 0) -> None:
        """Check that all pages lie in the file.

        - `bits`: Of one value.
        - `size`: Of the file in bytes.
        - `extra`: Values that each page has beyond its length.

        Raises CorruptFileError: a page lies outside the file; the message names the batch.
        """
        position = np.clip(self.positions, 0, size)
        # Divided, so that no product can overflow.
        room = (
            (size - position) * 8 // bits
            if bits
            else np.full(len(position), np.iinfo(np.int64).max)
        )
        bad = (position != self.positions) | (self.lengths < 0) | (self.lengths > room - extra)
        if bad.any():
            batch = int(np.argmax(bad))
            raise CorruptFileError(
                f"the page of batch {batch} ({int(self.lengths[batch])} values of {bits} bits from "
                f"byte {int(self.positions[batch])}) lies outside the file of {size} bytes; it is "
                "truncated or corrupt"
            )


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPages:
    """The pages of one field for some consecutive batches, ready to be written.

    - `pages`: Their positions in the file, and the numbers of their values.
    - `buffers`: To be written back to back, from the position that the encoder was given.
    """

    pages: FieldPages
    buffers: Sequence[Bytes] = ()

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(len(buffer) for buffer in self.buffers)


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Runs of values, in order: each has the values from `start` to `stop` of the page of `batch`.
    No run is empty.
    """

    batch: Numbers
    start: Numbers
    stop: Numbers

    @property
    def sizes(self) -> Numbers:
        """Number of values of each run."""
        return self.stop - self.start

    @property
    def num_values(self) -> int:
        """Number of values of all runs."""
        return int(self.sizes.sum())


class PagesReader:
    """Base of the readers of the pages of a field.

    - `pages`: Of the values, or of their offsets.
    - `bounds`: First row of each page, and the number of all rows.
    - `size`: Of the file in bytes.
    - `bits`: Of one value, or of one offset.
    - `extra`: Values that each page has beyond its length.

    Raises CorruptFileError: a page lies outside the file.
    """

    def __init__(
        self,
        dtype: pa.DataType,
        pages: FieldPages,
        bounds: Numbers,
        size: int,
        bits: int,
        extra: int = 0,
    ) -> None:
        self._dtype = dtype
        self._pages = pages
        self._bounds = bounds
        self._size = size
        pages.check(bits, size, extra)

    def _check_total(self, num_rows: int, total: int, content: str, dtype: type) -> None:
        """Refuse rows whose content is larger than the offsets of this type can address."""
        if total > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{num_rows} rows have {total} {content}, which do not fit one array of type "
                f"{self._dtype}: read fewer rows at a time"
            )


def bounds_of(counts: Numbers) -> Numbers:
    """Return the first row of each batch, and the number of all rows, from the rows of each.

    Raises CorruptFileError: a number is negative, or their sum does not fit into 64 bits.
    """
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    if (counts < 0).any():
        batch = int(np.argmax(counts < 0))
        raise CorruptFileError(f"the page of batch {batch} has {int(counts[batch])} values")
    # The first sum that overflows is negative.
    if (bounds < 0).any():
        raise CorruptFileError("the pages claim more values than there can be")
    return bounds


def spans_of(rows: Rows, bounds: Numbers) -> Spans:
    """Return the runs of values of pages that hold some rows.

    - `bounds`: See `bounds_of`.

    Raises CorruptFileError: the pages have fewer rows.
    """
    if not len(rows):
        none = np.zeros(0, np.int64)
        return Spans(none, none, none)
    if int(rows[-1]) >= int(bounds[-1]):
        raise CorruptFileError(
            f"row {int(rows[-1])} is asked for, but the pages have {int(bounds[-1])} rows"
        )
    if isinstance(rows, range):
        first = int(np.searchsorted(bounds, rows.start, side="right")) - 1
        last = int(np.searchsorted(bounds, rows.stop, side="left"))
        batch = np.arange(first, last)
        start = np.maximum(rows.start - bounds[batch], 0)
        stop = np.minimum(bounds[batch + 1], rows.stop) - bounds[batch]
        non_empty = stop > start
        return (
            Spans(batch, start, stop)
            if non_empty.all()
            else Spans(batch[non_empty], start[non_empty], stop[non_empty])
        )
    holder = np.searchsorted(bounds[1:], rows, side="right")
    cut = (np.diff(rows) != 1) | (np.diff(holder) != 0)
    firsts = np.concatenate([[0], np.flatnonzero(cut) + 1])
    lasts = np.concatenate([firsts[1:], [len(rows)]]) - 1
    batch = holder[firsts]
    return Spans(batch, rows[firsts] - bounds[batch], rows[lasts] - bounds[batch] + 1)


def read_values(pages: FieldPages, spans: Spans, width: int, extra: int = 0) -> ReadPlan[Bytes]:
    """Plan the reading of values that are whole bytes.

    - `pages`: Checked.
    - `width`: Bytes of one value.
    - `extra`: Number of values to read after each span.

    Returns the values of all spans, joined.
    """
    starts = pages.positions[spans.batch] + spans.start * width
    return (yield from read_ranges(starts, (spans.sizes + extra) * width))


def read_ranges(starts: Numbers, sizes: Numbers) -> ReadPlan[Bytes]:
    """Plan the reading of ranges of bytes; the result is their bytes, joined, and begins at a
    multiple of 8 bytes.
    """
    non_empty = sizes > 0
    if not non_empty.all():
        starts, sizes = starts[non_empty], sizes[non_empty]
    if not len(starts):
        return np.zeros(0, np.uint8)
    # Adjacent pages, as in files of one column, are one range.
    ends = starts + sizes
    firsts = np.concatenate([[True], starts[1:] != ends[:-1]])
    lasts = np.concatenate([firsts[1:], [True]])
    lengths = ends[lasts] - starts[firsts]
    buffers = yield list(map(ByteRange, starts[firsts].tolist(), lengths.tolist()))
    if len(buffers) > 1:
        return np.concatenate(buffers)
    (data,) = buffers
    return data if data.ctypes.data % 8 == 0 else data.copy()


@dataclass(frozen=True, slots=True, eq=False)
class SpanExtents:
    """Lengths and positions of some values, from their offsets.

    - `lengths`: Length of each value.
    - `starts`, `stops`: Start of the first value and end of the last value of each span. The values
      between lie back to back.
    """

    lengths: Numbers
    starts: Numbers
    stops: Numbers

    @property
    def num_items(self) -> int:
        """Sum of the lengths."""
        return int((self.stops - self.starts).sum())

    def offsets(self, dtype: type[np.int32] | type[np.int64]) -> npt.NDArray[np.signedinteger]:
        """Return Arrow offsets that begin at 0."""
        offsets = np.zeros(len(self.lengths) + 1, dtype)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets


def read_extents(
    pages: FieldPages, spans: Spans, dtype: type[np.int32] | type[np.int64]
) -> ReadPlan[SpanExtents]:
    """Plan the reading of offsets: value ``i`` of a page goes from its offset ``i`` to its offset
    ``i + 1``.

    Raises CorruptFileError: offsets are negative, or decrease.
    """
    data = yield from read_values(pages, spans, np.dtype(dtype).itemsize, extra=1)
    offsets = data.view(np.dtype(dtype).newbyteorder("<"))
    stops_at = np.cumsum(spans.sizes + 1) - 1
    starts_at = stops_at - spans.sizes
    # Without negative offsets, no difference can overflow.
    lowest = int(offsets.min(initial=0))
    wide = offsets.astype(np.int64, copy=False)
    lengths: Numbers = wide[1:] - wide[:-1]
    if len(stops_at) > 1:
        between = np.zeros(len(lengths), np.bool_)
        between[stops_at[:-1]] = True
        lengths = lengths[~between]
    if lowest < 0 or int(lengths.min(initial=0)) < 0:
        position = int(np.argmin(offsets)) if lowest < 0 else int(np.argmin(lengths))
        entries = spans.sizes + 1 if lowest < 0 else spans.sizes
        bad = int(np.searchsorted(np.cumsum(entries), position, side="right"))
        raise CorruptFileError(
            f"the offsets of batch {int(spans.batch[bad])} are negative or decrease"
        )
    return SpanExtents(lengths, wide[starts_at], wide[stops_at])


# --------------------------------------------------------------------------------------------------
# Plain encoding: values of a fixed width.
#
# ==========================  =============================================================
# type                        bytes of a page of n values
# ==========================  =============================================================
# bool                        n bits, the lowest bit of a byte first
# fixed-size list of m bools  n * m bits
# numbers, dates, times,      n values of the width of the Arrow type, little-endian
# decimals, fixed-size
# binary
# fixed-size list of m items  n * m items
# null                        none
# ==========================  =============================================================
#
# Validity is not stored: a null is read as the content of its slot in the writer's array, usually 0
# or false. pylance reads the same.
#
# Specification: format/file/encoding of the legacy format, "Plain".


class PlainReader(PagesReader):
    """Reads values of a fixed width; see `PagesReader`.

    Raises UnsupportedTypeError: the type has no fixed width.
    """

    def __init__(self, dtype: pa.DataType, pages: FieldPages, bounds: Numbers, size: int) -> None:
        self._bits = plain_bits(dtype)
        _, self._per_row = innermost_items(dtype)
        self._is_bits = self._bits == self._per_row
        super().__init__(dtype, pages, bounds, size, self._bits)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        spans = spans_of(rows, self._bounds)
        if len(rows) * self._per_row > np.iinfo(np.int64).max // 256:
            raise InvalidInputError(
                f"{len(rows)} values of type {self._dtype} are too many to read"
            )
        if self._is_bits:
            data = yield from self._read_bits(spans)
        else:
            data = yield from read_values(self._pages, spans, self._bits // 8)
        return _build(self._dtype, len(rows), data)

    def _read_bits(self, spans: Spans) -> ReadPlan[Bytes]:
        first, last = spans.start * self._per_row, spans.stop * self._per_row
        position = self._pages.positions[spans.batch]
        sizes = (last + 7) // 8 - first // 8
        data = yield from read_ranges(position + first // 8, sizes)
        if not (first % 8).any() and not (last[:-1] % 8).any():
            return data
        bits = np.unpackbits(data, bitorder="little")
        begins = (np.cumsum(sizes) - sizes) * 8 + first % 8
        return np.packbits(bits[ranges(begins, last - first)], bitorder="little")


def encode_plain(array: pa.Array, cuts: Numbers, start: int) -> EncodedPages:
    """Encode values of a fixed width.

    - `array`: Without nulls, or of type null.
    - `cuts`: First value of each page, and the number of all values.
    - `start`: Position of the first page in the file.

    Raises UnsupportedTypeError: the type has no fixed width.
    """
    lengths = np.diff(cuts)
    if pat.is_null(array.type):
        return EncodedPages(FieldPages(np.full(len(lengths), start, np.int64), lengths))
    values, per_row = array, 1
    while pat.is_fixed_size_list(values.type):
        per_row *= values.type.list_size
        values = vector_items(values)
    bits = plain_bits(array.type)
    ends = cuts * per_row
    if bits == per_row:
        data, begins = _pack_bits(values, ends)
    else:
        width = bits // per_row // 8
        first, last = values.offset * width, (values.offset + len(values)) * width
        data = _bytes_of(values)[first:last]
        begins = ends[:-1] * width
    return EncodedPages(FieldPages(start + begins, lengths), [data])


def plain_bits(dtype: pa.DataType) -> int:
    """Return the bits of one value of a type.

    Raises UnsupportedTypeError: the type has no fixed width, or a width of 0.
    """
    item, per_row = innermost_items(dtype)
    bits = fixed_width(item) * per_row
    if not bits or pat.is_nested(item) or pat.is_dictionary(item):
        raise UnsupportedTypeError(f"file version 0.1 cannot store values of type {dtype}")
    return bits


def _pack_bits(values: pa.BooleanArray, cuts: Numbers) -> tuple[Bytes, Numbers]:
    """Return the bits of all pages, each from a whole byte on, and where in them each begins."""
    sizes = (np.diff(cuts) + 7) // 8
    begins = np.cumsum(sizes) - sizes
    flags = flags_of(_bytes_of(values), values.offset, len(values))
    if not (cuts[1:-1] % 8).any():
        return np.packbits(flags, bitorder="little"), begins
    padded = np.zeros(int(sizes.sum()) * 8, np.bool_)
    padded[ranges(begins * 8, np.diff(cuts))] = flags
    return np.packbits(padded, bitorder="little"), begins


def _bytes_of(array: pa.Array) -> Bytes:
    buffer = array.buffers()[1]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


class NullReader:
    """Reads nulls, which have no bytes."""

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        return pa.nulls(len(rows))
        yield


def _build(dtype: pa.DataType, count: int, data: Bytes) -> pa.Array:
    if pat.is_fixed_size_list(dtype):
        items = _build(dtype.value_type, count * dtype.list_size, data)
        return pa.Array.from_buffers(dtype, count, [None], children=[items])
    return from_bytes(data, count, dtype)


# --------------------------------------------------------------------------------------------------
# Variable-width encoding: strings and bytes.
#
# ==============  =====  ==================================================================
# part of a page  bytes  content
# ==============  =====  ==================================================================
# values                 the bytes of all values, back to back; they stand before the offsets as
#                        a rule, but nothing depends on it
# offsets         8 n+8  n + 1 int64: value i is the bytes of the *file* from offset i to offset
#                        i + 1
# ==============  =====  ==================================================================
#
# The position of the page is the position of the offsets, its length is n.
#
# Validity is not stored. In a nullable field, nulls and empty values are read as null; in a field
# that is not nullable, as empty values. A null is read as the bytes of its slot in the writer's
# array, usually none. pylance reads the same.
#
# Specification: format/file/encoding of the legacy format, "Variable-length binary".

_OFFSET_BITS = 64


class VarBinaryReader(PagesReader):
    """Reads strings or bytes, also large types; see `PagesReader`.

    - `nullable`: Whether empty values are nulls.
    """

    def __init__(
        self, dtype: pa.DataType, nullable: bool, pages: FieldPages, bounds: Numbers, size: int
    ) -> None:
        super().__init__(dtype, pages, bounds, size, _OFFSET_BITS, extra=1)
        self._nullable = nullable

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        spans = spans_of(rows, self._bounds)
        extents = yield from read_extents(self._pages, spans, np.int64)
        bad = extents.stops > self._size
        if bad.any():
            position = int(np.argmax(bad))
            raise CorruptFileError(
                f"batch {int(spans.batch[position])}: a value ends at byte "
                f"{int(extents.stops[position])} of a file of {self._size}"
            )
        dtype = offset_type(self._dtype)
        self._check_total(len(rows), extents.num_items, "bytes", dtype)
        data = yield from read_ranges(extents.starts, extents.stops - extents.starts)
        mask = None
        if self._nullable:
            valid = extents.lengths != 0
            mask = None if valid.all() else bitmap(valid)
        buffers = [mask, pa.py_buffer(extents.offsets(dtype)), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._dtype, len(rows), buffers)


def encode_var_binary(array: pa.Array, cuts: Numbers, start: int) -> EncodedPages:
    """Encode strings or bytes; each page has its values first, and then its offsets.

    - `array`: Nulls are stored as empty values.
    - `cuts`: First value of each page, and the number of all values.
    - `start`: Position of the bytes of the first page in the file.
    """
    block = _stored(array)
    offsets = block.offsets.astype(np.int64, copy=False)
    firsts = offsets[cuts]
    lengths = np.diff(cuts)
    entries = lengths + 1
    # The offsets of all earlier pages lie between the first values and the values of a page.
    before = (np.cumsum(entries) - entries) * (_OFFSET_BITS // 8)
    shift = start - offsets[0] + before
    stored = offsets[ranges(cuts[:-1], entries)] + np.repeat(shift, entries)
    parts = stored.astype("<i8", copy=False).view(np.uint8)
    position = np.concatenate([before, [len(parts)]])
    buffers: list[Bytes] = []
    for page in range(len(lengths)):
        buffers.append(block.data[firsts[page] : firsts[page + 1]])
        buffers.append(parts[position[page] : position[page + 1]])
    return EncodedPages(FieldPages(firsts[1:] + shift, lengths), buffers)


def _stored(array: pa.Array) -> VariableWidthBlock:
    """Return values with nulls as empty values."""
    block = strings_of(array)
    if array.null_count:
        # The slot of a null may hold bytes, which would be read as a value.
        null = array.is_null().to_numpy(zero_copy_only=False)
        if np.diff(block.offsets)[null].any():
            return strings_of(array.fill_null("" if is_text(array.type) else b""))
    return block


# --------------------------------------------------------------------------------------------------
# Dictionary encoding: positions in a list of values that the whole file shares.
#
# ==========================  ===================================================================
# part                        content
# ==========================  ===================================================================
# pages                       the positions, plainly encoded, of the index type of the dictionary
# values                      one page of their own, plainly encoded if they are integers, else as
#                             variable-width values; `Field.dictionary` of the file's schema
#                             says where: the position of the page and its number of values
# ==========================  ===================================================================
#
# Validity is not stored. A null is read as the value at the position that the writer stored for it,
# usually the first value. Values that are empty strings are read as nulls of the dictionary.
# pylance reads the same.
#
# pylance takes the values from the copy in the manifest of the table, and refuses to append rows
# with another dictionary: both copies are equal.
#
# Specification: format/file/encoding of the legacy format, "Dictionary".


class DictionaryReader:
    """Reads dictionary-encoded values.

    - `dtype`: A dictionary type.
    - `pages`: Pages of the positions.
    - `bounds`: First row of each page, and the number of all rows.
    - `values`: The only page of the values.
    - `size`: Size of the file in bytes.

    Raises CorruptFileError: a page lies outside the file. Raises UnsupportedTypeError: version 0.1
    has no dictionaries of such values.
    """

    def __init__(
        self, dtype: pa.DataType, pages: FieldPages, bounds: Numbers, values: FieldPages, size: int
    ) -> None:
        self._dtype = dtype
        self._positions = PlainReader(dtype.index_type, pages, bounds, size)
        self._num_values = int(values.lengths.sum())
        self._values = open_values(dtype.value_type, values, size)
        self._items: pa.Array | None = None

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        if self._items is None:
            self._items = yield from self._values.read(range(self._num_values))
        positions = yield from self._positions.read(rows)
        if len(positions):
            numbers = positions.to_numpy()
            low, high = int(numbers.min()), int(numbers.max())
            if low < 0 or high >= self._num_values:
                raise CorruptFileError(
                    f"position {low if low < 0 else high} in a dictionary of {self._num_values} "
                    "values"
                )
        return pa.DictionaryArray.from_arrays(
            positions, self._items, ordered=self._dtype.ordered, safe=False
        )


def encode_values(values: pa.Array, start: int) -> EncodedPages:
    """Encode the values of a dictionary as one page, which the whole file shares.

    Raises UnsupportedTypeError: version 0.1 has no dictionaries of such values.
    """
    check_values(values.type)
    cuts = np.array([0, len(values)], np.int64)
    if is_variable(values.type):
        return encode_var_binary(values, cuts, start)
    return encode_plain(values, cuts, start)


def check_values(dtype: pa.DataType) -> None:
    """Raise UnsupportedTypeError if version 0.1 has no dictionaries of such values."""
    if not (is_variable(dtype) or pat.is_integer(dtype)):
        raise UnsupportedTypeError(f"file version 0.1 has no dictionaries of {dtype} values")


def open_values(dtype: pa.DataType, values: FieldPages, size: int) -> FieldReader:
    """Return the reader of the values of a dictionary, of type `dtype`; see `DictionaryReader`."""
    bounds = bounds_of(np.maximum(values.lengths, 0))
    if is_variable(dtype):
        return VarBinaryReader(dtype, True, values, bounds, size)
    if pat.is_integer(dtype) or pat.is_floating(dtype):
        return PlainReader(dtype, values, bounds, size)
    raise UnsupportedTypeError(f"file version 0.1 has no dictionaries of {dtype} values")
