"""Methods of `Dataset` that scan rows: `scanner`, `to_batches`, `to_table`, Arrow's interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.dataset.planning import DEFAULT_BATCH_SIZE, written_filters
from lance_spark.dataset.scan import ScanMethods
from lance_spark.dataset.scanning.children import child_columns
from lance_spark.dataset.scanning.ordered import parse_order
from lance_spark.dataset.scanning.request import (
    ScanRequest,
    check_hints,
    check_refused,
    condition_of,
)
from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment import row_meta
from lance_spark.table.fragments.fragment import Fragment

if TYPE_CHECKING:
    from lance_spark.dataset.planning import Columns, Filter
    from lance_spark.dataset.scanning.arrow_dataset import ArrowDataset
    from lance_spark.dataset.scanning.ordered import ColumnOrdering
    from lance_spark.dataset.scanning.scanner import Scanner
    from lance_spark.dataset.scanning.statistics import ScanStatistics
    from lance_spark.scan.text.queries import QueryLike


class ScannerMethods(ScanMethods):
    """Methods of `Dataset` that scan rows."""

    def scanner(
        self,
        columns: Columns | None = None,
        filter: Filter | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_size_bytes: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        fragments: Iterable[Any] | None = None,
        index_segments: Iterable[Any] | None = None,
        full_text_query: QueryLike | None = None,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        prefilter: bool | None = None,
        with_row_id: bool | None = None,
        with_row_address: bool | None = None,
        use_stats: bool | None = None,
        fast_search: bool | None = None,
        io_buffer_size: int | None = None,
        late_materialization: bool | Sequence[str] | None = None,
        blob_handling: str | None = None,
        use_scalar_index: bool | None = None,
        include_deleted_rows: bool | None = None,
        scan_stats_callback: Callable[[ScanStatistics], None] | None = None,
        strict_batch_size: bool | None = None,
        order_by: Iterable[ColumnOrdering | str] | None = None,
        disable_scoring_autoprojection: bool | None = None,
        row_addr_allowlist: bytes | None = None,
        row_addr_blocklist: bytes | None = None,
    ) -> Scanner:
        """Return a scanner, which reads rows as batches, as a table or as a reader.

        With a full-text query, the rows with the greatest scores are first, and there is another
        column, ``_score``. With `nearest`, the nearest rows are first, and there is another column,
        ``_distance``.

        Parameters
        ----------
        columns : sequence of str, or mapping of str to str, optional
            Names of columns, or dotted paths of children of structs, which become columns with
            these paths as names, null where a struct is null; all columns by default. The
            hidden columns of every table can be named as well: ``_rowid``, ``_rowaddr``,
            ``_rowoffset``, ``_row_created_at_version``, ``_row_last_updated_at_version`` and
            ``_fragid``. A mapping has expressions by the names of the results, in the language of
            `filter`.
        filter : str, pyarrow.compute.Expression or Predicate, optional
            Read only rows that satisfy this condition: the text of a ``WHERE`` clause in Spark's
            SQL, with Spark's meaning of null and NaN (`lance_spark.scan.predicates.sql`), or an
            expression of Arrow, with Arrow's meaning. No session time zone is assumed: a timestamp
            literal for a column with a time zone must name its zone. As in pylance, a mapping with
            the key ``expr_filter`` is taken, too.
        limit : int, optional
            Maximum number of rows. Filters come first.
        offset : int, optional
            Number of rows that are left out before the first row. Filters come first.
        nearest : mapping, optional
            Read only the rows whose vectors are nearest to a vector. Keys: ``column``; ``q``, the
            vector, or a list of vectors; ``k``, the number of rows, by default `limit` or 10;
            ``metric``: ``l2``, ``cosine``, ``dot`` or ``hamming``; ``distance_range``, a pair of
            bounds; ``use_index``, False to measure all vectors. For indexes: ``nprobes`` or
            ``minimum_nprobes`` and ``maximum_nprobes``, ``search_effort``, ``refine_factor`` and
            ``ef``. With a list of vectors, the first column is ``query_index``, and there are ``k``
            rows for each of them.
        batch_size : int, optional
            Maximum number of rows of a batch; 65,536 by default.
        batch_size_bytes : int, optional
            Number of bytes that batches aim at, besides `batch_size`.
        fragments : iterable of DatasetFragment or Fragment, optional
            Read only rows of these fragments of this version, in the given order.
        full_text_query : str, mapping or FullTextQuery, optional
            Read only rows whose text matches: words, ``"a phrase"`` in quotation marks, a mapping
            with the keys ``query`` and ``columns``, or a query of `lance_spark.query`. Without
            columns, all columns with an INVERTED index are searched.
        filters : iterable of (column, operator, value), optional
            Read only rows that satisfy all of these conditions as well. Operators: ``==``, ``!=``,
            ``<``, ``<=``, ``>``, ``>=``, ``in`` and ``not in`` (with a list), ``is_null`` and
            ``is_not_null`` (without a value).
        prefilter : bool, optional
            Whether the filters decide which rows are searched. By default, they decide it for
            `full_text_query`, and leave out some of the rows that `nearest` finds.
        with_row_id, with_row_address : bool, optional
            Whether to append the columns ``_rowid`` and ``_rowaddr``.
        fast_search : bool, optional
            Whether a full-text query, or `nearest`, leaves out rows that no index covers.
        blob_handling : str, optional
            Content of blob columns: ``blobs_descriptions`` (position and size of the bytes; the
            default), ``all_binary`` (the bytes) or ``none`` (no blob columns). ``all_descriptions``
            is the same as the default.
        use_scalar_index : bool, optional
            Whether indexes of columns in the filters rule out rows; by default they do.
        include_deleted_rows : bool, optional
            Whether to read deleted rows as well, as far as their fragments still exist. Their
            ``_rowid`` and ``_rowaddr`` are null. Needs `with_row_id`.
        scan_stats_callback : callable, optional
            Called with a `ScanStatistics` after the last row was read.
        strict_batch_size : bool, optional
            Whether all batches but the last one have exactly `batch_size` rows.
        order_by : iterable of ColumnOrdering or str, optional
            Columns by which the rows are ordered. NaN is the largest number.
        disable_scoring_autoprojection : bool, optional
            Whether a search has the column ``_score`` or ``_distance`` only if `columns` names it.
        batch_readahead, fragment_readahead, scan_in_order, use_stats, io_buffer_size, \
