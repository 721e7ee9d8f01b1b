"""Token dictionaries as finite state transducers: graphs whose paths are the tokens."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.encoding.v2_1.codec import bounds, ranges
from lance_spark.errors import CorruptFileError
from lance_spark.indexes.text.packing import Bytes

# --------------------------------------------------------------------------------------------------
# CRC-32C checksums (polynomial of Castagnoli, reflected).
#
# The register of a checksum is linear in the bytes. So the bytes are cut into parts of one size,
# the registers of all parts are computed at once, and then joined: the register of two parts is
# that of the first, moved over the bytes of the second, XOR that of the second.

_Registers = npt.NDArray[np.uint32]

_POLYNOMIAL = np.uint32(0x82F6_3B78)
_REGISTER_BITS, _REGISTER_BYTES = 32, 4
#: Parts of a checksum; a power of 2.
_PARTS = 1 << 12
_MIN_PART = 64


def _table() -> _Registers:
    values: _Registers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ (values & np.uint32(1)) * _POLYNOMIAL
    return values


_TABLE = _table()


def crc32c(data: npt.NDArray[np.uint8]) -> int:
    """Return the checksum of bytes.

    Parameters
    ----------
    data : uint8 array
        Four bytes or more.

    Examples
    --------
    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
    '0xe3069283'
    """
    parts = 1
    while parts < _PARTS and len(data) > 2 * parts * _MIN_PART:
        parts *= 2
    size = max(-(-len(data) // parts), _REGISTER_BYTES)
    # Zeros at the start leave a register of zeros as it is.
    padded = np.zeros(parts * size, np.uint8)
    padded[len(padded) - len(data) :] = data
    padded[len(padded) - len(data) :][:_REGISTER_BYTES] ^= 0xFF
    columns = np.ascontiguousarray(padded.reshape(parts, size).T)
    # The last registers have one bit each: what becomes of it when it moves over a part.
    registers = np.append(
        np.zeros(parts, np.uint32), np.uint32(1) << np.arange(_REGISTER_BITS, dtype=np.uint32)
    )
    for column in columns:
        registers[:parts] ^= column
        registers = _TABLE[registers & 0xFF] ^ (registers >> 8)
    joined, moves = registers[:parts], registers[parts:]
    while len(joined) > 1:
        joined = _moved(joined[0::2], moves) ^ joined[1::2]
        moves = _moved(moves, moves)
    return int(joined[0]) ^ 0xFFFF_FFFF


def _moved(registers: _Registers, moves: _Registers) -> _Registers:
    """Return registers after some zeros; `moves` has what becomes of each bit."""
    result = np.zeros(len(registers), np.uint32)
    for bit in range(_REGISTER_BITS):
        result ^= ((registers >> np.uint32(bit)) & 1) * moves[bit]
    return result


# --------------------------------------------------------------------------------------------------
# Token dictionaries in the form of a finite state transducer: a graph whose paths are the tokens.
#
# | bytes | content |
# | --- | --- |
# | u64, u64 | 3 (version), 0 (type) |
# | nodes | each is read backwards from its address, which is that of its state byte |
# | u64, u64, u32 | number of tokens, address of the root, checksum |
#
# A token's number is the sum of the outputs on its path. State bytes:
#
# | bits | node | before the state byte, backwards |
# | --- | --- | --- |
# | 11cccccc | one transition to the node that ends before this one | input if c is 0 |
# | 10cccccc | one transition | input if c is 0; sizes; target; output |
# | 0fnnnnnn | n transitions, final if f is 1 | n if n is 0; sizes; index; inputs; targets; outputs
#     |
#
# A node of more than 32 transitions has an index of 256 bytes, and a final node with outputs one
# output more.
#
# `c` is the number of a frequent byte. `sizes` has the bytes of a target in the upper half, and
# those of an output in the lower half. A target is the distance from the end of the node; 0 is the
# final node without transitions. A number of transitions of 1 in a byte of its own stands for 256.
#
# Specification: table/index/scalar/fts.md; format version 3 of the Rust library `fst`.

HEADER = struct.Struct("<QQ")
FOOTER = struct.Struct("<QQI")
VERSION = 3
#: Frequent bytes, from number 1 on.
_COMMON = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHGW"[:63]
COMMON_BYTES = np.frombuffer(b"\0" + _COMMON, np.uint8)
ONE, NEXT, FINAL = 0x80, 0xC0, 0x40
LOW_BITS = 0x3F
INDEXED = 32
MAX_UINT_BYTES = 8
#: Most tokens whose numbers are kept: a query looks up each one several times.
_MOST_LOOKUPS = 1024


class _Node(NamedTuple):
    """Nodes, and their transitions one node after the other."""

    is_final: npt.NDArray[np.bool_]
    final_output: RowNumbers
    counts: RowNumbers
    inputs: Bytes
    targets: RowNumbers
    outputs: RowNumbers


@dataclass(frozen=True, slots=True)
class TokenGraph:
    """The graph of a token dictionary.

    - `data`: Uint8 array.
    - `root`: Address of the root.
    - `name`: Name of the file, for errors.
    - `lookups`: The last tokens that were looked up.
    """

    data: Bytes
    root: int
    num_tokens: int
    name: str
    lookups: dict[bytes, int | None] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, content: bytes, num_tokens: int, name: str) -> TokenGraph:
        """Check the header and the footer.

        - `num_tokens`: Number of tokens of the part.

        Raises CorruptFileError.
        """
        if len(content) < HEADER.size + FOOTER.size:
            raise _error(name)
        version, _ = HEADER.unpack_from(content)
        keys, root, _ = FOOTER.unpack_from(content, len(content) - FOOTER.size)
        end = len(content) - FOOTER.size
        if version != VERSION or keys != num_tokens or not (root == 0 or HEADER.size <= root < end):
            raise _error(name)
        return cls(np.frombuffer(content, np.uint8)[:end], root, num_tokens, name)

    @property
    def nbytes(self) -> int:
        """Bytes of the graph."""
        return int(self.data.nbytes)

    def find(self, token: bytes) -> int | None:
        """Return the number of a token; None if it is missing.

        Raises CorruptFileError.
        """
        number = self.lookups.get(token, -1)
        if number == -1:
            number = self._find(token)
            if len(self.lookups) >= _MOST_LOOKUPS:
                self.lookups.clear()
            self.lookups[token] = number
        return number

    def _find(self, token: bytes) -> int | None:
        node, output = self._walk(token)
        if node is None:
            return None
        # Address 0 is the final node.
        if node:
            state = self._nodes(np.array([node]))
            if not state.is_final[0]:
                return None
            output += int(state.final_output[0])
        if not 0 <= output < self.num_tokens:
            raise _error(self.name)
        return output

    def starting_with(self, prefix: bytes, most_bytes: int) -> tuple[list[bytes], RowNumbers]:
        """Return the tokens that start with some bytes, and their numbers.

        - `most_bytes`: Longer tokens are left out.

        Raises CorruptFileError.
        """
        node, output = self._walk(prefix)
        if node is None:
            return [], np.empty(0, np.int64)
        nodes, outputs = np.array([node]), np.array([output])
        ends = np.zeros((1, 0), np.uint8)
        tokens: list[bytes] = []
        numbers = []
        while len(nodes):
            state = self._nodes(nodes)
            final = np.flatnonzero(state.is_final)
            numbers.append(outputs[final] + state.final_output[final])
            tokens += [prefix + row.tobytes() for row in ends[final]]
            if len(prefix) + ends.shape[1] >= most_bytes:
                break
            outputs = np.repeat(outputs, state.counts) + state.outputs
            ends = np.column_stack([np.repeat(ends, state.counts, axis=0), state.inputs])
            nodes = state.targets
            # Each path ends in a token of its own.
            if len(nodes) > self.num_tokens:
                raise _error(self.name)
        return tokens, self._checked(np.concatenate(numbers))

    def _walk(self, token: bytes) -> tuple[int | None, int]:
        """Return the node after some bytes, and the sum of outputs; None if there is no path."""
        node, output = self.root, 0
        content = self.data.data
        for byte in token:
            transition = self._transition(content, node, byte) if node else None
            if transition is None:
                return None, 0
            node, step = transition
            output += step
        return node, output

    def _transition(self, content: memoryview, node: int, byte: int) -> tuple[int, int] | None:
        """Return the target and the output of a transition of a node; None if there is none.

        For one node, this takes a small part of the time of `_nodes`.
        """
        state = content[node]
        low, is_one = state & LOW_BITS, state >= ONE
        position = node
        if not low:
            position -= 1
            low = content[position]
            single = low
            low = 256 if low == 1 else low
        elif is_one:
            single = int(COMMON_BYTES[low])
        if is_one and single != byte:
            return None
        if state >= NEXT:
            return self._checked_target(position - 1, node), 0
        position -= 1
        target_size, output_size = content[position] >> 4, content[position] & 0xF
        if max(target_size, output_size) > MAX_UINT_BYTES:
            raise _error(self.name)
        count, number = (1, 0) if is_one else (low, 0)
        is_final = not is_one and state & FINAL > 0
        if not is_one:
            position -= (256 if count > INDEXED else 0) + count
            number = count - 1 - bytes(content[max(position, 0) : position + count]).rfind(byte)
        outputs = position - count * target_size
        end = outputs - (count + is_final) * output_size
        if end < HEADER.size:
            raise _error(self.name)
        if number == count:
            return None
        start = position - (number + 1) * target_size
        step = int.from_bytes(content[start : start + target_size], "little")
        start = outputs - (number + 1) * output_size
        output = int.from_bytes(content[start : start + output_size], "little")
        return self._checked_target(end - step, node) if step else 0, output

    def _checked_target(self, target: int, node: int) -> int:
        """Return the address of a node, which is stored before those that lead to it."""
        if not HEADER.size <= target < node:
            raise _error(self.name)
        return target

    def _checked(self, numbers: RowNumbers) -> RowNumbers:
        if ((numbers < 0) | (numbers >= self.num_tokens)).any():
            raise _error(self.name)
        return numbers

    def _nodes(self, addresses: RowNumbers) -> _Node:
        """Parse nodes."""
        exists = addresses > 0
        state = np.where(exists, self._byte(addresses, exists), 0).astype(np.int64)
        low = state & LOW_BITS
        is_one, is_next = state >= ONE, state >= NEXT
        is_many = exists & ~is_one
        # One byte more, if the number of the input or of the transitions is zero.
        own_byte = exists & (low == 0)
        before = self._byte(addresses - 1, own_byte).astype(np.int64)
        many_count = np.where(own_byte, np.where(before == 1, 256, before), low)
        counts = np.where(is_one, 1, np.where(is_many, many_count, 0))
        position = addresses - own_byte
        has_sizes = exists & ~is_next
        position = position - has_sizes
        sizes = self._byte(position, has_sizes).astype(np.int64)
        target_size, output_size = sizes >> 4, sizes & 0xF
        if max(target_size.max(initial=0), output_size.max(initial=0)) > MAX_UINT_BYTES:
            raise _error(self.name)
        position = position - np.where(is_many & (counts > INDEXED), 256, 0)
        targets_end = position - np.where(is_many, counts, 0)
        outputs_end = targets_end - counts * target_size
        final_end = outputs_end - counts * output_size
        is_final = ~exists | (is_many & ((state & FINAL) != 0))
        has_output = is_final & exists
        end = final_end - np.where(has_output, output_size, 0)
        if (exists & (end < HEADER.size)).any():
            raise _error(self.name)
        final_output = self._uints(end, np.where(has_output, output_size, 0))
        # The transitions of all nodes.
        node = np.repeat(np.arange(len(addresses)), counts)
        first = np.append(0, np.cumsum(counts))[:-1]
        number = np.arange(len(node)) - first[node]
        common = COMMON_BYTES[np.minimum(low, len(_COMMON))]
        one_input = np.where(own_byte, before, common)[node]
        of_many = is_many[node]
        inputs = np.where(of_many, self._byte(position[node] - 1 - number, of_many), one_input)
        target_bytes = target_size[node]
        steps = self._uints(targets_end[node] - (number + 1) * target_bytes, target_bytes)
        targets = np.where(steps == 0, 0, end[node] - steps)
        targets = np.where(is_next[node], end[node] - 1, targets)
        # A node is stored after all nodes that it leads to.
        if ((targets < 0) | ((targets > 0) & (targets < HEADER.size))).any():
            raise _error(self.name)
        output_bytes = output_size[node]
        outputs = self._uints(outputs_end[node] - (number + 1) * output_bytes, output_bytes)
        return _Node(is_final, final_output, counts, inputs.astype(np.uint8), targets, outputs)

    def _byte(self, addresses: RowNumbers, wanted: npt.NDArray[np.bool_]) -> Bytes:
        """Return bytes; zero where none is wanted."""
        at = np.where(wanted, addresses, 0)
        if (at < 0).any() or (at >= len(self.data)).any():
            raise _error(self.name)
        return np.where(wanted, self.data[at], 0).astype(np.uint8)

    def _uints(self, starts: RowNumbers, sizes: RowNumbers) -> RowNumbers:
        """Return little-endian numbers of some bytes each."""
        values = np.zeros(len(starts), np.int64)
        for number in range(int(sizes.max(initial=0))):
            values |= self._byte(starts + number, sizes > number).astype(np.int64) << (8 * number)
        return values


def _error(name: str) -> CorruptFileError:
    return CorruptFileError(f"{name}: the token dictionary is damaged; rebuild the index")


# --------------------------------------------------------------------------------------------------
# Write a token dictionary as a finite state transducer; `fst` has the bytes.
#
# A node of the graph stands for the first bytes that two tokens or more share. The nodes are
# written such that each stands after the nodes that it leads to:
#
# | what | bytes |
# | --- | --- |
# | endings | paths to the end of a token, after the byte that no other token shares |
# | nodes | each has several transitions, or one if a token ends there |
# | after each node | the path of one transition each that leads to it |
#
# A path is a chain of nodes of one transition. It is written from its last byte to its first. Last
# bytes that two endings share are written once: the path of the second leads to that of the first.
# The number of a token is the output of the transition to its ending, or of the node where it ends.

#: The number of each frequent byte; 0 for others.
_COMMON_NUMBERS = np.zeros(256, np.uint8)
_COMMON_NUMBERS[COMMON_BYTES] = np.arange(len(COMMON_BYTES))
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
            nodes[ends[1:] - 1] = NEXT | numbers
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

    - `depths` (int64 array): Bytes that the tokens of a node share.
    - `first` (int64 array): Its first token.
    - `parents` (int64 array): The node that leads to it.
    - `of_token`, `token_depths` (int64 array): The deepest node of each token, and its depth.
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

    - `is_final`: Bool array.
    - `final_outputs`: Int64 array.
    - `paths`: The path that leads to each node but the root.
    - `node`, `inputs`, `outputs` (arrays): Of each transition.
    - `endings` (int64 array): The address of the ending of each transition, or `_IS_NODE`.
    - `children` (int64 array): The node that each transition without ending leads to.
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
        has_index: _Bools = self.counts > INDEXED
        return has_index

    @cached_property
    def has_count(self) -> _Bools:
        """Whether the number of transitions of each node is in a byte of its own."""
        has_count: _Bools = (self.counts == 0) | (self.counts > LOW_BITS)
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

        - `first`: Start of the first node. The starts have the end of the last node, too.
        - `target_sizes`: Int64 array.
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
    most = int(paths.sizes.sum()) + len(paths) * (1 + MAX_UINT_BYTES)
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
    pool[(starts[:-1] + before + is_rare)[own_targets]] ^= NEXT ^ ONE
    address = np.empty(len(strings), np.int64)
    address[places.to_numpy()] = HEADER.size + starts[1:] - 1
    addresses[filled] = address[distinct.indices.to_numpy()]
    return pool, addresses


def _stored(graph: _Graph, pool: Bytes, num_tokens: int) -> Bytes:
    """Return the bytes of a dictionary."""
    first = HEADER.size + len(pool)
    target_sizes = np.full(len(graph.counts), MAX_UINT_BYTES)
    # Fewer bytes of targets make the distances smaller.
    for _ in range(_ROUNDS):
        starts, steps = graph.layout(first, target_sizes)
        target_sizes = np.ones(len(target_sizes), np.int64)
        np.maximum.at(target_sizes, graph.node, _num_bytes(steps))
    starts, steps = graph.layout(first, target_sizes)
    end = int(starts[-1])
    data = np.zeros(end + FOOTER.size, np.uint8)
    data[: HEADER.size] = _bytes(HEADER.pack(VERSION, 0))
    data[HEADER.size : first] = pool
    _put_nodes(data, graph, starts[:-1], target_sizes, steps)
    footer = FOOTER.pack(num_tokens, end - 1, 0)[:-_CHECKSUM_BYTES]
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
    data[position] = graph.is_final * FINAL | np.where(graph.has_count, 0, counts)
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
    for number in range(1, MAX_UINT_BYTES):
        sizes += values >= 1 << 8 * number
    return sizes
