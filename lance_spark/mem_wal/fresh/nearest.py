"""The task of a vector search of a version and of the rows of its MemWAL.

The version is searched as without MemWAL, but for hidden rows. An index finds some rows more than
are wanted, of which only the keys are read. If too few of them are not hidden, the keys of all rows
are read, and the index is searched again without hidden rows; also if it has graphs, which would
find other rows.

All vectors of SSTables and logs are measured, in batches of which only the nearest rows are kept.
If there are any, the rows that an index finds are measured again, so that all distances can be
compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import LanceError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.fresh.found_rows import FreshTable, together
from lance_spark.mem_wal.fresh.key_sets import KeySet
from lance_spark.mem_wal.fresh.tasks import Unshadowed
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.search_task import OpenedRows
from lance_spark.scan.task import READ_AHEAD, ScanTask
from lance_spark.scan.vectors.flat import FlatSearch
from lance_spark.scan.vectors.index_search import PostFilter
from lance_spark.scan.vectors.neighbors import Neighbors
from lance_spark.scan.vectors.search import Passing, VectorSearch
from lance_spark.scan.vectors.task import VectorScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import UInt64Array

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
