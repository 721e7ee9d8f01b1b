"""FixedSizeList: vectors, of vectors too, with and without null items."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.blocks import FixedSizeListBlock, FixedWidthBlock, from_block, to_block
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    decode_chunks,
    decode_values,
)
from lance_spark.encoding.v2_1.codecs import fixed_size_list
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from tests.support.cells import number_of
from tests.support.encodings.chunks import chunks_of, write

ITEM_TYPES = [pa.float32(), pa.int8(), pa.bool_(), pa.float64()]


def vectors(
    dtype: pa.DataType, dimension: int, count: int, *, nulls: bool, seed: int = 0
) -> pa.Array:
    rng = np.random.default_rng(seed)
    items = pa.array(rng.integers(0, 2 if dtype == pa.bool_() else 100, count * dimension)).cast(
        dtype, safe=False
    )
    if nulls:
        items = pa.array(
            [
                None if gone else item
                for item, gone in zip(items.to_pylist(), rng.random(len(items)) < 0.2, strict=True)
            ],
            dtype,
        )
    return pa.FixedSizeListArray.from_arrays(items, dimension)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("dtype", ITEM_TYPES, ids=str)
def test_pages_of_pylance(version: str, nulls: bool, dtype: pa.DataType) -> None:
    array = vectors(dtype, 12, 3000, nulls=nulls)
    (page,) = write(array, version)
    assert page.encoding.WhichOneof("compression") == "fixed_size_list"
    assert page.encoding.fixed_size_list.has_validity == nulls
    block = decode_chunks(page.encoding, chunks_of(page))
    assert from_block(block, array.type).equals(array)


@pytest.mark.parametrize("inner", [False, True])
def test_vectors_of_vectors_of_pylance(inner: bool) -> None:
    rows = vectors(pa.int16(), 3, 8000, nulls=inner)
    array = pa.FixedSizeListArray.from_arrays(rows, 4)
    (page,) = write(array, "2.1")
    block = decode_chunks(page.encoding, chunks_of(page))
    assert from_block(block, array.type).equals(array)


@given(
    st.sampled_from(ITEM_TYPES),
    st.integers(1, 20),
    st.integers(1, 300),
    st.booleans(),
    st.sampled_from([64, 1000]),
)
@settings(max_examples=number_of(32, 80), deadline=None)
def test_chunks_round_trip(
    dtype: pa.DataType, dimension: int, count: int, nulls: bool, limit: int
) -> None:
    array = vectors(dtype, dimension, count, nulls=nulls)
    try:
        encoding, chunks = fixed_size_list.encode_chunks(to_block(array), ChunkLimits(limit, 64))
    except InvalidInputError:
        assert limit == 64
        return
    assert from_block(decode_chunks(encoding, chunks), array.type).equals(array)
    total = sum(buffer.sizes for buffer in chunks.buffers)
    assert (total <= limit + len(chunks.buffers)).all()


@given(st.sampled_from([pa.int8(), pa.float32()]), st.integers(1, 20), st.booleans())
@settings(max_examples=40, deadline=None)
def test_values_round_trip(dtype: pa.DataType, dimension: int, nulls: bool) -> None:
    array = vectors(dtype, dimension, 50, nulls=nulls)
    encoding, stored = fixed_size_list.encode_values(to_block(array))
    bitmap = (dimension + 7) // 8 if array.values.null_count else 0
    assert stored.bits_per_value == 8 * bitmap + dimension * dtype.bit_width
    assert from_block(decode_values(encoding, stored), array.type).equals(array)


def test_vectors_of_vectors_as_values() -> None:
    array = pa.FixedSizeListArray.from_arrays(vectors(pa.int16(), 3, 80, nulls=True), 4)
    encoding, stored = fixed_size_list.encode_values(to_block(array))
    assert stored.bits_per_value == 8 * (2 + 2 * 12)
    assert from_block(decode_values(encoding, stored), array.type).equals(array)


def test_wide_vectors_are_refused() -> None:
    block = to_block(vectors(pa.float64(), 100, 5, nulls=False))
    with pytest.raises(InvalidInputError, match="wide"):
        fixed_size_list.encode_chunks(block, ChunkLimits(1000, 64))


@pytest.mark.parametrize("items", [0, 1 << 31, 1 << 63])
def test_impossible_dimensions(items: int) -> None:
    block = to_block(vectors(pa.int8(), 4, 5, nulls=False))
    encoding, chunks = fixed_size_list.encode_chunks(block, ChunkLimits(1000, 64))
    encoding.fixed_size_list.items_per_value = items
    with pytest.raises(CorruptFileError):
        decode_chunks(encoding, chunks)
    stored = FixedWidthBlock(np.zeros(8, np.uint8), 32, 2)
    with pytest.raises(CorruptFileError):
        decode_values(encoding, stored)


@given(st.integers(1, 40), st.booleans(), st.integers(0, 40), st.integers(0, 3))
@settings(max_examples=number_of(40, 100), deadline=None)
def test_inconsistent_chunks_are_refused_or_decoded(
    dimension: int, validity: bool, less: int, gone: int
) -> None:
    block = to_block(vectors(pa.int16(), 5, 40, nulls=True))
    encoding, chunks = fixed_size_list.encode_chunks(block, ChunkLimits(256, 64))
    encoding.fixed_size_list.items_per_value = dimension
    encoding.fixed_size_list.has_validity = validity
    buffers = tuple(
        ChunkBuffer(b.data, b.starts, np.maximum(b.sizes - less, 0)) for b in chunks.buffers
    )[gone:]
    try:
        result = decode_chunks(encoding, Chunks(buffers, chunks.num_values))
    except (CorruptFileError, UnsupportedEncodingError):
        return
    assert isinstance(result, FixedSizeListBlock)
    assert result.num_values == 40
    assert dimension <= 5
