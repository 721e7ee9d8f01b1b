"""Vectorised codec of row version runs.

Rows that several versions updated alternately have nearly one run each, so runs are encoded and
parsed many at once. A run whose span is a range, as all writers write it, has at most 38 bytes:

| bytes | content |
| --- | --- |
| 0a, length | `RowDatasetVersionSequence.runs` |
| 0a, length | `RowDatasetVersionRun.span` |
| 0a, length | `U64Segment.range` |
| 08, varint | `Range.start`; omitted if 0 |
| 10, varint | `Range.end`; omitted if 0 |
| 10, varint | `RowDatasetVersionRun.version`; omitted if 0 |

Each length is below 128, so it has one byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.table.rows.u64_segments import Offsets, UInt64Array

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
