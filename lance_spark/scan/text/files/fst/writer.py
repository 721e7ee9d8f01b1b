"""Write a token dictionary as a finite state transducer; `fst` has the bytes.

A node of the graph stands for the first bytes that two tokens or more share. The nodes are written
such that each stands after the nodes that it leads to:

| what | bytes |
| --- | --- |
| endings | paths to the end of a token, after the byte that no other token shares |
| nodes | each has several transitions, or one if a token ends there |
| after each node | the path of one transition each that leads to it |

A path is a chain of nodes of one transition. It is written from its last byte to its first. Last
bytes that two endings share are written once: the path of the second leads to that of the first.
The number of a token is the output of the transition to its ending, or of the node where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.encoding.v2_1.fixed_width import bounds, ranges
from lance_spark.scan.text.files.fst import reader
from lance_spark.scan.text.files.fst.crc32c import crc32c
from lance_spark.scan.text.files.packing import Bytes

#: The number of each frequent byte; 0 for others.
_COMMON_NUMBERS = np.zeros(256, np.uint8)
_COMMON_NUMBERS[reader.COMMON_BYTES] = np.arange(len(reader.COMMON_BYTES))
_INDEX_BYTES, _NO_TRANSITION = 256, 255
#: Bytes of paths that are handled at once.
_STEP_BYTES = 1 << 20
_ALL_BYTES = 256
#: Fewest bytes that an ending shares with another one: a target takes about as many.
_MIN_SHARED = 2
#: The transition leads to a node.
_IS_NODE = -1
_ROUNDS = 3
_CHECKSUM_BYTES, _CHECKSUM_OFFSET = 4, 0xA282_EAD8
_MASK = 0xFFFF_FFFF

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Strings:
    """Strings of bytes, in any place of an array."""

    data: Bytes
    starts: RowNumbers
    sizes: RowNumbers

    @classmethod
    def of(cls, array: pa.Array) -> _Strings:
        """Return the values of an array of large binary."""
        _, offset_buffer, data = array.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[array.offset :][: len(array) + 1]
        content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return cls(content, offsets[:-1], np.diff(offsets))

    def __len__(self) -> int:
        return len(self.starts)

    def steps(self, sizes: RowNumbers) -> Iterator[slice]:
        """Yield strings whose sizes are together about those of a step."""
        before = bounds(sizes)
        start = 0
        while start < len(sizes):
            stop = int(np.searchsorted(before, before[start] + _STEP_BYTES, "right")) - 1
            stop = max(stop, start + 1)
            yield slice(start, stop)
            start = stop

    def shared(self) -> RowNumbers:
        """Return how many bytes at the start of each string those of the next one equal."""
        result = np.minimum(self.sizes[:-1], self.sizes[1:])
        for step in self.steps(result):
            sizes, starts = result[step], self.starts[step]
            next_starts = self.starts[1:][step]
            differ = np.flatnonzero(
                self.data[ranges(starts, sizes)] != self.data[ranges(next_starts, sizes)]
            )
            before = bounds(sizes)
            string = np.searchsorted(before, differ, "right") - 1
            first = np.flatnonzero(np.diff(string, prepend=-1))
            place = string[first]
            sizes[place] = differ[first] - before[place]
        return result

    def reversed(self) -> _Strings:
        """Return the strings back to back, the last byte of each first."""
        before = bounds(self.sizes)
        data = np.empty(int(before[-1]), np.uint8)
        for step in self.steps(self.sizes):
            sizes = self.sizes[step]
            ends = self.starts[step] + sizes - 1
            start = before[step.start]
            at = np.repeat(ends + before[step] - start, sizes) - np.arange(sizes.sum())
            data[start : start + len(at)] = self.data[at]
        return _Strings(data, before[:-1], self.sizes)

    def paths(self) -> _Strings:
        """Return the nodes of one transition for each byte of the strings."""
        sizes = np.empty(len(self), np.int64)
        parts = [np.empty(0, np.uint8)]
        for step in self.steps(self.sizes):
            counts = self.sizes[step]
            content = self.data[ranges(self.starts[step], counts)]
            numbers = _COMMON_NUMBERS[content]
            ends = bounds(1 + (numbers == 0))
            nodes = np.zeros(int(ends[-1]), np.uint8)
            nodes[ends[1:] - 1] = reader.NEXT | numbers
            own = np.flatnonzero(numbers == 0)
            nodes[ends[own]] = content[own]
            sizes[step] = np.diff(ends[bounds(counts)])
            parts.append(nodes)
        return _Strings(np.concatenate(parts), bounds(sizes)[:-1], sizes)

    def picked(self, places: RowNumbers) -> _Strings:
        """Return some of the strings."""
        return _Strings(self.data, self.starts[places], self.sizes[places])

    def put(self, target: Bytes, at: RowNumbers) -> None:
        """Store each string at a place."""
        for step in self.steps(self.sizes):
            sizes = self.sizes[step]
            target[ranges(at[step], sizes)] = self.data[ranges(self.starts[step], sizes)]


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Nodes in an order in which each follows those that it leads to; the last one is the root.

    Attributes
    ----------
    depths : int64 array
        Bytes that the tokens of a node share.
    first : int64 array
        Its first token.
    parents : int64 array
        The node that leads to it.
    of_token, token_depths : int64 array
        The deepest node of each token, and its depth.
    """

    depths: RowNumbers
    first: RowNumbers
    parents: RowNumbers
    of_token: RowNumbers
    token_depths: RowNumbers

    @classmethod
    def of(cls, tokens: _Strings) -> _Nodes:
        """Return the nodes of sorted tokens.

        Between two tokens is a bound, whose depth is the number of bytes that they share. A node
        is a range of tokens between the next bounds of less depth. It has all bounds of its depth
        in the range.
        """
        count = len(tokens)
        shared = tokens.shared() if count else np.empty(0, np.int64)
        depths = np.concatenate([[-1], shared, [-1]] if count else [[-1]])
        right = _next_less(depths)
        left = count - _next_less(depths[::-1])[::-1]
        right[0] = right[-1] = count
        left[0] = left[-1] = 0
        # A node stands after those in its range: by the end of the range, the deeper ones first.
        most = int(depths.max()) + 1
        key = right * (most + 1) + most - np.maximum(depths, 0)
        _, bound, of_bound = np.unique(key, return_index=True, return_inverse=True)
        left, right = left[bound], right[bound]
        deeper = np.where(depths[right] >= depths[left], right, left)
        number = np.arange(count)
        of_token = np.where(depths[1:] >= depths[:-1], number + 1, number)
        return cls(
            depths=np.maximum(depths[bound], 0),
            first=left,
            parents=of_bound[deeper],
            of_token=of_bound[of_token],
            token_depths=np.maximum(depths[of_token], 0),
        )


