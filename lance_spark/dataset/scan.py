"""Methods of `Dataset` that read rows: scans and takes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.nearest import NearestMethods
from lance_spark.dataset.planning import DEFAULT_BATCH_SIZE
from lance_spark.errors import CorruptError, InvalidInputError, MissingFileError
from lance_spark.scan.blob_files import DEFAULT_BUFFER_SIZE, BlobFile
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.take import parse_positions, take_addresses, take_rows

if TYPE_CHECKING:
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.scan.text.queries import QueryLike
    from lance_spark.scan.text.search import TextSearch

_LOG = logging.getLogger(__name__)


class ScanMethods(NearestMethods):
    """Methods of `Dataset` that read rows."""

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: str | Predicate | None = None,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        use_scalar_index: bool = True,
        full_text_query: QueryLike | None = None,
        nearest: Mapping[str, Any] | None = None,
        prefilter: bool = False,
        limit: int | None = None,
        fast_search: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, in the table's order.

        With a full-text query, the rows with the greatest scores are first, and there is another
        column, ``_score``. With `nearest`, the nearest rows are first, and there is another column,
        ``_distance``.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of columns, or dotted paths of children of structs; all columns by default. The
            hidden columns of every table can be named as well: ``_rowid``, ``_rowaddr``,
            ``_rowoffset``, ``_row_created_at_version``, ``_row_last_updated_at_version`` and
            ``_fragid``.
        batch_size : int
            Maximum number of rows of a batch.
        filters : iterable of (column, operator, value), optional
            Read only rows that satisfy all of these conditions. Operators: ``==``, ``!=``, ``<``,
            ``<=``, ``>``, ``>=``, ``in`` and ``not in`` (with a list), ``is_null`` and
            ``is_not_null`` (without a value). Other columns are decoded only for these rows, and
            pages of files of version 0.1 are skipped by their statistics.
        filter : str or Predicate, optional
            Read only rows that satisfy this condition as well: the text of a ``WHERE`` clause in
            Spark's SQL, with Spark's meaning of null and NaN (`lance_spark.scan.predicates.sql`).
            No session time zone is assumed: a timestamp literal for a column with a time zone must
            name its zone.
        blob_handling : str, optional
            Content of blob columns: ``blobs_descriptions`` (position and size of the bytes; the
            default), ``all_binary`` (the bytes) or ``none`` (no blob columns). ``all_descriptions``
            is the same as the default.
        with_row_id, with_row_address : bool
            Whether to append the columns ``_rowid`` and ``_rowaddr``.
        use_scalar_index : bool
            Whether indexes of columns in the filters rule out rows.
        full_text_query : str, mapping or FullTextQuery, optional
            Read only rows whose text matches: words, ``"a phrase"`` in quotation marks, a mapping
            with the keys ``query`` and ``columns``, or a query of `lance_spark.query`. Without
            columns, all columns with an INVERTED index are searched.
        nearest : mapping, optional
            Read only the rows whose vectors are nearest to a vector. Keys: ``column``; ``q``, the
            vector, or a list of vectors; ``k``, the number of rows, by default `limit` or 10;
            ``metric``: ``l2``, ``cosine``, ``dot`` or ``hamming``; ``distance_range``, a pair of
            bounds; ``use_index``, False to measure all vectors. For indexes: ``nprobes`` or
            ``minimum_nprobes`` and ``maximum_nprobes``, ``search_effort``, ``refine_factor`` and
            ``ef``. With a list of vectors, the first column is ``query_index``, and there are ``k``
            rows for each of them.
        prefilter : bool
            Whether the filters decide which rows `nearest` searches. By default, they leave out
            some of the nearest rows.
        limit : int, optional
            Maximum number of rows. Filters come first.
        fast_search : bool
            Whether a full-text query, or `nearest`, leaves out rows that no index covers.

        Yields
        ------
        RecordBatch

        Raises
        ------
        InvalidInputError
            A column does not exist, `batch_size` is not positive, or `blob_handling` is unknown.
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        if limit is not None:
            check_least("limit", limit, 0)
        if full_text_query is not None or nearest is not None:
            check_least("batch_size", batch_size, 1)
            table = self.to_table(
                columns,
                filters=filters,
                filter=filter,
                blob_handling=blob_handling,
                with_row_id=with_row_id,
                with_row_address=with_row_address,
                use_scalar_index=use_scalar_index,
                full_text_query=full_text_query,
                nearest=nearest,
                prefilter=prefilter,
                limit=limit,
                fast_search=fast_search,
            )
            yield from table.to_batches(max_chunksize=batch_size)
            return
        tasks = self.plan(
            columns,
            rows_per_task=1 << 62,
            batch_size=batch_size,
            filters=filters,
            filter=filter,
            blob_handling=blob_handling,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            use_scalar_index=use_scalar_index,
        )
        remaining = limit
        for task in tasks if limit != 0 else ():
            for batch in task._batches(self._table.paths, self._open_files, prefetch=limit is None):
                yield batch.slice(0, remaining)
                if remaining is not None:
                    remaining -= batch.num_rows
                    if remaining <= 0:
                        return

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: str | Predicate | None = None,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        use_scalar_index: bool = True,
        full_text_query: QueryLike | None = None,
        nearest: Mapping[str, Any] | None = None,
        prefilter: bool = False,
        limit: int | None = None,
        fast_search: bool = False,
    ) -> pa.Table:
        """Return the rows as an Arrow table; see `to_batches`."""
        if limit is not None:
            check_least("limit", limit, 0)
        if nearest is not None:
            if full_text_query is not None:
                raise InvalidInputError("give nearest or full_text_query, not both")
            return self._nearest_rows(
                nearest,
                limit,
                columns,
                self._conditions(filters, filter),
                blob_handling,
                with_row_id,
                with_row_address,
                prefilter=prefilter,
                fast_search=fast_search,
                use_scalar_index=use_scalar_index,
            )
        if full_text_query is not None:
            return self._full_text_rows(
                full_text_query,
                limit,
                columns,
                self._conditions(filters, filter),
                blob_handling,
                with_row_id,
                with_row_address,
                fast_search,
            )
        schema = self._select(columns, blob_handling, with_row_id, with_row_address).to_arrow()
        batches = self.to_batches(
            columns,
            filters=filters,
            filter=filter,
            blob_handling=blob_handling,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            use_scalar_index=use_scalar_index,
            limit=limit,
        )
        return pa.Table.from_batches(batches, schema)

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
    ) -> pa.Table:
        from lance_spark.dataset.full_text import best_rows, can_ignore_indexes

        schema = self._text_schema(columns, blob_handling, with_row_id, with_row_address)

        def rows_of(search: TextSearch) -> pa.Table:
            task = self._text_task(search, schema, conditions, conditions, limit=limit)
            return best_rows(task, self._opened_rows())

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
        columns: Sequence[str] | None = None,
        *,
        blob_handling: str | None = None,
    ) -> pa.Table:
        """Return rows by their positions in the table's order. Deleted rows are not counted.

        This object keeps up to 64 data files open for the next take.

        Parameters
        ----------
        indices : sequence of int, or integer array
            Positions from 0 on, in any order, possibly repeated.
        columns : sequence of str, optional
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
        names = row_meta.without_repeats(columns)
        schema = row_meta.of_take(self._select(names, blob_handling))
        positions = parse_positions(indices, self.count_rows())
        if self._table.manifest.flags.stable_row_ids:
            row_meta.check_row_ids(self.fragments, schema.fields)
        unique, inverse = np.unique(positions, return_inverse=True)
        batches = take_rows(self._table.paths, self.fragments, schema, unique, self._open_files)
        table = pa.Table.from_batches(batches, schema.to_arrow())
        table = row_meta.with_repeats(table, columns)
        if np.array_equal(inverse, np.arange(len(unique))):
            return table
        return table.take(pa.array(inverse))

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
        return row_meta.with_repeats(table, columns)

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
