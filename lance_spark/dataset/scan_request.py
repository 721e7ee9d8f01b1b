"""A scan as it was asked for: columns, filter, order, limit, and computed columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.scan_keywords import (
    DEFAULT_BATCH_SIZE,
    CountKeywords,
    IndexKeywords,
    PlanKeywords,
    ProjectionKeywords,
    ScanKeywords,
    TaskKeywords,
    parse_order,
)
from lance_spark.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from lance_spark.file.schema.schema import Schema
from lance_spark.keywords import checked, of_group
from lance_spark.predicates.comparison import column_at
from lance_spark.predicates.tree import Column
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.fragment.column_reader import rows_without_columns
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.turns import turn

if TYPE_CHECKING:
    from lance_spark.dataset.reader import VersionReader
    from lance_spark.dataset.scan_keywords import Columns, Filter, OrderKey
    from lance_spark.indexes.text.queries import QueryLike
    from lance_spark.predicates.conditions import Condition
    from lance_spark.predicates.expressions.node import Expression
    from lance_spark.scan.plan import ScanPlan


# --------------------------------------------------------------------------------------------------
# Children of structs as columns of a scan, with their paths as names, as in pylance.
#
# A scan reads a struct with the children that are named. Each child becomes a column of its own,
# null where a struct around it is null.


@dataclass(frozen=True, slots=True)
class ChildColumns:
    """The columns of a scan by their names.

    Attributes
    ----------
    paths : dict of str to tuple of str
        For each column the names from the top-level column down. Columns that a scan adds to these,
        such as ``_distance``, follow.
    """

    paths: dict[str, tuple[str, ...]]

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Return the schema of the columns, given that of the rows that are read."""
        fields = []
        for name, path in self._all_paths(read).items():
            nodes = _nodes(read, path)
            nullable = any(node.nullable for node in nodes)
            fields.append(nodes[-1].with_name(name).with_nullable(nullable))
        return pa.schema(fields, read.metadata)

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the rows of a batch."""
        schema = self.schema(batch.schema)
        if not schema.names:
            return rows_without_columns(batch.num_rows)
        arrays = [column_at(batch, path) for path in self._all_paths(batch.schema).values()]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def of_table(self, table: pa.Table) -> pa.Table:
        """Return the columns of the rows of a table."""
        batches = [self.of_batch(batch) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, self.schema(table.schema))

    def _all_paths(self, read: pa.Schema) -> dict[str, tuple[str, ...]]:
        used = {path[0] for path in self.paths.values()}
        # A read can leave out blobs.
        paths = {name: path for name, path in self.paths.items() if _nodes(read, path)}
        return paths | {name: (name,) for name in read.names if name not in used}


def _nodes(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field]:
    """Return the fields of a path; none if the last one is not in the schema."""
    nodes: list[pa.Field] = []
    for name in path:
        fields = list(nodes[-1].type if nodes else schema)
        found = [field for field in fields if field.name == name]
        if not found:
            return []
        nodes.append(found[0])
    return nodes


def child_columns(columns: Sequence[str] | None, schema: Schema) -> ChildColumns | None:
    """Return the columns of a scan; None if none of them is a child of a struct.

    Children of lists and maps stay in them.

    Parameters
    ----------
    columns : sequence of str, optional
        As a caller gave them.
    schema : Schema
        Of the table.

    Raises
    ------
    InvalidInputError
        A child is not found.
    """
    top_level = set(schema.names)
    if columns is None or all(name in top_level or "." not in name for name in columns):
        return None
    paths: dict[str, tuple[str, ...]] = {}
    for name in columns:
        if name in top_level or "." not in name:
            paths[name] = (name,)
            continue
        nodes = schema.path(name)
        if all(node.logical_type == "struct" for node in nodes[:-1]):
            paths[name] = tuple(node.name for node in nodes)
        else:
            paths[nodes[0].name] = (nodes[0].name,)
    return ChildColumns(paths)


# --------------------------------------------------------------------------------------------------
# Columns of a scan that are expressions of the table's columns.
#
# The language of the expressions is that of filters: Spark's SQL, and functions of pylance. The
# name of a column alone is the column itself, of any type.


@dataclass(frozen=True, slots=True)
class ComputedColumns:
    """Columns by their names, each with the value of its rows.

    Attributes
    ----------
    values : mapping of str to Column or Expression
    """

    values: Mapping[str, Column | Expression]

    @property
    def read(self) -> list[str]:
        """The top-level columns that are read, in the order in which they are first named."""
        names: dict[str, None] = {}
        for value in self.values.values():
            columns: Iterable[Column] = [value] if isinstance(value, Column) else value.columns()
            names.update(dict.fromkeys(column.path[0].name for column in columns))
        return list(names)

    def fields(self) -> list[pa.Field]:
        """Return the Arrow fields of the columns."""
        return [
            value.field.to_arrow().with_name(name)
            if isinstance(value, Column)
            else pa.field(name, value.dtype)
            for name, value in self.values.items()
        ]

    def of_batch(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns for the rows of a batch.

        Parameters
        ----------
        batch : pa.RecordBatch
            The columns of `read`, and others.
        schema : pa.Schema
            Of the result: the columns, and others of the batch.
        """
        arrays = [
            column_at(batch, [node.name for node in value.path])
            if isinstance(value, Column)
            else value.evaluate(batch)
            for value in self.values.values()
        ]
        others = [batch.column(name) for name in schema.names[len(arrays) :]]
        if not schema.names:
            return batch.select([])
        return pa.RecordBatch.from_arrays([*arrays, *others], schema=schema)

    def of_table(self, table: pa.Table) -> pa.Table:
        """Return the columns for the rows of a table, which has the columns of `read`."""
        schema = pa.schema(self.fields())
        batches = table.combine_chunks().to_batches()
        return pa.Table.from_batches([self.of_batch(batch, schema) for batch in batches], schema)


