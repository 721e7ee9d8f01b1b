"""Packed integers and varints, compared with models of their layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.indexes.text.packing import encoded_varints, packed, unpacked, varints, widths


def model(values: list[int], width: int, lanes: int) -> bytes:
    """Return a packed block, value by value."""
    words = [0] * (width * lanes)
    for lane in range(lanes):
        stream = sum(values[row * lanes + lane] << (row * width) for row in range(32))
        for word in range(width):
            words[word * lanes + lane] = (stream >> (32 * word)) & 0xFFFF_FFFF
    return np.array(words, "<u4").tobytes()


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("width", range(33))
def test_blocks_of_every_width(width: int, lanes: int) -> None:
    rng = np.random.default_rng(width)
    values = rng.integers(0, 1 << width, (3, 32 * lanes)).astype(np.uint32)
    data = packed(values, width, lanes)
    assert [row.tobytes() for row in data] == [model(row, width, lanes) for row in values.tolist()]
    assert np.array_equal(unpacked(data, width, lanes), values)
    assert unpacked(data[:0], width, lanes).shape == (0, 32 * lanes)
    values[:, 5] = (1 << width) - 1
    assert widths(values).tolist() == [width] * 3


@given(st.lists(st.lists(st.integers(0, 2**32 - 1))))
def test_varints(streams: list[list[int]]) -> None:
    values = np.array([value for stream in streams for value in stream], np.int64)
    data, sizes = encoded_varints(values)
    counts = np.append(0, np.cumsum([len(stream) for stream in streams])).astype(np.int64)
    bounds = np.append(0, np.cumsum(sizes))[counts]
    decoded = varints(data, bounds)
    assert decoded is not None
    assert decoded[0].tolist() == values.tolist()
    assert decoded[1].tolist() == counts.tolist()


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x01\xff", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01"]
)
def test_damaged_varints(data: bytes) -> None:
    assert varints(np.frombuffer(data, np.uint8), np.array([0, len(data)])) is None
