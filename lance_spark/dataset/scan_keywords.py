"""The keywords of scans, and what a scan counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.keywords import Keyword
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.search_keywords import IndexSearchKeywords

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from lance_spark.predicates.tree import Predicate
    from lance_spark.scan.top_rows import SortKey


# --------------------------------------------------------------------------------------------------
# The order of the rows of a scan: `ColumnOrdering`, and its keys.


@dataclass(frozen=True)
class ColumnOrdering:
    """A column by which a scan orders its rows.

    Attributes
    ----------
    column_name : str
        A column, or a child of a struct with its path, such as ``s.a``.
    ascending : bool
    nulls_first : bool
        Whether rows with null come first, in both directions.

    Examples
    --------
    >>> dataset.to_table(order_by=[ColumnOrdering("age", ascending=False)], limit=10)
    """

    column_name: str
    ascending: bool = True
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A key of an order, and where its values are.

    - `key`: The column, or the child of a struct.
    - `path`: The names from the top-level column down.
    """

    key: SortKey
    path: tuple[str, ...]


def parse_order(
    orderings: str | Iterable[ColumnOrdering | str] | None, schema: Schema
) -> tuple[OrderKey, ...]:
    """Return the keys of an order.

    - `orderings`: A string is a column in ascending order. pylance's `ColumnOrdering` is accepted
      as well.
    - `schema`: Of the table.

    Raises InvalidInputError: a column does not exist, or has a type that has no order here.
    """
    if orderings is None:
        return ()
    # Its import of Arrow's functions would slow down each start of a read.
    from lance_spark.scan.top_rows import SortKey, can_order

    keys = []
    for item in [orderings] if isinstance(orderings, str) else orderings:
        ordering = ColumnOrdering(item) if isinstance(item, str) else item
        name = getattr(ordering, "column_name", None)
        if not isinstance(name, str):
            raise InvalidInputError(
                "order_by must be names of columns or ColumnOrdering, not "
                f"{type(ordering).__name__}"
            )
        try:
            nodes = schema.path(name)
        except InvalidInputError as error:
            raise InvalidInputError(f"order_by: column {name!r} not found: {error}") from None
        field = nodes[-1]
        if any(node.logical_type != "struct" for node in nodes[:-1]):
            raise InvalidInputError(
                f"order_by: {name!r} is a child of a list or map; use children of structs"
            )
        if not can_order(field):
            raise InvalidInputError(
                f"order_by: column {name!r} has type {field.to_arrow().type}, which has no order; "
                "use numbers, booleans, strings, dates or timestamps in microseconds"
            )
        key = SortKey(field, not ordering.ascending, bool(ordering.nulls_first))
        keys.append(OrderKey(key, tuple(node.name for node in nodes)))
    return tuple(keys)


def key_names(keys: Sequence[OrderKey]) -> list[str]:
    """Return the paths of the columns of keys, each once."""
    return list(dict.fromkeys(".".join(key.path) for key in keys))


# --------------------------------------------------------------------------------------------------
# The arguments of reads: each keyword is declared once.
#
# `lance_spark.dataset.scan_request.scan_request` has the other arguments of scans, which
# pylance takes by their places.

if TYPE_CHECKING:
    #: A condition: text, an expression of Arrow, or a parsed condition.
    Filter: TypeAlias = str | pc.Expression | Predicate
    #: Columns of a scan: their names, or expressions by the names of the results.
    Columns: TypeAlias = Sequence[str] | Mapping[str, str]

#: Default for the maximum number of rows of a batch. Columnar engines work best with large batches.
DEFAULT_BATCH_SIZE = 65_536


class BlobKeywords(TypedDict, total=False):
    """What reads return of blobs."""

    blob_handling: Annotated[
        str | None,
        Keyword(
            "Content of blob columns: ``blobs_descriptions`` (position and size of the bytes; the "
            "default), ``all_binary`` (the bytes) or ``none`` (no blob columns). "
            "``all_descriptions`` is the same as the default."
        ),
    ]


class ProjectionKeywords(BlobKeywords, total=False):
    """Which columns a read has besides those that it names."""

    with_row_id: Annotated[bool | None, Keyword("Whether to append the column ``_rowid``.")]
    with_row_address: Annotated[bool | None, Keyword("Whether to append the column ``_rowaddr``.")]


class FilterKeywords(TypedDict, total=False):
    """Which rows a read has, besides its argument `filter`."""

    filters: Annotated[
        Iterable[Sequence[Any]] | None,
        Keyword(
            "(column, operator, value): read only rows that satisfy all of these conditions as "
            "well. Operators: ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` and ``not in`` "
            "(with a list), ``is_null`` and ``is_not_null`` (without a value)."
        ),
    ]