late_materialization : optional
            Arguments of pylance that change only how it reads. They are checked, and have no
            effect: rows are always in the table's order, and columns that no filter reads are
            always decoded last.
        index_segments, row_addr_allowlist, row_addr_blocklist : optional
            Not supported.

        Returns
        -------
        Scanner

        Raises
        ------
        InvalidInputError
            A column or fragment does not exist, a number is out of range, or arguments cannot be
            combined.
        UnsupportedFeatureError
            An argument is not supported.

        Examples
        --------
        >>> dataset.scanner(["id"], filter="id > 5", limit=10).to_table()
        >>> dataset.scanner({"twice": "id * 2"}, order_by=["id"]).to_reader()
        """
        from lance_spark.dataset.scanning.scanner import Scanner

        check_refused(
            {
                "index_segments": index_segments,
                "row_addr_allowlist": row_addr_allowlist,
                "row_addr_blocklist": row_addr_blocklist,
            }
        )
        if not (
            batch_readahead is fragment_readahead is io_buffer_size is late_materialization is None
        ):
            check_hints(
                self._table.schema.names,
                batch_readahead,
                fragment_readahead,
                io_buffer_size,
                late_materialization,
            )
        filter = condition_of(filter)
        computed = None
        if isinstance(columns, Mapping):
            from lance_spark.dataset.scanning.computed import parse_computed

            computed = parse_computed(columns, self._as_read(self._table.schema, blob_handling))
            columns = computed.read
        elif isinstance(columns, str):
            raise InvalidInputError(f"columns must be a list of names, not the string {columns!r}")
        listed = None if filters is None else list(filters)
        conditions = self._conditions(listed, filter)
        # These follow the other columns, even if they are named, too.
        last = [row_meta.ROW_ID.name] * bool(with_row_id)
        last += [row_meta.ROW_ADDRESS.name] * bool(with_row_address)
        named = None if columns is None else [name for name in columns if name not in last]
        request = ScanRequest(
            columns=columns,
            computed=computed,
            children=None if computed else child_columns(named, self._table.schema),
            conditions=conditions,
            written_conditions=written_filters(listed, filter, conditions),
            limit=limit,
            offset=offset or 0,
            batch_size=DEFAULT_BATCH_SIZE if batch_size is None else batch_size,
            batch_size_bytes=batch_size_bytes,
            strict_batch_size=bool(strict_batch_size),
            order=parse_order(order_by, self._table.schema),
            fragment_ids=None if fragments is None else self._fragment_ids(fragments),
            nearest=nearest,
            full_text_query=full_text_query,
            prefilter=prefilter,
            fast_search=bool(fast_search),
            adds_score=not disable_scoring_autoprojection,
            with_row_id=bool(with_row_id),
            with_row_address=bool(with_row_address),
            blob_handling=blob_handling,
            use_scalar_index=use_scalar_index is None or use_scalar_index,
            include_deleted_rows=bool(include_deleted_rows),
            scan_stats_callback=scan_stats_callback,
        )
        return Scanner(self, request)

    def to_batches(
        self,
        columns: Columns | None = None,
        filter: Filter | int | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_size_bytes: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        **arguments: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, in the table's order.

        The parameters and errors are those of `scanner`.

        Yields
        ------
        RecordBatch
        """
        yield from self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            batch_size_bytes,
            batch_readahead,
            fragment_readahead,
            scan_in_order,
            **arguments,
        ).to_batches()

    def to_table(
        self,
        columns: Columns | None = None,
        filter: Filter | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_size_bytes: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        **arguments: Any,
    ) -> pa.Table:
        """Return the rows as an Arrow table.

        The parameters and errors are those of `scanner`.
        """
        return self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            batch_size_bytes,
            batch_readahead,
            fragment_readahead,
            scan_in_order,
            **arguments,
        ).to_table()

    def arrow_dataset(self) -> ArrowDataset:
        """Return this version as a `pyarrow.dataset.Dataset`.

        Engines that read such a dataset push columns and filters down to it: DuckDB, and Polars by
        `polars.scan_pyarrow_dataset`.

        Examples
        --------
        >>> table = dataset.arrow_dataset()
        >>> duckdb.sql("SELECT name FROM table WHERE id = 5")  # doctest: +SKIP
        """
        from lance_spark.dataset.scanning.arrow_dataset import ArrowDataset

        return ArrowDataset(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows as a stream of Arrow's PyCapsule interface."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    def _fragment_ids(self, fragments: Iterable[Any]) -> tuple[int, ...]:
        """Return the ids of fragments of this version, which callers gave.

        Raises
        ------
        InvalidInputError
            An item is not a fragment, or a fragment is given twice.
        """
        ids = []
        for item in fragments:
            fragment = getattr(item, "metadata", item)
            if not isinstance(fragment, Fragment):
                raise InvalidInputError(
                    f"fragments must be fragments of the table, not {type(item).__name__}"
                )
            ids.append(fragment.id)
        if len(set(ids)) < len(ids):
            raise InvalidInputError("fragments: a fragment is given twice")
        return tuple(ids)
