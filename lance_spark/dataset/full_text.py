"""Full-text search of a `Dataset`: rows in the order of their scores, with the column `_score`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.errors import InvalidInputError
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.take import RowFinder, take_addresses
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.scan.text.queries import QueryLike, parse_query
from lance_spark.scan.text.search import Hits, TextTable, indexed_columns
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.index import offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array

SCORE = "_score"
_SCORE_FIELD = pa.field(SCORE, pa.float32())
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class FullTextScan:
    """A full-text search of one version.

    Attributes
    ----------
    table : OpenTable
    fragments : sequence of Fragment
    finder : RowFinder
    open_files : OpenFiles
    conditions : tuple of Condition
        Rows for which they do not hold are left out before the rows with the greatest scores are
        chosen.
    fast_search : bool
        Whether rows that no index covers are left out.
    """

    table: OpenTable
    fragments: Sequence[Fragment]
    finder: RowFinder
    open_files: OpenFiles
    conditions: tuple[Condition, ...]
    fast_search: bool

    def rows(self, query: QueryLike, limit: int | None, schema: Schema, position: int) -> pa.Table:
        """Return the rows that match a query, those with the greatest scores first.

        Parameters
        ----------
        query : str, mapping or FullTextQuery
        limit : int or None
            Most rows.
        schema : Schema
            The columns to read.
        position : int
            Position of the column `_score` among them.

        Raises
        ------
        LanceError
            As `TextTable.search`.
        """
        section = indexes.read_section(self.table.manifest)
        segments = section.indices
        text_table = TextTable(
            paths=self.table.paths,
            segments=segments,
            moved=MovedRows.of(self.table.paths, section),
            stable_row_ids=self.table.manifest.flags.stable_row_ids,
            fragments=self.fragments,
            find_rows=self.finder.find,
            read_texts=self._read_texts,
            field_path=self.table.schema.path,
            fast_search=self.fast_search,
        )
        names = dict(_names(self.table.schema.fields))
        hits = text_table.search(parse_query(query, indexed_columns(segments, names)))
        if self.conditions:
            hits = self._filtered(hits)
        best = hits.best(limit)
        scores = pa.array(best.scores.astype(np.float32))
        if not schema.fields:
            return pa.table([scores], schema=with_score(schema.to_arrow(), 0))
        rows = take_addresses(
            self.table.paths, self.fragments, schema, best.addresses, self.open_files
        )
        return rows.add_column(position, _SCORE_FIELD, scores)

    def _read_texts(
        self, path: tuple[Field, ...], fragments: Sequence[Fragment], addresses: UInt64Array
    ) -> Iterator[tuple[pa.Array, UInt64Array]]:
        slices = [FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments]
        fields = (*Schema.of_paths([path]).fields, row_meta.ROW_ADDRESS)
        names = [node.name for node in path]
        for batch in self._task(Schema(fields), [*slices, *self._slices(addresses)]).batches():
            yield column_at(batch, names), batch.column(batch.num_columns - 1).to_numpy()

    def _filtered(self, hits: Hits) -> Hits:
        """Return the rows for which the conditions hold."""
        task = self._task(Schema((row_meta.ROW_ADDRESS,)), self._slices(hits.addresses))
        kept = [batch.column(0).to_numpy() for batch in task.batches()]
        addresses = np.sort(np.concatenate([np.empty(0, np.uint64), *kept]))
        return Hits(addresses, hits.at(addresses)[1])

    def _slices(self, addresses: UInt64Array) -> list[FragmentSlice]:
        """Return the slices of rows, given by their addresses in increasing order."""
        by_id = {fragment.id: fragment for fragment in self.fragments}
        slices = []
        for number, offsets in offsets_by_fragment(addresses):
            rows = RowRanges.of_rows(offsets.astype(np.int64))
            start, stop = int(rows.starts[0]), int(rows.stops[-1])
            slices.append(
                FragmentSlice(
                    by_id[number], start, stop, rows=None if rows.num_ranges == 1 else rows
                )
            )
        return slices

    def _task(self, schema: Schema, slices: Sequence[FragmentSlice]) -> ScanTask:
        return ScanTask(
            uri=self.table.store.uri,
            lance_schema=schema,
            slices=tuple(slices),
            batch_size=_BATCH_ROWS,
            filters=self.conditions,
            base_paths=self.table.manifest.base_paths,
            storage_options=self.table.store.options or {},
        )


def with_score(schema: pa.Schema, position: int) -> pa.Schema:
    """Return a schema with the column `_score`."""
    return schema.insert(position, _SCORE_FIELD)


def split_columns(columns: Sequence[str] | None) -> tuple[list[str] | None, int | None]:
    """Return the names of the columns to read, and the position of `_score` among them.

    The position is None if the column is not named.

    Raises
    ------
    InvalidInputError
        The column is named twice.
    """
    if columns is None:
        return None, None
    names = list(columns)
    if names.count(SCORE) > 1:
        raise InvalidInputError(f"column {SCORE!r} is named twice")
    if SCORE not in names:
        return names, None
    position = names.index(SCORE)
    return names[:position] + names[position + 1 :], position


def _names(fields: Sequence[Field], parent: str = "") -> Iterator[tuple[int, str]]:
    """Yield the id of each field with its name; a child of a struct has a path with dots."""
    for node in fields:
        yield node.id, parent + node.name
        if node.logical_type == "struct":
            yield from _names(node.children, f"{parent}{node.name}.")
