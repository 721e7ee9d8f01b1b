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

from lance_spark.encoding.rows import Rows
from lance_spark.errors import CorruptFileError, InvalidInputError
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
