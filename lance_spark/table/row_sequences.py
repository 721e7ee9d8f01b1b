"""Row ids and row versions of a fragment, as its `DataFragment` message holds them.

`RowIdSequence` is a list of `U64Segment`; row i of the fragment has the i-th id of the segments put together.

| segment | ids |
| --- | --- |
| `range` | start to end - 1 |
| `range_with_holes` | start to end - 1 without the holes |
| `range_with_bitmap` | start + i where bit i (least significant first) is set |
| `sorted_array`, `array` | the values of an `EncodedU64Array` |

| `EncodedU64Array` | values |
| --- | --- |
| `u16_array`, `u32_array` | base + unsigned 16- or 32-bit little-endian words |
| `u64_array` | unsigned 64-bit little-endian words |

`RowDatasetVersionSequence` is a list of runs: as many rows as the run's `span` (a `U64Segment`) has values share the run's
`version`. Which values the span has means nothing.

Sequences are about all physical rows of a fragment, deleted ones included. Specification: table/row_id_lineage.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import rowids_pb2
from lance_spark.table.fragment import MAX_PHYSICAL_ROWS

#: Row ids, or versions of rows.
Words = npt.NDArray[np.uint64]
#: Offsets within a fragment.
Offsets = npt.NDArray[np.int64]

_MAX_U16 = 2**16 - 1
_MAX_U32 = 2**32 - 1
_MAX_U64 = 2**64 - 1
#: Bytes that one more segment costs in a manifest, about: tags, lengths, and the two ends.
_SEGMENT_BYTES = 16
#: A run of consecutive ids at least this long may become a segment of its own.
_LONG_RUN = 16


@dataclass(frozen=True, slots=True)
class _Range:
    """Consecutive ids, without those in `holes` (increasing)."""

    start: int
    count: int
    holes: Words | None = None

    def take(self, ranks: Offsets) -> Words:
        values = ranks.astype(np.uint64) + np.uint64(self.start)
        if self.holes is None:
            return values
        # Ids that live on before each hole: not less than the rank means that the hole comes before that id.
        before = self.holes - np.uint64(self.start) - np.arange(len(self.holes), dtype=np.uint64)
        return values + np.searchsorted(before, ranks.astype(np.uint64), "right").astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Array:
    """Ids one by one."""

    values: Words

    @property
    def count(self) -> int:
        return len(self.values)

    def take(self, ranks: Offsets) -> Words:
        return self.values[ranks]


class RowIds:
    """The row ids of a fragment; ranges stay ranges until ids are asked for. Immutable.

    Attributes
    ----------
    num_rows : int
    """

    __slots__ = ("_ends", "_segments", "num_rows")

    def __init__(self, segments: Iterable[_Range | _Array]) -> None:
        self._segments = tuple(segments)
        self._ends = np.cumsum([one.count for one in self._segments], dtype=np.int64)
        self.num_rows = int(self._ends[-1]) if self._segments else 0

    @classmethod
    def of(cls, values: Words) -> RowIds:
        """Return the ids of an array."""
        return cls((_Array(values),))

    def slice(self, start: int, stop: int) -> Words:
        """Return the ids of rows `start` to `stop - 1`.

        Returns
        -------
        uint64 array

        Raises
        ------
        InvalidInputError
            There are no such rows.
        """
        self._check(start, stop)
        first = int(np.searchsorted(self._ends, start, "right"))
        parts: list[Words] = []
        for i in range(first, len(self._segments)):
            before = int(self._ends[i - 1]) if i else 0
            if before >= stop:
                break
            low, high = max(start, before) - before, min(stop, int(self._ends[i])) - before
            parts.append(self._segments[i].take(np.arange(low, high)))
        return concatenate(parts)

    def take(self, offsets: Offsets) -> Words:
        """Return the ids of some rows, in the order of the offsets.

        Parameters
        ----------
        offsets : int64 array

        Returns
        -------
        uint64 array
            As long.

        Raises
        ------
        InvalidInputError
            There are no such rows.
        """
        if not len(offsets):
            return np.empty(0, np.uint64)
        self._check(int(offsets.min()), int(offsets.max()) + 1)
        if len(self._segments) == 1:
            return self._segments[0].take(offsets)
        where = np.searchsorted(self._ends, offsets, "right")
        order = np.argsort(where, kind="stable")
        used, firsts = np.unique(where[order], return_index=True)
        ids = np.empty(len(offsets), np.uint64)
        for i, rows in zip(used.tolist(), np.split(order, firsts[1:]), strict=True):
            before = self._ends[i - 1] if i else 0
            ids[rows] = self._segments[i].take(offsets[rows] - before)
        return ids

    def to_array(self) -> Words:
        """Return all ids, in row order, as a uint64 array."""
        return self.slice(0, self.num_rows)

    def runs(self) -> tuple[Words, Offsets, Offsets]:
        """Return the ids as runs of consecutive ones.

        Returns
        -------
        uint64 array
            First id of each run.
        int64 array
            Row offset of it.
        int64 array
            Number of ids in each run.
        """
        firsts: list[Words] = []
        offsets: list[Offsets] = []
        counts: list[Offsets] = []
        before = 0
        for segment in self._segments:
            if isinstance(segment, _Range) and segment.holes is None:
                first = np.array([segment.start], np.uint64)
                offset, count = np.array([before]), np.array([segment.count])
            else:
                # Of a range with holes only the ids after holes start a run.
                starts = _run_starts(segment)
                first, offset = segment.take(starts), starts + before
                count = np.diff(starts, append=segment.count)
            if segment.count:
                firsts.append(first)
                offsets.append(offset)
                counts.append(count)
            before += segment.count
        return concatenate(firsts), _joined(offsets), _joined(counts)

    def _check(self, start: int, stop: int) -> None:
        if start < 0 or stop > self.num_rows:
            raise InvalidInputError(f"rows {start} to {stop}: row ids are of {self.num_rows} rows")


def _run_starts(segment: _Range | _Array) -> Offsets:
    if isinstance(segment, _Array):
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


def parse_row_ids(data: bytes, name: str, num_rows: int | None = None) -> RowIds:
    """Parse a `RowIdSequence`; needs little memory beyond the bytes, unless there is a bitmap.

    Parameters
    ----------
    data : bytes
    name : str
        What errors call the place that the bytes are from: table or manifest, and fragment.
    num_rows : int, optional
        How many ids there have to be.

    Raises
    ------
    CorruptTableError
        The bytes are no sequence, or not one of that many ids.
    """
    try:
        message = rowids_pb2.RowIdSequence.FromString(data)
    except DecodeError as error:
        raise CorruptTableError(f"{name}: no readable sequence of row ids: {error}") from None
    limit = MAX_PHYSICAL_ROWS if num_rows is None else num_rows
    segments: list[_Range | _Array] = []
    total = 0
    for one in message.segments:
        segment = _parse_segment(one, name, limit - total)
        total += segment.count
        segments.append(segment)
    if num_rows is not None and total != num_rows:
        raise CorruptTableError(f"{name}: {total} row ids for {num_rows} rows")
    return RowIds(segments)


def decode_row_ids(data: bytes, name: str, num_rows: int | None = None) -> Words:
    """Decode a `RowIdSequence`.

    Parameters
    ----------
    data : bytes
    name : str
        What errors call the place that the bytes are from: table or manifest, and fragment.
    num_rows : int, optional
        How many ids there have to be: the fragment's physical rows. Give it where it is known: a few bytes can stand for
        billions of ids.

    Returns
    -------
    uint64 array
        The id of each row, in row order.

    Raises
    ------
    CorruptTableError
        The bytes are no sequence, or not one of that many ids.
    """
    return parse_row_ids(data, name, num_rows).to_array()


def encode_row_ids(row_ids: Words | Sequence[int]) -> bytes:
    """Encode row ids as the smallest `RowIdSequence` there is for them, or nearly.

    Increasing ids become one range, range with holes, range with bitmap or sorted array, others an array, as in pylance;
    long runs of consecutive ids become ranges of their own where that saves half of the bytes.

    Parameters
    ----------
    row_ids : uint64 array
        In row order. Ids are unique, which is not checked.

    Returns
    -------
    bytes
        For `inline_row_ids` of the fragment.
    """
    values = np.ascontiguousarray(row_ids, dtype=np.uint64)
    message = rowids_pb2.RowIdSequence()
    for start, stop in _cuts(values):
        _fill_segment(message.segments.add(), values[start:stop])
    return message.SerializeToString()


def decode_versions(data: bytes, num_rows: int, name: str) -> Words:
    """Decode a `RowDatasetVersionSequence`.

    Parameters
    ----------
    data : bytes
    num_rows : int
        Physical rows of the fragment.
    name : str
        What errors call the place that the bytes are from: table or manifest, and fragment.

    Returns
    -------
    uint64 array
        A version for each row.

    Raises
    ------
    CorruptTableError
        The bytes are no sequence, or not one of that many versions.
    """
    versions, counts = parse_versions(data, num_rows, name)
    return np.repeat(versions, counts)


def parse_versions(data: bytes, num_rows: int, name: str) -> tuple[Words, Offsets]:
    """Parse a `RowDatasetVersionSequence`.

    Returns
    -------
    uint64 array
        The version of each run.
    int64 array
        Rows of each run, `num_rows` together.

    Raises
    ------
    CorruptTableError
        The bytes are no sequence, or not one of that many versions.
    """
    try:
        runs = rowids_pb2.RowDatasetVersionSequence.FromString(data).runs
    except DecodeError as error:
        raise CorruptTableError(f"{name}: no readable sequence of row versions: {error}") from None
    versions = np.fromiter((run.version for run in runs), np.uint64, len(runs))
    counts: list[int] = []
    left = num_rows
    for run in runs:
        span = run.span
        if span.WhichOneof("segment") == "range":
            count: int = span.range.end - span.range.start
        else:
            count = _parse_segment(span, name, left).count
        if count < 0 or count > left:
            raise CorruptTableError(f"{name}: a run of {count} versions where {left} rows are left")
        counts.append(count)
        left -= count
    if left:
        raise CorruptTableError(f"{name}: {num_rows - left} versions for {num_rows} rows")
    return versions, np.array(counts, dtype=np.int64)


def encode_versions(versions: Words | Sequence[int]) -> bytes:
    """Encode a version for each row as runs.

    Parameters
    ----------
    versions : uint64 array
        In row order.

    Returns
    -------
    bytes
        A `RowDatasetVersionSequence`: for `inline_created_at_versions` or `inline_last_updated_at_versions` of the fragment.
    """
    values = np.ascontiguousarray(versions, dtype=np.uint64)
    message = rowids_pb2.RowDatasetVersionSequence()
    if not len(values):
        return message.SerializeToString()
    starts = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    ends = np.append(starts[1:], len(values))
    add = message.runs.add
    for start, end, version in zip(
        starts.tolist(), ends.tolist(), values[starts].tolist(), strict=True
    ):
        run = add(version=version)
        # Zero is written too: without a range the segment would be none.
        run.span.range.start, run.span.range.end = start, end
    return message.SerializeToString()


def without(values: Words, deleted: Offsets) -> Words:
    """Return the values of the rows that live on.

    Parameters
    ----------
    values : uint64 array
        Of all physical rows.
    deleted : int64 array
        Offsets of deleted rows, as `read_deletions` returns them.
    """
    return np.delete(values, deleted) if len(deleted) else values


def concatenate(parts: Sequence[Words]) -> Words:
    """Put the row ids or versions of several fragments together, in that order; none give an empty array."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _joined(parts: Sequence[Offsets]) -> Offsets:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _parse_segment(message: rowids_pb2.U64Segment, name: str, limit: int) -> _Range | _Array:
    kind = message.WhichOneof("segment")
    if kind in ("sorted_array", "array"):
        values = _parse_array(getattr(message, kind), name)
        _check_count(len(values), limit, name)
        return _Array(values)
    if kind is None:
        raise CorruptTableError(f"{name}: a segment of row ids of a kind that is not known")
    body = getattr(message, kind)
    start, end = body.start, body.end
    if end < start:
        raise CorruptTableError(f"{name}: a range of row ids from {start} to {end}")
    slots = end - start
    if kind == "range":
        _check_count(slots, limit, name)
        return _Range(start, slots)
    if kind == "range_with_holes":
        return _parse_holes(body, name, limit)
    bitmap = np.frombuffer(body.bitmap, np.uint8)
    if slots > 8 * len(bitmap):
        raise CorruptTableError(f"{name}: a bitmap of {len(bitmap)} bytes for {slots} row ids")
    bits = np.unpackbits(bitmap[: -(-slots // 8)], count=slots, bitorder="little")
    _check_count(int(np.count_nonzero(bits)), limit, name)
    present = np.flatnonzero(bits)
    return _Array(present.astype(np.uint64) + np.uint64(start))


def _parse_holes(body: rowids_pb2.U64Segment.RangeWithHoles, name: str, limit: int) -> _Range:
    holes = np.sort(_parse_array(body.holes, name))
    if len(holes) and (
        int(holes[0]) < body.start or int(holes[-1]) >= body.end or (holes[1:] == holes[:-1]).any()
    ):
        raise CorruptTableError(
            f"{name}: holes of row ids from {body.start} to {body.end} lie outside of them or repeat"
        )
    count = body.end - body.start - len(holes)
    _check_count(count, limit, name)
    return _Range(body.start, count, holes if len(holes) else None)


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


def _cuts(values: Words) -> list[tuple[int, int]]:
    """Return the bounds of the segments: one, or long runs and what is between them."""
    size = len(values)
    if not size:
        return [(0, 0)]
    starts = run_starts(values)
    if len(starts) == 1:
        return [(0, size)]
    ends = np.append(starts[1:], size)
    long = ends - starts >= _LONG_RUN
    # A short run goes on with the segment of a short run before it.
    first = np.append(True, long[1:] | long[:-1])
    bounds = np.append(starts[first], size)
    cuts = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    alone = _size_of(values)
    if len(cuts) * _SEGMENT_BYTES * 2 > alone:
        return [(0, size)]
    between = bounds[:-1][~long[first]].tolist(), bounds[1:][~long[first]].tolist()
    parts = sum(_size_of(values[low:high]) for low, high in zip(*between, strict=True))
    return cuts if 2 * (len(cuts) * _SEGMENT_BYTES + parts) < alone else [(0, size)]


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


def _size_of(values: Words) -> int:
    facts = _Facts.of(values)
    return min(facts.holes, facts.bitmap, facts.array) if facts.increasing else facts.array


def _fill_segment(segment: rowids_pb2.U64Segment, values: Words) -> None:
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
