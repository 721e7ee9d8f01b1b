"""The rows as Lance tables, of every file version, and as Parquet, which Spark reads by itself.

Tables have several fragments with deleted rows, small pages where the version takes them, and zone
maps of a few rows, so that statistics rule rows out. What a file version does not store (nulls in
0.1) pylance tells: Parquet has what it reads. Parquet has no type of intervals: it has their
microseconds, which Spark reads as intervals by the schema that it is given.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat
from pyspark.sql.types import DayTimeIntervalType

from tests.interop.predicates.columns import DEEP, INNER, MAP, OPAQUE, PLAIN, deep_values, values_of
from tests.interop.predicates.sessions import TIME, silent_settings
from tests.support.spark.versions import HAS_TIME

VERSIONS = ("2.2", "2.1", "2.0", "0.1")
ROWS = 230
_FRAGMENT = 70
_DELETED = "row % 9 = 4 or (row > 100 and row < 112)"
#: The columns of this family get a zone map.
_INDEXED = ("integer", "float", "decimal", "text", "day", "instant", "clock", "hours", "span")


@dataclass(frozen=True)
class Table:
    """A Lance table, and a view of Parquet with the same rows.

    Attributes
    ----------
    version : str
        Of the files.
    path : Path
    view : str
    rows : frozenset of int
        Values of the column `row` that are not deleted.
    names : frozenset of str
        Names of the columns.
    """

    version: str
    path: Path
    view: str
    rows: frozenset[int]
    names: frozenset[str]


def rows(version: str, seed: int = 21) -> pa.Table:
    """Return the rows for the writer of a version."""
    rng = random.Random(seed)
    nulls = 0.0 if version == "0.1" else 0.12
    columns: dict[str, Any] = {"row": pa.array(range(ROWS), pa.int32())}
    for name, dtype, choices, family in PLAIN:
        if (version == "0.1" and name == "d38_38") or (family == "hours" and not HAS_TIME):
            continue
        columns[name] = _array(values_of(rng, choices, ROWS, nulls), dtype)
    for name, dtype, choices in [*OPAQUE, *([MAP] if version == "2.2" else [])]:
        columns[name] = pa.array(values_of(rng, choices, ROWS, nulls), dtype)
    deep = deep_values(rng, ROWS)
    if version in ("0.1", "2.0"):
        # These versions cannot store a struct that is null.
        empty = {"x": None, "Text": None, "f": None, "in ner": None}
        deep = [value or empty for value in deep]
        for value in deep:
            value["in ner"] = value["in ner"] or dict.fromkeys(INNER.names)
    columns["deep"] = pa.array(deep, DEEP)
    return pa.table(columns)


def _array(values: list[Any], dtype: pa.DataType) -> pa.Array:
    if pat.is_float16(dtype):
        return pa.array([None if value is None else np.float16(value) for value in values], dtype)
    if pat.is_duration(dtype):
        # Arrow accepts no `timedelta` as long as its own longest duration.
        micros = [
            None if value is None else value // dt.timedelta(microseconds=1) for value in values
        ]
        return pa.array(micros, pa.int64()).cast(pa.duration("us")).cast(dtype)
    if pat.is_dictionary(dtype):
        return pa.array(values, dtype.value_type).dictionary_encode().cast(dtype)
    return pa.array(values, dtype)


def write(version: str, folder: Path) -> Path:
    """Write a table with pylance, and return its path."""
    path = folder / f"v{version.replace('.', '_')}.lance"
    table = rows(version)
    lance.write_dataset(
        table,
        str(path),
        data_storage_version=version,
        max_rows_per_file=_FRAGMENT,
        max_rows_per_group=16,
    )
    dataset = lance.dataset(str(path))
    if version != "0.1":
        for name, _, _, family in PLAIN:
            if family in _INDEXED:
                _index(dataset, name)
    lance.dataset(str(path)).delete(_DELETED)
    return path


def _index(dataset: lance.LanceDataset, name: str) -> None:
    try:
        dataset.create_scalar_index(name, "ZONEMAP", rows_per_zone=16)
    except (ValueError, OSError, NotImplementedError, RuntimeError):
        # Types for which pylance makes no zone map.
        return


def as_spark_reads(table: pa.Table) -> pa.Table:
    """Return rows with the types that Spark reads; see docs/reference/types.md."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        dtype = column.type
        wider = {
            pa.uint8(): pa.int16(),
            pa.uint16(): pa.int32(),
            pa.uint32(): pa.int64(),
            pa.uint64(): pa.int64(),
            pa.float16(): pa.float32(),
            pa.date64(): pa.date32(),
            pa.large_string(): pa.string(),
        }.get(dtype)
        if pat.is_dictionary(dtype):
            wider = dtype.value_type
        elif pat.is_timestamp(dtype):
            wider = pa.timestamp("us", dtype.tz)
        elif pat.is_time(dtype):
            wider = pa.time64("us")
        elif pat.is_duration(dtype):
            wider = pa.duration("us")
        elif pat.is_fixed_size_binary(dtype):
            wider = pa.binary()
        elif pat.is_fixed_size_list(dtype):
            wider = pa.list_(dtype.value_type)
        columns[name] = column if wider is None else column.cast(wider)
    return pa.table(columns)


def _write_parquet(table: pa.Table, path: str) -> None:
    """Write rows with durations as their microseconds."""
    for index, field in enumerate(table.schema):
        if pat.is_duration(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
    pq.write_table(table, path)


def make(spark: Any, version: str, folder: Path) -> Table:
    """Write a table of a version, and make a view of the same rows."""
    path = write(version, folder)
    stored = lance.dataset(str(path)).to_table()
    view = f"rows_{version.replace('.', '_')}"
    parquet = str(folder / f"{view}.parquet")
    _write_parquet(as_spark_reads(stored), parquet)
    with silent_settings(spark, {TIME: "true"}):
        schema = spark.read.parquet(parquet).schema
        for field in schema:
            if pat.is_duration(stored.schema.field(field.name).type):
                field.dataType = DayTimeIntervalType()
        # Cache the rows: opening files costs more than the rows.
        frame = spark.read.schema(schema).parquet(parquet)
        frame.coalesce(1).cache().createOrReplaceTempView(view)
    numbers = frozenset(stored["row"].to_pylist())
    return Table(version, path, view, numbers, frozenset(stored.column_names))