@dataclass(frozen=True, kw_only=True)
class _Graph:
    """Nodes, and their transitions by node and input.

    Attributes
    ----------
    is_final : bool array
    final_outputs : int64 array
    paths : _Strings
        The path that leads to each node but the root.
    node, inputs, outputs : arrays
        Of each transition.
    endings : int64 array
        The address of the ending of each transition, or `_IS_NODE`.
    children : int64 array
        The node that each transition without ending leads to.
    """

    is_final: _Bools
    final_outputs: RowNumbers
    paths: _Strings
    node: RowNumbers
    inputs: Bytes
    outputs: RowNumbers
    endings: RowNumbers
    children: RowNumbers

    @cached_property
    def counts(self) -> RowNumbers:
        """Transitions of each node."""
        counts: RowNumbers = np.bincount(self.node, minlength=len(self.is_final))
        return counts

    @cached_property
    def output_sizes(self) -> RowNumbers:
        """Bytes of an output of each node; 0 if all are zero."""
        greatest = self.final_outputs.copy()
        np.maximum.at(greatest, self.node, self.outputs)
        return np.where(greatest > 0, _num_bytes(greatest), 0)

    @cached_property
    def has_index(self) -> _Bools:
        """Whether each node has an index."""
        has_index: _Bools = self.counts > reader.INDEXED
        return has_index

    @cached_property
    def has_count(self) -> _Bools:
        """Whether the number of transitions of each node is in a byte of its own."""
        has_count: _Bools = (self.counts == 0) | (self.counts > reader.LOW_BITS)
        return has_count

    def sizes(self, target_sizes: RowNumbers) -> RowNumbers:
        """Return the bytes of each node for a number of bytes of each target."""
        outputs = (self.counts + self.is_final) * self.output_sizes
        # The sizes and the state have a byte each.
        own = _INDEX_BYTES * self.has_index + self.has_count + 2
        sizes: RowNumbers = outputs + self.counts * (1 + target_sizes) + own
        return sizes

    def layout(self, first: int, target_sizes: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        """Return the start of each node, and the distance of each target.

        Parameters
        ----------
        first : int
            Start of the first node. The starts have the end of the last node, too.
        target_sizes : int64 array
        """
        starts = bounds(self.sizes(target_sizes) + np.append(self.paths.sizes, 0)) + first
        child_ends = starts[self.children + 1] - 1
        targets = np.where(self.endings == _IS_NODE, child_ends, self.endings)
        return starts, np.where(targets > 0, starts[self.node] - targets, 0)


def encoded(tokens: pa.Array, numbers: RowNumbers) -> Bytes:
    """Return a token dictionary.

    Parameters
    ----------
    tokens : pa.Array
        Large binary, increasing.
    numbers : int64 array
        The number of each token.

    Examples
    --------
    >>> data = encoded(pa.array([b"a", b"ab"], pa.large_binary()), np.array([1, 0]))
    >>> reader.TokenGraph.parse(data.tobytes(), 2, "tokens").find(b"ab")
    0
    """
    strings = _Strings.of(tokens)
    nodes = _Nodes.of(strings)
    has_ending = strings.sizes > nodes.token_depths
    starts = strings.starts + nodes.token_depths + 1
    endings = _Strings(strings.data, starts, strings.sizes - nodes.token_depths - 1)
    leaves = np.flatnonzero(has_ending)
    pool, addresses = _endings(endings.picked(leaves))
    # The last node is the root: no transition and no path leads to it.
    inner = np.arange(len(nodes.depths) - 1)
    path_starts = nodes.depths[nodes.parents[inner]] + 1
    path_sizes = nodes.depths[inner] - path_starts
    paths = _Strings(strings.data, strings.starts[nodes.first[inner]] + path_starts, path_sizes)
    parents = np.append(nodes.of_token[leaves], nodes.parents[inner])
    first = np.append(leaves, nodes.first[inner])
    order = np.lexsort((first, parents))
    is_final = np.zeros(len(nodes.depths), np.bool_)
    final_outputs = np.zeros(len(is_final), np.int64)
    is_final[nodes.of_token[~has_ending]] = True
    final_outputs[nodes.of_token[~has_ending]] = numbers[~has_ending]
    graph = _Graph(
        is_final=is_final,
        final_outputs=final_outputs,
        paths=paths.reversed().paths(),
        node=parents[order],
        inputs=strings.data[(strings.starts[first] + nodes.depths[parents])[order]],
        outputs=np.append(numbers[leaves], np.zeros(len(inner), np.int64))[order],
        endings=np.append(addresses, np.full(len(inner), _IS_NODE))[order],
        children=np.append(np.zeros(len(leaves), np.int64), inner)[order],
    )
    return _stored(graph, pool, len(numbers))


def _next_less(depths: RowNumbers) -> RowNumbers:
    """Return the next bound of less depth for all bounds but the first and the last.

    These two have less depth than all others.
    """
    following = np.arange(1, len(depths) + 1)
    active = np.arange(1, len(depths) - 1)
    while len(active):
        active = active[depths[following[active]] >= depths[active]]
        # All bounds before the next lesser one of a deeper bound are deeper, too.
        following[active] = following[following[active]]
    return following


def _endings(endings: _Strings) -> tuple[Bytes, RowNumbers]:
    """Return the nodes of endings, and the address of each ending; 0 for an empty one."""
    import pyarrow.compute as pc

    addresses = np.zeros(len(endings), np.int64)
    filled = np.flatnonzero(endings.sizes)
    own = endings.picked(filled).reversed()
    offsets = pa.py_buffer(bounds(own.sizes))
    buffers = [None, offsets, pa.py_buffer(own.data)]
    values = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(own), buffers)
    distinct = values.dictionary_encode()
    places = pc.array_sort_indices(distinct.dictionary)
    strings = _Strings.of(distinct.dictionary.take(places))
    # The bytes that an ending shares with the one before, in the order of their last bytes.
    shared = np.append(np.zeros(min(len(strings), 1), np.int64), strings.shared())
    shared[shared < _MIN_SHARED] = 0
    paths = _Strings(strings.data, strings.starts + shared, strings.sizes - shared).paths()
    # The ending that has the node after the shared bytes.
    padded = np.concatenate([[-1], shared, [-1]])
    holder = len(strings) - _next_less(padded[::-1])[::-1][1:-1]
    is_shared = shared > 0
    follows = np.zeros(len(strings), np.bool_)
    follows[1:] = is_shared[1:] & (shared[1:] == strings.sizes[:-1])
    # The other paths begin with a target: a node of another ending, or the final node.
    most = int(paths.sizes.sum()) + len(paths) * (1 + reader.MAX_UINT_BYTES)
    step_sizes = np.where(is_shared, _num_bytes(np.array([most])), 1)
    own_targets = np.flatnonzero(~follows)
    before = np.where(follows, 0, step_sizes + 1)
    starts = bounds(before + paths.sizes)
    pool = np.zeros(int(starts[-1]), np.uint8)
    paths.put(pool, starts[:-1] + before)
    far = np.flatnonzero(is_shared & ~follows)
    of_holder = shared[holder[far]]
    begun = _Strings(strings.data, strings.starts[far] + of_holder, shared[far] - of_holder)
    targets = starts[holder[far]] + before[holder[far]] + begun.paths().sizes - 1
    _put(pool, starts[far], starts[far] - targets, step_sizes[far])
    pool[starts[own_targets] + step_sizes[own_targets]] = step_sizes[own_targets] << 4
    is_rare = _COMMON_NUMBERS[strings.data[strings.starts + shared]] == 0
    pool[(starts[:-1] + before + is_rare)[own_targets]] ^= reader.NEXT ^ reader.ONE
    address = np.empty(len(strings), np.int64)
    address[places.to_numpy()] = reader.HEADER.size + starts[1:] - 1
    addresses[filled] = address[distinct.indices.to_numpy()]
    return pool, addresses


