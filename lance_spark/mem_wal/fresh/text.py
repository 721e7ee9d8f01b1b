"""The task of a full-text search of a version and of the rows of its MemWAL.

Rows of SSTables and logs are scored as rows of the table that no index covers: by the statistics of
the index, and of all rows without an index. So a search finds the same rows, with the same scores,
before and after a compaction. The Rust library of pylance 14 has a search that scores the rows of
each SSTable by statistics of their own; pylance does not offer it in Python.

These rows have no addresses. The search numbers them as rows of a fragment that no table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.file.schema.field import Field
from lance_spark.mem_wal.fresh.found_rows import FreshTable, together
from lance_spark.mem_wal.fresh.key_sets import KeySet
from lance_spark.mem_wal.fresh.tasks import Unshadowed
from lance_spark.scan.fragment.column_reader import rows_without_columns
from lance_spark.scan.fragment.row_meta import SCORE
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.search_task import OpenedRows
from lance_spark.scan.task import READ_AHEAD, ScanTask
from lance_spark.scan.text.ranking.hits import Hits
from lance_spark.scan.text.search import TextSearch
from lance_spark.scan.text.task import TextScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import UInt64Array

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
