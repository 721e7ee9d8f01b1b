"""LABEL_LIST indexes have the sets of pylance, and each client uses those of the other."""

from __future__ import annotations

import contextlib
import logging
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from pyroaring import BitMap

import lance_spark
from lance_spark.errors import LanceError, UnsupportedTypeError
from lance_spark.indexes.cache import CACHE
from lance_spark.indexes.row_sets import RowSet
from tests.indexes.rewritten import content, index_file, rewrite

WORDS = ["red", "green", "blue", "", "ünï\U0001f600", "rare"]
#: Conditions with the same meaning for both clients, and whether an index answers them here.
FILTERS = {
    "array_has(l, 'rare')": True,
    "array_has(l, 'nowhere')": True,
    "array_has_any(l, ['rare', ''])": True,
    "array_has_any(l, make_array('rare', 'green')) AND i < 50": True,
    "array_has_all(l, ['red', 'green', 'rare'])": True,
    "array_has_all(l, ['red', 'red'])": True,
    "array_has_all(l, ['red', NULL])": True,
    "array_has_any(l, ['rare', NULL])": False,
    "array_has(l, 'rare') OR array_has(l, 'blue')": True,
    "NOT array_has(l, 'red')": False,
    "NOT array_has_any(l, ['red', 'green', 'blue'])": False,
    "NOT array_has_all(l, ['red', NULL])": False,
    "array_has_any(l, [])": False,
    "array_has_all(l, [])": False,
    "array_has(l, NULL)": False,
}


def lists(count: int, words: list[Any], seed: int = 5) -> list[list[Any] | None]:
    rng = random.Random(seed)
    choices: list[Any] = [*words[:-1], None] * 4 + words[-1:]
    return [
        None if rng.random() < 0.1 else rng.choices(choices, k=rng.choice([0, 1, 1, 2, 5]))
        for _ in range(count)
    ]


def write(path: Path, values: pa.Array | list[Any], **options: Any) -> None:
    table = pa.table({"i": np.arange(len(values)), "l": values})
    lance.write_dataset(table, str(path), max_rows_per_file=1500, **options)


def build(path: Path, who: str, **options: Any) -> None:
    if who == "own":
        lance_spark.open_dataset(str(path)).create_scalar_index("l", "label_list", **options)
    else:
        lance.dataset(str(path)).create_scalar_index("l", "LABEL_LIST")


def rows(path: Path, condition: str, *, indexed: bool = True) -> list[int]:
    dataset = lance_spark.open_dataset(str(path))
    table = dataset.to_table(["i"], filter=condition, use_scalar_index=indexed)
    return sorted(table["i"].to_pylist())


def sets(path: Path) -> tuple[list[Any], list[dict[int, BitMap]], dict[int, BitMap], bytes]:
    table = content(path)
    reader = LanceFileReader(str(index_file(path)))
    metadata = reader.metadata().schema.metadata
    nulls = bytes(reader.read_global_buffer(int(metadata[b"lance:label_list_nulls"])))
    return (
        [repr(key) for key in table["keys"].to_pylist()],
        [dict(RowSet.decode(data, "t").bitmaps) for data in table["bitmaps"].to_pylist()],
        dict(RowSet.decode(nulls, "t").bitmaps),
        metadata[b"lance:index_stats"],
    )


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (pa.list_(pa.string()), WORDS),
        (pa.large_list(pa.large_string()), WORDS),
        (pa.list_(pa.int16()), [-3, 0, 7]),
        (pa.list_(pa.float64()), [float("nan"), -0.0, 0.0, float("-inf")]),
        (pa.list_(pa.float32()), [1.5, 0.0, -7.0]),
        (pa.list_(pa.bool_()), [True, False]),
        (pa.list_(pa.date32()), [0, -5, 20_000]),
        (pa.list_(pa.timestamp("us", "UTC")), [0, -5, 20_000]),
        (pa.list_(pa.binary()), [b"", b"\xff", b"a"]),
        (pa.list_(pa.decimal128(12, 2)), [Decimal("1.50"), Decimal("-2.00")]),
    ],
    ids=str,
)
@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_files_are_those_of_pylance(
    tmp_path: Path, dtype: pa.DataType, words: list[Any], stable: bool
) -> None:
    values = pa.array(lists(400, words), dtype)
    for who in ("own", "pylance"):
        write(tmp_path / who, values, enable_stable_row_ids=stable)
        lance.dataset(str(tmp_path / who)).delete("i % 5 = 2")
        build(tmp_path / who, who)
    assert content(tmp_path / "own").schema.equals(content(tmp_path / "pylance").schema)
    assert sets(tmp_path / "own") == sets(tmp_path / "pylance")


def test_an_empty_index(tmp_path: Path) -> None:
    cases: dict[str, list[Any]] = {"no rows": [], "no items": [[], None]}
    for name, values in cases.items():
        for who in ("own", "pylance"):
            write(tmp_path / name / who, pa.array(values, pa.list_(pa.int32())))
            build(tmp_path / name / who, who)
        assert sets(tmp_path / name / "own") == sets(tmp_path / name / "pylance")
        assert rows(tmp_path / name / "own", "array_has(l, 1)") == []


