"""Searches of a version together with the rows of its MemWAL, by vectors and by text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import LanceError, UnsupportedFeatureError
from lance_spark.file.json_columns import write_json
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes.search_task import OpenedRows
from lance_spark.indexes.text.scoring import Hits
from lance_spark.indexes.text.search import TextScanTask, TextSearch
from lance_spark.indexes.vectors.index_search import PostFilter
from lance_spark.indexes.vectors.neighbors import FlatSearch, Neighbors
from lance_spark.indexes.vectors.search import Passing, VectorScanTask, VectorSearch
from lance_spark.mem_wal.fresh.key_sets import KeySet
from lance_spark.mem_wal.fresh.scan import Unshadowed
from lance_spark.predicates.comparison import column_at
from lance_spark.predicates.conditions import Condition, matching, top_fields
from lance_spark.scan.fragment.column_reader import rows_without_columns
from lance_spark.scan.fragment.row_meta import (
    DISTANCE,
    QUERY_INDEX,
    ROW_ADDRESS,
    SCORE,
    SEARCH_FIELDS,
)
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.task import READ_AHEAD, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The rows of a MemWAL that a search looks at, or has found, as a table in memory.

#: Columns of a result that are not read.
_COMPUTED = {field.id for field in (*SEARCH_FIELDS, ROW_ADDRESS)}


@dataclass(frozen=True, slots=True)
class FreshTable:
    """Rows of SSTables and logs, with the columns of `read_fields`.

    - `rows`: In one piece.
    """

    fields: tuple[Field, ...]
    rows: pa.Table

    @classmethod
    def read(cls, tasks: Sequence[ScanTask], metrics: ScanMetrics) -> FreshTable:
        """Read the rows of tasks, which read the same columns."""
        first = tasks[0]
        batches = [batch for task in tasks for batch in task.batches(metrics)]
        rows = pa.Table.from_batches(batches, first.schema).combine_chunks()
        return cls(first.lance_schema.fields, rows)

    @classmethod
    def empty(cls, tasks: Sequence[ScanTask]) -> FreshTable:
        """Return a table without rows, with the columns that tasks read."""
        return cls(tasks[0].lance_schema.fields, tasks[0].schema.empty_table())

    def of(self, batch: pa.RecordBatch) -> FreshTable:
        """Return a table of other rows of the same columns."""
        return FreshTable(self.fields, pa.Table.from_batches([batch], self.rows.schema))

    def with_rows(self, added: FreshTable, chosen: npt.NDArray[np.bool_]) -> FreshTable:
        """Return some of the rows of this table and of another one after it."""
        rows = pa.concat_tables([self.rows, added.rows]).filter(pa.array(chosen))
        return FreshTable(self.fields, rows.combine_chunks())

    def values(self, path: Sequence[Field]) -> pa.Array | None:
        """Return a column that is searched, by the fields above it and its own; None without rows.

        JSON is as in pages, if the field says so.
        """
        if not self.rows.num_rows:
            return None
        (batch,) = self.rows.to_batches()
        (top,) = [field for field in self.fields if field.id == path[0].id]
        if top.has_json and not path[-1].has_json:
            position = self.fields.index(top)
            pages = write_json(batch.column(position), top, "rows of a MemWAL", 0)
            batch = pa.RecordBatch.from_arrays([pages], names=[top.name])
        return column_at(batch, [node.name for node in path])

    def meet(self, numbers: RowNumbers, conditions: tuple[Condition, ...]) -> npt.NDArray[np.bool_]:
        """Return which of some rows meet conditions."""
        chosen = self.rows.take(pa.array(numbers)).combine_chunks().to_batches()
        return matching(conditions, chosen[0]) if chosen else np.zeros(len(numbers), np.bool_)

    def columns(
        self, schema: Schema, numbers: RowNumbers, computed: Mapping[int, npt.NDArray[Any]]
    ) -> pa.Table:
        """Return the columns of the result of a search, of some rows; row addresses are null.

        - `computed`: The values of computed columns, by the ids of their fields.
        """
        taken = self.rows.take(pa.array(numbers))
        columns = []
        position = 0
        for field in schema.fields:
            if field.id in computed:
                columns.append(pa.chunked_array([pa.array(computed[field.id])]))
            elif field.id == ROW_ADDRESS.id:
                columns.append(pa.chunked_array([pa.nulls(len(numbers), pa.uint64())]))
            else:
                columns.append(taken.column(position))
                position += 1
        return pa.Table.from_arrays(columns, schema=schema.to_arrow())


def together(is_fresh: npt.NDArray[np.bool_], base: pa.Table, fresh: pa.Table | None) -> pa.Table:
    """Return rows of a version and of a MemWAL in one order.

    - `is_fresh`: Which rows of the result are of the MemWAL.
    - `base`, `fresh`: The rows of each, in their order.
    """
    if fresh is None:
        return base
    places = np.empty(len(is_fresh), np.int64)
    places[~is_fresh] = np.arange(base.num_rows)
    places[is_fresh] = base.num_rows + np.arange(fresh.num_rows)
    return pa.concat_tables([base, fresh]).take(pa.array(places))


def read_fields(
    schema: Schema, searched: Iterable[Field], after: tuple[Condition, ...]
) -> tuple[Field, ...]:
    """Return the columns to read of rows of a MemWAL: those of the result come first.

    - `schema`: Of the result of the search.
    - `searched`: The top-level columns that are searched.
    - `after`: Conditions on the rows that are found.

    Raises UnsupportedFeatureError: a condition after the search is about JSON.
    """
    fields = [field for field in schema.fields if field.id not in _COMPUTED]
    for field in top_fields(after):
        if field.has_json:
            raise UnsupportedFeatureError(
                f"column {field.name!r}: a condition on JSON after a search is not supported in a "
                "fresh read; let the condition choose which rows are searched (prefilter)"
            )
    # Searched columns, and those of conditions, as a whole: a column of the result may have some of
    # their children only.
    wanted = {field.id: field for field in fields}
    for field in (*searched, *top_fields(after)):
        if wanted.get(field.id, field) != field:
            raise UnsupportedFeatureError(
                f"column {field.name!r}: a search of a fresh read needs the whole column; name it, "
                "and not its children"
            )
        wanted.setdefault(field.id, field)
    return tuple(wanted.values())


# --------------------------------------------------------------------------------------------------
# The task of a vector search of a version and of the rows of its MemWAL.
#
# The version is searched as without MemWAL, but for hidden rows. An index finds some rows more than
# are wanted, of which only the keys are read. If too few of them are not hidden, the keys of all
# rows are read, and the index is searched again without hidden rows; also if it has graphs, which
# would find other rows.
#
# All vectors of SSTables and logs are measured, in batches of which only the nearest rows are kept.
# If there are any, the rows that an index finds are measured again, so that all distances can be
# compared.

#: The key of one of so many rows costs as much as the keys of all of them.
_ALL_FOR_ONE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshNearestTask(VectorScanTask):
    """A task that searches fragments, and rows of a MemWAL.

    `prefilter` is `Unshadowed` if rows of the version are hidden.

    - `fresh`: Read the columns of `read_fields` of rows of the MemWAL.
    - `after`: Conditions on the rows that are found.
    """

    fresh: tuple[ScanTask, ...]
    after: tuple[Condition, ...] = ()

    @classmethod
    def of(
        cls, base: VectorScanTask, fresh: tuple[ScanTask, ...], after: tuple[Condition, ...]
    ) -> Self:
        """Return the task of a search of a version, and of rows of its MemWAL.

        - `base`: Without conditions after the search.
        """
        inherited = {field.name: getattr(base, field.name) for field in fields(VectorScanTask)}
        return cls(**inherited, fresh=fresh, after=after)

    @property
    def most_rows(self) -> int:
        """Most rows that the task finds."""
        rows = self.search.num_rows + sum(self.search.uncovered.values()) + self._num_fresh
        return min(self.search.query.k, rows) * self.search.num_queries

    @property
    def num_measured(self) -> int:
        """About how many vectors the task measures."""
        # `super()` without arguments does not work in a dataclass with slots.
        base = super(FreshNearestTask, self).num_measured
        return base + self._num_fresh * self.search.num_queries

    @property
    def _num_fresh(self) -> int:
        return sum(task.num_rows for task in self.fresh)

    def further_shares(self) -> list[VectorScanTask]:
        """Return the tasks of the rows that no share of the search has."""
        search = replace(self.search, segments=(), covered=BitMap(), uncovered={})
        return [replace(self, search=search, slices=())] if self.fresh else []

    def share(self, search: VectorSearch) -> VectorScanTask:
        """Return the task of a share of the search, without rows of the MemWAL."""
        return super(FreshNearestTask, replace(self, fresh=())).share(search)

    def nearest_rows(
        self, metrics: ScanMetrics, table: OpenedRows, limit: int | None = None
    ) -> pa.Table:
        """Return the nearest rows, by query and distance."""
        base_neighbors = self.neighbors(metrics, table)
        fresh, measured = self._nearest_fresh(metrics) if self.fresh else (None, Neighbors.none())
        # Rows of the version are numbered before those of the MemWAL.
        numbers = np.arange(len(base_neighbors) + len(measured), dtype=np.uint64)
        best = Neighbors(
            np.concatenate([base_neighbors.queries, measured.queries]),
            np.concatenate([base_neighbors.distances, measured.distances]),
            numbers,
            numbers,
        ).best(self.search.query.k)
        order = best.ids.astype(np.int64)
        is_fresh = order >= len(base_neighbors)
        from_base = base_neighbors.at(order[~is_fresh])
        from_fresh = measured.at(order[is_fresh] - len(base_neighbors))
        if self.after:
            slices = self._slices(np.unique(from_base.addresses))
            passing = self._addresses(metrics, table, slices, self.after)
            keep = np.zeros(len(order), np.bool_)
            keep[~is_fresh] = np.isin(from_base.addresses, passing)
            if fresh is not None:
                keep[is_fresh] = fresh.meet(from_fresh.ids.astype(np.int64), self.after)
            from_base = from_base.at(keep[~is_fresh])
            from_fresh = from_fresh.at(keep[is_fresh])
            is_fresh = is_fresh[keep]
        base = self.rows(from_base, metrics, table)
        if fresh is None:
            return base.slice(0, limit)
        computed = {DISTANCE.id: from_fresh.distances, QUERY_INDEX.id: from_fresh.queries}
        numbers_of_fresh = from_fresh.ids.astype(np.int64)
        own = fresh.columns(self.lance_schema, numbers_of_fresh, computed)
        return together(is_fresh, base, own).slice(0, limit)

    def batches(
        self, metrics: ScanMetrics | None = None, *, prefetch: bool = READ_AHEAD
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `ScanTask.batches`."""
        metrics = ScanMetrics() if metrics is None else metrics
        if not self.lance_schema.fields:
            counted = replace(self, lance_schema=Schema((DISTANCE,)))
            for batch in counted.batches(metrics, prefetch=prefetch):
                yield batch.select([])
            return
        rows = self.nearest_rows(metrics, self.opened())
        yield from rows.combine_chunks().to_batches(self.batch_size)

    def _passing(
        self, metrics: ScanMetrics, table: OpenedRows, fragments: Sequence[Fragment]
    ) -> Passing:
        """Return which rows meet the prefilter; whether they are hidden is looked up later."""
        # `super()` without arguments does not work in a dataclass with slots.
        every = partial(super(FreshNearestTask, self)._passing, metrics, table, fragments)
        (unshadowed,) = self.prefilter if len(self.prefilter) == 1 else (None,)
        is_known = self.passing is not None
        if is_known or not isinstance(unshadowed, Unshadowed) or unshadowed.keys is None:
            return every()
        others = replace(self, prefilter=unshadowed.conditions)
        try:
            addresses, _ = super(FreshNearestTask, others)._passing(metrics, table, fragments)
        except LanceError:
            # The value of a hidden row may have caused the error.
            return every()
        num_rows = sum(fragment.physical_rows for fragment in fragments)
        meet = partial(self._are_visible, metrics, table, unshadowed.keys, num_rows)
        return addresses, PostFilter(meet, lambda: every()[0])

    def _are_visible(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        keys: KeySet,
        num_rows: int,
        addresses: UInt64Array,
    ) -> npt.NDArray[np.bool_] | None:
        """Return which of some rows have none of some keys; None if they are many of all rows."""
        unique, places = np.unique(addresses, return_inverse=True)
        if not len(unique):
            return np.ones(len(addresses), np.bool_)
        if len(unique) * _ALL_FOR_ONE > num_rows:
            return None
        columns = Schema.of_paths(keys.paths)
        (rows,) = self._take(table, columns, unique, metrics).combine_chunks().to_batches()
        return ~keys.has(rows)[places]

    def _nearest_fresh(self, metrics: ScanMetrics) -> tuple[FreshTable, Neighbors]:
        """Return the nearest rows of the MemWAL; ids are the numbers of rows in the table."""
        search, query = self.search, self.search.query
        vectors = search.dtype.query(query.vectors, search.metric)
        bounds = query.lower_bound, query.upper_bound
        flat = FlatSearch(search.dtype, search.metric, vectors, query.k, *bounds)
        near = FreshTable.empty(self.fresh)
        numbers = np.empty(0, np.uint64)
        count = 0
        for batch in (batch for task in self.fresh for batch in task.batches(metrics)):
            own = np.arange(count, count + batch.num_rows, dtype=np.uint64)
            count += batch.num_rows
            added = near.of(batch)
            column = added.values(search.path)
            if column is None:
                continue
            flat.add(column, own, own)
            # Further rows need no memory.
            numbers = np.concatenate([numbers, own])
            is_near = np.isin(numbers, flat.neighbors().ids)
            numbers, near = numbers[is_near], near.with_rows(added, is_near)
        neighbors = flat.neighbors()
        places = np.searchsorted(numbers, neighbors.ids).astype(np.uint64)
        return near, Neighbors(neighbors.queries, neighbors.distances, places, places)


