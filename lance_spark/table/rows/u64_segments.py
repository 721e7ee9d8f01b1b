"""Segments: some unsigned integers, stored the way that is smallest for them.

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

#: Row ids, or versions of rows.
Words = npt.NDArray[np.uint64]
#: Offsets within a fragment.
Offsets = npt.NDArray[np.int64]

_MAX_U16 = 2**16 - 1
_MAX_U32 = 2**32 - 1
_MAX_U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive ids, without those in `holes` (increasing)."""

    start: int
    count: int
    holes: Words | None = None

    def take(self, ranks: Offsets) -> Words:
        """Return the ids at some positions."""
        values = ranks.astype(np.uint64) + np.uint64(self.start)
        if self.holes is None:
            return values
        # Ids that live on before each hole: not less than the rank means that the hole comes before that id.
        before = self.holes - np.uint64(self.start) - np.arange(len(self.holes), dtype=np.uint64)
        return values + np.searchsorted(before, ranks.astype(np.uint64), "right").astype(np.uint64)


@dataclass(frozen=True, slots=True)
class Array:
    """Ids one by one."""

    values: Words

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.values)

    def take(self, ranks: Offsets) -> Words:
        """Return the ids at some positions."""
        return self.values[ranks]


def segment_run_starts(segment: Range | Array) -> Offsets:
    """Return where runs of consecutive ids start in a segment."""
    if isinstance(segment, Array):
        return run_starts(segment.values)
    holes = segment.holes
    if holes is None or not segment.count:
        return np.zeros(1 if segment.count else 0, np.int64)
    ranks = holes - np.uint64(segment.start) - np.arange(len(holes), dtype=np.uint64)
    starts = np.unique(np.append(ranks.astype(np.int64), 0))
    return starts[starts < segment.count]


def run_starts(values: Words) -> Offsets:
    """Return where runs of consecutive values start: positions of values that are not one more than those before."""
    if not len(values):
        return np.empty(0, np.int64)
    return np.append(0, np.flatnonzero(values[1:] - values[:-1] != 1) + 1)


def parse_segment(message: rowids_pb2.U64Segment, name: str, limit: int) -> Range | Array:
    """Parse a segment.

    Parameters
    ----------
    message : rowids_pb2.U64Segment
    name : str
        What errors call the place that it is from.
    limit : int
        Values that it has at most.

    Raises
    ------
    CorruptTableError
        It has more, or contradicts itself, or is of an unknown kind.
    """
    kind = message.WhichOneof("segment")
    if kind in ("sorted_array", "array"):
        values = _parse_array(getattr(message, kind), name)
        _check_count(len(values), limit, name)
        return Array(values)
    if kind is None:
        raise CorruptTableError(f"{name}: a segment of row ids of a kind that is not known")
    body = getattr(message, kind)
    start, end = body.start, body.end
    if end < start:
        raise CorruptTableError(f"{name}: a range of row ids from {start} to {end}")
    slots = end - start
    if kind == "range":
        _check_count(slots, limit, name)
        return Range(start, slots)
    if kind == "range_with_holes":
        return _parse_holes(body, name, limit)
    bitmap = np.frombuffer(body.bitmap, np.uint8)
    if slots > 8 * len(bitmap):
        raise CorruptTableError(f"{name}: a bitmap of {len(bitmap)} bytes for {slots} row ids")
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
            f"{name}: holes of row ids from {body.start} to {body.end} lie outside of them or repeat"
        )
    count = body.end - body.start - len(holes)
    _check_count(count, limit, name)
    return Range(body.start, count, holes if len(holes) else None)


def _parse_array(message: rowids_pb2.EncodedU64Array, name: str) -> Words:
    kind = message.WhichOneof("array")
    if kind is None:
        raise CorruptTableError(f"{name}: an array of row ids of a kind that is not known")
    body = getattr(message, kind)
    data, base, dtype = (
        (body.values, 0, np.dtype("<u8"))
        if kind == "u64_array"
        else (body.offsets, body.base, np.dtype("<u2" if kind == "u16_array" else "<u4"))
    )
    if len(data) % dtype.itemsize:
        raise CorruptTableError(
            f"{name}: an array of row ids of {len(data)} bytes, in words of {dtype.itemsize}"
        )
    words = np.frombuffer(data, dtype)
    if len(words) and base + int(words.max()) > _MAX_U64:
        raise CorruptTableError(f"{name}: row ids past {_MAX_U64}")
    return words.astype(np.uint64) + np.uint64(base)


def _check_count(count: int, limit: int, name: str) -> None:
    if count > limit:
        raise CorruptTableError(f"{name}: {count} row ids where there are {limit} rows")


def _width(least: int, greatest: int) -> int:
    distance = greatest - least
    return 2 if distance <= _MAX_U16 else 4 if distance <= _MAX_U32 else 8


@dataclass(frozen=True, slots=True)
class _Facts:
    """Bytes that each kind of segment takes for some ids; only an array can hold ids out of order."""

    least: int
    greatest: int
    increasing: bool
    holes: int
    bitmap: int
    array: int

    @classmethod
    def of(cls, values: Words) -> _Facts:
        least, greatest = int(values.min()), int(values.max())
        slots = greatest - least + 1
        width = _width(least, greatest)
        return cls(
            least,
            greatest,
            bool((values[1:] > values[:-1]).all()),
            (slots - len(values)) * width,
            -(-slots // 8),
            len(values) * width,
        )


def size_of(values: Words) -> int:
    """Return about how many bytes `fill_segment` takes for some ids, of which there is at least one."""
    facts = _Facts.of(values)
    return min(facts.holes, facts.bitmap, facts.array) if facts.increasing else facts.array


def fill_segment(segment: rowids_pb2.U64Segment, values: Words) -> None:
    """Store unique ids in an empty segment, as the kind that takes the fewest bytes."""
    if not len(values):
        segment.range.start = segment.range.end = 0
        return
    facts = _Facts.of(values)
    start, end = facts.least, facts.greatest + 1
    # The end of a range that holds the greatest id does not fit into 64 bits.
    if not facts.increasing or end > _MAX_U64:
        _fill_array(segment.array, values)
    elif not facts.holes:
        segment.range.start, segment.range.end = start, end
    elif facts.array < min(facts.holes, facts.bitmap):
        _fill_array(segment.sorted_array, values)
    elif facts.holes <= facts.bitmap:
        # There are fewer holes than eight times the bytes of the bitmap, and not more bytes of them than of an array.
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


def _fill_array(message: rowids_pb2.EncodedU64Array, values: Words) -> None:
    least = int(values.min())
    width = _width(least, int(values.max()))
    if width == 8:
        message.u64_array.values = values.astype("<u8").tobytes()
        return
    body = message.u16_array if width == 2 else message.u32_array
    body.base = least
    body.offsets = (values - np.uint64(least)).astype(f"<u{width}").tobytes()
