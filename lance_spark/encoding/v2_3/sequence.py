"""Sequences of sparse pages: positions that increase, and counts.

A sequence is a compressive encoding with a buffer of its own, or without a buffer if there is
nothing to store (`lance_spark.encoding.v2_1.codec`). Common encodings without a buffer are

==========================  ==========================================================
encoding                    numbers
==========================  ==========================================================
``Constant {}``             none
``Constant { value }``      the same for all, little-endian
``Range { start, step }``   at equal steps
==========================  ==========================================================

and `Delta` over a constant. These are kept as a few numbers (`Steps`), which take no memory for a
page of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lance_spark.encoding.blocks import FixedWidthBlock, unsigned
from lance_spark.encoding.levels import BoolArray, IndexArray
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    Codec,
    block_of,
    bounds,
    decode_block,
    ranges,
    uint_type,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

# --------------------------------------------------------------------------------------------------
# Numbers at equal steps; nothing is stored.
#
# ``Range { uncompressed_bits_per_value = b, start, step }``, b = 32 or 64: value i is ``start + i *
# step``. The step is positive. As values of many buffers (offsets of strings in mini-block chunks)
# each buffer has a range of its own, from `start` on. Specification: Range in
# protos/encodings_v2_1.proto.

#: Maximum number of values, which the file does not bound; chunks and items of pages have fewer.
_MAX_RANGE_VALUES = 1 << 22


class RangeCodec(Codec):
    """Decodes ``Range``."""

    name = "range"

    def decode_block(self, encoding: pb.Range, data: Bytes, num_values: int) -> FixedWidthBlock:
        return _stepped(encoding, np.array([num_values]))

    def decode_blocks(
        self, encoding: pb.Range, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        return _stepped(encoding, num_values)


def require_sequence_word(bits: int) -> int:
    """Return `bits` if it is 32 or 64, the widths of the numbers of sequences.

    Raises UnsupportedEncodingError: the width is not 32 or 64.
    """
    if bits not in (32, 64):
        raise UnsupportedEncodingError(f"a sequence of numbers of {bits} bits")
    return bits


def require_range(encoding: pb.Range, num_values: int) -> None:
    """Raise CorruptFileError unless the last of `num_values` numbers fits the width."""
    bits = require_sequence_word(int(encoding.uncompressed_bits_per_value))
    if encoding.start + encoding.step * max(num_values - 1, 0) >= 1 << bits:
        raise CorruptFileError(
            f"{num_values} numbers from {encoding.start} at steps of {encoding.step} do not fit "
            f"{bits} bits"
        )


def _stepped(encoding: pb.Range, num_values: IndexArray) -> FixedWidthBlock:
    longest = int(num_values.max(initial=0))
    if longest > _MAX_RANGE_VALUES or int(num_values.sum()) > _MAX_RANGE_VALUES * 16:
        raise CorruptFileError(f"{int(num_values.sum())} numbers that are stored nowhere")
    require_range(encoding, longest)
    dtype = uint_type(int(encoding.uncompressed_bits_per_value))
    indices = ranges(np.zeros_like(num_values), num_values).astype(dtype)
    # A single number may have any step.
    step = dtype.type(encoding.step if longest > 1 else 0)
    return block_of(indices * step + dtype.type(encoding.start))


# --------------------------------------------------------------------------------------------------
# Sequences of sparse pages: positions that increase, and counts.

#: Numbers and their sums are kept below this, so that nothing overflows.
_LIMIT = 1 << 62
#: Maximum number of numbers that are expanded from the stored form of a page.
_MAX_SEQUENCE_VALUES = 1 << 27


@dataclass(frozen=True, slots=True)
class Steps:
    """The numbers ``start + i * step`` for i below `count`."""

    start: int
    step: int
    count: int

    @property
    def last(self) -> int:
        return self.start + self.step * (self.count - 1)

    def rank(self, numbers: IndexArray) -> IndexArray:
        """Return how many numbers of an increasing sequence are below each argument."""
        ranks = np.clip(-((self.start - numbers) // max(self.step, 1)), 0, self.count)
        return ranks.astype(np.int64)

    def values_at(self, indices: IndexArray) -> IndexArray:
        """Return the numbers at some indices."""
        return self.start + self.step * indices

    def total(self, indices: IndexArray) -> IndexArray:
        """Return the sums of all numbers before each index."""
        return self.start * indices + self.step * (indices * (indices - 1) // 2)


class Stored:
    """Numbers that a page stores."""

    def __init__(self, values: IndexArray) -> None:
        self._values = values
        self._totals: IndexArray | None = None
        self.count = len(values)

    def rank(self, numbers: IndexArray) -> IndexArray:
        """Return how many numbers of an increasing sequence are below each argument."""
        return np.searchsorted(self._values, numbers)

    def values_at(self, indices: IndexArray) -> IndexArray:
        """Return the numbers at some indices."""
        return self._values[indices]

    def total(self, indices: IndexArray) -> IndexArray:
        """Return the sums of all numbers before each index."""
        if self._totals is None:
            self._totals = bounds(self._values)
        return self._totals[indices]


PositionSequence = Steps | Stored


def decode_sequence(
    encoding: pb.CompressiveEncoding, data: Bytes | None, count: int, bits: int = 64
) -> PositionSequence:
    """Return the `count` numbers of a sequence.

    - `data`: None if the encoding has no buffer.
    - `bits`: Width of the numbers.

    Raises CorruptFileError: the sequence does not have `count` numbers, or a number is too large.
    """
    steps = _as_steps(encoding, count, bits)
    if steps is not None:
        if max(steps.start, steps.last) >= _LIMIT:
            raise CorruptFileError(f"a number of a sequence, {steps.last}, is out of bounds")
        return steps
    if count > _MAX_SEQUENCE_VALUES:
        raise CorruptFileError(f"a sequence of {count} numbers in one page")
    stored = np.zeros(0, np.uint8) if data is None else data
    block = decode_block(encoding, stored, count)
    numbers = unsigned(block)
    if len(numbers) != count or numbers.itemsize * 8 != bits:
        raise CorruptFileError(
            f"{len(numbers)} numbers of {numbers.itemsize * 8} bits where {count} of {bits} were "
            "announced"
        )
    if len(numbers) and int(numbers.max()) >= _LIMIT:
        raise CorruptFileError(f"a number of a sequence, {int(numbers.max())}, is out of bounds")
    return Stored(numbers.astype(np.int64))


def _as_steps(encoding: pb.CompressiveEncoding, count: int, bits: int) -> Steps | None:
    compression = encoding.WhichOneof("compression")
    if compression is None:
        raise CorruptFileError("a sequence is missing, or encoded in an unknown way")
    if compression == "constant":
        value = _constant(encoding.constant, count, bits)
        return Steps(value, 0, count)
    if not count:
        raise CorruptFileError(f"an empty sequence encoded as {compression!r}")
    if compression == "range":
        if encoding.range.uncompressed_bits_per_value != bits:
            raise UnsupportedEncodingError(
                f"a range of {encoding.range.uncompressed_bits_per_value} bits in place of {bits}"
            )
        require_range(encoding.range, count)
        return Steps(encoding.range.start, encoding.range.step, count)
    if compression == "delta" and encoding.delta.deltas.WhichOneof("compression") == "constant":
        step = _constant(encoding.delta.deltas.constant, count - 1, bits)
        return Steps(encoding.delta.base, step, count)
    return None


def _constant(encoding: pb.Constant, count: int, bits: int) -> int:
    if not encoding.HasField("value"):
        if count:
            raise CorruptFileError(f"{count} numbers, but no value")
        return 0
    if len(encoding.value) * 8 != bits:
        raise CorruptFileError(f"a constant of {len(encoding.value)} bytes for {bits} bits")
    return int.from_bytes(encoding.value, "little")


def check_increasing(sequence: PositionSequence, end: int, label: str) -> None:
    """Raise CorruptFileError unless the numbers increase strictly and stay below `end`."""
    count = sequence.count
    if not count:
        return
    if isinstance(sequence, Steps):
        increasing = sequence.step > 0 or count == 1
        last = sequence.last
    else:
        indices = np.arange(count)
        numbers = sequence.values_at(indices)
        increasing = bool((numbers[1:] > numbers[:-1]).all())
        last = int(numbers[-1])
    if not increasing or last >= end:
        raise CorruptFileError(f"{label} do not increase, or reach beyond {end}")


def sum_of(sequence: PositionSequence) -> int:
    """Return the sum of all numbers; raise CorruptFileError if it is out of bounds."""
    if isinstance(sequence, Steps):
        count = sequence.count
        total = sequence.start * count + sequence.step * (count * (count - 1) // 2)
    else:
        values = sequence.values_at(np.arange(sequence.count))
        # In floating point first, where sums cannot wrap around.
        rough = float(values.sum(dtype=np.float64))
        total = int(values.sum()) if rough < _LIMIT else _LIMIT
    if total >= _LIMIT:
        raise CorruptFileError("the sum of a sequence is out of bounds")
    return total


def find_positions(sequence: PositionSequence, numbers: IndexArray) -> tuple[BoolArray, IndexArray]:
    """Return whether an increasing sequence has each number, and the indices of the numbers that it
    has.
    """
    positions = np.minimum(sequence.rank(numbers), max(sequence.count - 1, 0))
    if not sequence.count:
        return np.zeros(len(numbers), np.bool_), positions
    return sequence.values_at(positions) == numbers, positions
