"""Variable: strings in chunks, as one buffer, and one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    decode_block,
    decode_chunks,
    decode_values,
)
from lance_spark.encoding.v2_1.codecs import variable
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of
from tests.support.encodings.chunks import as_bytes, block_of, chunks_of, strings_of, write

LIMITS = ChunkLimits(4096, 1024)
WIDTHS = [np.int32, np.int64]
VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=300)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_binary()])
def test_pages_of_pylance(version: str, dtype: pa.DataType) -> None:
    array = pa.array([f"value {i * 7919 % 10007}" * (i % 4) for i in range(3000)]).cast(dtype)
    (page,) = write(array, version, {"lance-encoding:compression": "none"})
    assert page.encoding.WhichOneof("compression") == "variable"
    chunks = chunks_of(page)
    assert len(chunks.num_values) > 3
    block = decode_chunks(page.encoding, chunks)
    assert block.offsets.dtype == (np.int64 if dtype == pa.large_binary() else np.int32)
    assert strings_of(block) == as_bytes(array)


def test_dictionary_of_pylance() -> None:
    words = [f"word number {i}" for i in range(50)]
    (page,) = write(pa.array(words * 40), "2.1")
    layout = page.layout.mini_block_layout
    assert layout.dictionary.WhichOneof("compression") == "variable"
    block = decode_block(layout.dictionary, page.buffers[2], layout.num_dictionary_items)
    assert sorted(strings_of(block)) == sorted(word.encode() for word in words)


@pytest.mark.parametrize("offset_dtype", WIDTHS)
@given(VALUES, st.integers(0, 5), st.sampled_from([100, 512, 4096]))
@settings(max_examples=number_of(30, 60), deadline=None)
def test_chunks_round_trip(offset_dtype: type, values: list[bytes], log: int, size: int) -> None:
    encoding, chunks = variable.encode_chunks(
        block_of(values, offset_dtype), ChunkLimits(size, 2 << log)
    )
    assert strings_of(decode_chunks(encoding, chunks)) == values
    assert all(n > 1 and n & (n - 1) == 0 for n in chunks.num_values[:-1].tolist())
    assert chunks.num_values.max() <= 2 << log
    (buffer,) = chunks.buffers
    width = np.dtype(offset_dtype).itemsize
    assert (buffer.sizes < size + width).all()


@given(VALUES, st.data())
@settings(max_examples=40, deadline=None)
def test_some_chunks(values: list[bytes], data: st.DataObject) -> None:
    encoding, chunks = variable.encode_chunks(block_of(values), ChunkLimits(256, 8))
    count = len(chunks.num_values)
    picked = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), np.int64)
    (buffer,) = chunks.buffers
    # A range of a file may begin at an odd address in memory.
    moved = np.concatenate([np.zeros(3, np.uint8), buffer.data])
    some = ChunkBuffer(moved, buffer.starts[picked] + 3, buffer.sizes[picked])
    ends = np.cumsum(chunks.num_values)
    wanted = [
        value
        for number in picked.tolist()
        for value in values[ends[number] - chunks.num_values[number] : ends[number]]
    ]
    block = decode_chunks(encoding, Chunks((some,), chunks.num_values[picked]))
    assert strings_of(block) == wanted


@pytest.mark.parametrize("offset_dtype", WIDTHS)
@given(VALUES, st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_block_round_trip(offset_dtype: type, values: list[bytes], skip: int) -> None:
    block = block_of([b"x" * skip, *values], offset_dtype)
    rest = type(block)(block.offsets[1:], block.data)
    encoding, data = variable.encode_block(rest)
    assert strings_of(decode_block(encoding, data, len(values))) == values
    with pytest.raises(CorruptFileError):
        decode_block(encoding, data, len(values) + 1)


def test_old_block_header() -> None:
    # A count above 255 distinguishes the two forms.
    offsets = np.arange(769, dtype="<u4").tobytes()
    head = bytes([32]) + (768).to_bytes(4, "little") + (9 + len(offsets)).to_bytes(4, "little")
    data = np.frombuffer(head + offsets + b"v" * 768, np.uint8)
    encoding, _ = variable.encode_block(block_of([b""]))
    assert strings_of(decode_block(encoding, data, 768)) == [b"v"] * 768


def test_values_are_as_stored() -> None:
    block = block_of([b"a", b"bc"])
    encoding, stored = variable.encode_values(block)
    assert decode_values(encoding, stored) is block
    with pytest.raises(CorruptFileError):
        decode_values(encoding, FixedWidthBlock(np.zeros(4, np.uint8), 32, 1))


def test_too_long_for_a_chunk() -> None:
    with pytest.raises(InvalidInputError, match="full-zip"):
        variable.encode_chunks(block_of([b"x" * 3000, b"y" * 3000]), LIMITS)
    with pytest.raises(InvalidInputError, match="full-zip"):
        variable.encode_chunks(block_of([b"x" * 5000]), LIMITS)


def test_unknown_offsets() -> None:
    block = block_of([b"a"])
    encoding, chunks = variable.encode_chunks(block, LIMITS)
    encoding.variable.offsets.flat.bits_per_value = 16
    with pytest.raises(UnsupportedEncodingError, match="16"):
        decode_chunks(encoding, chunks)
    unsupported = pb.CompressiveEncoding(
        variable=pb.Variable(offsets=pb.CompressiveEncoding(fsst=pb.Fsst()))
    )
    with pytest.raises(UnsupportedEncodingError):
        decode_chunks(unsupported, chunks)


@pytest.mark.parametrize("offset_dtype", WIDTHS)
@given(st.data())
@settings(max_examples=number_of(60, 150), deadline=None)
def test_damaged_chunks(offset_dtype: type, data: st.DataObject) -> None:
    values = [b"abc", b"", b"defgh"] * 4
    encoding, chunks = variable.encode_chunks(block_of(values, offset_dtype), ChunkLimits(100, 4))
    (buffer,) = chunks.buffers
    bytes_ = buffer.data.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    sizes = buffer.sizes - data.draw(st.integers(0, 12))
    counts = chunks.num_values + data.draw(st.integers(0, 3))
    try:
        block = decode_chunks(
            encoding, Chunks((ChunkBuffer(bytes_, buffer.starts, np.maximum(sizes, 0)),), counts)
        )
    except CorruptFileError:
        return
    assert block.num_values == counts.sum()
    assert (np.diff(block.offsets) >= 0).all()
    assert block.offsets[-1] <= len(block.data)


@pytest.mark.parametrize("offset_dtype", WIDTHS)
@given(st.data())
@settings(max_examples=number_of(60, 150), deadline=None)
def test_damaged_block(offset_dtype: type, data: st.DataObject) -> None:
    encoding, stored = variable.encode_block(block_of([b"abc", b"", b"defgh"], offset_dtype))
    stored = stored.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    stored = stored[: data.draw(st.integers(0, len(stored)))]
    try:
        block = decode_block(encoding, stored, 3)
    except (CorruptFileError, UnsupportedEncodingError):
        return
    assert block.num_values == 3
    assert (np.diff(block.offsets) >= 0).all()
    assert 0 <= block.offsets[0] <= block.offsets[-1] <= len(block.data)
