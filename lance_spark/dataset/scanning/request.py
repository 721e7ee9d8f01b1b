"""The arguments of a scan, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError

if TYPE_CHECKING:
    from lance_spark.dataset.scanning.children import ChildColumns
    from lance_spark.dataset.scanning.computed import ComputedColumns
    from lance_spark.dataset.scanning.ordered import OrderKey
    from lance_spark.dataset.scanning.statistics import ScanStatistics
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
    strict_batch_size: bool
    order: tuple[OrderKey, ...]
    fragment_ids: tuple[int, ...] | None
    nearest: Mapping[str, Any] | None
    full_text_query: QueryLike | None
    prefilter: bool | None
    fast_search: bool
    adds_score: bool
    with_row_id: bool
    with_row_address: bool
    blob_handling: str | None
    use_scalar_index: bool
    include_deleted_rows: bool
    scan_stats_callback: Callable[[ScanStatistics], None] | None

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
            if self.strict_batch_size:
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
                "include_deleted_rows": self.include_deleted_rows,
                "columns as a mapping": self.computed is not None,
            }
            for argument, is_given in incompatible.items():
                if is_given:
                    raise InvalidInputError(
                        f"{argument} cannot be combined with nearest or full_text_query"
                    )
        if self.include_deleted_rows:
            if not self.with_row_id:
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


def check_refused(arguments: Mapping[str, Any]) -> None:
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


def check_hints(
    names: Iterable[str],
    batch_readahead: int | None,
    fragment_readahead: int | None,
    io_buffer_size: int | None,
    late_materialization: bool | Sequence[str] | None,
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
    if io_buffer_size is not None:
        check_least("io_buffer_size", io_buffer_size, 1)
    if late_materialization is None or isinstance(late_materialization, bool):
        return
    missing = set(late_materialization) - set(names)
    if missing:
        raise InvalidInputError(f"late_materialization: column {min(missing)!r} not found")
