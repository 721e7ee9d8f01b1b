"""The arguments of a read, declared once, and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from lance_spark.arguments import check_least
from lance_spark.dataset.scanning.children import child_columns
from lance_spark.dataset.scanning.options import (
    DEFAULT_BATCH_SIZE,
    CountKeywords,
    PlanKeywords,
    ScanKeywords,
    TaskKeywords,
)
from lance_spark.dataset.scanning.ordered import parse_order
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.keywords import checked, of_group
from lance_spark.scan.fragment import row_meta
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.turns import turn

if TYPE_CHECKING:
    from lance_spark.dataset.reader import VersionReader
    from lance_spark.dataset.scanning.children import ChildColumns
    from lance_spark.dataset.scanning.computed import ComputedColumns
    from lance_spark.dataset.scanning.options import Columns, Filter
    from lance_spark.dataset.scanning.ordered import OrderKey
    from lance_spark.scan.plan import ScanPlan
    from lance_spark.scan.predicates.conditions import Condition
    from lance_spark.scan.text.queries import QueryLike

#: Arguments of pylance that this package does not have, and what to use.
_REFUSED = {
    "index_segments": "leave it out: all segments of an index are searched",
    "row_addr_allowlist": "use a filter on _rowid, or take_rows",
    "row_addr_blocklist": "use a filter on _rowid",
}
_MOST_ROWS = 2**32 - 1


@dataclass(frozen=True, slots=True, eq=False)
class ScanRequest:
    """What a scan reads; see `Dataset.scanner`.

    Attributes
    ----------
    columns : sequence of str, optional
        Columns that are read; of computed columns, those that the expressions read.
    computed : ComputedColumns, optional
    children : ChildColumns, optional
        What becomes of children of structs in the rows that are read.
    conditions : tuple of Condition
    written_conditions : tuple
        As the caller gave them.
    order : tuple of OrderKey
    fragment_ids : tuple of int, optional
        In the order in which they are read.
    options : ScanKeywords
        All keywords, with their defaults.
    """

    columns: Sequence[str] | None
    computed: ComputedColumns | None
    children: ChildColumns | None
    conditions: tuple[Condition, ...]
    written_conditions: tuple[Any, ...]
    limit: int | None
    offset: int
    batch_size: int
    batch_size_bytes: int | None
    order: tuple[OrderKey, ...]
    fragment_ids: tuple[int, ...] | None
    nearest: Mapping[str, Any] | None
    full_text_query: QueryLike | None
    options: ScanKeywords

    def __post_init__(self) -> None:
        for name in ("limit", "offset"):
            value = getattr(self, name)
            if value is not None:
                check_least(name, value, 0)
        check_least("batch_size", self.batch_size, 1)
        if self.batch_size > _MOST_ROWS:
            raise InvalidInputError(
                f"batch_size must be at most {_MOST_ROWS}, not {self.batch_size}"
            )
        if self.batch_size_bytes is not None:
            check_least("batch_size_bytes", self.batch_size_bytes, 1)
            if self.options["strict_batch_size"]:
                raise InvalidInputError(
                    "give strict_batch_size or batch_size_bytes, not both: batches of exactly "
                    "batch_size rows can have more bytes"
                )
        if self.nearest is not None and self.full_text_query is not None:
            raise InvalidInputError("give nearest or full_text_query, not both")
        if self.is_search:
            incompatible = {
                "order_by": bool(self.order),
                "fragments": self.fragment_ids is not None,
                "include_deleted_rows": self.has_deleted_rows,
                "columns as a mapping": self.computed is not None,
            }
            for argument, is_given in incompatible.items():
                if is_given:
                    raise InvalidInputError(
                        f"{argument} cannot be combined with nearest or full_text_query"
                    )
        if self.has_deleted_rows:
            if not self.options["with_row_id"]:
                raise InvalidInputError(
                    "include_deleted_rows needs with_row_id=True: the row id of a deleted row is "
                    "null"
                )
            if self.conditions or self.order:
                raise InvalidInputError(
                    "include_deleted_rows cannot be combined with a filter or order_by"
                )

    @property
    def is_search(self) -> bool:
        """Whether it searches text or vectors."""
        return self.nearest is not None or self.full_text_query is not None

    @property
    def has_deleted_rows(self) -> bool:
        """Whether it reads deleted rows."""
        return bool(self.options["include_deleted_rows"])

    @property
    def uses_indexes(self) -> bool:
        """Whether indexes of columns in the conditions rule out rows."""
        return self.options["use_scalar_index"] is not False

    @property
    def projection(self) -> tuple[str | None, bool, bool]:
        """The arguments of `VersionReader.select` after the columns."""
        options = self.options
        return (
            options["blob_handling"],
            bool(options["with_row_id"]),
            bool(options["with_row_address"]),
        )

    @property
    def condition(self) -> str:
        """The text of the conditions."""
        return " AND ".join(map(str, self.written_conditions))

    def with_options(self, **changed: Unpack[ScanKeywords]) -> Self:
        """Return a request with other keywords."""
        return replace(self, options=cast("ScanKeywords", {**self.options, **changed}))


def scan_request(
    reader: VersionReader,
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
    **keywords: Unpack[ScanKeywords],
) -> ScanRequest:
    """Check the arguments of a scan.

    `Dataset.scanner`, `to_table`, `to_batches` and the same methods of `FreshRows` have the
    parameters of this function.

    Parameters
    ----------
    columns : sequence of str, or mapping of str to str, optional
        Names of columns, or dotted paths of children of structs, which become columns with these
        paths as names, null where a struct is null; all columns by default. The hidden columns of
        every table can be named as well: ``_rowid``, ``_rowaddr``, ``_rowoffset``,
        ``_row_created_at_version``, ``_row_last_updated_at_version`` and ``_fragid``. A mapping has
        expressions by the names of the results, in the language of `filter`.
    filter : str, pyarrow.compute.Expression or Predicate, optional
        Read only rows that satisfy this condition: the text of a ``WHERE`` clause in Spark's SQL,
        with Spark's meaning of null and NaN (`lance_spark.scan.predicates.sql`), or an expression
        of Arrow, with Arrow's meaning. No session time zone is assumed: a timestamp literal for a
        column with a time zone must name its zone. As in pylance, a mapping with the key
        ``expr_filter`` is taken, too.
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
    batch_readahead, fragment_readahead, scan_in_order : optional
        Arguments of pylance that change only how it reads. They are checked, and have no effect:
        rows are always in the table's order.
    fragments : iterable of DatasetFragment or Fragment, optional
        Read only rows of these fragments of this version, in the given order.
    index_segments : optional
        Not supported.
    full_text_query : str, mapping or FullTextQuery, optional
        Read only rows whose text matches: words, ``"a phrase"`` in quotation marks, a mapping with
        the keys ``query`` and ``columns``, or a query of `lance_spark.query`. Without columns, all
        columns with an INVERTED index are searched.

    Returns
    -------
    ScanRequest

    Raises
    ------
    InvalidInputError
        A column or fragment does not exist, a number is out of range, or arguments cannot be
        combined.
    UnsupportedFeatureError
        An argument is not supported.
    """
    options = checked(ScanKeywords, keywords)
    _check_refused({**options, "index_segments": index_segments})
    schema = reader.table.schema
    _check_hints(schema.names, batch_readahead, fragment_readahead, options)
    filter = condition_of(filter)
    computed = None
    if isinstance(columns, Mapping):
        from lance_spark.dataset.scanning.computed import parse_computed

        computed = parse_computed(columns, reader.as_read(schema, options["blob_handling"]))
        columns = computed.read
    elif isinstance(columns, str):
        raise InvalidInputError(f"columns must be a list of names, not the string {columns!r}")
    listed = None if options["filters"] is None else list(options["filters"])
    conditions = reader.conditions(listed, filter)
    # These follow the other columns, even if they are named, too.
    last = [row_meta.ROW_ID.name] * bool(options["with_row_id"])
    last += [row_meta.ROW_ADDRESS.name] * bool(options["with_row_address"])
    named = None if columns is None else [name for name in columns if name not in last]
    return ScanRequest(
        columns=columns,
        computed=computed,
        children=None if computed else child_columns(named, schema),
        conditions=conditions,
        written_conditions=_written_filters(listed, filter, conditions),
        limit=limit,
        offset=offset or 0,
        batch_size=DEFAULT_BATCH_SIZE if batch_size is None else batch_size,
        batch_size_bytes=batch_size_bytes,
        order=parse_order(options["order_by"], schema),
        fragment_ids=None if fragments is None else _fragment_ids(fragments),
        nearest=nearest,
        full_text_query=full_text_query,
        options=options,
    )


def count_rows(
    reader: VersionReader, filter: Filter | None = None, **keywords: Unpack[CountKeywords]
) -> int:
    """Return the number of live rows that meet conditions; see `Dataset.count_rows`."""
    with turn(local=reader.table.store.is_local):
        conditions = reader.conditions(keywords.get("filters"), filter)
        return reader.count_rows(conditions, keywords.get("use_scalar_index") is not False)


def planned(
    reader: VersionReader,
    columns: Sequence[str] | None = None,
    **keywords: Unpack[PlanKeywords],
) -> ScanPlan:
    """Split a scan into tasks; see `Dataset.plan`."""
    conditions = reader.conditions(keywords.get("filters"), keywords.get("filter"))
    return reader.plan(columns, conditions, **of_group(TaskKeywords, keywords))


def _fragment_ids(fragments: Iterable[Any]) -> tuple[int, ...]:
    """Return the ids of fragments of a version, which callers gave.

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


