"""Methods of `Dataset` that read rows: full-text searches and takes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_spark.dataset.nearest import NearestMethods
from lance_spark.errors import CorruptError, MissingFileError
from lance_spark.file.schema.extension_types import extended_table
from lance_spark.scan.blob_files import DEFAULT_BUFFER_SIZE, BlobFile
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.take import in_order, parse_positions, take_addresses, take_rows
from lance_spark.turns import turn

if TYPE_CHECKING:
    from lance_spark.dataset.planning import Columns
    from lance_spark.scan.text.queries import QueryLike
    from lance_spark.scan.text.search import TextSearch

_LOG = logging.getLogger(__name__)


class ScanMethods(NearestMethods):
    """Methods of `Dataset` that read rows."""

    def _full_text_rows(
        self,
        query: QueryLike,
        limit: int | None,
        columns: Sequence[str] | None,
        conditions: tuple[Condition, ...],
        blob_handling: str | None,
        with_row_id: bool,
        with_row_address: bool,
        fast_search: bool,
        *,
        filters_last: bool = False,
    ) -> pa.Table:
        from lance_spark.dataset.full_text import can_ignore_indexes

        schema = self._text_schema(columns, blob_handling, with_row_id, with_row_address)

        def rows_of(search: TextSearch) -> pa.Table:
            before = () if filters_last else conditions
            task = self._text_task(search, schema, before, before, limit=limit)
            if not filters_last or not conditions:
                return task.best_rows(ScanMetrics(), self._opened_rows())
            filtering = self._text_task(search, schema, (), conditions)
            return task.best_rows(ScanMetrics(), self._opened_rows(), filtering)

        search = self._plan_text(query, fast_search=fast_search)
        try:
            return rows_of(search)
        except (CorruptError, MissingFileError) as error:
            if fast_search or not can_ignore_indexes(search):
                raise
            _LOG.warning("the full-text indexes are ignored: %s", error)
        return rows_of(self._plan_text(query, fast_search=False, use_index=False))

    def take(
        self,
        indices: Sequence[int],
        columns: Columns | None = None,
        *,
        blob_handling: str | None = None,
    ) -> pa.Table:
        """Return rows by their positions in the table's order. Deleted rows are not counted.

        This object keeps up to 64 data files open for the next take.

        Parameters
        ----------
        indices : sequence of int, or integer array
            Positions from 0 on, in any order, possibly repeated.
        columns : sequence of str or mapping, optional
            As in `to_batches`. A hidden column, such as ``_rowid``, is returned as often as it is
            named, other columns once.
        blob_handling : str, optional
            As in `to_batches`.

        Returns
        -------
        Table
            One row for each position, in the order of the positions.

        Raises
        ------
        InvalidInputError
            A position is out of range, or a column does not exist.
        CorruptTableError, CorruptFileError, StorageError
        """
        with turn(local=self._table.store.is_local):
            return self._take(indices, columns, blob_handling)

    def _take(
        self, indices: Sequence[int], columns: Columns | None, blob_handling: str | None
    ) -> pa.Table:
        computed = None
        if isinstance(columns, Mapping):
            from lance_spark.dataset.scanning.computed import parse_computed

            computed = parse_computed(columns, self._as_read(self._table.schema, blob_handling))
            # A column that is not read says how many rows constants have.
            columns = computed.read or [row_meta.ROW_ADDRESS.name]
        names = row_meta.without_repeats(columns)
        schema = row_meta.of_take(self._select(names, blob_handling))
        positions = parse_positions(indices, self.count_rows())
        if self._table.manifest.flags.stable_row_ids:
            row_meta.check_row_ids(self.fragments, schema.fields)
        unique, inverse = np.unique(positions, return_inverse=True)
        batches = take_rows(self._table.paths, self.fragments, schema, unique, self._open_files)
        table = pa.Table.from_batches(batches, schema.to_arrow())
        table = row_meta.with_repeats(table, columns)
        table = extended_table(table if computed is None else computed.of_table(table))
        return in_order(table, inverse)

    def take_rows(
        self,
        row_ids: Sequence[int],
        columns: Sequence[str] | None = None,
        *,
        blob_handling: str | None = None,
    ) -> pa.Table:
        """Return rows by their row ids (``_rowid``). Ids without a live row are left out.

        In tables with stable row ids, the first call reads the ids of all rows and keeps them in
        this object.

        Parameters
        ----------
        row_ids : sequence of int, or integer array
            Ids in any order, possibly repeated.
        columns, blob_handling
            As in `take`.

        Returns
        -------
        Table
            One row for each id that has a live row, in the order of the ids.

        Raises
        ------
        InvalidInputError
            A column does not exist.
        CorruptTableError, CorruptFileError, StorageError
        """
        names = row_meta.without_repeats(columns)
        schema = row_meta.of_take(self._select(names, blob_handling))
        is_live, addresses = self._row_finder().find(row_ids)
        table = take_addresses(
            self._table.paths, self.fragments, schema, addresses[is_live], self._open_files
        )
        return extended_table(row_meta.with_repeats(table, columns))

    def take_blobs(
        self,
        blob_column: str,
        ids: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        *,
        buffer_size: int = DEFAULT_BUFFER_SIZE,
    ) -> list[BlobFile | None]:
        """Return blobs as file objects that read only the requested parts.

        Parameters
        ----------
        blob_column : str
            Name of a blob column, or dotted path of one inside structs.
        ids, addresses, indices : sequence of int
            The rows, by exactly one of: row ids, row addresses (fragment id << 32 | offset), or
            positions in the table's order.
        buffer_size : int
            Bytes that a sequential read of a file requests at once; 0 for no buffering.

        Returns
        -------
        list of BlobFile or None
            One entry for each row, in the given order; None for a null.

        Raises
        ------
        InvalidInputError
            The column is not a blob column, a row does not exist or is deleted, or not exactly one
            of `ids`, `addresses` and `indices` is given.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.scan.blob_files import take_blobs

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        finder = self._row_finder()
        return take_blobs(self._table, self.fragments, blob_column, rows, buffer_size, finder)
