"""General: compressed chunks, buffers and values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.blocks import FixedWidthBlock, from_block
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    decode_block,
    decode_chunks,
    decode_values,
)
from lance_spark.encoding.v2_1.codecs import flat, general, variable
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from tests.support.cells import number_of
from tests.support.encodings.chunks import (
    as_bytes,
    block_of,
    chunks_of,
    strings_of,
    values_of,
    write,
)

SCHEMES = ["lz4", "zstd"]
TEXT = [f"a line of text, number {i}, and its square {i * i}" for i in range(2000)]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_strings_of_pylance(version: str, scheme: str) -> None:
    array = pa.array(TEXT)
    (page,) = write(array, version, {"lance-encoding:compression": scheme})
    assert page.encoding.WhichOneof("compression") == "general"
    block = decode_chunks(page.encoding, chunks_of(page))
    assert strings_of(block) == as_bytes(array)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numbers_of_pylance(scheme: str) -> None:
    """Two value buffers (run values and run lengths), of which the first is compressed."""
    array = pa.array(np.repeat(np.arange(4000) % 50 * 10**9, 7))
    metadata = {
        "lance-encoding:compression": scheme,
        "lance-encoding:rle-threshold": "0.9",
        "lance-encoding:bss": "off",
    }
    (page,) = write(array, "2.1", metadata)
    assert page.encoding.WhichOneof("compression") == "general"
    assert page.encoding.general.values.WhichOneof("compression") == "rle"
    block = decode_chunks(page.encoding, chunks_of(page))
    assert from_block(block, pa.int64()).equals(array)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_long_strings_of_pylance(scheme: str) -> None:
    array = pa.array([line * (50 + i % 100) for i, line in enumerate(TEXT[:200])])
    metadata = {
        "lance-encoding:compression": scheme,
        "lance-encoding:structural-encoding": "fullzip",
    }
    (page,) = write(array, "2.1", metadata)
    assert page.kind == "full_zip_layout"
    assert page.encoding.WhichOneof("compression") == "general"
    assert strings_of(decode_values(page.encoding, values_of(page))) == as_bytes(array)


def test_dictionary_of_pylance() -> None:
    words = [f"word number {i}, which is quite long" for i in range(200)]
    (page,) = write(pa.array(words * 30), "2.2")
    layout = page.layout.mini_block_layout
    assert layout.dictionary.WhichOneof("compression") == "general"
    block = decode_block(layout.dictionary, page.buffers[2], layout.num_dictionary_items)
    assert sorted(strings_of(block)) == sorted(word.encode() for word in words)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=50), st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_round_trips(scheme: str, values: list[bytes], times: int) -> None:
    values = values * times
    block = block_of(values)
    encoding, chunks = variable.encode_chunks(block, ChunkLimits(1024, 512))
    encoding, smaller = general.compress_chunks(encoding, chunks, scheme)
    assert strings_of(decode_chunks(encoding, smaller)) == values
    assert smaller.buffers[0].sizes.sum() <= chunks.buffers[0].sizes.sum()
    encoding, data = general.compress_block(*variable.encode_block(block), scheme)
    assert strings_of(decode_block(encoding, data, len(values))) == values
    encoding, stored = general.compress_values(*variable.encode_values(block), scheme)
    assert strings_of(decode_values(encoding, stored)) == values


def test_incompressible_chunks_stay_uncompressed() -> None:
    noise = np.random.default_rng(3).integers(0, 256, 8000).astype(np.uint8)
    plain = flat.encode_chunks(FixedWidthBlock(noise, 64, 1000), ChunkLimits(4096, 512))
    assert general.compress_chunks(*plain, "zstd") == plain


def test_fixed_values_are_refused() -> None:
    encoding, _ = general.compress_values(*variable.encode_values(block_of([b"a"])), "lz4")
    with pytest.raises(CorruptFileError):
        decode_values(encoding, FixedWidthBlock(np.zeros(4, np.uint8), 32, 1))


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.data())
@settings(max_examples=number_of(32, 80), deadline=None)
def test_damaged_chunks(scheme: str, data: st.DataObject) -> None:
    values = [b"abc", b"", b"abcabcabcabc"] * 40
    encoding, chunks = general.compress_chunks(
        *variable.encode_chunks(block_of(values), ChunkLimits(512, 64)), scheme
    )
    assert encoding.WhichOneof("compression") == "general"
    (buffer,) = chunks.buffers
    damaged = buffer.data.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    broken = ChunkBuffer(damaged, buffer.starts, buffer.sizes)
    try:
        block = decode_chunks(encoding, Chunks((broken,), chunks.num_values))
    except (CorruptFileError, UnsupportedEncodingError):
        return
    assert block.num_values == len(values)
    assert 0 <= block.offsets[0] <= block.offsets[-1] <= len(block.data)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_wrong_uncompressed_sizes_are_refused(scheme: str) -> None:
    encoding, data = general.compress_block(*variable.encode_block(block_of([b"abc"] * 99)), scheme)
    data = data.copy()
    data[3] = 0x7F
    with pytest.raises(CorruptFileError, match="claims"):
        decode_block(encoding, data, 99)
