"""Sequences of sparse pages: operations on a sequence equal operations on its numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.v2_1.codec import ChunkBuffer, decode_block, decode_blocks, has_payload
from lance_spark.encoding.v2_3.sequence import (
    Steps,
    Stored,
    check_increasing,
    decode_sequence,
    find_positions,
    sum_of,
)
from lance_spark.errors import CorruptFileError, LanceError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of

CE = pb.CompressiveEncoding
FLAT = CE(flat=pb.Flat(bits_per_value=64))
FLAT32 = CE(flat=pb.Flat(bits_per_value=32))
NOTHING = np.zeros(0, np.uint8)


def constant(value: int, width: int = 8) -> CE:
    return CE(constant=pb.Constant(value=value.to_bytes(width, "little")))


def stepped(start: int, step: int, bits: int = 64) -> CE:
    return CE(range=pb.Range(uncompressed_bits_per_value=bits, start=start, step=step))


def delta(base: int, deltas: CE, bits: int = 64) -> CE:
    return CE(delta=pb.Delta(uncompressed_bits_per_value=bits, base=base, deltas=deltas))


def runs(values: CE, lengths: CE) -> CE:
    return CE(rle=pb.Rle(values=values, run_lengths=lengths))


def words(numbers: list[int], dtype: str = "<u8") -> np.ndarray:
    return np.array(numbers, dtype).view(np.uint8)


def run_block(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([words([len(values)]), values, lengths])


@given(
    start=st.integers(0, 1000),
    step=st.integers(1, 50),
    count=st.integers(0, 60),
    positions=st.lists(st.integers(0, 5000), min_size=1, max_size=30, unique=True),
)
@settings(max_examples=number_of(80, 200), deadline=None)
def test_described_and_stored_sequences_agree(
    start: int, step: int, count: int, positions: list[int]
) -> None:
    steps = Steps(start, step, count)
    stored = Stored(start + step * np.arange(count))
    numbers = np.array(sorted(positions))
    places = np.arange(count)
    assert steps.rank(numbers).tolist() == stored.rank(numbers).tolist()
    assert steps.values_at(places).tolist() == stored.values_at(places).tolist()
    assert steps.total(np.arange(count + 1)).tolist() == stored.total(np.arange(count + 1)).tolist()
    assert sum_of(steps) == sum_of(stored) == sum(range(start, start + step * count, step))
    known = set(range(start, start + step * count, step))
    for sequence in (steps, stored):
        has, at = find_positions(sequence, numbers)
        assert has.tolist() == [number in known for number in numbers.tolist()]
        assert sequence.values_at(at[has]).tolist() == numbers[has].tolist()


@pytest.mark.parametrize(
    ("encoding", "data", "expected"),
    [
        (CE(constant=pb.Constant()), None, []),
        (constant(7), None, [7, 7, 7]),
        (stepped(3, 5), None, [3, 8, 13, 18]),
        (delta(4, constant(2)), None, [4, 6, 8, 10]),
        (delta(4, stepped(1, 1)), None, [4, 5, 7, 10]),
        (delta(4, FLAT), words([0, 9, 1]), [4, 4, 13, 14]),
        (runs(stepped(1, 2), constant(2, 4)), None, [1, 1, 3, 3, 5]),
        (runs(stepped(1, 2), stepped(1, 1, 32)), None, [1, 3, 3, 5, 5, 5, 7]),
        (runs(stepped(9, 1), stepped(50, 1, 32)), None, [9] * 20),
        (runs(FLAT, constant(3, 4)), run_block(words([8, 2]), NOTHING), [8, 8, 8, 2, 2, 2]),
        (
            runs(stepped(0, 80), FLAT32),
            run_block(NOTHING, words([2, 1, 3], "<u4")),
            [0, 0, 80, 160, 160, 160],
        ),
        (FLAT, words([5, 1, 1 << 40]), [5, 1, 1 << 40]),
    ],
)
def test_numbers_of_a_sequence(encoding: CE, data: np.ndarray | None, expected: list[int]) -> None:
    assert has_payload(encoding) == (data is not None)
    sequence = decode_sequence(encoding, data, len(expected))
    assert sequence.values_at(np.arange(len(expected))).tolist() == expected
    assert sum_of(sequence) == sum(expected)


@pytest.mark.parametrize(
    ("encoding", "count"),
    [
        (CE(constant=pb.Constant()), 1),
        (constant(7, 4), 2),
        (constant(1 << 63), 2),
        (stepped(1 << 62, 1), 2),
        (stepped(0, 1 << 61), 9),
        (stepped(0, 1), 0),
        (stepped(0, 1, 16), 3),
        (delta(1 << 63, constant(1)), 3),
        (delta(0, FLAT), 5),
        (delta(0, FLAT), 0),
        (FLAT32, 4),
        (CE(), 4),
        (runs(stepped(1, 1), constant(0, 4)), 3),
        (delta(0, stepped(1, 1)), 1 << 40),
        (runs(stepped(1, 1), constant(1, 4)), 1 << 40),
        (FLAT, 1 << 40),
    ],
)
def test_damaged_sequences(encoding: CE, count: int) -> None:
    with pytest.raises(LanceError):
        decode_sequence(encoding, words([1, 2, 3]) if has_payload(encoding) else None, count)


@pytest.mark.parametrize(
    "sequence",
    [
        Stored(np.array([1, 1])),
        Stored(np.array([3, 2])),
        Stored(np.array([1, 9])),
        Steps(0, 0, 2),
        Steps(0, 3, 4),
        Steps(9, 0, 1),
    ],
)
def test_positions_that_do_not_increase(sequence: Steps | Stored) -> None:
    with pytest.raises(CorruptFileError, match="increase"):
        check_increasing(sequence, 9, "positions")


def test_positions_that_increase() -> None:
    for sequence in (
        Stored(np.array([0, 8])),
        Steps(0, 4, 3),
        Steps(8, 0, 1),
        Steps(0, 0, 0),
        Stored(np.zeros(0, np.int64)),
    ):
        check_increasing(sequence, 9, "positions")


def test_many_buffers_start_again_at_the_base() -> None:
    data = words([1, 2, 3, 10, 20], "<u4")
    buffer = ChunkBuffer(data, np.array([0, 12, 12]), np.array([12, 0, 8]))
    block = decode_blocks(delta(5, FLAT32, 32), buffer, np.array([4, 1, 3]))
    assert block.data.view("<u4").tolist() == [5, 6, 8, 11, 5, 5, 15, 35]
    nothing = ChunkBuffer(data, np.zeros(3, np.int64), np.zeros(3, np.int64))
    block = decode_blocks(stepped(2, 3, 32), nothing, np.array([3, 1, 2]))
    assert block.data.view("<u4").tolist() == [2, 5, 8, 2, 2, 5]


@pytest.mark.parametrize(
    ("encoding", "data", "count"),
    [
        (delta(0, FLAT32, 32), words([1 << 31, 1 << 31], "<u4"), 3),
        (delta(1, FLAT), words([(1 << 64) - 1]), 2),
        (stepped(1 << 31, 1 << 31, 32), NOTHING, 3),
        (stepped(0, 1), NOTHING, 1 << 30),
    ],
)
def test_sums_that_do_not_fit(encoding: CE, data: np.ndarray, count: int) -> None:
    with pytest.raises(CorruptFileError):
        decode_block(encoding, data, count)


def test_widths_that_sequences_do_not_have() -> None:
    with pytest.raises(UnsupportedEncodingError, match="8 bits"):
        decode_block(stepped(0, 1, 8), NOTHING, 2)
    with pytest.raises(UnsupportedEncodingError, match="16 bits"):
        decode_block(delta(0, FLAT, 16), words([1]), 2)
