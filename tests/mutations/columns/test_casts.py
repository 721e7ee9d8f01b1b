"""Casts of columns give the values that pylance gives, or an error; never nulls or infinities."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
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


WORDS = ["a", "b", None, "a"]


def _categories(count: int, first: int, index_type: pa.DataType) -> pa.Table:
    words = pa.array([f"w{number}" for number in range(first, first + count)])
    column = pa.DictionaryArray.from_arrays(pa.array(range(count), index_type), words)
    return pa.table({"id": range(first, first + count), "x": column})


def test_dictionaries_are_cast_as_by_pylance(tmp_path: Path) -> None:
    types = [
        pa.string(),
        pa.large_string(),
        pa.int64(),
        *(
            pa.dictionary(index, value)
            for index, value in (
                (pa.int8(), pa.string()),
                (pa.uint8(), pa.large_string()),
                (pa.int32(), pa.string()),
                (pa.int16(), pa.int32()),
            )
        ),
    ]
    for number, (old, new) in enumerate(itertools.permutations(types, 2)):
        is_text = "string" in str(old)
        values = pa.array(WORDS if is_text else [1, 2, None, 1], getattr(old, "value_type", old))
        rows = pa.table({"x": values.dictionary_encode().cast(old)})
        results = []
        for client in (lance, lance_spark):
            path = str(tmp_path / f"{number}{client.__name__}")
            client.write_dataset(rows, path)
            change = {"path": "x", "data_type": new}
            try:
                if client is lance:
                    lance.dataset(path).alter_columns(change)
                else:
                    open_dataset(path).alter_columns(change)
            except (OSError, ValueError):
                results.append(None)
                continue
            table = lance.dataset(path).to_table()
            assert open_dataset(path).to_table().equals(table)
            results.append((table.schema.field("x").type, table["x"].to_pylist()))
        assert results[0] == results[1], (old, new)


def test_a_column_with_too_many_categories(tmp_path: Path) -> None:
    """All files together have more than the indices can number: no dead end."""
    path, small = str(tmp_path / "t"), pa.int8()
    for first in (0, 90, 180):
        write_dataset(_categories(90, first, small), path, mode="append" if first else "create")
    dataset = open_dataset(path)
    with pytest.raises(InvalidInputError, match=r"more than 127 distinct values.*alter_columns"):
        dataset.update({"id": 1})
    for dtype in (pa.dictionary(pa.int32(), pa.string()), pa.string()):
        dataset = dataset.alter_columns({"path": "x", "data_type": dtype})
        assert dataset.schema.field("x").type == dtype
        compacted, _ = dataset.compact_files()
        assert len(compacted.fragments) == 1
        table = lance.dataset(path).to_table()
        assert table["x"].to_pylist() == [f"w{number}" for number in range(270)]
        dataset = compacted
    with pytest.raises(InvalidInputError, match=r"270 distinct values .* int8; use a wider type"):
        dataset.alter_columns({"path": "x", "data_type": pa.dictionary(small, pa.string())})


def test_a_compaction_leaves_out_such_fragments(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "t")
    # The fragment between the two groups is large enough.
    for first, count in ((0, 90), (90, 90), (500, 120), (0, 90), (20, 90)):
        write_dataset(_categories(count, first, pa.int8()), path, mode="append")
    dataset = open_dataset(path)
    assert len(dataset.fragments) == 5
    compacted, metrics = dataset.compact_files(target_rows_per_fragment=100)
    assert metrics.fragments_removed == 2
    assert [fragment.physical_rows for fragment in compacted.fragments] == [90, 90, 120, 180]
    assert "2 fragments from 0 on stay as they are" in caplog.text
    values = lance.dataset(path).to_table()["x"].to_pylist()
    assert values == dataset.to_table()["x"].to_pylist()
