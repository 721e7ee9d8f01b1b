"""Row ids and row versions of a fragment, as its `DataFragment` message holds them.

`RowIdSequence` is a list of `U64Segment`; row i of the fragment has the i-th id of the segments put together (see
`lance_spark.table.rows.u64_segments`).

`RowDatasetVersionSequence` is a list of runs: as many rows as the run's `span` (a `U64Segment`) has values share the run's
`version`. Which values the span has means nothing.

Sequences are about all physical rows of a fragment, deleted ones included. Specification: table/row_id_lineage.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import rowids_pb2
from lance_spark.table.fragments.fragment import MAX_PHYSICAL_ROWS
from lance_spark.table.rows.u64_segments import (
    Array,
    Offsets,
    Range,
    Words,
    fill_segment,
    parse_segment,
    run_starts,
    segment_run_starts,
    size_of,
)
from lance_spark.table.rows.version_runs import encode_runs, parse_runs

#: Bytes that one more segment costs in a manifest, about: tags, lengths, and the two ends.
_SEGMENT_BYTES = 16
#: A run of consecutive ids at least this long may become a segment of its own.
_LONG_RUN = 16
#: Sequences of versions up to this length are parsed one run after the other.
_FEW_RUNS_BYTES = 1024


class RowIds:
    """The row ids of a fragment; ranges stay ranges until ids are asked for. Immutable.

    Attributes
    ----------
    num_rows : int
    """

    __slots__ = ("_ends", "_segments", "num_rows")

    def __init__(self, segments: Iterable[Range | Array]) -> None:
        self._segments = tuple(segments)
        self._ends = np.cumsum([one.count for one in self._segments], dtype=np.int64)
        self.num_rows = int(self._ends[-1]) if self._segments else 0

    @classmethod
    def of(cls, values: Words) -> RowIds:
        """Return the ids of an array."""
        return cls((Array(values),))

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
            if isinstance(segment, Range) and segment.holes is None:
                first = np.array([segment.start], np.uint64)
                offset, count = np.array([before]), np.array([segment.count])
            else:
                # Of a range with holes only the ids after holes start a run.
                starts = segment_run_starts(segment)
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
    segments: list[Range | Array] = []
    total = 0
    for one in message.segments:
        segment = parse_segment(one, name, limit - total)
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
        fill_segment(message.segments.add(), values[start:stop])
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
    plain = parse_runs(data) if len(data) > _FEW_RUNS_BYTES else None
    if plain is None:
        return _parse_versions(data, num_rows, name)
    starts, ends, versions = plain
    lengths = ends - starts
    # The sum of runs that are no longer than a fragment can be does not overflow.
    if (starts > ends).any() or int(lengths.max()) > num_rows:
        raise CorruptTableError(f"{name}: a run of versions of other rows than the fragment's")
    counts = lengths.astype(np.int64)
    total = int(counts.sum())
    if total != num_rows:
        raise CorruptTableError(f"{name}: {total} versions for {num_rows} rows")
    return versions, counts


def _parse_versions(data: bytes, num_rows: int, name: str) -> tuple[Words, Offsets]:
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
            count = parse_segment(span, name, left).count
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
    if not len(values):
        return b""
    starts = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    ends = np.append(starts[1:], len(values))
    return encode_runs(starts.astype(np.uint64), ends.astype(np.uint64), values[starts])


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
    alone = size_of(values)
    if len(cuts) * _SEGMENT_BYTES * 2 > alone:
        return [(0, size)]
    between = bounds[:-1][~long[first]].tolist(), bounds[1:][~long[first]].tolist()
    parts = sum(size_of(values[low:high]) for low, high in zip(*between, strict=True))
    return cuts if 2 * (len(cuts) * _SEGMENT_BYTES + parts) < alone else [(0, size)]
