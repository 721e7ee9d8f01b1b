"""OutOfLineBitpacking against plain packing and levels that pylance wrote."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    decode_block,
    decode_blocks,
    flat,
    gather,
    values_of,
)
from lance_spark.encoding.v2_1.codecs import bitpacking
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of
from tests.support.encodings.chunks import write
from tests.support.encodings.fixed import apart, levels_of, random_values, slow_pack


def message(bits: int, width: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(
        out_of_line_bitpacking=pb.OutOfLineBitpacking(
            uncompressed_bits_per_value=bits, values=flat(width)
        )
    )


def test_the_bytes_of_whole_and_raw():
    values = random_values(1, 2048 + 30, 3, 16)
    encoding, data = bitpacking.encode_block(values)
    assert encoding == message(16, 3)
    whole = slow_pack(values[:1024].tolist(), 3, 16) + slow_pack(values[1024:2048].tolist(), 3, 16)
    assert data.tobytes() == whole + values[2048:].tobytes()


def test_the_last_chunk_is_padded_with_zeros():
    values = random_values(1, 900, 3, 16)
    _, data = bitpacking.encode_block(values)
    assert data.tobytes() == slow_pack(values.tolist() + [0] * 124, 3, 16)


@given(
    st.sampled_from([8, 16, 32, 64]),
    st.integers(0, 64),
    st.lists(st.one_of(st.integers(0, 3000), st.sampled_from([1024, 2048])), max_size=8),
)
@settings(max_examples=number_of(30, 60), deadline=None)
def test_round_trip(bits, width, counts):
    counts = np.array(counts, np.int64)
    values = random_values(len(counts), int(counts.sum()), min(width, bits), bits)
    encoding, buffers = bitpacking.encode_blocks(values, counts)
    assert len(buffers.data) == buffers.sizes.sum()
    assert (buffers.sizes <= counts * (bits // 8)).all()
    result = decode_blocks(encoding, apart(buffers), counts)
    assert (values_of(result) == values).all()
    assert result.num_values == len(values)
    at = 0
    for start, size, count in zip(buffers.starts, buffers.sizes, counts.tolist(), strict=True):
        piece = decode_block(encoding, buffers.data[start : start + size], count)
        assert (values_of(piece) == values[at : at + count]).all()
        at += count


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_definition_levels_of_pylance(version):
    nulls = np.random.default_rng(1).random(5000) < 0.3
    (page,) = write(pa.array(np.arange(5000) * 99, mask=nulls), version)
    (buffer,), counts = levels_of(page)
    encoding = page.layout.mini_block_layout.def_compression
    assert encoding == message(16, 1)
    assert (values_of(decode_blocks(encoding, buffer, counts)) == nulls).all()
    ours = bitpacking.encode_blocks(nulls.astype(np.uint16), counts)
    assert ours[0] == encoding
    assert (ours[1].data == gather(buffer.data, buffer.starts, buffer.sizes)).all()


def test_levels_of_lists_of_pylance():
    """Every chunk has another number of levels, so that the last chunks have all forms."""
    rng = np.random.default_rng(6)
    lists = [
        None if n == 0 else rng.integers(0, 99, n - 1).tolist() for n in rng.integers(0, 7, 5000)
    ]
    (page,) = write(pa.array(lists, pa.list_(pa.int32())), "2.1")
    (rep, deep), counts = levels_of(page)
    layout = page.layout.mini_block_layout
    assert len(set((counts % 1024).tolist())) > 3
    starts = values_of(decode_blocks(layout.rep_compression, rep, counts))
    expected = [k for row in lists for k in [1] + [0] * (len(row or [0]) - 1)]
    assert starts.tolist() == expected
    levels = values_of(decode_blocks(layout.def_compression, deep, counts))
    levels_by_state = {"null": set(), "empty": set(), "value": set()}
    at = 0
    for row in lists:
        state = "null" if row is None else "value" if row else "empty"
        size = len(row or [0])
        levels_by_state[state] |= set(levels[at : at + size].tolist())
        at += size
    assert levels_by_state["value"] == {0}
    assert len(levels_by_state["null"]) == len(levels_by_state["empty"]) == 1
    assert levels_by_state["null"] != levels_by_state["empty"]
    for levels_there, buffer in ((starts, rep), (levels, deep)):
        _, ours = bitpacking.encode_blocks(levels_there.astype(np.uint16), counts)
        assert ours.sizes.tolist() == buffer.sizes.tolist()


@pytest.mark.parametrize(
    ("size", "count"),
    [(0, 1), (127, 1024), (129, 1024), (256, 1024), (128, 2048), (128, 0), (0, -1)],
)
def test_hostile_sizes(size, count):
    with pytest.raises(CorruptFileError):
        decode_block(message(16, 1), np.zeros(size, np.uint8), count)


def test_hostile_counts_and_widths():
    with pytest.raises(CorruptFileError, match="in one page"):
        decode_block(message(64, 0), np.zeros(0, np.uint8), 1 << 40)
    with pytest.raises(CorruptFileError, match="17 bits"):
        decode_block(message(16, 17), np.zeros(0, np.uint8), 1024)
    with pytest.raises(UnsupportedEncodingError):
        decode_block(message(24, 3), np.zeros(0, np.uint8), 1024)


@given(
    st.integers(0, 16),
    st.binary(max_size=700),
    st.lists(st.integers(0, 1500), max_size=4),
    st.data(),
)
@settings(deadline=None)
def test_any_bytes(width, data, counts, draw):
    cuts = draw.draw(
        st.lists(st.integers(0, len(data)), min_size=2 * len(counts), max_size=2 * len(counts))
    )
    pairs = np.sort(np.array(cuts, np.int64).reshape(-1, 2), axis=1)
    buffer = ChunkBuffer(np.frombuffer(data, np.uint8), pairs[:, 0], pairs[:, 1] - pairs[:, 0])
    try:
        result = decode_blocks(message(16, width), buffer, np.array(counts, np.int64))
    except CorruptFileError:
        return
    assert result.num_values == sum(counts)