def _stored(graph: _Graph, pool: Bytes, num_tokens: int) -> Bytes:
    """Return the bytes of a dictionary."""
    first = reader.HEADER.size + len(pool)
    target_sizes = np.full(len(graph.counts), reader.MAX_UINT_BYTES)
    # Fewer bytes of targets make the distances smaller.
    for _ in range(_ROUNDS):
        starts, steps = graph.layout(first, target_sizes)
        target_sizes = np.ones(len(target_sizes), np.int64)
        np.maximum.at(target_sizes, graph.node, _num_bytes(steps))
    starts, steps = graph.layout(first, target_sizes)
    end = int(starts[-1])
    data = np.zeros(end + reader.FOOTER.size, np.uint8)
    data[: reader.HEADER.size] = _bytes(reader.HEADER.pack(reader.VERSION, 0))
    data[reader.HEADER.size : first] = pool
    _put_nodes(data, graph, starts[:-1], target_sizes, steps)
    footer = reader.FOOTER.pack(num_tokens, end - 1, 0)[:-_CHECKSUM_BYTES]
    data[end:-_CHECKSUM_BYTES] = _bytes(footer)
    checksum = crc32c(data[:-_CHECKSUM_BYTES])
    # As the format masks it: turned by 15 bits, plus a constant.
    masked = ((checksum >> 15 | checksum << 17) & _MASK) + _CHECKSUM_OFFSET & _MASK
    data[-_CHECKSUM_BYTES:] = _bytes(masked.to_bytes(_CHECKSUM_BYTES, "little"))
    return data


