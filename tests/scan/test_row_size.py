"""Widths of values, and types too wide for a null, which a small schema can claim."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lance_spark.encoding import blocks
from lance_spark.encoding.blocks import is_too_wide, nulls, unstored_nulls
from lance_spark.errors import CorruptFileError, UnsupportedTypeError
from lance_spark.predicates.literals import to_array
from lance_spark.scan.fragment.column_reader import fixed_width

MOST = 2**31 - 1
TOO_WIDE = [
    pa.binary(MOST),
    pa.list_(pa.float64(), MOST),
    pa.list_(pa.list_(pa.int64(), 65_536), 65_536),
    pa.list_(pa.bool_(), MOST),
    pa.list_(pa.string(), MOST),
    pa.struct([("a", pa.string()), ("b", pa.binary(2**30))]),
    pa.list_(pa.binary(MOST)),
]
FINE = [
    pa.binary(2**20),
    pa.list_(pa.float32(), 4096 * 4096),
    pa.list_(pa.null(), MOST),
    pa.map_(pa.string(), pa.decimal128(38, 3)),
    pa.struct([("a", pa.list_(pa.string()))]),
    pa.uuid(),
]


@pytest.mark.parametrize("dtype", TOO_WIDE, ids=str)
def test_types_that_are_too_wide(dtype: pa.DataType) -> None:
    assert is_too_wide(dtype)
    with pytest.raises(UnsupportedTypeError, match="column 'c': no data file holds it"):
        nulls(1, pa.field("c", dtype))
    # Arrow would allocate memory for them first.
    with pytest.raises(ValueError, match="takes more than"):
        to_array([3], dtype)


@pytest.mark.parametrize("dtype", TOO_WIDE[:4], ids=str)
def test_nulls_of_a_page_that_are_too_wide(dtype: pa.DataType) -> None:
    with pytest.raises(CorruptFileError, match=r"a null of type .* takes more than 67108864 bytes"):
        unstored_nulls(1, dtype)


@pytest.mark.parametrize("dtype", [pa.binary(2**20), pa.list_(pa.float32(), 4096)], ids=str)
def test_nulls_of_a_page(dtype: pa.DataType) -> None:
    assert unstored_nulls(2, dtype).equals(pa.nulls(2, dtype))


@pytest.mark.parametrize("dtype", FINE, ids=str)
def test_types_that_are_not_too_wide(dtype: pa.DataType) -> None:
    assert not is_too_wide(dtype)


@pytest.mark.parametrize("width", [0, 1, 2**28, 2**29, 2**29 + 3, MOST])
def test_binary_of_any_width(width: int) -> None:
    """Arrow's `bit_width` overflows 32 bits."""
    assert fixed_width(pa.binary(width)) == width
    assert fixed_width(pa.list_(pa.binary(width), 2)) == 2 * width
    assert blocks.fixed_width(pa.binary(width)) == 8 * width