def _written_filters(
    filters: Sequence[Any] | None, filter: Filter | None, conditions: Sequence[Condition]
) -> tuple[Any, ...]:
    """Return filters as the caller wrote them, for `str`.

    Parameters
    ----------
    filters, filter
        As in `scan_request`.
    conditions : sequence of Condition
        What they are parsed to. Arrow's text of a deep expression overflows the stack; that of its
        condition does not.
    """
    last = () if filter is None else (filter if isinstance(filter, str) else conditions[-1],)
    return (*(filters or ()), *last)


def _check_refused(arguments: Mapping[str, Any]) -> None:
    """Check that no argument is given that this package does not have.

    Raises
    ------
    UnsupportedFeatureError
    """
    for name, advice in _REFUSED.items():
        if arguments.get(name) is not None:
            raise UnsupportedFeatureError(f"{name} is not supported; {advice}")


def condition_of(filter: Any) -> Any:
    """Return the condition of a filter. A filter of pylance can be a mapping with a search, too.

    Raises
    ------
    InvalidInputError
        A key is unknown.
    UnsupportedFeatureError
        The mapping has a search.
    """
    if not isinstance(filter, Mapping):
        return filter
    unknown = filter.keys() - {"expr_filter", "search_filter"}
    if unknown:
        raise InvalidInputError(
            f"the keys of filter must be expr_filter and search_filter, not {min(unknown)!r}"
        )
    if filter.get("search_filter") is not None:
        raise UnsupportedFeatureError(
            "search_filter of filter is not supported; give nearest or full_text_query"
        )
    return filter.get("expr_filter")


def _check_hints(
    names: Iterable[str],
    batch_readahead: int | None,
    fragment_readahead: int | None,
    options: ScanKeywords,
) -> None:
    """Check arguments that change only how pylance reads.

    Raises
    ------
    InvalidInputError
    """
    if batch_readahead is not None:
        check_least("batch_readahead", batch_readahead, 1)
    if fragment_readahead is not None:
        check_least("fragment_readahead", fragment_readahead, 0)
    if options["io_buffer_size"] is not None:
        check_least("io_buffer_size", options["io_buffer_size"], 1)
    late = options["late_materialization"]
    if late is None or isinstance(late, bool):
        return
    missing = set(late) - set(names)
    if missing:
        raise InvalidInputError(f"late_materialization: column {min(missing)!r} not found")
