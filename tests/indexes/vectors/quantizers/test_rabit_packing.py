"""Layouts of the codes of RQ, against slow models of their tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.indexes.vectors.quantizers import rabit_codes

_PERMUTATION = (0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15)


def _random(seed: int, *shape: int, below: int = 256) -> rabit_codes.Bytes:
    return np.random.default_rng(seed).integers(0, below, shape).astype(np.uint8)


def _slow_signs(codes: rabit_codes.Bytes) -> bytes:
    whole = len(codes) // 32 * 32
    out = bytearray()
    for first in range(0, whole, 32):
        for column in codes[first : first + 32].T.tolist():
            for shift in (0, 4):
                pairs = ((column[row], column[row + 16]) for row in _PERMUTATION)
                out += bytes(low >> shift & 15 | (high >> shift & 15) << 4 for low, high in pairs)
    return bytes(out) + codes[whole:].T.tobytes()


@given(rows=st.integers(0, 100), width=st.integers(1, 9), seed=st.integers(0, 1 << 30))
@settings(max_examples=30, deadline=None)
def test_sign_codes(rows: int, width: int, seed: int) -> None:
    codes = _random(seed, rows, width)
    packed = rabit_codes.pack_signs(codes)
    assert packed.tobytes() == _slow_signs(codes)
    np.testing.assert_array_equal(rabit_codes.unpack_signs(packed), codes)


def _top(dimension: int) -> int:
    """Return the bit of the top bit of a dimension, in the bytes of top bits."""
    group, rest = divmod(dimension, 16)
    half, byte = divmod(rest, 8)
    return 8 * byte + 2 * group + half


def _bit(dimension: int, bit: int, bits: int) -> int:
    """Return where a block has a bit of a dimension."""
    group, place = divmod(dimension, 16)
    if bits in (3, 5, 7) and bit == bits - 1:
        return 64 * (bits - 1) + _top(dimension)
    match bits:
        case 1:
            return dimension
        case 2 | 3:
            return 8 * place + 2 * group + bit
        case 4:
            return 8 * (8 * group + place % 8) + 4 * (place // 8) + bit
        case 5:
            return 8 * (16 * (group // 2) + place) + 4 * (group % 2) + bit
        case 6 | 7:
            if group < 3:
                return 8 * (16 * group + place) + bit
            return 8 * (16 * (bit // 2) + place) + 6 + bit % 2
        case _:
            return 8 * dimension + bit


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("dimension", [8, 64, 200])
def test_extra_codes(bits: int, dimension: int) -> None:
    codes = _random(bits, 3, dimension, below=1 << bits)
    size = rabit_codes.extra_code_bytes(dimension, bits)
    expected = np.zeros((3, size * 8), np.uint8)
    for place in range(dimension):
        for bit in range(bits):
            at = place // 64 * 64 * bits + _bit(place % 64, bit, bits)
            expected[:, at] = codes[:, place] >> bit & 1
    packed = rabit_codes.pack_extra(codes, bits)
    np.testing.assert_array_equal(packed, np.packbits(expected, axis=1, bitorder="little"))
    np.testing.assert_array_equal(rabit_codes.unpack_extra(packed, bits, dimension), codes)


@pytest.mark.parametrize("bits", range(1, 9))
def test_no_rows(bits: int) -> None:
    packed = rabit_codes.pack_extra(np.empty((0, 24), np.uint8), bits)
    assert packed.shape == (0, rabit_codes.extra_code_bytes(24, bits))
    assert rabit_codes.unpack_extra(packed, bits, 24).shape == (0, 24)
