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
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import EXTENSION_NAME
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.take import take_parts
from lance_spark.scan.task import ScanTask
from lance_spark.table.paths import TablePaths

#: Rows that are collected before they are sorted, besides those that remain; fewer at first.
_COLLECTED_ROWS = 65_536
_FEW_ROWS = 4_096
_SIGN = np.int64(2**63 - 1)
#: Column of the numbers of collected rows, beside those of their keys.
_NUMBER = "number"


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

    - `task`: Without the column `_rowoffset`.

    Raises CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError.
    """
    addresses = top.addresses(task, metrics)
    paths = TablePaths.open(task.uri, task.storage_options, task.base_paths)
    fragments = list({piece.fragment.id: piece.fragment for piece in task.slices}.values())
    rows = np.sort(addresses)
    for table in take_parts(paths, fragments, task.lance_schema, rows, None, metrics):
        yield from table.to_batches(max_chunksize=task.batch_size)


class TopRowsCollector:
    """Collects the first rows by some keys, of batches that come one after the other.

    Rows with equal keys keep their order. Without a count, all rows are kept until the end.

    - `keys`: The first decides, then the second, and on.
    - `dtypes`: Of the keys.
    - `count`: How many rows are wanted.
    """

    def __init__(
        self, keys: Sequence[SortKey], dtypes: Sequence[pa.DataType], count: int | None
    ) -> None:
        self._keys, self._count = tuple(keys), count
        fields = [pa.field(f"key {number}", dtype) for number, dtype in enumerate(dtypes)]
        self._schema = pa.schema([*fields, pa.field(_NUMBER, pa.uint64())])
        self._remaining = pa.Table.from_batches([], self._schema)
        self._collected: list[pa.RecordBatch] = []
        self._num_collected = 0
        self._bound: pa.Scalar[Any] | None = None

    def add(self, values: Sequence[pa.Array], numbers: pa.Array) -> None:
        """Add rows: the values of each key, and numbers by which the caller knows the rows."""
        part = pa.RecordBatch.from_arrays([*values, numbers], schema=self._schema)
        if self._bound is None and self._count is not None:
            # The first rows of a few show which of the others need not be sorted.
            few = max(_FEW_ROWS, 2 * self._count)
            self._collect(part[:few], few)
            part = part[few:]
        self._collect(part, _COLLECTED_ROWS)

    def _collect(self, part: pa.RecordBatch, most: int) -> None:
        """Keep those of these rows that may be among the first; sort if so many rows are kept."""
        if self._bound is not None:
            part = part.filter(_may_precede(part.column(0), self._bound, self._keys[0]))
        self._collected.append(part)
        self._num_collected += part.num_rows
        if self._count is not None and self._num_collected >= max(most, self._count):
            table, order = self._first()
            self._remaining = table.take(pa.array(order))
            self._collected, self._num_collected = [], 0
            if 0 < self._count == self._remaining.num_rows:
                self._bound = self._remaining.column(0)[-1]

    def numbers(self) -> npt.NDArray[np.uint64]:
        """Return the numbers of the first rows, in order."""
        table, order = self._first()
        numbers: npt.NDArray[np.uint64] = table.column(_NUMBER).to_numpy()[order]
        return numbers

    def _first(self) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return all rows that are kept, and which of them are the first, in order."""
        collected = pa.Table.from_batches(self._collected, self._schema)
        table = pa.concat_tables([self._remaining, collected]).combine_chunks()
        return table, sorted_rows(table.columns[:-1], self._keys)[: self._count]


def _first_addresses(task: ScanTask, top: TopRows, metrics: ScanMetrics) -> npt.NDArray[np.uint64]:
    ids = [field.id for field in top.fields]
    columns = [ids.index(key.field.id) for key in top.keys]
    read = replace(task, lance_schema=Schema((*top.fields, row_meta.ROW_ADDRESS)))
    collector = TopRowsCollector(
        top.keys, [read.schema.types[column] for column in columns], top.count
    )
    for batch in read.batches(metrics):
        collector.add([batch.column(column) for column in columns], batch.column(len(ids)))
    return collector.numbers()


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
