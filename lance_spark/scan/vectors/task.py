"""The task of a vector search: the nearest rows, with the column `_distance`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blob_sizes import cut_by_bytes
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.search_task import OpenedRows, SearchTask
from lance_spark.scan.take import take_addresses
from lance_spark.scan.task import READ_AHEAD, FragmentSlice
from lance_spark.scan.vectors.neighbors import Neighbors
from lance_spark.scan.vectors.search import Passing, VectorRows, VectorSearch
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import UInt64Array

_ADDRESS = row_meta.ROW_ADDRESS
#: Rows of a batch of vectors: whole windows.
_BATCH_ROWS = 1 << 20
#: Most rows for which the driver evaluates a prefilter, and bytes of the rows that it sends.
_PREFILTERED_ROWS = 1 << 22
_PASSING_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorScanTask(SearchTask):
    """A task that reads the nearest rows of each query, the nearest first.

    `slices` are the rows of the fragments of the search that can meet the prefilter. `lance_schema`
    has `DISTANCE` and `QUERY_INDEX` if they are wanted. The nearest rows have to meet `filters`.

    Attributes
    ----------
    search : VectorSearch
    prefilter : tuple of Condition
        Only rows that meet these are searched.
    passing : RowSet or None
        The rows of the covered fragments that meet the prefilter, if it has been evaluated.
    """

    search: VectorSearch
    prefilter: tuple[Condition, ...] = ()
    passing: RowSet | None = None

    @property
    def most_rows(self) -> int:
        """Most rows that the task finds."""
        return self.search.most_rows

    @property
    def num_measured(self) -> int:
        """About how many vectors the task measures."""
        if self.search.segments:
            return self.search.cost
        # The task may have a part of the rows.
        return sum(piece.num_rows for piece in self.slices) * self.search.num_queries

    def further_shares(self) -> list[VectorScanTask]:
        """Return the tasks of rows that no share of the search has."""
        return []

    def share(self, search: VectorSearch) -> VectorScanTask:
        """Return the task of a share of the search."""
        numbers = search.fragments
        slices = tuple(piece for piece in self.slices if piece.fragment.id in numbers)
        passing = None
        if self.passing is not None and search.segments:
            passing = self.passing.of_fragments(numbers)
        return replace(self, search=search, slices=slices, passing=passing)

    def with_passing(self) -> VectorScanTask:
        """Evaluate the prefilter, so that the shares of a segment do not do it again.

        Returns the same task if that reads too many rows, or leaves too many.
        """
        slices = [piece for piece in self.slices if piece.fragment.id in self.search.covered]
        if sum(piece.num_rows for piece in slices) > _PREFILTERED_ROWS:
            return self
        passing = RowSet.of(self._addresses(ScanMetrics(), self.opened(), slices, self.prefilter))
        is_small = len(passing.encode()) <= _PASSING_BYTES
        return replace(self, passing=passing) if is_small else self

    def neighbors(self, metrics: ScanMetrics, table: OpenedRows) -> Neighbors:
        """Return the nearest rows, those that do not meet `filters` left out.

        Parameters
        ----------
        metrics : ScanMetrics
            Counts what is read of the table.
        table : OpenedRows
            At least the rows of the fragments.

        Raises
        ------
        As `VectorSearch.neighbors`.
        """
        rows = VectorRows(
            paths=table.paths,
            fragments=self._fragments,
            find_rows=table.find,
            read_vectors=partial(self._read_vectors, metrics, table),
            passing=partial(self._passing, metrics, table),
        )
        neighbors = self.search.neighbors(rows)
        if not self.filters or not len(neighbors):
            return neighbors
        slices = self._slices(np.unique(neighbors.addresses))
        passing = self._addresses(metrics, table, slices, self.filters)
        return neighbors.at(np.isin(neighbors.addresses, passing))

    def nearest_rows(
        self, metrics: ScanMetrics, table: OpenedRows, limit: int | None = None
    ) -> pa.Table:
        """Return the columns of the nearest rows, by query and distance."""
        neighbors = self.neighbors(metrics, table)
        return self.rows(neighbors if limit is None else neighbors.at(slice(limit)), metrics, table)

    def rows(self, neighbors: Neighbors, metrics: ScanMetrics, table: OpenedRows) -> pa.Table:
        """Return the columns of rows that were found, in their order."""
        computed: dict[int, npt.NDArray[Any]] = {
            DISTANCE.id: neighbors.distances,
            QUERY_INDEX.id: neighbors.queries,
            _ADDRESS.id: neighbors.addresses,
            row_meta.ROW_ID.id: neighbors.ids,
        }
        fields = self.lance_schema.fields
        read = replace(
            self.lance_schema, fields=tuple(field for field in fields if field.id not in computed)
        )
        if read.fields:
            taken = self._take(table, read, neighbors.addresses, metrics)
        columns = []
        for field in fields:
            if field.id in computed:
                columns.append(pa.chunked_array([pa.array(computed[field.id])]))
            else:
                columns.append(taken.column(read.fields.index(field)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def batches(
        self, metrics: ScanMetrics | None = None, *, prefetch: bool = READ_AHEAD
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `ScanTask.batches`."""
        metrics = ScanMetrics() if metrics is None else metrics
        table = self.opened()
        neighbors = self.neighbors(metrics, table)
        for first in range(0, len(neighbors), self.batch_size):
            rows = neighbors.at(slice(first, first + self.batch_size))
            if not self.lance_schema.fields:
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
                continue
            schema, addresses = self.lance_schema, rows.addresses
            for part in cut_by_bytes(
                table.paths, self._fragments, schema, addresses, table.open_files
            ):
                read = self.rows(rows.at(part), metrics, table)
                yield from read.combine_chunks().to_batches()

    def _take(
        self, table: OpenedRows, schema: Schema, addresses: UInt64Array, metrics: ScanMetrics
    ) -> pa.Table:
        return take_addresses(
            table.paths, self._fragments, schema, addresses, table.open_files, metrics
        )

    def _passing(
        self, metrics: ScanMetrics, table: OpenedRows, fragments: Sequence[Fragment]
    ) -> Passing:
        if not self.prefilter:
            return None, None
        fragment_ids = BitMap(fragment.id for fragment in fragments)
        if self.passing is not None:
            return self.passing.of_fragments(fragment_ids).row_keys(), None
        slices = [piece for piece in self.slices if piece.fragment.id in fragment_ids]
        return self._addresses(metrics, table, slices, self.prefilter), None

    def _addresses(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        slices: Sequence[FragmentSlice],
        filters: tuple[Condition, ...],
    ) -> UInt64Array:
        """Return the addresses of the rows that meet filters, increasing."""
        read = self._scan((_ADDRESS,), slices, filters)
        batches = read._batches(table.paths, table.open_files, metrics)
        parts = [batch.column(0).to_numpy() for batch in batches]
        return np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))

    def _read_vectors(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        path: tuple[Field, ...],
        fragments: Sequence[Fragment],
        addresses: UInt64Array,
    ) -> Iterator[tuple[pa.Array, UInt64Array, UInt64Array]]:
        column = Schema.of_paths([path]).fields
        meta = (_ADDRESS, row_meta.ROW_ID) if self.search.stable_row_ids else (_ADDRESS,)
        schema = Schema((*column, *meta))
        names = [node.name for node in path]
        if len(addresses):
            batches = iter(self._take(table, schema, addresses, metrics).to_batches())
        else:
            fragment_ids = {fragment.id for fragment in fragments}
            overlaid = {
                number: rows
                for number, rows in self.search.overlaid.items()
                if number in fragment_ids
            }
            fragment_ids -= overlaid.keys()
            slices = [piece for piece in self.slices if piece.fragment.id in fragment_ids]
            slices += self._slices(RowSet(overlaid).row_keys())
            task = self._scan(schema.fields, slices, self.prefilter, _BATCH_ROWS)
            batches = task._batches(table.paths, table.open_files, metrics)
        for batch in batches:
            places = batch.column(1).to_numpy()
            ids = batch.column(2).to_numpy() if self.search.stable_row_ids else places
            yield column_at(batch, names), ids, places
