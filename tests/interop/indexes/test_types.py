"""Tuples of comparisons on indexed columns of all types: the same rows as without an index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import UnsupportedTypeError

ROWS = np.arange(9_000)
WORDS = [f"{number:06}".encode() for number in ROWS.tolist()]
DECIMALS = pa.array(ROWS).cast(pa.decimal128(22, 2))
COLUMNS = {
    "bool": pa.array(ROWS % 2 == 0),
    "float16": pa.array((ROWS % 500).astype(np.float16)),
    "float32": pa.array(ROWS.astype(np.float32)),
    "decimal128": DECIMALS,
    "decimal256": DECIMALS.cast(pa.decimal256(40, 2)),
    "date32": pa.array(ROWS.astype(np.int32), pa.date32()),
    "date64": pa.array(ROWS * 86_400_000, pa.date64()),
    "time32": pa.array(ROWS.astype(np.int32), pa.time32("s")),
    "time64": pa.array(ROWS, pa.time64("us")),
    "duration": pa.array(ROWS, pa.duration("us")),
    "timestamp": pa.array(ROWS, pa.timestamp("ns")),
    "with_zone": pa.array(ROWS, pa.timestamp("us", "Europe/Berlin")),
    "fixed": pa.array(WORDS, pa.binary(6)),
    "binary": pa.array(WORDS),
    "large_binary": pa.array(WORDS, pa.large_binary()),
    "large_string": pa.array([word.decode() for word in WORDS], pa.large_string()),
    "uint8": pa.array((ROWS % 200).astype(np.uint8)),
    "uint64": pa.array(ROWS.astype(np.uint64)),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lance_spark.Dataset:
    path = tmp_path_factory.mktemp("types") / "t"
    return lance_spark.write_dataset(pa.table(COLUMNS), str(path), mode="create")


@pytest.mark.sample(8)
@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
@pytest.mark.parametrize("name", list(COLUMNS))
def test_each_type(table: lance_spark.Dataset, name: str, index_type: str) -> None:
    latest = lance_spark.open_dataset(table.uri)
    try:
        dataset = latest.create_scalar_index(name, index_type, name="index")
    except UnsupportedTypeError:
        assert index_type == "BLOOMFILTER"
        return
    low, high = (COLUMNS[name][row].as_py() for row in (77, 300))
    filters: list[list[tuple[Any, ...]]] = [
        [(name, "==", low)],
        [(name, "!=", low)],
        [(name, "<=", low)],
        [(name, ">=", high)],
        [(name, ">", low), (name, "<", high)],
        [(name, "in", [low, high])],
        [(name, "in", [])],
        [(name, "not in", [low])],
        [(name, "is_null", None)],
        [(name, "is_not_null", None)],
    ]
    for conditions in filters:
        expected = dataset.to_table([name], filters=conditions, use_scalar_index=False)
        assert dataset.to_table([name], filters=conditions).equals(expected), conditions
    dataset.drop_index("index")
