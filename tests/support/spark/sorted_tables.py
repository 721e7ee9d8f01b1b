"""A sorted table, and what is known of its order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark import LanceTable, open_dataset
from lance_spark.dataset.dataset import Dataset
from lance_spark.spark.read.estimate import reported_order
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.table.sort_order import order_of

ROWS = 4_000

ADDED = pa.table({"id": pa.array([7, None], pa.int32()), "word": ["w", "x"], "value": [0.1, 0.2]})


def write_sorted(spark: Any, path: Path) -> None:
    """Write rows in the order of `id` and `word`, with nulls and repeated values, in four fragments.

    Version 1 is not sorted.
    """
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 2_000, ROWS).astype(np.int32)
    keys = pa.array(ids, mask=rng.random(ROWS) < 0.01)
    words = pa.array([f"w{number % 97}" for number in range(ROWS)])
    rows = pa.table({"id": keys, "word": words, "value": rng.random(ROWS)})
    lance.write_dataset(rows, path, max_rows_per_file=1_500, data_storage_version="2.1")
    table = LanceTable.forPath(spark, str(path))
    table.optimize(sort_by=["id", "word"], target_rows_per_fragment=1_000)


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def order_in(frame: Any) -> str | None:
    """Return the order that EXPLAIN shows for the scan."""
    text = plan_of(frame)
    return text.partition("ordered=[")[2].partition("]")[0] if "ordered=[" in text else None


def recorded(path: Path | Dataset) -> tuple[int, ...]:
    """Return the ids of the columns by which the newest version is sorted."""
    dataset = path if isinstance(path, Dataset) else open_dataset(str(path))
    return tuple(column.field for column in order_of(dataset._table.manifest.message))


def reported(dataset: Dataset) -> list[str]:
    """Return the columns by which a scan of all columns is reported to be sorted."""
    table = dataset._table
    wanted = to_spark_schema(dataset.schema)
    order = reported_order(table.manifest.message, table.schema.fields, wanted)
    return [".".join(item.path) for item in order]


def is_in_order(dataset: Dataset, name: str) -> bool:
    values = dataset.to_table([name])[name].fill_null(-1)
    return bool(values.equals(values.take(pc.sort_indices(values))))
