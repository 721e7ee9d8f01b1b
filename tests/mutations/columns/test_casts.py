"""Casts of columns give the values that pylance gives, or an error; never nulls or infinities."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import InvalidInputError

NAIVE = dt.datetime(2020, 7, 1, 23, 2, 3)
ITEM = pa.struct([("a", pa.int32()), ("b", pa.string())])
STRUCTS = [[{"a": 1, "b": "x"}], None, [], [{"a": None, "b": "y"}, None]]
CASES: list[tuple[pa.Array, list[dict[str, Any]]]] = [
    (
        pa.array(STRUCTS, pa.list_(ITEM)),
        [{"path": "x.item.a", "data_type": pa.int64(), "name": "z"}],
    ),
    (
        pa.array(STRUCTS, pa.large_list(ITEM)),
        [
            {"path": "x.item.b", "data_type": pa.large_string(), "name": "y"},
            {"path": "x.item.a", "data_type": pa.int64(), "name": "z"},
        ],
    ),
    (
        pa.array([[[{"a": 1, "b": "x"}], None], None, [[]]], pa.list_(pa.list_(ITEM))),
        [{"path": "x.item.item.a", "data_type": pa.int8(), "name": "z"}],
    ),
    (
        pa.array([[1.5, 2.0], None, [None, 0.0]], pa.list_(pa.float64())),
        [{"path": "x", "data_type": pa.list_(pa.float32(), 2)}],
    ),
    (
        pa.array([[1.5, 2.0], None, [None, 0.0]], pa.list_(pa.float64(), 2)),
        [{"path": "x", "data_type": pa.large_list(pa.float32())}],
    ),
    (
        pa.array([NAIVE, None], pa.timestamp("us")),
        [{"path": "x", "data_type": pa.timestamp("ms", "Europe/Berlin")}],
    ),
    (
        pa.array([[NAIVE], None], pa.list_(pa.timestamp("us"))),
        [{"path": "x", "data_type": pa.list_(pa.timestamp("us", "America/New_York"))}],
    ),
    (
        pa.array([NAIVE.date(), None], pa.date32()),
        [{"path": "x", "data_type": pa.timestamp("us", "Europe/Berlin")}],
    ),
    (
        pa.array([NAIVE, None], pa.timestamp("us", "Europe/Berlin")),
        [{"path": "x", "data_type": pa.timestamp("us")}],
    ),
    (
        pa.array([1e30, float("inf"), float("nan"), None]),
        [{"path": "x", "data_type": pa.float32()}],
    ),
]


@pytest.mark.parametrize(("values", "alterations"), CASES, ids=lambda case: str(case)[:40])
def test_as_pylance_casts(
    tmp_path: Path, values: pa.Array, alterations: list[dict[str, Any]]
) -> None:
    data = pa.table({"i": range(len(values)), "x": values})
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    lance.write_dataset(data, ours)
    altered = open_dataset(ours).alter_columns(*alterations)
    pylance_table = lance.write_dataset(data, theirs)
    pylance_table.alter_columns(*alterations)
    expected = lance.dataset(theirs).to_table()
    assert str(altered.to_table()["x"]) == str(expected["x"])
    assert str(lance.dataset(ours).to_table()["x"]) == str(expected["x"])


@pytest.mark.slow
def test_lists_of_many_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    count = 200_000
    lengths = rng.integers(0, 4, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    items = pa.StructArray.from_arrays(
        [pa.array(np.arange(offsets[-1], dtype=np.int32))], names=["a"]
    )
    column = pa.ListArray.from_arrays(offsets, items, mask=pa.array(rng.random(count) < 0.1))
    path = str(tmp_path / "t")
    lance.write_dataset(pa.table({"x": column}), path)
    lance.dataset(path).delete("_rowid % 7 = 3")
    expected = [
        None if value is None else [{"z": struct["a"]} for struct in value]
        for value in lance.dataset(path).to_table()["x"].to_pylist()
    ]
    change = {"path": "x.item.a", "data_type": pa.int64(), "name": "z"}
    assert open_dataset(path).alter_columns(change).to_table()["x"].to_pylist() == expected
    assert lance.dataset(path).to_table()["x"].to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        (pa.array([1.5, 1e300]), pa.float32(), "too large"),
        (pa.array([1e6], pa.float32()), pa.float16(), "too large"),
        (pa.array([[1.0], [1e300]]), pa.list_(pa.float32()), "too large"),
        (
            pa.array([dt.datetime(2020, 3, 29, 2, 30)], pa.timestamp("us")),
            pa.timestamp("us", "Europe/Berlin"),
            "doesn't exist",
        ),
    ],
    ids=str,
)
def test_values_that_do_not_fit(
    tmp_path: Path, values: pa.Array, dtype: pa.DataType, message: str
) -> None:
    path = tmp_path / "t"
    lance.write_dataset(pa.table({"x": values}), str(path))
    with pytest.raises(InvalidInputError, match=f"column 'x'.*{message}"):
        open_dataset(str(path)).alter_columns({"path": "x", "data_type": dtype})
    assert open_dataset(str(path)).version == 1
    assert len(list((path / "data").iterdir())) == 1
