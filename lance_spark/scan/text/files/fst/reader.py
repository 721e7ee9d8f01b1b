"""Token dictionaries in the form of a finite state transducer: a graph whose paths are the tokens.

| bytes | content |
| --- | --- |
| u64, u64 | 3 (version), 0 (type) |
| nodes | each is read backwards from its address, which is that of its state byte |
| u64, u64, u32 | number of tokens, address of the root, checksum |

A token's number is the sum of the outputs on its path. State bytes:

| bits | node | before the state byte, backwards |
| --- | --- | --- |
| 11cccccc | one transition to the node that ends before this one | input if c is 0 |
| 10cccccc | one transition | input if c is 0; sizes; target; output |
| 0fnnnnnn | n transitions, final if f is 1 | n if n is 0; sizes; index; inputs; targets; outputs |

A node of more than 32 transitions has an index of 256 bytes, and a final node with outputs one
output more.

`c` is the number of a frequent byte. `sizes` has the bytes of a target in the upper half, and those
of an output in the lower half. A target is the distance from the end of the node; 0 is the final
node without transitions. A number of transitions of 1 in a byte of its own stands for 256.

Specification: table/index/scalar/fts.md; format version 3 of the Rust library `fst`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.scan.text.files.packing import Bytes

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

    Attributes
    ----------
    data : uint8 array
    root : int
        Address of the root.
    num_tokens : int
    name : str
        Name of the file, for errors.
    lookups : dict of bytes to int or None
        The last tokens that were looked up.
    """

    data: Bytes
    root: int
    num_tokens: int
    name: str
    lookups: dict[bytes, int | None] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, content: bytes, num_tokens: int, name: str) -> TokenGraph:
        """Check the header and the footer.

        Parameters
        ----------
        content : bytes
        num_tokens : int
            Number of tokens of the part.
        name : str

        Raises
        ------
        CorruptFileError
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

        Raises
        ------
        CorruptFileError
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

        Parameters
        ----------
        prefix : bytes
        most_bytes : int
            Longer tokens are left out.

        Raises
        ------
        CorruptFileError
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