# --------------------------------------------------------------------------------------------------
# The task of a full-text search of a version and of the rows of its MemWAL.
#
# Rows of SSTables and logs are scored as rows of the table that no index covers: by the statistics
# of the index, and of all rows without an index. So a search finds the same rows, with the same
# scores, before and after a compaction. The Rust library of pylance 14 has a search that scores the
# rows of each SSTable by statistics of their own; pylance does not offer it in Python.
#
# These rows have no addresses. The search numbers them as rows of a fragment that no table has.

#: The fragment of the rows of a MemWAL.
_FRAGMENT = 2**32 - 1
_FIRST = np.uint64(_FRAGMENT << 32)


def with_fresh_rows(search: TextSearch, num_rows: int) -> TextSearch:
    """Return a search that also searches rows of a MemWAL."""
    columns = {
        name: replace(plan, uncovered={**plan.uncovered, _FRAGMENT: num_rows})
        for name, plan in search.columns.items()
    }
    return replace(search, columns=columns)


def has_fresh_rows(search: TextSearch) -> bool:
    """Return whether a search, or a share of it, searches rows of a MemWAL."""
    return any(_FRAGMENT in plan.uncovered for plan in search.columns.values())


# `cached_property` needs an attribute dictionary.
@dataclass(frozen=True, kw_only=True)
class FreshTextTask(TextScanTask):
    """A task that searches fragments, and rows of a MemWAL.

    - `keys`: Rows of the version with these keys are hidden.
    - `fresh`: Read the columns of `read_fields` of rows of the MemWAL.
    - `after`: Those of the filters that rows of `fresh` need not meet.
    """

    keys: KeySet | None
    fresh: tuple[ScanTask, ...]
    after: tuple[Condition, ...] = ()

    @classmethod
    def of(
        cls,
        base: TextScanTask,
        keys: KeySet | None,
        fresh: tuple[ScanTask, ...],
        after: tuple[Condition, ...],
    ) -> Self:
        """Return the task of a search of a version, and of rows of its MemWAL."""
        inherited = {field.name: getattr(base, field.name) for field in fields(TextScanTask)}
        return cls(**inherited, keys=keys, fresh=fresh, after=after)

    def _rows(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> pa.Table:
        is_fresh = hits.addresses >= _FIRST
        base = self._taken(_part(hits, ~is_fresh), metrics, table)
        return together(is_fresh, base, self._fresh_rows(_part(hits, is_fresh)))

    @property
    def _searched_fragments(self) -> list[Fragment]:
        own = Fragment(_FRAGMENT, (), sum(task.num_rows for task in self.fresh))
        return [*self._fragments, own] if self.fresh else self._fragments

    @cached_property
    def _table(self) -> FreshTable:
        return FreshTable.read(self.fresh, ScanMetrics())

    def _document_filters(self) -> tuple[Condition, ...]:
        return (Unshadowed(self.keys, conditions=super()._document_filters()),)

    def _filtered(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> Hits:
        is_fresh = hits.addresses >= _FIRST
        base = super()._filtered(_part(hits, ~is_fresh), metrics, table)
        fresh = self._meeting(_part(hits, is_fresh))
        return Hits(
            np.concatenate([base.addresses, fresh.addresses]),
            np.concatenate([base.scores, fresh.scores]),
        )

    def _batches_of(
        self,
        hits: Hits,
        filters: tuple[Condition, ...],
        metrics: ScanMetrics,
        table: OpenedRows,
        *,
        prefetch: bool = READ_AHEAD,
    ) -> Iterator[pa.RecordBatch]:
        is_fresh = hits.addresses >= _FIRST
        base, fresh = _part(hits, ~is_fresh), _part(hits, is_fresh)
        yield from super()._batches_of(base, filters, metrics, table, prefetch=prefetch)
        if filters:
            fresh = self._meeting(fresh)
        if not self.lance_schema.fields:
            yield rows_without_columns(len(fresh.addresses))
            return
        rows = self._fresh_rows(fresh)
        if rows is not None:
            yield from rows.combine_chunks().to_batches(self.batch_size)

    def _read_texts(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        path: tuple[Field, ...],
        fragments: Sequence[Fragment],
        addresses: UInt64Array,
    ) -> Iterator[tuple[pa.Array, UInt64Array]]:
        others = [fragment for fragment in fragments if fragment.id != _FRAGMENT]
        if others or len(addresses):
            yield from super()._read_texts(metrics, table, path, others, addresses)
        if len(others) < len(fragments):
            texts = self._table.values(path)
            if texts is not None:
                yield texts, _FIRST + np.arange(len(texts), dtype=np.uint64)

    def _meeting(self, fresh: Hits) -> Hits:
        """Return the rows of the MemWAL that meet the filters."""
        if not self.after or not len(fresh.addresses):
            return fresh
        return _part(fresh, self._table.meet(_numbers(fresh), self.after))

    def _fresh_rows(self, fresh: Hits) -> pa.Table | None:
        """Return the columns of rows of the MemWAL."""
        if not len(fresh.addresses):
            return None
        scores = {SCORE.id: fresh.scores.astype(np.float32)}
        return self._table.columns(self.lance_schema, _numbers(fresh), scores)


def _part(hits: Hits, flags: npt.NDArray[np.bool_]) -> Hits:
    return Hits(hits.addresses[flags], hits.scores[flags])


def _numbers(fresh: Hits) -> npt.NDArray[np.int64]:
    return (fresh.addresses - _FIRST).astype(np.int64)