def _put_nodes(
    data: Bytes, graph: _Graph, starts: RowNumbers, target_sizes: RowNumbers, steps: RowNumbers
) -> None:
    """Store nodes and the paths to them; see `fst` for the parts of a node."""
    node, counts, output_sizes = graph.node, graph.counts, graph.output_sizes
    position = starts
    final = np.flatnonzero(graph.is_final)
    _put(data, position[final], graph.final_outputs[final], output_sizes[final])
    position = position + graph.is_final * output_sizes
    # The last transition of a node comes first.
    rank: RowNumbers = np.arange(len(node)) - bounds(counts)[node]
    place: RowNumbers = counts[node] - 1 - rank
    sizes = output_sizes[node]
    _put(data, position[node] + place * sizes, graph.outputs, sizes)
    position = position + counts * output_sizes
    sizes = target_sizes[node]
    _put(data, position[node] + place * sizes, steps, sizes)
    position = position + counts * target_sizes
    data[position[node] + place] = graph.inputs
    position = position + counts
    indexed = np.flatnonzero(graph.has_index)
    data[position[indexed][:, None] + np.arange(_INDEX_BYTES)] = _NO_TRANSITION
    in_index = np.flatnonzero(graph.has_index[node])
    data[position[node[in_index]] + graph.inputs[in_index]] = rank[in_index]
    position = position + graph.has_index * _INDEX_BYTES
    data[position] = (target_sizes * (counts > 0)) << 4 | output_sizes
    position = position + 1
    counted = np.flatnonzero(graph.has_count)
    data[position[counted]] = np.where(counts == _ALL_BYTES, 1, counts)[counted]
    position = position + graph.has_count
    data[position] = graph.is_final * reader.FINAL | np.where(graph.has_count, 0, counts)
    graph.paths.put(data, position[:-1] + 1)


def _bytes(content: bytes) -> Bytes:
    return np.frombuffer(content, np.uint8)


def _put(data: Bytes, at: RowNumbers, values: RowNumbers, sizes: RowNumbers) -> None:
    """Store little-endian numbers of some bytes each."""
    for number in range(int(sizes.max(initial=0))):
        has_byte = np.flatnonzero(sizes > number)
        data[at[has_byte] + number] = values[has_byte] >> 8 * number & 0xFF


def _num_bytes(values: RowNumbers) -> RowNumbers:
    """Return the bytes of numbers, one or more."""
    sizes = np.ones(len(values), np.int64)
    for number in range(1, reader.MAX_UINT_BYTES):
        sizes += values >= 1 << 8 * number
    return sizes
