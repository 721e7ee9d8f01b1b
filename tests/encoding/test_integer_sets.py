"""Integers are looked up in sets as Arrow does it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark.encoding import rows

TYPES = [
    *(pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
    *(pa.date32(), pa.timestamp("us", "UTC"), pa.time64("ns"), pa.duration("s")),
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_is_in(dtype: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    width = dtype.bit_width
    raw = rng.integers(0, 1 << min(width, 16), 20_000).astype(f"u{width // 8}")
    largest = np.iinfo(raw.dtype).max
    raw[:5] = [0, 1, largest, largest // 2, largest // 2 + 1]
    values = pa.array(raw, mask=rng.random(len(raw)) < 0.1).view(dtype).slice(3)
    for count in (0, 1, 30, 2_000):
        chosen = np.concatenate([rng.choice(raw, count), raw[:5] if count else raw[:0]])
        members = pa.array(chosen.astype(raw.dtype)).view(dtype)
        result = rows.is_in(values, members)
        assert result.equals(pc.is_in(values, value_set=members))
    # Many members are looked up in one set, for any number of values.
    members = pa.concat_arrays([members] * 20)
    for part in (values, values[:7], values[:0]):
        assert rows.is_in(part, members).equals(pc.is_in(part, value_set=members))
    # Sets were made, and do not outlive their members.
    assert id(members) in rows._SETS
    key = id(members)
    del members
    assert key not in rows._SETS
    monkeypatch.delattr(rows, "IntegerSet")
    with pytest.raises(NameError):
        rows.is_in(values, values[:1].drop_null())
