"""The arguments of reads: each keyword is declared once.

`lance_spark.dataset.scanning.request.scan_request` has the other arguments of scans, which pylance
takes by their places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from lance_spark.keywords import Keyword
from lance_spark.scan.search_keywords import IndexSearchKeywords

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from lance_spark.dataset.scanning.ordered import ColumnOrdering
    from lance_spark.dataset.scanning.statistics import ScanStatistics
    from lance_spark.scan.predicates.tree import Predicate

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