@pytest.fixture(
    scope="module",
    params=[
        (who, version, stable)
        for who in ("own", "pylance")
        for version, stable in (("2.0", False), ("2.1", True), ("2.2", False))
    ],
    ids=str,
)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that was changed after its index was made."""
    who, version, stable = request.param
    path = tmp_path_factory.mktemp("labels") / "t.lance"
    write(path, lists(5000, WORDS), data_storage_version=version, enable_stable_row_ids=stable)
    lance_spark.open_dataset(str(path)).delete("i % 7 = 6")
    build(path, who, **({"num_segments": 2} if who == "own" else {}))
    lance_spark.open_dataset(str(path)).delete("i % 31 = 5")
    dataset = lance.dataset(str(path))
    dataset.insert(pa.table({"i": np.arange(40), "l": lists(40, WORDS, 9)}))
    dataset.update({"l": "['rare', 'new']"}, where="i % 1000 = 1")
    return path


@pytest.mark.sample(8)
@pytest.mark.parametrize("condition", FILTERS)
def test_both_clients_use_an_index(table: Path, condition: str) -> None:
    expected = rows(table, condition, indexed=False)
    assert rows(table, condition) == expected
    oracle = lance.dataset(str(table))
    assert sorted(oracle.to_table(["i"], filter=condition)["i"].to_pylist()) == expected
    text = lance_spark.open_dataset(str(table)).explain(filter=condition)
    assert ("  index: l_idx (LABEL_LIST)" in text) is FILTERS[condition]
    if FILTERS[condition]:
        assert "ScalarIndexQuery" in oracle.scanner(filter=condition).explain_plan()


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "condition",
    [
        "array_contains(l, 'rare')",
        "arrays_overlap(l, array('rare', NULL))",
        "arrays_overlap(array('rare', 'new'), l)",
        "NOT array_contains(l, 'rare')",
        "NOT arrays_overlap(l, array('red', 'green'))",
        "array_contains(l, 'red') AND array_contains(l, 'rare')",
    ],
)
def test_functions_of_spark(table: Path, condition: str) -> None:
    assert rows(table, condition) == rows(table, condition, indexed=False)


def test_zeros_and_nan(tmp_path: Path) -> None:
    nan = float("nan")
    values = pa.array([[0.0], [-0.0, 1.0], [nan], [0.0, nan], [2.0]])
    write(tmp_path / "t", values)
    build(tmp_path / "t", "own")
    for condition, expected in {
        "array_contains(l, 0)": [0, 1, 3],
        "array_contains(l, -0.0D)": [0, 1, 3],
        "array_contains(l, CAST('NaN' AS DOUBLE))": [2, 3],
        "array_has_all(l, [0.0D, 1.0D])": [1],
        "array_has_all(l, [0.0D, CAST('NaN' AS DOUBLE)])": [3],
        "arrays_overlap(l, array(2.0D, CAST('NaN' AS DOUBLE)))": [2, 3, 4],
    }.items():
        assert rows(tmp_path / "t", condition) == expected
        assert rows(tmp_path / "t", condition, indexed=False) == expected


def test_columns_without_such_an_index(tmp_path: Path) -> None:
    for number, dtype in enumerate(
        [pa.int32(), pa.list_(pa.float32(), 2), pa.list_(pa.list_(pa.int8())), pa.string()]
    ):
        write(tmp_path / str(number), pa.nulls(3, dtype))
        with pytest.raises(UnsupportedTypeError, match="a LABEL_LIST index does not take column"):
            build(tmp_path / str(number), "own")


def damaged(path: Path, change: str) -> None:
    table = content(path)
    keys, data = (table[name].combine_chunks() for name in ("keys", "bitmaps"))
    if change == "type":
        keys = keys.cast(pa.large_string())
    elif change == "set":
        data = pa.array([item[:-3] for item in data.to_pylist()])
    elif change == "null set":
        data = pa.nulls(len(data), pa.binary())
    elif change == "whole fragment":
        data = pa.array([b"\x01" + bytes(11)] * len(data))
    rewrite(path, pa.table([keys, data], names=["keys", "x" if change == "name" else "bitmaps"]))


@pytest.mark.parametrize("change", ["type", "set", "null set", "whole fragment", "name"])
def test_damaged_files_are_ignored(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    write(path, [["a", "b"], ["b"], None])
    build(path, "pylance")
    damaged(path, change)
    with caplog.at_level(logging.WARNING):
        assert rows(path, "array_has(l, 'a')") == [0]
        assert rows(path, "array_has_all(l, ['a', 'b'])") == [0]
    assert "is ignored" in caplog.text or change == "type"


def test_damaged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, lists(300, WORDS))
    build(path, "pylance")
    file = index_file(path)
    data = file.read_bytes()
    rng = random.Random(1)
    for _ in range(60):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(changed[: rng.choice([len(data), len(data), rng.randrange(len(data))])])
        CACHE.clear()
        with contextlib.suppress(LanceError):
            rows(path, "array_has_all(l, ['red', 'rare'])")
