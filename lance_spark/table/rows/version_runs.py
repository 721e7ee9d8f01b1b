"""Runs of row versions, many at once: rows that were changed in turn by several versions have nearly a run each.

A run whose span is a range, as every writer writes it, takes at most 38 bytes:

| bytes | content |
| --- | --- |
| 0a, length | `RowDatasetVersionSequence.runs` |
| 0a, length | `RowDatasetVersionRun.span` |
| 0a, length | `U64Segment.range` |
| 08, varint | `Range.start`; left out if 0 |
| 10, varint | `Range.end`; left out if 0 |
| 10, varint | `RowDatasetVersionRun.version`; left out if 0 |

Every length is below 128: one byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.table.rows.u64_segments import Offsets, Words

_MESSAGE = 0x0A
_FIRST = 0x08
_SECOND = 0x10
_MORE = 0x80
_VARINT_BYTES = 10
#: Runs of which the bytes are laid out at once, a few megabytes.
_AT_ONCE = 1 << 16
#: A broken message may point this far behind its end, and not further.
_PADDING = bytes(128 + 3 * (1 + _VARINT_BYTES))
_Bytes = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]


def encode_runs(starts: Words, ends: Words, versions: Words) -> bytes:
    """Return the `RowDatasetVersionSequence` of some runs.

    Parameters
    ----------
    starts, ends, versions : uint64 arrays of one length
        First row of each run, the row after its last, and its version.
    """
    return b"".join(
        _encoded(starts[at : at + _AT_ONCE], ends[at : at + _AT_ONCE], versions[at : at + _AT_ONCE])
        for at in range(0, len(starts), _AT_ONCE)
    )


def parse_runs(data: bytes) -> tuple[Words, Words, Words] | None:
    """Return first row, row after the last, and version of each run; None if any run is spelled in another way.

    Returns
    -------
    tuple of three uint64 arrays, or None
        What the numbers are is not checked.
    """
    found: list[int] = []
    at, size = 0, len(data)
    while at + 1 < size:
        found.append(at)
        at += data[at + 1] + 2
    if at != size:
        return None
    buffer = np.frombuffer(data + _PADDING, np.uint8)
    run = np.array(found, np.int64)
    run_end = run + 2 + buffer[run + 1]
    span_end = run + 4 + buffer[run + 3]
    range_end = run + 6 + buffer[run + 5]
    plain = (span_end == range_end) & (buffer[run + 1] < _MORE)
    for skip in (0, 2, 4):
        plain &= buffer[run + skip] == _MESSAGE
    starts, at_end = _number(buffer, run + 6, range_end, _FIRST)
    ends, at_version = _number(buffer, at_end, range_end, _SECOND)
    versions, last = _number(buffer, at_version, run_end, _SECOND)
    plain &= (at_version == range_end) & (last == run_end)
    return (starts, ends, versions) if plain.all() else None


def _encoded(starts: Words, ends: Words, versions: Words) -> bytes:
    first, first_there = _varints(starts, _FIRST)
    second, second_there = _varints(ends, _SECOND)
    version, version_there = _varints(versions, _SECOND)
    in_range = (first_there.sum(axis=1) + second_there.sum(axis=1)).astype(np.uint8)
    head = np.full((len(starts), 6), _MESSAGE, np.uint8)
    head[:, 5] = in_range
    head[:, 3] = in_range + 2
    head[:, 1] = in_range + 4 + version_there.sum(axis=1).astype(np.uint8)
    whole = np.hstack([head, first, second, version])
    there = np.hstack([np.ones(head.shape, np.bool_), first_there, second_there, version_there])
    return whole[there].tobytes()


def _varints(values: Words, tag: int) -> tuple[_Bytes, _Mask]:
    """Return tag and varint of each value, and which of these bytes are written; none for 0."""
    shifts = np.arange(_VARINT_BYTES, dtype=np.uint64) * np.uint64(7)
    left = values[:, None] >> shifts
    there = left != 0
    more = np.zeros(there.shape, np.bool_)
    more[:, :-1] = there[:, 1:]
    body = (left & np.uint64(0x7F)).astype(np.uint8) | (more * np.uint8(_MORE))
    tags = np.full((len(values), 1), tag, np.uint8)
    return np.hstack([tags, body]), np.hstack([there[:, :1], there])


def _number(buffer: _Bytes, at: Offsets, end: Offsets, tag: int) -> tuple[Words, Offsets]:
    """Return a number for each position, 0 where another tag stands there, and the positions behind."""
    values = np.zeros(len(at), np.uint64)
    # Whoever starts behind the end of its message is broken, and reads zeros at the end of the buffer.
    at = np.minimum(at, len(buffer) - _VARINT_BYTES - 2)
    there = np.flatnonzero((buffer[at] == tag) & (at < end))
    behind = at.copy()
    behind[there] += 1
    for number in range(_VARINT_BYTES):
        byte = buffer[behind[there]]
        values[there] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * number)
        behind[there] += 1
        there = there[byte >= _MORE]
        if not len(there):
            break
    else:
        # No varint is longer: the position is none that a message can end at.
        behind[there] = -1
    return values, behind