class IndexKeywords(TypedDict, total=False):
    """Whether a read uses indexes of columns."""

    use_scalar_index: Annotated[
        bool | None,
        Keyword("Whether indexes of columns in the filters rule out rows; by default they do."),
    ]


class CountKeywords(FilterKeywords, IndexKeywords, total=False):
    """Keywords of a count of rows."""


class SearchKeywords(IndexSearchKeywords, total=False):
    """How texts and vectors are searched."""

    prefilter: Annotated[
        bool | None,
        Keyword(
            "Whether the filters decide which rows are searched. By default, they decide it for "
            "`full_text_query`, and leave out some of the rows that `nearest` finds."
        ),
    ]


class ScanKeywords(ProjectionKeywords, FilterKeywords, IndexKeywords, SearchKeywords, total=False):
    """Keywords of a scan, besides the arguments that pylance takes by their places."""

    include_deleted_rows: Annotated[
        bool | None,
        Keyword(
            "Whether to read deleted rows as well, as far as their fragments still exist. Their "
            "``_rowid`` and ``_rowaddr`` are null. Needs `with_row_id`."
        ),
    ]
    scan_stats_callback: Annotated[
        Callable[[ScanStatistics], None] | None,
        Keyword("Called with a `ScanStatistics` after the last row was read."),
    ]
    strict_batch_size: Annotated[
        bool | None,
        Keyword("Whether all batches but the last one have exactly `batch_size` rows."),
    ]
    order_by: Annotated[
        str | Iterable[ColumnOrdering | str] | None,
        Keyword("Column or columns by which the rows are ordered. NaN is the largest number."),
    ]
    disable_scoring_autoprojection: Annotated[
        bool | None,
        Keyword(
            "Whether a search has the column ``_score`` or ``_distance`` only if `columns` names "
            "it."
        ),
    ]
    use_stats: Annotated[bool | None, Keyword("Has no effect, as `batch_readahead`.")]
    io_buffer_size: Annotated[int | None, Keyword("Has no effect, as `batch_readahead`.")]
    late_materialization: Annotated[
        bool | Sequence[str] | None,
        Keyword("Has no effect: columns that no filter reads are always decoded last."),
    ]
    row_addr_allowlist: Annotated[bytes | None, Keyword("Not supported.")]
    row_addr_blocklist: Annotated[bytes | None, Keyword("Not supported.")]


class SplitKeywords(TypedDict, total=False):
    """How a scan is split into tasks."""

    rows_per_task: Annotated[
        int | None,
        Keyword(
            "Number of rows that a task aims at; by default, tasks read about 128 MiB of files, "
            "and there are at least `min_partitions` of them if possible."
        ),
    ]
    min_partitions: Annotated[int, Keyword("Number of tasks that can run at the same time.", 1)]


class TaskKeywords(ProjectionKeywords, SplitKeywords, IndexKeywords, total=False):
    """Keywords of a scan in tasks whose conditions are parsed."""

    batch_size: Annotated[int, Keyword("Maximum number of rows of a batch.", DEFAULT_BATCH_SIZE)]
    fragment_ids: Annotated[Collection[int] | None, Keyword("Read only rows of these fragments.")]
    whole_fragments: Annotated[
        bool, Keyword("Whether one task must read all rows of a fragment.", False)
    ]


class ConditionKeywords(FilterKeywords, total=False):
    """The filters of a read, all by their names."""

    filter: Annotated[Filter | None, Keyword("As in `scanner`.")]


class PlanKeywords(ConditionKeywords, TaskKeywords, total=False):
    """Keywords of a scan in tasks."""


class ExplainKeywords(
    ConditionKeywords, IndexKeywords, SearchKeywords, BlobKeywords, SplitKeywords, total=False
):
    """Keywords of a text that says what a scan reads."""

    nearest: Annotated[Mapping[str, Any] | None, Keyword("As in `scanner`.")]


# --------------------------------------------------------------------------------------------------
# What a scan read, for `scan_stats_callback` and `Scanner.analyze_plan`.


@dataclass(frozen=True, slots=True)
class ScanStatistics:
    """Counters of a scan that has ended.

    Reads of deletion files and of indexes are not counted.

    Attributes
    ----------
    iops : int
        Reads that were sent to the store.
    requests : int
        Rounds of reads, each of all ranges that were needed at a time.
    bytes_read : int
    all_counts : mapping of str to int
        All counters by their names; times are in nanoseconds.
    """

    iops: int = 0
    requests: int = 0
    bytes_read: int = 0
    all_counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, metrics: ScanMetrics) -> ScanStatistics:
        """Return the statistics of the counters of a scan."""
        return cls(metrics.iops, metrics.requests, metrics.bytes_read, metrics.as_dict())
