"""What text and vector searches have in common.

| class | what it is for |
| --- | --- |
| `SearchedVersion` | plans: the version of the table, and which of its rows an index covers |
| `SearchTask`, `OpenedRows` | tasks: how they read rows of the table |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from pyroaring import BitMap

from lance_spark._forks import after_fork
from lance_spark.encoding.rows import RowRanges
from lance_spark.file.open_files import FilesOfTable, OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.table_rows import overlaid_rows, value_fields
from lance_spark.predicates.conditions import Condition
from lance_spark.proto import table_pb2
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import FindRows, RowIndex, live_addresses, offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array

#: Files of local tables that searches of this process leave open for the next ones.
_FILES = OpenFiles()
after_fork(_FILES.clear)


class Search(Protocol):
    """A planned search."""

    @property
    def stable_row_ids(self) -> bool:
        """Whether the table has them."""


@dataclass(frozen=True, slots=True)
class SearchedVersion:
    """The version of a table that a search is planned on.

    - `fragments`: With their rows counted.
    - `field_path`: Returns the fields from the top-level field to a column, by its name.
    - `stable_row_ids`: Whether the table has them.
    - `fast_search`: Whether searches leave out rows that no index covers.
    """

    paths: TablePaths
    section: table_pb2.IndexSection
    fragments: Sequence[Fragment]
    field_path: Callable[[str], tuple[Field, ...]]
    stable_row_ids: bool
    fast_search: bool = False

    def coverage(
        self,
        path: tuple[Field, ...],
        segments: Iterable[BitMap],
        moved: MovedRows,
    ) -> tuple[BitMap, dict[int, int], dict[int, BitMap]]:
        """Return which rows segments of an index cover.

        Overlays have new values of some rows of a fragment: these rows are not searched by the
        index. If they are most rows of a fragment, the index does not cover it at all.

        Parameters
        ----------
        path : tuple of Field
            The fields from the top-level field to the column of the index.
        segments : iterable of BitMap
            The fragments that each segment was built on.
        moved : MovedRows

        Returns
        -------
        BitMap
            The fragments that the segments cover.
        dict of int to int
            The fragments with rows that are read, and the number of these rows.
        dict of int to BitMap
            The rows of covered fragments that overlays have values of.

        Raises
        ------
        CorruptTableError
            The rows of an overlay cannot be decoded.
        """
        field_ids = value_fields(path)
        # A segment has no rows of a fragment of which it covers a part; see `live_addresses`.
        covered = BitMap.union(BitMap(), *map(moved.fragments, segments))
        covered &= BitMap(fragment.id for fragment in self.fragments)
        overlaid: dict[int, BitMap] = {}
        for fragment in self.fragments:
            if not fragment.has_overlays or fragment.id not in covered:
                continue
            rows = overlaid_rows(fragment, field_ids)
            if 2 * len(rows) > fragment.physical_rows:
                covered.discard(fragment.id)
            elif rows:
                overlaid[fragment.id] = rows
        if self.fast_search:
            return covered, {}, overlaid
        uncovered = {
            fragment.id: fragment.physical_rows
            for fragment in self.fragments
            if fragment.id not in covered
        }
        uncovered.update((number, len(rows)) for number, rows in overlaid.items())
        return covered, uncovered, overlaid


@dataclass(frozen=True, slots=True)
class OpenedRows:
    """The rows of a table that a search can read.

    - `paths`: Opens the files of the table.
    - `find`: Finds rows by their ids.
    - `open_files`: Data files that may be open already.
    """

    paths: TablePaths
    find: FindRows
    open_files: OpenFiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTask(ScanTask):
    """A task that searches some fragments, and reads the rows that it finds."""

    search: Search

    @property
    def _fragments(self) -> list[Fragment]:
        return list({piece.fragment.id: piece.fragment for piece in self.slices}.values())

    def opened(self) -> OpenedRows:
        """Open the table, to read the rows of the fragments of this task."""
        paths = TablePaths.open(self.uri, self.storage_options, self.base_paths)
        find: FindRows = partial(live_addresses, paths, self._fragments)
        if self.search.stable_row_ids:
            find = RowIndex.build(paths, self._fragments).addresses
        open_files = None
        if paths.store.is_local:
            options = tuple(sorted((key, str(item)) for key, item in self.storage_options.items()))
            open_files = FilesOfTable(_FILES, (paths.store.uri, options))
        return OpenedRows(paths, find, open_files)

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
        columns: Sequence[Field],
        slices: Sequence[FragmentSlice],
        filters: tuple[Condition, ...],
        batch_size: int | None = None,
    ) -> ScanTask:
        """Return the task that reads columns of some rows that meet filters."""
        return ScanTask(
            uri=self.uri,
            lance_schema=replace(self.lance_schema, fields=tuple(columns)),
            slices=tuple(slices),
            batch_size=batch_size or self.batch_size,
            filters=filters,
            base_paths=self.base_paths,
            storage_options=self.storage_options,
        )
