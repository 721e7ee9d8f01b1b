"""Codec of `U64Segment` messages: unsigned 64-bit integers in the smallest of five encodings.

| `U64Segment` | values |
| --- | --- |
| `range` | start to end - 1 |
| `range_with_holes` | start to end - 1 without the holes |
| `range_with_bitmap` | start + i where bit i (least significant first) is set |
| `sorted_array`, `array` | the values of an `EncodedU64Array` |

| `EncodedU64Array` | values |
| --- | --- |
| `u16_array`, `u32_array` | base + unsigned 16- or 32-bit little-endian words |
| `u64_array` | unsigned 64-bit little-endian words |

Specification: table/row_id_lineage.md; `protos/rowids.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.errors import CorruptTableError
from lance_spark.proto import rowids_pb2

#: An array of row ids or versions.
UInt64Array = npt.NDArray[np.uint64]
#: An array of row offsets within a fragment.
Offsets = npt.NDArray[np.int64]

_MAX_U16 = 2**16 - 1
_MAX_U32 = 2**32 - 1
_MAX_U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """A range of `count` ids from `start` on that skips the ids in `holes`, which increase."""

    start: int
    count: int
    holes: UInt64Array | None = None

    def take(self, ranks: Offsets) -> UInt64Array:
        """Return the ids at positions in the range."""
        values = ranks.astype(np.uint64) + np.uint64(self.start)
        if self.holes is None:
            return values
        # The number of ids before each hole. An id follows all holes with at most as many ids as
        # its rank before them.
        before = self.holes - np.uint64(self.start) - np.arange(len(self.holes), dtype=np.uint64)
        return values + np.searchsorted(before, ranks.astype(np.uint64), "right").astype(np.uint64)


@dataclass(frozen=True, slots=True)
class Array:
    """An array of ids."""

    values: UInt64Array

    @property
    def count(self) -> int:
        """Number of ids."""
        return len(self.values)

    def take(self, ranks: Offsets) -> UInt64Array:
        """Return the ids at positions in the array."""
        return self.values[ranks]


def segment_run_starts(segment: Range | Array) -> Offsets:
    """Return the positions at which runs of consecutive ids start in a segment."""
    if isinstance(segment, Array):
        return run_starts(segment.values)
    holes = segment.holes
    if holes is None or not segment.count:
        return np.zeros(1 if segment.count else 0, np.int64)
    ranks = holes - np.uint64(segment.start) - np.arange(len(holes), dtype=np.uint64)
    starts = np.unique(np.append(ranks.astype(np.int64), 0))
    return starts[starts < segment.count]


def run_starts(values: UInt64Array) -> Offsets:
    """Return the positions at which runs of consecutive values start."""
    if not len(values):
        return np.empty(0, np.int64)
    return np.append(0, np.flatnonzero(values[1:] - values[:-1] != 1) + 1)


def parse_segment(message: rowids_pb2.U64Segment, name: str, limit: int) -> Range | Array:
    """Parse a segment.

    - `name`: Name of the table or manifest and of the fragment, for errors.
    - `limit`: Maximum number of values.

    Raises CorruptTableError: the segment has more values, is inconsistent, or has an unknown
    encoding.
    """
    encoding = message.WhichOneof("segment")
    if encoding in ("sorted_array", "array"):
        values = _parse_array(getattr(message, encoding), name)
        _check_count(len(values), limit, name)
        return Array(values)
    if encoding is None:
        raise CorruptTableError(f"{name}: a segment of row ids has an unknown encoding")
    body = getattr(message, encoding)
    start, end = body.start, body.end
    if end < start:
        raise CorruptTableError(f"{name}: the range of row ids from {start} to {end} is reversed")
    slots = end - start
    if encoding == "range":
        _check_count(slots, limit, name)
        return Range(start, slots)
    if encoding == "range_with_holes":
        return _parse_holes(body, name, limit)
    bitmap = np.frombuffer(body.bitmap, np.uint8)
    if slots > 8 * len(bitmap):
        raise CorruptTableError(
            f"{name}: a bitmap of row ids has {len(bitmap)} bytes, too few for {slots} ids"
        )
    bits = np.unpackbits(bitmap[: -(-slots // 8)], count=slots, bitorder="little")
    _check_count(int(np.count_nonzero(bits)), limit, name)
    present = np.flatnonzero(bits)
    return Array(present.astype(np.uint64) + np.uint64(start))


def _parse_holes(body: rowids_pb2.U64Segment.RangeWithHoles, name: str, limit: int) -> Range:
    holes = np.sort(_parse_array(body.holes, name))
    if len(holes) and (
        int(holes[0]) < body.start or int(holes[-1]) >= body.end or (holes[1:] == holes[:-1]).any()
    ):
        raise CorruptTableError(
            f"{name}: holes in the row ids from {body.start} to {body.end} are out of range or "
            "repeated"
        )
    count = body.end - body.start - len(holes)
    _check_count(count, limit, name)
    return Range(body.start, count, holes if len(holes) else None)


def _parse_array(message: rowids_pb2.EncodedU64Array, name: str) -> UInt64Array:
    encoding = message.WhichOneof("array")
    if encoding is None:
        raise CorruptTableError(f"{name}: an array of row ids has an unknown encoding")
    body = getattr(message, encoding)
    data, base, dtype = (
        (body.values, 0, np.dtype("<u8"))
        if encoding == "u64_array"
        else (body.offsets, body.base, np.dtype("<u2" if encoding == "u16_array" else "<u4"))
    )
    if len(data) % dtype.itemsize:
        raise CorruptTableError(
            f"{name}: an array of row ids has {len(data)} bytes, not a multiple of {dtype.itemsize}"
        )
    words = np.frombuffer(data, dtype)
    if len(words) and base + int(words.max()) > _MAX_U64:
        raise CorruptTableError(f"{name}: a row id is greater than {_MAX_U64}")
    return words.astype(np.uint64) + np.uint64(base)


def _check_count(count: int, limit: int, name: str) -> None:
    if count > limit:
        raise CorruptTableError(
            f"{name}: a segment has {count} row ids, but only {limit} rows remain"
        )


def _width(smallest: int, greatest: int) -> int:
    """Return the bytes of a value in an `EncodedU64Array`."""
    distance = greatest - smallest
    return 2 if distance <= _MAX_U16 else 4 if distance <= _MAX_U32 else 8


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The size in bytes of each encoding of some ids. Ids that do not increase need an array."""

    smallest: int
    greatest: int
    increasing: bool
    holes: int
    bitmap: int
    array: int

    @classmethod
    def of(cls, values: UInt64Array) -> _Sizes:
        smallest, greatest = int(values.min()), int(values.max())
        slots = greatest - smallest + 1
        width = _width(smallest, greatest)
        return cls(
            smallest,
            greatest,
            bool((values[1:] > values[:-1]).all()),
            (slots - len(values)) * width,
            -(-slots // 8),
            len(values) * width,
        )


def size_of(values: UInt64Array, *, may_have_holes: bool) -> int:
    """Return the approximate bytes that `fill_segment` uses for ids; `values` must not be empty."""
    sizes = _Sizes.of(values)
    if sizes.increasing and (may_have_holes or not sizes.holes):
        return min(sizes.holes, sizes.bitmap, sizes.array)
    return sizes.array


def fill_segment(
    segment: rowids_pb2.U64Segment, values: UInt64Array, *, may_have_holes: bool
) -> None:
    """Store unique ids in an empty segment, in the smallest encoding.

    - `may_have_holes`: Whether a range with holes or with a bitmap may store the ids. Releases of
      pylance before 9 read sequences wrongly in which such a segment follows another one.
    """
    if not len(values):
        segment.range.start = segment.range.end = 0
        return
    sizes = _Sizes.of(values)
    start, end = sizes.smallest, sizes.greatest + 1
    # The exclusive end of a range with the greatest uint64 does not fit into 64 bits.
    if not sizes.increasing or end > _MAX_U64:
        _fill_array(segment.array, values)
    elif not sizes.holes:
        segment.range.start, segment.range.end = start, end
    elif not may_have_holes or sizes.array < min(sizes.holes, sizes.bitmap):
        _fill_array(segment.sorted_array, values)
    elif sizes.holes <= sizes.bitmap:
        # One bool per slot is affordable: the bytes of the holes bound the slots.
        missing = np.ones(end - start, np.bool_)
        missing[values - np.uint64(start)] = False
        holes = np.flatnonzero(missing).astype(np.uint64) + np.uint64(start)
        body = segment.range_with_holes
        body.start, body.end = start, end
        _fill_array(body.holes, holes)
    else:
        present = np.zeros(end - start, np.bool_)
        present[values - np.uint64(start)] = True
        bits = segment.range_with_bitmap
        bits.start, bits.end = start, end
        bits.bitmap = np.packbits(present, bitorder="little").tobytes()


def _fill_array(message: rowids_pb2.EncodedU64Array, values: UInt64Array) -> None:
    smallest = int(values.min())
    width = _width(smallest, int(values.max()))
    if width == 8:
        message.u64_array.values = values.astype("<u8").tobytes()
        return
    body = message.u16_array if width == 2 else message.u32_array
    body.base = smallest
    body.offsets = (values - np.uint64(smallest)).astype(f"<u{width}").tobytes()
