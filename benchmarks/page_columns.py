"""Columns of 16 MiB for the benchmark of encodings.

The values of each column make pylance choose an encoding, partly together with field metadata.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BYTES = 16 << 20
#: Rows of a column of numbers of 64 bits.
ROWS = BYTES // 8
#: Rows of a column of strings of about 50 bytes.
TEXT_ROWS = BYTES // 50


def _rng() -> np.random.Generator:
    return np.random.default_rng(5)


def bits(width: int, dtype: pa.DataType) -> Callable[[], pa.Array]:
    """Return the maker of a column of random numbers below `2 ** width`."""

    def make() -> pa.Array:
        values = _rng().integers(0, 1 << width, BYTES * 8 // dtype.bit_width, dtype=np.int64)
        return pa.array(values.astype(dtype.to_pandas_dtype()), dtype)

    return make


def mixed_widths() -> pa.Array:
    """Return numbers that need another bit width in each chunk of 1,024."""
    limits = np.repeat(1 << _rng().integers(1, 60, ROWS // 1024), 1024)
    return pa.array(_rng().integers(0, limits))


def floats() -> pa.Array:
    return pa.array(_rng().normal(0, 1, ROWS))


def increasing_floats() -> pa.Array:
    """Return floats, of which each differs little from the float before."""
    return pa.array(np.cumsum(_rng().integers(0, 100, ROWS)) / 4)


def runs() -> pa.Array:
    """Return numbers that repeat 32 times."""
    return pa.array(np.repeat(_rng().integers(0, 1 << 40, ROWS // 32), 32))


def short_runs() -> pa.Array:
    """Return numbers that repeat up to eleven times."""
    lengths = _rng().integers(1, 12, ROWS // 4)
    return pa.array(np.repeat(_rng().integers(0, 1 << 40, ROWS // 4), lengths)[:ROWS])


def few_numbers() -> pa.Array:
    """Return numbers with 200 different values."""
    return pa.array(_rng().integers(0, 200, ROWS) * 1_000_003)


def nulls(make: Callable[[], pa.Array], share: float = 0.3) -> Callable[[], pa.Array]:
    """Return the maker of a column in which a share of the values is null, at random."""

    def make_nullable() -> pa.Array:
        array = make()
        valid = pa.array(np.random.default_rng(9).random(len(array)) >= share)
        return pc.if_else(valid, array, pa.scalar(None, array.type))

    return make_nullable


def booleans() -> pa.Array:
    return pa.array(_rng().random(BYTES * 2) < 0.5)


def decimals() -> pa.Array:
    data = _rng().integers(0, 1 << 60, BYTES // 8)
    data[1::2] = 0
    return pa.Array.from_buffers(pa.decimal128(30, 4), BYTES // 16, [None, pa.py_buffer(data)])


def texts() -> pa.Array:
    """Return sentences of eight words, out of 160 words."""
    rng = _rng()
    names = ("alpha", "beta", "gamma", "delta")
    words = pa.array([f"{name}{number}" for name in names for number in range(40)])
    parts = [words.take(pa.array(rng.integers(0, 160, TEXT_ROWS))) for _ in range(8)]
    return pc.binary_join_element_wise(*parts, " ")


def few_texts() -> pa.Array:
    """Return texts with 200 different values."""
    return texts()[:200].take(pa.array(_rng().integers(0, 200, TEXT_ROWS)))


def equally_long_texts() -> pa.Array:
    """Return texts of 30 characters."""
    return pc.utf8_slice_codeunits(texts(), 0, 30)


def alternating_texts() -> pa.Array:
    """Return texts of nine digits and empty texts, by turns."""
    digits = pa.array(_rng().integers(10**8, 10**9, ROWS)).cast(pa.string())
    return pc.if_else(pa.array(np.arange(ROWS) % 2 == 0), digits, "")


def fewer_texts() -> pa.Array:
    """Return texts with 50 different values."""
    return texts()[:50].take(pa.array(_rng().integers(0, 50, TEXT_ROWS)))


def dictionaries() -> pa.Array:
    """Return indices of 32 bits into a dictionary of strings."""
    indices = pa.array(_rng().integers(0, 200, BYTES // 4, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, texts()[:200])


def texts_in_runs() -> pa.Array:
    """Return texts that repeat 32 times."""
    return texts()[:200].take(pa.array(np.repeat(_rng().integers(0, 200, TEXT_ROWS // 32), 32)))


def long_texts() -> pa.Array:
    """Return texts of some hundreds of bytes."""
    array = texts()
    parts = [array[start::8][: TEXT_ROWS // 8] for start in range(8)]
    return pc.binary_join_element_wise(*parts, " ")


def documents() -> pa.Array:
    """Return texts of some thousands of bytes."""
    array = long_texts()
    parts = [array[start::16][: len(array) // 16] for start in range(16)]
    return pc.binary_join_element_wise(*parts, " ")


def lists(items: Callable[[], pa.Array], share: float = 0.1) -> Callable[[], pa.Array]:
    """Return the maker of a column of lists of up to six items. A share of the lists is null."""

    def make() -> pa.Array:
        values = items()
        rng = np.random.default_rng(3)
        ends = np.cumsum(rng.integers(0, 7, len(values) // 3))
        ends = ends[ends <= len(values)]
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        mask = pa.array(rng.random(len(ends)) < share)
        return pa.ListArray.from_arrays(offsets, values, mask=mask if share else None)

    return make


def lists_of_lists() -> pa.Array:
    inner = lists(bits(60, pa.int64()))()
    ends = np.arange(0, len(inner) + 1, 3)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner[: int(ends[-1])])


def lists_of_structs() -> pa.Array:
    count = ROWS // 2
    items = pa.StructArray.from_arrays(
        [bits(60, pa.int64())()[:count], floats()[:count]], ["a", "b"]
    )
    return lists(lambda: items)()


def maps() -> pa.Array:
    keys = few_texts()[: TEXT_ROWS // 2]
    ends = np.arange(0, len(keys) + 1, 4)
    values = bits(30, pa.int32())()[: len(keys)]
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, values)


def vectors(
    size: int, item_nulls: float = 0.0, vector_nulls: float = 0.0
) -> Callable[[], pa.Array]:
    """Return the maker of a column of vectors of floats.

    `item_nulls` and `vector_nulls` are the shares of null items and of null vectors.
    """

    def make() -> pa.Array:
        values = pa.array(_rng().normal(0, 1, BYTES // 4 // size * size).astype(np.float32))
        if item_nulls:
            values = nulls(lambda: values, item_nulls)()
        mask = pa.array(np.random.default_rng(4).random(len(values) // size) < vector_nulls)
        return pa.FixedSizeListArray.from_arrays(values, size, mask=mask if vector_nulls else None)

    return make


def fixed_structs() -> pa.Array:
    count = BYTES // 12
    fields = [pa.field("a", pa.int32(), False), pa.field("b", pa.float64(), False)]
    children = [
        pa.array(_rng().integers(0, 1 << 30, count, dtype=np.int32)),
        pa.array(_rng().normal(0, 1, count)),
    ]
    return pa.StructArray.from_arrays(children, fields=fields)


def variable_structs() -> pa.Array:
    fields = [pa.field("a", pa.int64(), False), pa.field("s", pa.string(), False)]
    return pa.StructArray.from_arrays([bits(60, pa.int64())()[:TEXT_ROWS], texts()], fields=fields)


def constant() -> pa.Array:
    return pa.array(np.full(ROWS, 12_345))


def constant_and_nulls() -> pa.Array:
    return nulls(constant)()


def all_null() -> pa.Array:
    return pa.nulls(ROWS, pa.int64())


def blobs() -> pa.Array:
    data = _rng().bytes(BYTES)
    return pa.array(
        [data[start : start + 1024] for start in range(0, BYTES, 1024)], pa.large_binary()
    )


def rare_values() -> pa.Array:
    """Return a column in which one row of fifty has a value, and all other rows are null."""
    return nulls(bits(60, pa.int64()), 0.98)()


def rare_lists() -> pa.Array:
    """Return a column in which one row of fifty has a list, and all other rows are null."""
    rng = _rng()
    valid = rng.random(ROWS) < 0.02
    offsets = pa.array(np.concatenate([[0], np.cumsum(valid * 5)]), pa.int32())
    values = pa.array(rng.integers(0, 1 << 60, int(valid.sum()) * 5))
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(~valid))
