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

from lance_spark.encoding.arrow_blocks import unsigned
from lance_spark.encoding.levels import BoolArray, IndexArray
from lance_spark.encoding.v2_1.codec import decode_block
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.encoding.v2_3.range import require_range
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Numbers and their sums are kept below this, so that nothing overflows.
_LIMIT = 1 << 62
#: Maximum number of numbers that are expanded from the stored form of a page.
_MAX_VALUES = 1 << 27


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


Sequence = Steps | Stored


def decode_sequence(
    encoding: pb.CompressiveEncoding, data: Bytes | None, count: int, bits: int = 64
) -> Sequence:
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
    if count > _MAX_VALUES:
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


def check_increasing(sequence: Sequence, end: int, label: str) -> None:
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


def sum_of(sequence: Sequence) -> int:
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


def find_positions(sequence: Sequence, numbers: IndexArray) -> tuple[BoolArray, IndexArray]:
    """Return whether an increasing sequence has each number, and the indices of the numbers that it
    has.
    """
    positions = np.minimum(sequence.rank(numbers), max(sequence.count - 1, 0))
    if not sequence.count:
        return np.zeros(len(numbers), np.bool_), positions
    return sequence.values_at(positions) == numbers, positions
