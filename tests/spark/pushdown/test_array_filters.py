"""Searches of arrays: a table with indexes gives the rows of Parquet, and the scan filters."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lance_spark
from tests.spark.pushdown.test_rule import checks_filters, request_of, rows_of
from tests.support.spark.metrics import counted
from tests.support.spark.versions import SPARK

ROWS = 4000
PARTS = pa.list_(pa.struct([("k", pa.int32())]))
VECTOR = pa.list_(pa.float32(), 2)
#: Spark 4.0 passes filters as predicates of its connector interface, which have no arrays.
PASSES_ARRAYS = SPARK >= (4, 1)
#: Conditions that the scan evaluates.
PUSHED = [
    "array_contains(words, 'rare')",
    "array_contains(words, 'b') and array_contains(words, 'rare')",
    "not array_contains(words, 'b')",
    "arrays_overlap(words, array('rare', 'never'))",
    "arrays_overlap(array('rare', null), words)",
    "not arrays_overlap(words, array())",
    "not arrays_overlap(words, array('a', 'b', 'c'))",
    "array_contains(numbers, 7) or array_contains(words, 'rare')",
    "array_contains(floats, double('NaN'))",
    "array_contains(floats, -0.0D)",
    "arrays_overlap(floats, array(0.0D, 5.5D))",
    "array_contains(vector, 3F)",
    "array_contains(inner.words, 'rare')",
    "array_contains(days, date'1970-01-03')",
]
#: Conditions that stay with Spark.
RETURNED = [
    "arrays_overlap(words, array()) is null",
    "array_contains(words, 'rare') is null",
    "array_contains(numbers, 7L)",
    "array_contains(numbers, id)",
    "arrays_overlap(numbers, array(id))",
    "array_contains(parts, named_struct('k', 1))",
    "array_contains(array(1, 2, 3), id)",
]


def rows() -> pa.Table:
    rng = random.Random(4)

    def lists(items: list[Any], rare: Any) -> list[Any]:
        return [
            None
            if rng.random() < 0.1
            else [rare if rng.random() < 0.005 else rng.choice(items) for _ in range(number % 4)]
            for number in range(ROWS)
        ]

    words = pa.array([["once"], *lists(["a", "b", "c", None], "rare")[1:]], pa.list_(pa.string()))
    vectors = lists([[1.0, 2.0], [None, 0.0]], [3.0, 4.0])
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int32()),
            "words": words,
            "numbers": pa.array(lists([1, 2, None], 7), pa.list_(pa.int32())),
            "floats": pa.array(lists([1.5, -0.0, None], float("nan")), pa.list_(pa.float64())),
            "days": pa.array(lists([0, 1, None], 2), pa.list_(pa.date32())),
            "parts": pa.array(lists([{"k": 1}, {"k": None}], None), PARTS),
            "inner": pa.StructArray.from_arrays([words], ["words"]),
            "vector": pa.array([value[0] if value else None for value in vectors], VECTOR),
        }
    )


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("arrays")
    table = rows()
    # A cast would keep the items of null lists, which not every pyarrow can write to Parquet.
    vectors = pa.array(table["vector"].to_pylist(), pa.list_(pa.float32()))
    plain = table.set_column(table.schema.get_field_index("vector"), "vector", vectors)
    pq.write_table(plain, f"{folder}/t.parquet")
    for name in ("plain", "indexed"):
        lance.write_dataset(table, f"{folder}/{name}.lance", max_rows_per_file=900)
    dataset = lance_spark.open_dataset(f"{folder}/indexed.lance")
    for column in ("words", "numbers", "floats", "days", "inner.words"):
        dataset = dataset.create_scalar_index(column, "LABEL_LIST")
    return {name: str(folder / name) for name in ("plain.lance", "indexed.lance", "t.parquet")}


@pytest.fixture(params=["plain.lance", "indexed.lance"])
def frames(
    request: pytest.FixtureRequest, spark: Any, pushdown: Callable[..., None], paths: dict[str, str]
) -> tuple[Any, Any]:
    """The table with push-down, and Parquet."""
    pushdown(True)
    table = spark.read.format("lance").load(paths[request.param])
    return table, spark.read.parquet(paths["t.parquet"])


@pytest.mark.sample(8)
@pytest.mark.parametrize("condition", [*PUSHED, *RETURNED])
def test_rows_are_those_of_parquet(frames: tuple[Any, Any], condition: str) -> None:
    query, expected = (frame.where(condition).select("id", "words") for frame in frames)
    assert rows_of(query) == rows_of(expected)
    is_pushed = PASSES_ARRAYS and condition in PUSHED
    assert checks_filters(query) is not is_pushed
    if is_pushed:
        assert request_of(query)["filters"] != "[]"


@pytest.mark.skipif(not PASSES_ARRAYS, reason="Spark 4.0 evaluates filters of arrays itself")
def test_the_index_narrows_the_scan(
    spark: Any, pushdown: Callable[..., None], paths: dict[str, str]
) -> None:
    pushdown(True)
    frames = [
        spark.read.format("lance").load(paths[f"{name}.lance"]) for name in ("plain", "indexed")
    ]
    skipped = []
    for frame in frames:
        query = frame.where("array_contains(words, 'once')").select("id")
        assert rows_of(query) == ["Row(id=0)"]
        skipped += counted(query, "numFragmentsSkipped")
    assert skipped == [0, 4]


def test_options_and_changes(
    spark: Any, pushdown: Callable[..., None], paths: dict[str, str], tmp_path: Path
) -> None:
    pushdown(True)
    condition = "array_contains(words, 'rare')"
    expected = rows_of(spark.read.parquet(paths["t.parquet"]).where(condition).select("id"))
    reader = spark.read.format("lance").option("filter", condition)
    assert rows_of(reader.load(paths["indexed.lance"]).select("id")) == expected
    path = str(tmp_path / "t.lance")
    lance_spark.open_dataset(paths["indexed.lance"]).deep_clone(path)
    lance_spark.open_dataset(path).delete(condition)
    kept = spark.read.format("lance").load(path)
    assert kept.count() == ROWS - len(expected)
    assert kept.where(condition).count() == 0
