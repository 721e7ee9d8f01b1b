"""The first rows of a task in an order, as ORDER BY with LIMIT asks for them.

The task reads only the columns of the order first, and then all columns of the rows that remain. It
reads a row number for each of them, so that few of a wide table's bytes are read.

Values are ordered as Spark orders them: NaN is the largest number and equals NaN, -0.0 equals 0.0,
strings and bytes are ordered by their unsigned bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.logical_types import EXTENSION_NAME
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.take_parts import take_parts
from lance_spark.scan.task import ScanTask
from lance_spark.table.paths import TablePaths

#: Rows that are collected before they are sorted, besides those that remain.
_COLLECTED_ROWS = 65_536
_SIGN = np.int64(2**63 - 1)
#: Columns of the first read, which may have any names in the table.
_ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class SortKey:
    """A top-level column by which rows are ordered."""

    field: Field
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class TopRows:
    """The first `count` rows by some keys, of which the first decides, then the second, and on."""

    keys: tuple[SortKey, ...]
    count: int

    def __post_init__(self) -> None:
        assert self.keys

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the keys, each once."""
        return tuple({key.field.id: key.field for key in self.keys}.values())

    def addresses(self, task: ScanTask, metrics: ScanMetrics) -> npt.NDArray[np.uint64]:
        """Return the addresses of the first rows of a task, in any order."""
        return _first_addresses(task, self, metrics)


class FirstRows(Protocol):
    """Chooses the first rows of a task by some columns."""

    @property
    def count(self) -> int:
        """How many rows of all tasks are wanted."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that are read of all rows."""

    def addresses(self, task: ScanTask, metrics: ScanMetrics) -> npt.NDArray[np.uint64]:
        """Return the addresses of the first rows of a task, and maybe of more, in any order."""


def can_order(field: Field) -> bool:
    """Return whether `SortKey` orders the stored values of a column."""
    if EXTENSION_NAME in field.metadata or field.name in row_meta.META_FIELDS:
        return False
    dtype = field.to_arrow().type
    return bool(
        pat.is_integer(dtype)
        or pat.is_floating(dtype)
        or pat.is_boolean(dtype)
        or pat.is_date32(dtype)
        or pat.is_decimal128(dtype)
        or pat.is_string(dtype)
        or pat.is_large_string(dtype)
        or (pat.is_timestamp(dtype) and dtype.unit == "us")
    )


def top_batches(task: ScanTask, top: FirstRows, metrics: ScanMetrics) -> Iterator[pa.RecordBatch]:
    """Yield at least the first rows of a task, in any order.

    Parameters
    ----------
    task : ScanTask
        Without the column `_rowoffset`.

    Raises
    ------
    CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
    """
    addresses = top.addresses(task, metrics)
    paths = TablePaths.open(task.uri, task.storage_options, task.base_paths)
    fragments = list({piece.fragment.id: piece.fragment for piece in task.slices}.values())
    rows = np.sort(addresses)
    for table in take_parts(paths, fragments, task.lance_schema, rows, None, metrics):
        yield from table.to_batches(max_chunksize=task.batch_size)


def _first_addresses(task: ScanTask, top: TopRows, metrics: ScanMetrics) -> npt.NDArray[np.uint64]:
    ids = [field.id for field in top.fields]
    columns = [ids.index(key.field.id) for key in top.keys]
    read = replace(task, lance_schema=Schema((*top.fields, row_meta.ROW_ADDRESS)))
    remaining = pa.Table.from_batches([], _keys_schema(read))
    collected: list[pa.RecordBatch] = []
    bound: pa.Scalar[Any] | None = None
    for batch in read.batches(metrics):
        part = pa.RecordBatch.from_arrays(batch.columns, schema=remaining.schema)
        if bound is not None:
            part = part.filter(_may_precede(part.column(columns[0]), bound, top.keys[0]))
        collected.append(part)
        if sum(part.num_rows for part in collected) >= max(_COLLECTED_ROWS, top.count):
            remaining = _first(remaining, collected, columns, top)
            collected = []
            if 0 < top.count == remaining.num_rows:
                bound = remaining.column(columns[0])[-1]
    remaining = _first(remaining, collected, columns, top)
    addresses: npt.NDArray[np.uint64] = remaining.column(_ADDRESS).to_numpy()
    return addresses


def _keys_schema(read: ScanTask) -> pa.Schema:
    types = read.schema.types
    fields = [pa.field(f"key {number}", dtype) for number, dtype in enumerate(types[:-1])]
    return pa.schema([*fields, pa.field(_ADDRESS, types[-1])])


def _first(
    remaining: pa.Table, collected: Sequence[pa.RecordBatch], columns: Sequence[int], top: TopRows
) -> pa.Table:
    """Return the first rows of all, in order."""
    table = pa.concat_tables([remaining, pa.Table.from_batches(collected, remaining.schema)])
    table = table.combine_chunks()
    order = sorted_rows([table.column(number) for number in columns], top.keys)[: top.count]
    return table.take(pa.array(order))


def sorted_rows(
    columns: Sequence[pa.ChunkedArray], keys: Sequence[SortKey]
) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows in the order of the keys, of which the first decides first.

    Rows with equal keys keep their order.
    """
    codes = []
    for column, key in zip(columns, keys, strict=True):
        codes += _codes(pa.concat_arrays(column.chunks or [pa.array([], column.type)]), key)
    # The last array decides first.
    return np.lexsort(codes[::-1])


def _codes(values: pa.Array, key: SortKey) -> list[npt.NDArray[Any]]:
    """Return integers in the order of the values, before them the place of nulls."""
    codes = _numbers(values)
    if key.descending:
        codes = ~codes
    if not values.null_count:
        return [codes]
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    codes[nulls] = 0
    return [nulls ^ key.nulls_first, codes]


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Return integers that are ordered as the values; anything for null."""
    dtype = values.type
    if pat.is_floating(dtype):
        floats = values.cast(pa.float64()).fill_null(0.0).to_numpy()
        # One zero and one NaN, whose bits are the largest.
        floats = np.where(np.isnan(floats), np.nan, floats + 0.0)
        bits = floats.view(np.int64)
        return bits ^ ((bits >> 63) & _SIGN)
    if pat.is_integer(dtype):
        integers: npt.NDArray[Any] = values.fill_null(0).to_numpy(zero_copy_only=False)
        return integers.copy()
    if pat.is_boolean(dtype):
        return _numbers(values.cast(pa.int8()))
    if pat.is_date32(dtype):
        return _numbers(values.view(pa.int32()))
    if pat.is_timestamp(dtype):
        return _numbers(values.view(pa.int64()))
    ranks: npt.NDArray[Any] = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _may_precede(values: pa.Array, bound: pa.Scalar[Any], key: SortKey) -> pa.Array:
    """Return which values are not after the last one of the first rows, by the first key."""
    if not bound.is_valid:
        if key.nulls_first:
            return values.is_null()
        return pa.repeat(True, len(values))
    if pat.is_float16(values.type):
        # Arrow does not compare half floats.
        values, bound = values.cast(pa.float32()), bound.cast(pa.float32())
    is_float = pat.is_floating(values.type)
    if key.descending:
        keep = pc.greater_equal(values, bound)
        if is_float:
            keep = pc.or_kleene(keep, pc.is_nan(values))
    elif is_float and np.isnan(bound.as_py()):
        # No number is greater. Nulls are after it or before it.
        return pa.repeat(True, len(values)) if key.nulls_first else values.is_valid()
    else:
        keep = pc.less_equal(values, bound)
    return keep.fill_null(key.nulls_first)
