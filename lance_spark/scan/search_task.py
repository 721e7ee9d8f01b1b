"""What the tasks of text and vector searches have in common: how they read rows of their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.file.schema.field import Field
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.index import FindRows, RowIndex, live_addresses, offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTask(ScanTask):
    """A task that searches some fragments, and reads the rows that it finds."""

    @property
    def paths(self) -> TablePaths:
        """Opens the files of the table."""
        return TablePaths.open(self.uri, self.storage_options, self.base_paths)

    @property
    def _fragments(self) -> list[Fragment]:
        return list({piece.fragment.id: piece.fragment for piece in self.slices}.values())

    def _find_rows(self, *, stable_row_ids: bool) -> FindRows:
        if not stable_row_ids:
            return partial(live_addresses, self.paths, self._fragments)
        return RowIndex.build(self.paths, self._fragments).addresses

    def _slices(self, addresses: UInt64Array) -> list[FragmentSlice]:
        """Return the slices of rows, given by their addresses in increasing order."""
        by_id = {piece.fragment.id: piece for piece in self.slices}
        slices = []
        for number, offsets in offsets_by_fragment(addresses):
            rows = RowRanges.of_rows(offsets.astype(np.int64))
            start, stop = int(rows.starts[0]), int(rows.stops[-1])
            some = None if rows.num_ranges == 1 else rows
            slices.append(by_id[number]._replace(start=start, stop=stop, rows=some))
        return slices

    def _scan(
        self,
        fields: Sequence[Field],
        slices: Sequence[FragmentSlice],
        filters: tuple[Condition, ...],
        batch_size: int | None = None,
    ) -> ScanTask:
        """Return the task that reads columns of some rows that meet filters."""
        return ScanTask(
            uri=self.uri,
            lance_schema=replace(self.lance_schema, fields=tuple(fields)),
            slices=tuple(slices),
            batch_size=batch_size or self.batch_size,
            filters=filters,
            base_paths=self.base_paths,
            storage_options=self.storage_options,
        )
