"""Row id sequences and row version sequences of fragments: decoding and encoding.

A `RowIdSequence` is a list of `U64Segment` (see `lance_spark.table.rows.u64_segments`). Row i of
the fragment has the i-th value of the concatenated segments.

A `RowDatasetVersionSequence` is a list of runs. A run assigns its `version` to as many rows as its
`span`, a `U64Segment`, has values; the values themselves have no meaning.

A sequence covers all physical rows of a fragment, deleted rows included. Specification:
table/row_id_lineage.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import rowids_pb2
from lance_spark.table.fragments.fragment import MAX_PHYSICAL_ROWS
from lance_spark.table.rows.u64_segments import (
    Array,
    Offsets,
    Range,
    UInt64Array,
    fill_segment,
    parse_segment,
    run_starts,
    segment_run_starts,
    size_of,
)

# --------------------------------------------------------------------------------------------------
# Vectorised codec of row version runs.
#
# Rows that several versions updated alternately have nearly one run each, so runs are encoded and
# parsed many at once. A run whose span is a range, as all writers write it, has at most 38 bytes:
#
# | bytes | content |
# | --- | --- |
# | 0a, length | `RowDatasetVersionSequence.runs` |
# | 0a, length | `RowDatasetVersionRun.span` |
# | 0a, length | `U64Segment.range` |
# | 08, varint | `Range.start`; omitted if 0 |
# | 10, varint | `Range.end`; omitted if 0 |
# | 10, varint | `RowDatasetVersionRun.version`; omitted if 0 |
#
# Each length is below 128, so it has one byte.

#: Protobuf tags: a message or number in field 1 or 2.
_MESSAGE = 0x0A
_FIRST = 0x08
_SECOND = 0x10
#: The bit that says that another byte of a varint follows.
_CONTINUES = 0x80
_MAX_VARINT_BYTES = 10
#: Number of runs that are encoded at once, in a few megabytes.
_CHUNK_RUNS = 1 << 16
#: A corrupt message can point at most this far beyond the end of the data.
_PADDING = bytes(128 + 3 * (1 + _MAX_VARINT_BYTES))
_Bytes = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]


def encode_runs(starts: UInt64Array, ends: UInt64Array, versions: UInt64Array) -> bytes:
    """Encode runs as a `RowDatasetVersionSequence`.

    - `starts`, `ends`, `versions`: First row, row after the last, and version of each run.
    """
    chunks = (slice(start, start + _CHUNK_RUNS) for start in range(0, len(starts), _CHUNK_RUNS))
    return b"".join(_encode_chunk(starts[chunk], ends[chunk], versions[chunk]) for chunk in chunks)


def parse_runs(data: bytes) -> tuple[UInt64Array, UInt64Array, UInt64Array] | None:
    """Parse a `RowDatasetVersionSequence` whose runs all have the form above.

    Returns the first row, the row after the last, and version of each run; their values are not
    checked. None if a run has another form.
    """
    positions: list[int] = []
    position, size = 0, len(data)
    while position + 1 < size:
        positions.append(position)
        position += data[position + 1] + 2
    if position != size:
        return None
    buffer = np.frombuffer(data + _PADDING, np.uint8)
    run = np.array(positions, np.int64)
    run_end = run + 2 + buffer[run + 1]
    span_end = run + 4 + buffer[run + 3]
    range_end = run + 6 + buffer[run + 5]
    valid = (span_end == range_end) & (buffer[run + 1] < _CONTINUES)
    for skip in (0, 2, 4):
        valid &= buffer[run + skip] == _MESSAGE
    starts, after_start = _read_numbers(buffer, run + 6, range_end, _FIRST)
    ends, after_range = _read_numbers(buffer, after_start, range_end, _SECOND)
    versions, after_run = _read_numbers(buffer, after_range, run_end, _SECOND)
    valid &= (after_range == range_end) & (after_run == run_end)
    return (starts, ends, versions) if valid.all() else None


def _encode_chunk(starts: UInt64Array, ends: UInt64Array, versions: UInt64Array) -> bytes:
    first, first_used = _encode_numbers(starts, _FIRST)
    second, second_used = _encode_numbers(ends, _SECOND)
    version, version_used = _encode_numbers(versions, _SECOND)
    range_bytes = (first_used.sum(axis=1) + second_used.sum(axis=1)).astype(np.uint8)
    head = np.full((len(starts), 6), _MESSAGE, np.uint8)
    head[:, 5] = range_bytes
    head[:, 3] = range_bytes + 2
    head[:, 1] = range_bytes + 4 + version_used.sum(axis=1).astype(np.uint8)
    rows = np.hstack([head, first, second, version])
    used = np.hstack([np.ones(head.shape, np.bool_), first_used, second_used, version_used])
    return rows[used].tobytes()


def _encode_numbers(values: UInt64Array, tag: int) -> tuple[_Bytes, _Mask]:
    """Return the tag and varint of each value, and which of these bytes are used; none for 0."""
    shifts = np.arange(_MAX_VARINT_BYTES, dtype=np.uint64) * np.uint64(7)
    remaining = values[:, None] >> shifts
    used = remaining != 0
    continues = np.zeros(used.shape, np.bool_)
    continues[:, :-1] = used[:, 1:]
    body = (remaining & np.uint64(0x7F)).astype(np.uint8) | (continues * np.uint8(_CONTINUES))
    tags = np.full((len(values), 1), tag, np.uint8)
    return np.hstack([tags, body]), np.hstack([used[:, :1], used])


def _read_numbers(
    buffer: _Bytes, positions: Offsets, end: Offsets, tag: int
) -> tuple[UInt64Array, Offsets]:
    """Return the number at each position, 0 where another tag is, and the positions after them."""
    values = np.zeros(len(positions), np.uint64)
    # A position beyond the end of its message is corrupt. It reads zeros from the end of the
    # buffer.
    positions = np.minimum(positions, len(buffer) - _MAX_VARINT_BYTES - 2)
    unfinished = np.flatnonzero((buffer[positions] == tag) & (positions < end))
    after = positions.copy()
    after[unfinished] += 1
    for index in range(_MAX_VARINT_BYTES):
        byte = buffer[after[unfinished]]
        values[unfinished] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
        after[unfinished] += 1
        unfinished = unfinished[byte >= _CONTINUES]
        if not len(unfinished):
            break
    else:
        # The varint is too long: mark it by a position at which no message ends.
        after[unfinished] = -1
    return values, after


# --------------------------------------------------------------------------------------------------
# Row id sequences and row version sequences of fragments: decoding and encoding.

#: Approximate bytes of one more segment in a manifest: tags, lengths and the two bounds.
_SEGMENT_BYTES = 16
#: Minimum length of a run of consecutive ids that may become a separate segment.
_LONG_RUN = 16
#: Version sequences up to this length are parsed run by run, longer sequences by numpy.
_FEW_RUNS_BYTES = 1024


class RowIds:
    """The row ids of a fragment, with ranges unexpanded. Immutable.

    - `num_rows`: Number of physical rows.
    """

    __slots__ = ("_ends", "_segments", "num_rows")

    def __init__(self, segments: Iterable[Range | Array]) -> None:
        self._segments = tuple(segments)
        self._ends = np.cumsum([segment.count for segment in self._segments], dtype=np.int64)
        self.num_rows = int(self._ends[-1]) if self._segments else 0

    @classmethod
    def of(cls, values: UInt64Array) -> RowIds:
        """Return an array of ids as `RowIds`."""
        return cls((Array(values),))

    def slice(self, start: int, stop: int) -> UInt64Array:
        """Return the ids of rows `start` to `stop - 1` as a uint64 array.

        Raises InvalidInputError: a row is out of range.
        """
        self._check(start, stop)
        first = int(np.searchsorted(self._ends, start, "right"))
        parts: list[UInt64Array] = []
        for i in range(first, len(self._segments)):
            before = int(self._ends[i - 1]) if i else 0
            if before >= stop:
                break
            low, high = max(start, before) - before, min(stop, int(self._ends[i])) - before
            parts.append(self._segments[i].take(np.arange(low, high)))
        return concatenate(parts)

    def take(self, offsets: Offsets) -> UInt64Array:
        """Return the ids of rows by their offsets, in the order of the offsets.

        Returns one id for each offset. Raises InvalidInputError: an offset is out of range.
        """
        if not len(offsets):
            return np.empty(0, np.uint64)
        self._check(int(offsets.min()), int(offsets.max()) + 1)
        if len(self._segments) == 1:
            return self._segments[0].take(offsets)
        segment_of = np.searchsorted(self._ends, offsets, "right")
        order = np.argsort(segment_of, kind="stable")
        used, firsts = np.unique(segment_of[order], return_index=True)
        ids = np.empty(len(offsets), np.uint64)
        for i, rows in zip(used.tolist(), np.split(order, firsts[1:]), strict=True):
            before = self._ends[i - 1] if i else 0
            ids[rows] = self._segments[i].take(offsets[rows] - before)
        return ids

    def to_array(self) -> UInt64Array:
        """Return all ids, in row order, as a uint64 array."""
        return self.slice(0, self.num_rows)

    def runs(self) -> tuple[UInt64Array, Offsets, Offsets]:
        """Return the ids as runs of consecutive ids.

        Returns
        -------
        uint64 array
            First id of each run.
        int64 array
            Row offset of the first id of each run.
        int64 array
            Number of ids in each run.
        """
        firsts: list[UInt64Array] = []
        offsets: list[Offsets] = []
        counts: list[Offsets] = []
        before = 0
        for segment in self._segments:
            if isinstance(segment, Range) and segment.holes is None:
                first = np.array([segment.start], np.uint64)
                offset, count = np.array([before]), np.array([segment.count])
            else:
                starts = segment_run_starts(segment)
                first, offset = segment.take(starts), starts + before
                count = np.diff(starts, append=segment.count)
            if segment.count:
                firsts.append(first)
                offsets.append(offset)
                counts.append(count)
            before += segment.count
        return concatenate(firsts), _concatenate_offsets(offsets), _concatenate_offsets(counts)

    def _check(self, start: int, stop: int) -> None:
        if start < 0 or stop > self.num_rows:
            raise InvalidInputError(
                f"rows {start} to {stop} are out of range, the fragment has {self.num_rows} rows"
            )


def parse_row_ids(data: bytes, name: str, num_rows: int | None = None) -> RowIds:
    """Parse a `RowIdSequence` without expanding ranges. Bitmaps are expanded.

    - `name`: Name of the table or manifest and of the fragment, for errors.
    - `num_rows`: Physical rows of the fragment. Pass it if it is known: few bytes can stand for
      billions of ids.

    Raises CorruptTableError: the bytes cannot be parsed, or the number of ids is not `num_rows`.
    """
    try:
        message = rowids_pb2.RowIdSequence.FromString(data)
    except DecodeError as error:
        raise CorruptTableError(f"{name}: the row id sequence cannot be parsed: {error}") from None
    limit = MAX_PHYSICAL_ROWS if num_rows is None else num_rows
    segments: list[Range | Array] = []
    total = 0
    for proto in message.segments:
        segment = parse_segment(proto, name, limit - total)
        total += segment.count
        segments.append(segment)
    if num_rows is not None and total != num_rows:
        raise CorruptTableError(f"{name}: {total} row ids for {num_rows} rows")
    return RowIds(segments)


def encode_row_ids(row_ids: UInt64Array | Sequence[int]) -> bytes:
    """Encode row ids as a `RowIdSequence` of (nearly) minimal size.

    As in pylance, increasing ids become one range, range with holes, range with bitmap or sorted
    array, other ids an array. Long runs of consecutive ids become separate ranges if that saves
    half of the bytes. Only the first segment has holes: pylance up to 3 answers filters with other
    rows if a bitmap follows a segment, and up to 8, searches lose rows of a segment that are holes
    of a later one.

    - `row_ids`: Unique ids in row order. Uniqueness is not checked.

    Returns the value for `inline_row_ids` of the fragment.
    """
    values = np.ascontiguousarray(row_ids, dtype=np.uint64)
    message = rowids_pb2.RowIdSequence()
    for start, stop in _segment_bounds(values):
        fill_segment(message.segments.add(), values[start:stop], may_have_holes=not start)
    return message.SerializeToString()


def decode_versions(data: bytes, num_rows: int, name: str) -> UInt64Array:
    """Decode a `RowDatasetVersionSequence`.

    - `num_rows`: Physical rows of the fragment.
    - `name`: Name of the table or manifest and of the fragment, for errors.

    Returns the version of each row. Raises CorruptTableError: the bytes cannot be parsed, or the
    number of versions is not `num_rows`.
    """
    versions, counts = parse_versions(data, num_rows, name)
    return np.repeat(versions, counts)


def parse_versions(data: bytes, num_rows: int, name: str) -> tuple[UInt64Array, Offsets]:
    """Parse a `RowDatasetVersionSequence` to runs.

    Returns
    -------
    uint64 array
        The version of each run.
    int64 array
        The number of rows of each run; their sum is `num_rows`.

    Raises
    ------
    CorruptTableError
        The bytes cannot be parsed, or the number of versions is not `num_rows`.
    """
    range_runs = parse_runs(data) if len(data) > _FEW_RUNS_BYTES else None
    if range_runs is None:
        return _parse_versions(data, num_rows, name)
    starts, ends, versions = range_runs
    lengths = ends - starts
    # Checked before the sum, which cannot overflow then.
    if (starts > ends).any() or int(lengths.max()) > num_rows:
        raise CorruptTableError(
            f"{name}: a run of row versions is longer than the {num_rows} rows of the fragment"
        )
    counts = lengths.astype(np.int64)
    total = int(counts.sum())
    if total != num_rows:
        raise CorruptTableError(f"{name}: {total} versions for {num_rows} rows")
    return versions, counts


def _parse_versions(data: bytes, num_rows: int, name: str) -> tuple[UInt64Array, Offsets]:
    try:
        runs = rowids_pb2.RowDatasetVersionSequence.FromString(data).runs
    except DecodeError as error:
        raise CorruptTableError(
            f"{name}: the row version sequence cannot be parsed: {error}"
        ) from None
    versions = np.fromiter((run.version for run in runs), np.uint64, len(runs))
    counts: list[int] = []
    remaining = num_rows
    for run in runs:
        span = run.span
        if span.WhichOneof("segment") == "range":
            count: int = span.range.end - span.range.start
        else:
            count = parse_segment(span, name, remaining).count
        if count < 0 or count > remaining:
            raise CorruptTableError(
                f"{name}: a run of {count} row versions, but only {remaining} rows remain"
            )
        counts.append(count)
        remaining -= count
    if remaining:
        raise CorruptTableError(f"{name}: {num_rows - remaining} versions for {num_rows} rows")
    return versions, np.array(counts, dtype=np.int64)


def encode_versions(versions: UInt64Array | Sequence[int]) -> bytes:
    """Encode the versions of all rows as a `RowDatasetVersionSequence`.

    - `versions`: The version of each row, in row order.

    Returns the value for `inline_created_at_versions` or `inline_last_updated_at_versions` of the
    fragment.
    """
    values = np.ascontiguousarray(versions, dtype=np.uint64)
    if not len(values):
        return b""
    starts = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    ends = np.append(starts[1:], len(values))
    return encode_runs(starts.astype(np.uint64), ends.astype(np.uint64), values[starts])


def without_deleted(values: UInt64Array, deleted: Offsets) -> UInt64Array:
    """Return the values of the live rows.

    - `values`: Values of all physical rows.
    - `deleted`: Offsets of deleted rows, as `read_deletions` returns them.
    """
    return np.delete(values, deleted) if len(deleted) else values


def concatenate(parts: Sequence[UInt64Array]) -> UInt64Array:
    """Concatenate row ids or versions of several fragments; the result is empty for no parts."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _concatenate_offsets(parts: Sequence[Offsets]) -> Offsets:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _segment_bounds(values: UInt64Array) -> list[tuple[int, int]]:
    """Return the bounds of the segments: one segment, or long runs and the values between them."""
    size = len(values)
    if not size:
        return [(0, 0)]
    starts = run_starts(values)
    if len(starts) == 1:
        return [(0, size)]
    ends = np.append(starts[1:], size)
    long = ends - starts >= _LONG_RUN
    # Adjacent short runs share a segment.
    is_first = np.append(True, long[1:] | long[:-1])
    bounds = np.append(starts[is_first], size)
    segments = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    undivided = size_of(values, may_have_holes=True)
    if len(segments) * _SEGMENT_BYTES * 2 > undivided:
        return [(0, size)]
    between = bounds[:-1][~long[is_first]].tolist(), bounds[1:][~long[is_first]].tolist()
    content = sum(
        size_of(values[low:high], may_have_holes=not low)
        for low, high in zip(*between, strict=True)
    )
    divided = len(segments) * _SEGMENT_BYTES + content
    return segments if 2 * divided < undivided else [(0, size)]
