"""FastLanes chunks against plain Python integers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding import fastlanes
from tests.support.cells import number_of
from tests.support.encodings.fixed import pack, random_values, slow_pack

WIDTHS = st.sampled_from([8, 16, 32, 64]).flatmap(
    lambda bits: st.tuples(st.just(bits), st.integers(0, bits))
)


@given(WIDTHS, st.integers(0, 2**32))
@settings(max_examples=number_of(30, 60), deadline=None)
def test_packed_bytes_are_those_of_the_plain_way(bits_and_width, seed):
    bits, width = bits_and_width
    values = random_values(seed, 1024, width, bits).reshape(1, 1024)
    assert pack(values, width).tobytes() == slow_pack(values[0].tolist(), width, bits)


@given(WIDTHS, st.integers(0, 2**32))
@settings(max_examples=number_of(30, 60), deadline=None)
def test_plainly_packed_bytes_are_unpacked(bits_and_width, seed):
    bits, width = bits_and_width
    values = random_values(seed, 1024, width, bits)
    data = np.frombuffer(slow_pack(values.tolist(), width, bits), np.uint8)
    out = np.full((1, 1024), 255, values.dtype)
    fastlanes.unpack(data, np.zeros(1, np.int64), width, out)
    assert (out[0] == values).all()


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("scattered", [True, False])
def test_many_chunks_at_any_place(bits, even, scattered):
    """More chunks than one step decodes, at odd addresses, into rows in any order."""
    rng = np.random.default_rng(bits)
    count = 600 if bits == 8 else 140
    for width in (1, bits // 2 - 1, bits // 2, bits - 1, bits):
        values = random_values(bits, count * 1024, width, bits).reshape(count, 1024)
        size = fastlanes.packed_size(width)
        gaps = np.full(count, 3) if even else rng.integers(0, 9, count)
        starts = np.cumsum(size + gaps) - size
        data = np.full(int(starts[-1]) + size, 0x5A, np.uint8)
        fastlanes.write_chunks(data, starts, pack(values, width))
        data.flags.writeable = False
        assert not even or (data[: starts[0]] == 0x5A).all()
        rows = rng.permutation(count + 5)[:count] if scattered else None
        out = np.zeros((count + 5, 1024), values.dtype)
        target = out if scattered else out[:count]
        fastlanes.unpack(data, starts, width, target, rows)
        result = out[rows] if rows is not None else out[:count]
        assert (result == values).all()
        untouched = np.setdiff1d(np.arange(count + 5), np.arange(count) if rows is None else rows)
        assert not out[untouched].any()


def test_chunks_can_overlap_or_go_backwards():
    values = random_values(1, 3 * 1024, 7, 16).reshape(3, 1024)
    packed = pack(values, 7)
    out = np.zeros((3, 1024), np.uint16)
    fastlanes.unpack(packed.reshape(-1), np.array([2, 1, 0]) * 896, 7, out)
    assert (out == values[::-1]).all()
    fastlanes.unpack(packed.reshape(-1), np.array([896, 896, 896]), 7, out)
    assert (out == values[1]).all()


def test_width_zero_writes_zeros_into_the_given_rows():
    out = np.ones((4, 1024), np.uint32)
    fastlanes.unpack(np.zeros(0, np.uint8), np.zeros(2, np.int64), 0, out, np.array([3, 1]))
    assert out[:, 0].tolist() == [1, 0, 1, 0]


@given(st.sampled_from([8, 16, 32, 64]), st.data())
def test_bit_widths(bits, data):
    numbers = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=20))
    result = fastlanes.bit_widths(np.array([[n, 0] for n in numbers], f"u{bits // 8}"))
    assert result.tolist() == [n.bit_length() for n in numbers]


def test_threads_do_not_share_memory():
    def turn(seed: int) -> bool:
        values = random_values(seed, 64 * 1024, 37, 64).reshape(64, 1024)
        packed = pack(values, 37).reshape(-1)
        starts = np.arange(64) * fastlanes.packed_size(37)
        out = np.empty((64, 1024), np.uint64)
        for _ in range(20):
            fastlanes.unpack(packed, starts, 37, out)
            if (out != values).any():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(turn, range(4)))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_some_values_of_chunks(bits):
    rng = np.random.default_rng(bits)
    chunks = [random_values(width, 1024, width, bits) for width in range(bits + 1)]
    packed = [pack(values[None], width) for width, values in enumerate(chunks)]
    sizes = np.array([part.size for part in packed])
    # The chunks are at odd addresses.
    data = np.concatenate([np.full(1, 0x5A, np.uint8), *(part.reshape(-1) for part in packed)])
    starts = np.cumsum(sizes) - sizes + 1
    chosen, places = rng.integers(0, bits + 1, 5_000), rng.integers(0, 1024, 5_000)
    dtype = chunks[0].dtype
    values = fastlanes.unpack_some(data, starts[chosen], chosen, places, dtype)
    assert values.dtype == dtype
    assert (values == np.stack(chunks)[chosen, places]).all()
    # Few values are unpacked one by one.
    for first in range(0, 400, 4):
        part, few = chosen[first : first + 4], places[first : first + 4]
        values = fastlanes.unpack_some(data, starts[part], part, few, dtype)
        assert values.dtype == dtype
        assert (values == np.stack(chunks)[part, few]).all()
    none = np.empty(0, np.int64)
    assert not len(fastlanes.unpack_some(data, none, none, none, dtype))
