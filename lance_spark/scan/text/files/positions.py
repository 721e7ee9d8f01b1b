"""Positions of tokens in their documents.

Layout `shared_stream_v2` has one stream for each token, with a part for each posting block, whose
starts are a column. A part has the first position of each document and the steps to the next ones,
for all documents one after the other: groups of 128 as a byte of width and packed integers of 4
lanes, and the rest as varints.

Format 1 has a list of binaries for each document: a u32 number of positions; for each 128 of them a
u32 first position, a byte of width and packed steps; and the other positions as u32.

Specification: table/index/scalar/fts.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.scan.text.files.packing import (
    MAX_WIDTH,
    Bytes,
    gathered,
    groups,
    joined,
    running_sums,
    unpacked,
    varints,
)
from lance_spark.scan.text.files.postings import bytes_of

LAYOUT, CODEC = "shared_stream_v2", "packed_delta_v1"
_GROUP = 128
_LANES = 4


def read_stream(
    streams: pa.Array,
    part_starts: pa.Array,
    frequencies: RowNumbers,
    block_counts: RowNumbers,
    name: str,
) -> RowNumbers:
    """Return the positions of tokens in their documents.

    Parameters
    ----------
    streams : pa.Array
        Large binary: the stream of each token.
    part_starts : pa.Array
        List of uint32: the parts of each stream.
    frequencies : int64 array
        Positions of each document of each token.
    block_counts : int64 array
        Documents of each posting block.
    name : str
        Name of the file, for errors.

    Returns
    -------
    int64 array
        Positions of each document, as many as its frequency, one document after the other.

    Raises
    ------
    CorruptFileError
        A part is truncated, or is not that of a posting block.
    """
    starts_of_parts = part_starts.flatten()
    if streams.null_count or part_starts.null_count or starts_of_parts.null_count:
        raise _error(name)
    parts_of_token = part_starts.value_lengths().to_numpy().astype(np.int64)
    data, offsets = bytes_of(streams)
    if parts_of_token.sum() != len(block_counts):
        raise _error(name)
    starts = starts_of_parts.to_numpy().astype(np.int64) + np.repeat(offsets[:-1], parts_of_token)
    stops = np.append(starts[1:], offsets[-1:])
    last = np.cumsum(parts_of_token)[parts_of_token > 0] - 1
    stops[last] = offsets[1:][parts_of_token > 0]
    document_bounds = np.append(0, np.cumsum(block_counts))
    value_bounds = np.append(0, np.cumsum(frequencies))
    bounds = value_bounds[document_bounds]
    counts = np.diff(bounds)
    # A byte has at most one group, or one position.
    if (
        (stops < starts).any()
        or (stops > len(data)).any()
        or (counts > _GROUP * (stops - starts)).any()
    ):
        raise _error(name)
    steps = np.empty(int(bounds[-1]), np.int64)
    cursor = starts.copy()
    for number in range(int(counts.max(initial=0)) // _GROUP):
        active = np.flatnonzero(counts >= (number + 1) * _GROUP)
        values, cursor[active] = _read_groups(data, cursor[active], stops[active], name)
        steps[(bounds[active] + number * _GROUP)[:, None] + np.arange(_GROUP)] = values
    rest = counts % _GROUP
    content, byte_bounds = joined(data, cursor, stops - cursor)
    numbers = varints(content, byte_bounds)
    if numbers is None or not np.array_equal(np.diff(numbers[1]), rest):
        raise _error(name)
    rows = np.arange(rest.sum()) + np.repeat(bounds[1:] - np.cumsum(rest), rest)
    steps[rows] = numbers[0]
    return running_sums(steps, value_bounds)


def read_lists(lists: pa.Array, frequencies: RowNumbers, name: str) -> RowNumbers:
    """Return the positions of tokens in their documents, of format 1; see `read_stream`.

    Parameters
    ----------
    lists : pa.Array
        List of large binary for each document of each token.
    frequencies : int64 array
    name : str

    Raises
    ------
    CorruptFileError
    """
    binary = lists.flatten()
    sizes = lists.value_lengths().to_numpy().astype(np.int64)
    full, rest = frequencies // _GROUP, frequencies % _GROUP
    if lists.null_count or binary.null_count or not np.array_equal(sizes, 1 + full + (rest > 0)):
        raise _error(name)
    data, offsets = bytes_of(binary)
    starts, stops = offsets[:-1], offsets[1:]
    first = np.append(0, np.cumsum(sizes))[:-1]
    if not (stops[first] - starts[first] == 4).all():
        raise _error(name)
    counts = gathered(data, starts[first], 4).view("<u4")[:, 0]
    if not np.array_equal(counts, frequencies):
        raise _error(name)
    value_bounds = np.append(0, np.cumsum(frequencies))
    positions = np.empty(int(value_bounds[-1]), np.int64)
    document = np.repeat(np.arange(len(full)), full)
    number = np.arange(len(document)) - np.repeat(np.append(0, np.cumsum(full))[:-1], full)
    block = first[document] + 1 + number
    if (starts[block] + 4 > stops[block]).any():
        raise _error(name)
    base = gathered(data, starts[block], 4).view("<u4")[:, 0].astype(np.int64)
    steps, ends = _read_groups(data, starts[block] + 4, stops[block], name)
    steps[:, 0] = 0
    rows = (value_bounds[document] + number * _GROUP)[:, None] + np.arange(_GROUP)
    positions[rows] = base[:, None] + np.cumsum(steps, axis=1)
    has_rest = rest > 0
    tail = first[has_rest] + 1 + full[has_rest]
    tail_sizes = stops[tail] - starts[tail]
    if not np.array_equal(ends, stops[block]) or not np.array_equal(tail_sizes, 4 * rest[has_rest]):
        raise _error(name)
    content, _ = joined(data, starts[tail], tail_sizes)
    rows = np.arange(rest.sum()) + np.repeat(value_bounds[1:] - np.cumsum(rest), rest)
    positions[rows] = content.view("<u4")
    return positions


def _read_groups(
    data: Bytes, starts: RowNumbers, stops: RowNumbers, name: str
) -> tuple[npt.NDArray[np.int64], RowNumbers]:
    """Return the values of packed groups, and the position after each."""
    if (starts >= stops).any():
        raise _error(name)
    width = data[starts].astype(np.int64)
    ends = starts + 1 + width * 4 * _LANES
    if (width > MAX_WIDTH).any() or (ends > stops).any():
        raise _error(name)
    values = np.empty((len(starts), _GROUP), np.int64)
    for bits, rows in groups(width):
        content = gathered(data, starts[rows] + 1, bits * 4 * _LANES)
        values[rows] = unpacked(content, bits, _LANES)
    return values, ends


def _error(name: str) -> CorruptFileError:
    return CorruptFileError(f"{name}: the positions of tokens are damaged; rebuild the index")
