"""The order of values in indexes is that of Arrow, with nulls first and floats by their bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark.indexes import order
from lance_spark.indexes.order import float_keys, order_of

ALPHABETS = [b"\0\1", b"ab", b"\0", b"a", bytes(range(256))]


def expected(values: pa.Array) -> np.ndarray:
    keys = float_keys(values) if pa.types.is_floating(values.type) else values
    return pc.array_sort_indices(keys, null_placement="at_start").to_numpy().astype(np.int64)


def compare(values: pa.Array) -> None:
    assert np.array_equal(order_of(values), expected(values))
    half = len(values) // 2
    runs = [part.take(pa.array(expected(part))) for part in (values[:half], values[half:])]
    joined = pa.concat_arrays(runs)
    assert np.array_equal(order_of(joined, in_runs=True), expected(joined))


@pytest.mark.parametrize("seed", range(12))
def test_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 300))
    mask = rng.random(count) < 0.2 if seed % 2 else None
    for dtype in (np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64):
        bounds = np.iinfo(dtype)
        numbers = rng.integers(bounds.min, bounds.max, count, dtype=dtype, endpoint=True)
        compare(pa.array(numbers, mask=mask))
        compare(pa.array(numbers % 7, mask=mask))
    bits = rng.integers(0, 1 << 63, count) * 2 + 1
    compare(pa.array(bits.view(np.float64), mask=mask))
    few = rng.choice([0.0, -0.0, np.nan, -np.nan, 1.0, -np.inf], count)
    compare(pa.array(few.astype(np.float32), mask=mask))
    days = pa.array(rng.integers(-1000, 1000, count), pa.int64(), mask=mask)
    compare(days.cast(pa.timestamp("us")))
    compare(days.cast(pa.decimal128(20)))
    compare(pc.equal(days, 3))


@pytest.mark.sample(3)
@pytest.mark.parametrize("sample", [1 << 14, 10])
@pytest.mark.parametrize("seed", range(12))
def test_texts(seed: int, sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # With a small sample, texts that repeat are found by their distinct values.
    monkeypatch.setattr(order, "_SAMPLE", sample)
    rng = np.random.default_rng(seed)
    for alphabet in ALPHABETS:
        for longest in (4, 20, 90):
            prefix = bytes(rng.choice(list(alphabet), int(rng.integers(0, 12))).tolist())
            texts: list[bytes | None] = [
                prefix + bytes(rng.choice(list(alphabet), int(length)).tolist())
                for length in rng.integers(0, longest, int(rng.integers(0, 150)))
            ]
            if seed % 2:
                texts = [None if rng.random() < 0.2 else text for text in texts]
            compare(pa.array(texts, pa.binary()))
            compare(pa.array(texts, pa.large_binary())[min(len(texts), 3) :])