def parse_computed(columns: Mapping[str, str], schema: Schema) -> ComputedColumns:
    """Parse the columns of a scan.

    Parameters
    ----------
    columns : mapping of str to str
        Expressions by the names of the results.
    schema : Schema
        Of the table, with blobs as they are read.

    Raises
    ------
    InvalidInputError
        An expression is not valid, or a column does not exist.
    """
    from lance_spark.predicates.sql import parse_value

    known = row_meta.with_all(schema)
    names = set(known.names)
    values: dict[str, Column | Expression] = {}
    for name, text in columns.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidInputError(
                f"columns must map names to expressions, both strings, not {name!r} to {text!r}"
            )
        if text in names:
            values[name] = Column(known.path(text))
            continue
        try:
            values[name] = parse_value(text, known)
        except LanceError as error:
            message = str(error).removeprefix("filter ")
            raise InvalidInputError(f"column {name!r}: {message}") from None
    return ComputedColumns(values)


def with_others(computed: ComputedColumns, others: Sequence[pa.Field]) -> pa.Schema:
    """Return the schema of computed columns and others after them.

    Raises
    ------
    InvalidInputError
        Two columns have the same name.
    """
    fields = [*computed.fields(), *others]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"two columns of the scan have the same name: {', '.join(names)}")
    return pa.schema(fields)


# --------------------------------------------------------------------------------------------------
# The arguments of a read, declared once, and checked.

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
    def projection(self) -> ProjectionKeywords:
        """The keywords of `VersionReader.select`."""
        return of_group(ProjectionKeywords, self.options)

    @property
    def indexes(self) -> IndexKeywords:
        """The keywords that say whether indexes of columns rule out rows."""
        return of_group(IndexKeywords, self.options)

    @property
    def tasks(self) -> TaskKeywords:
        """The keywords of `VersionReader.plan` that the request has."""
        return {**of_group(TaskKeywords, self.options), "batch_size": self.batch_size}

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
        with Spark's meaning of null and NaN (`lance_spark.predicates.sql`), or an expression
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
        return reader.count_rows(conditions, **of_group(IndexKeywords, keywords))


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
