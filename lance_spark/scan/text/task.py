"""The task of a full-text search: rows that match, with the column `_score`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.fragment.row_meta import SCORE
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.search_task import OpenedRows, SearchTask
from lance_spark.scan.take import take_addresses
from lance_spark.scan.task import READ_AHEAD, FragmentSlice, ScanTask
from lance_spark.scan.text.columns import TextRows
from lance_spark.scan.text.queries import CombinedFieldsQuery
from lance_spark.scan.text.ranking.hits import Hits
from lance_spark.scan.text.search import TextSearch
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import UInt64Array

_ADDRESS = row_meta.ROW_ADDRESS
#: How many rows are read for each row of the limit, until so many meet the filters.
_TRIED = 16
#: By what factor more rows are read, if too few meet the filters.
_GROWTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScanTask(SearchTask):
    """A task that reads the rows of a search, in the order of their addresses.

    `slices` are all rows of the fragments of the search. `lance_schema` has `SCORE` if scores are
    wanted. Rows have to meet `filters`, as for each task.

    Attributes
    ----------
    search : TextSearch
    prefilter : tuple of Condition
        The filters that rows which no index covers must meet to count as documents: their number
        changes scores.
    limit : int or None
        Most rows: those with the greatest scores.
    keeps_ties : bool
        Whether rows with the score of the last row are read, too.
    """

    search: TextSearch
    prefilter: tuple[Condition, ...] = ()
    limit: int | None = None
    keeps_ties: bool = False

    def hits(self, metrics: ScanMetrics, table: OpenedRows, best: int | None = None) -> Hits:
        """Return the rows, by their addresses.

        Parameters
        ----------
        metrics : ScanMetrics
            Counts what is read of the table.
        table : OpenedRows
            At least the rows of the fragments.
        best : int, optional
            As in `TextSearch.hits`.

        Raises
        ------
        As `TextSearch.hits`.
        """
        rows = TextRows(
            paths=table.paths,
            fragments=self._searched_fragments,
            find_rows=table.find,
            read_texts=partial(self._read_texts, metrics, table),
            moved=self.search.moved,
            stable_row_ids=self.search.stable_row_ids,
        )
        return self.search.hits(rows, best)

    def best(self, metrics: ScanMetrics, table: OpenedRows) -> Hits:
        """Return the rows that meet the filters, those with the greatest scores first."""
        if not self.filters:
            hits = self.hits(metrics, table, self.limit)
            return hits.best(self.limit, keeps_ties=self.keeps_ties)
        if self.limit is not None and not self.search.reads_texts:
            # As a rule, enough of the best rows meet the filters.
            tried = _TRIED * (self.limit + 1)
            first = self.hits(metrics, table, tried).best(tried, keeps_ties=self.keeps_ties)
            kept = self._filtered(_by_address(first), metrics, table)
            if len(kept.addresses) >= self.limit or len(first.addresses) < tried:
                return kept.best(self.limit, keeps_ties=self.keeps_ties)
        hits = self.hits(metrics, table)
        if self.limit is None:
            return self._filtered(hits, metrics, table).best(None)
        tried = _TRIED * (self.limit + 1)
        while True:
            first = hits.best(tried, keeps_ties=self.keeps_ties)
            kept = self._filtered(_by_address(first), metrics, table)
            if len(kept.addresses) >= self.limit or len(first.addresses) == len(hits.addresses):
                return kept.best(self.limit, keeps_ties=self.keeps_ties)
            tried *= _GROWTH

    def best_rows(
        self, metrics: ScanMetrics, table: OpenedRows, filtering: TextScanTask | None = None
    ) -> pa.Table:
        """Return the rows of `best`, as far as they meet the filters of another task of the search.

        Parameters
        ----------
        metrics : ScanMetrics
        table : OpenedRows
        filtering : TextScanTask, optional
        """
        hits = self.best(metrics, table)
        if filtering is not None:
            hits = filtering._filtered(_by_address(hits), metrics, table).best(None)
        return self._rows(hits, metrics, table)

    def _rows(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> pa.Table:
        """Return the columns of rows, in their order."""
        return self._taken(hits, metrics, table)

    @property
    def _searched_fragments(self) -> list[Fragment]:
        """The fragments whose rows are searched."""
        return self._fragments

    def _taken(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> pa.Table:
        """Return the columns of rows, in their order."""
        scores = pa.array(hits.scores.astype(np.float32))
        fields = self.lance_schema.fields
        position = [field.id for field in fields].index(SCORE.id)
        schema = replace(self.lance_schema, fields=(*fields[:position], *fields[position + 1 :]))
        if not schema.fields:
            return pa.table([scores], schema=self.schema)
        rows = take_addresses(
            table.paths, self._fragments, schema, hits.addresses, table.open_files, metrics
        )
        return rows.add_column(position, SCORE.arrow_field, scores)

    def _filtered(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> Hits:
        """Return the rows that meet the filters."""
        read = self._plain((_ADDRESS,), hits, self.filters)
        batches = read._batches(table.paths, table.open_files, metrics)
        kept = [batch.column(0).to_numpy() for batch in batches]
        addresses = np.sort(np.concatenate([np.empty(0, np.uint64), *kept]))
        return Hits(addresses, hits.at(addresses)[1])

    def batches(
        self, metrics: ScanMetrics | None = None, *, prefetch: bool = READ_AHEAD
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `ScanTask.batches`."""
        metrics = ScanMetrics() if metrics is None else metrics
        filters, table = self.filters, self.opened()
        if self.limit is None:
            hits = self.hits(metrics, table)
        else:
            hits, filters = _by_address(self.best(metrics, table)), ()
        yield from self._batches_of(hits, filters, metrics, table, prefetch=prefetch)

    def _batches_of(
        self,
        hits: Hits,
        filters: tuple[Condition, ...],
        metrics: ScanMetrics,
        table: OpenedRows,
        *,
        prefetch: bool = READ_AHEAD,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of rows that meet filters."""
        fields = [field for field in self.lance_schema.fields if field.id != SCORE.id]
        read = fields if row_meta.needs(fields, row_meta.ROW_ADDRESS) else [*fields, _ADDRESS]
        ids = [field.id for field in read]
        # The scores are appended.
        order = [
            len(ids) if field.id == SCORE.id else ids.index(field.id)
            for field in self.lance_schema.fields
        ]
        task = self._plain(read, hits, filters)
        for batch in task._batches(table.paths, table.open_files, metrics, prefetch=prefetch):
            if len(ids) in order:
                addresses = batch.column(ids.index(_ADDRESS.id)).to_numpy()
                scores = hits.at(addresses)[1].astype(np.float32)
                scored = batch.append_column(SCORE.arrow_field, pa.array(scores))
                yield scored.select(order)
                continue
            # By number, because a batch without columns keeps its number of rows.
            yield batch.select(order)

    def _read_texts(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        path: tuple[Field, ...],
        fragments: Sequence[Fragment],
        addresses: UInt64Array,
    ) -> Iterator[tuple[pa.Array, UInt64Array]]:
        fields = (*Schema.of_paths([path]).fields, _ADDRESS)
        names = [node.name for node in path]
        slices = [FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments]
        slices += self._slices(addresses)
        task = self._scan(fields, slices, self._document_filters())
        for batch in task._batches(table.paths, table.open_files, metrics):
            yield column_at(batch, names), batch.column(batch.num_columns - 1).to_numpy()

    def _document_filters(self) -> tuple[Condition, ...]:
        """Return the conditions that rows without an index must meet to count as documents."""
        if self.prefilter and self.search.has_combined_fields:
            if not isinstance(self.search.query, CombinedFieldsQuery):
                raise UnsupportedFeatureError(
                    "a CombinedFieldsQuery beside other queries, with a filter, needs an index of "
                    "all rows: extend it with optimize_indices"
                )
            # All rows count as documents.
            return ()
        return self.prefilter

    def _plain(
        self, fields: Sequence[Field], hits: Hits, filters: tuple[Condition, ...]
    ) -> ScanTask:
        """Return the task that reads columns of some rows."""
        return self._scan(fields, self._slices(hits.addresses), filters)


def _by_address(hits: Hits) -> Hits:
    order = np.argsort(hits.addresses)
    return Hits(hits.addresses[order], hits.scores[order])
