"""`FreshReader`: plans reads of a version together with the rows of its MemWAL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from lance_spark.dataset.reader import VersionReader
from lance_spark.dataset.scanning.options import DEFAULT_BATCH_SIZE, TaskKeywords
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.keywords import checked
from lance_spark.mem_wal.fresh.scan import FreshScan
from lance_spark.mem_wal.fresh.tasks import count_sources
from lance_spark.mem_wal.snapshot import FreshState
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.scan.plan import ScanPlan
from lance_spark.scan.predicates.conditions import Condition, top_fields
from lance_spark.scan.search_keywords import IndexSearchKeywords
from lance_spark.scan.task import ScanTask

if TYPE_CHECKING:
    from lance_spark.scan.text.queries import QueryLike
    from lance_spark.scan.text.search import TextSearch
    from lance_spark.scan.text.task import TextScanTask
    from lance_spark.scan.vectors.search import VectorSearch
    from lance_spark.scan.vectors.task import VectorScanTask


class FreshReader(VersionReader):
    """Plans reads of a version, and of the rows of its MemWAL that the version does not have.

    Parameters
    ----------
    state : FreshState
    storage_options : mapping of str to str
        Settings of the store.
    key_columns : sequence of str, optional
        Columns by which rows replace older rows; by default those of the primary key.

    Attributes
    ----------
    scan : FreshScan
        The rows of the MemWAL.
    """

    def __init__(
        self,
        state: FreshState,
        storage_options: Mapping[str, str],
        key_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(state.table, storage_options)
        paths = None
        if key_columns is not None:
            paths = tuple(state.table.schema.path(name) for name in key_columns)
        self.scan = FreshScan(state, paths)

    def __repr__(self) -> str:
        sources = self.scan.sources
        counts = f"{sources.num_sstables} SSTables, {sources.num_entries} WAL entries"
        return f"FreshRows({self.table.store.display!r}, version={self.table.version}, {counts})"

    @property
    def key_columns(self) -> list[str]:
        """Paths of the columns by which rows replace older rows; empty without a primary key."""
        return [".".join(node.name for node in path) for path in self.scan.paths]

    @property
    def max_rows(self) -> int:
        """The maximum number of rows, without reading any: hidden rows are counted."""
        return super().max_rows + self.scan.sources.max_rows

    @property
    def has_only_fragments(self) -> bool:
        """Whether it is known that all rows are rows of fragments."""
        return not self.scan.state.manifests

    def count_rows(self, conditions: Sequence[Condition], use_scalar_index: bool) -> int:
        """Return the number of rows that meet all conditions.

        The keys of all rows are read, if the MemWAL has rows.
        """
        if self.has_only_fragments:
            return super().count_rows(conditions, use_scalar_index)
        plan = self.plan([], conditions, rows_per_task=1 << 62, use_scalar_index=use_scalar_index)
        return sum(batch.num_rows for task in plan.tasks for batch in task.batches(prefetch=True))

    def plan(
        self,
        columns: Sequence[str] | None,
        conditions: Sequence[Condition] = (),
        **keywords: Unpack[TaskKeywords],
    ) -> ScanPlan:
        """Plan a scan."""
        given = checked(TaskKeywords, keywords)
        conditions = tuple(conditions)
        schema = self.select(
            columns, given["blob_handling"], given["with_row_id"], given["with_row_address"]
        )
        self._check(schema, conditions, given["fragment_ids"])
        plan = self.plan_version(columns, conditions, **keywords)
        sources = self.scan.sources_of(conditions)
        tasks = sources.base_tasks(plan.tasks, conditions)
        fresh = sources.fresh_tasks(schema, conditions, given["batch_size"])
        return ScanPlan([*tasks, *fresh], plan.indexes)

    def tasks(self, columns: Sequence[str], conditions: Sequence[Condition]) -> list[ScanTask]:
        """Return tasks of large parts, in the order of the table, rows of the MemWAL first."""
        plan = self.plan(columns, conditions, rows_per_task=1 << 62)
        return sorted(plan.tasks, key=lambda task: type(task) is ScanTask)

    def explained_sources(self, conditions: tuple[Condition, ...]) -> str:
        """Return a line about the sources of the MemWAL that a scan reads."""
        tasks = self.scan.sources_of(conditions).fresh_tasks(Schema(()), conditions, 1)
        sstables, entries = count_sources(tasks)
        return f"\n  fresh: {sstables} SSTables, {entries} WAL entries"

    def _check(
        self,
        schema: Schema,
        conditions: Sequence[Condition],
        fragment_ids: Collection[int] | None,
    ) -> None:
        """Refuse what rows of a MemWAL do not have."""
        if fragment_ids is not None:
            raise InvalidInputError(
                f"{self.table.store.display}: fragment_ids cannot be given for a fresh read: the "
                "rows of a MemWAL are in no fragment"
            )
        known = {field.id for field in META_FIELDS.values()}
        for column in (*schema.fields, *top_fields(conditions)):
            if column.id in known:
                raise self.without_addresses(column.name)
            if any(node.has_blobs and node.logical_type == "struct" for node in column.walk()):
                raise InvalidInputError(
                    f"{self.table.store.display}: a fresh read cannot return descriptors of blobs "
                    f"(column {column.name!r}); read the bytes with blob_handling='all_binary', or "
                    "leave the column out"
                )

    def without_addresses(self, name: str) -> InvalidInputError:
        """Return an error: rows of a MemWAL do not have what a read needs."""
        return InvalidInputError(
            f"{self.table.store.display}: {name} cannot be used in a fresh read: the rows of a "
            "MemWAL have no row ids, addresses, positions and versions"
        )

    def nearest_task(
        self,
        search: VectorSearch,
        schema: Schema,
        prefilter: tuple[Condition, ...],
        filters: tuple[Condition, ...],
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        use_scalar_index: bool = True,
    ) -> VectorScanTask:
        """Return the task of a vector search."""
        from lance_spark.mem_wal.fresh.found_rows import read_fields
        from lance_spark.mem_wal.fresh.nearest import FreshNearestTask

        read = Schema(read_fields(schema, search.path[:1], filters))
        self._check(read, prefilter, None)
        sources = self.scan.sources_of(prefilter)
        fresh = tuple(sources.fresh_tasks(read, prefilter, batch_size))
        if fresh:
            search = replace(search, measures_again=True)
        base = super().nearest_task(
            search,
            schema,
            sources.unshadowed(prefilter),
            (),
            batch_size=batch_size,
            use_scalar_index=use_scalar_index,
        )
        return FreshNearestTask.of(base, fresh, filters)

    def plan_text(
        self,
        query: QueryLike,
        *,
        use_index: bool = True,
        **keywords: Unpack[IndexSearchKeywords],
    ) -> TextSearch:
        """Plan a full-text search."""
        from lance_spark.mem_wal.fresh.text import with_fresh_rows

        search = super().plan_text(query, use_index=use_index, **keywords)
        num_rows = self.scan.sources.max_rows
        return with_fresh_rows(search, num_rows) if num_rows else search

    def text_task(
        self,
        search: TextSearch,
        schema: Schema,
        prefilter: tuple[Condition, ...],
        filters: tuple[Condition, ...],
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        limit: int | None = None,
        keeps_ties: bool = False,
    ) -> TextScanTask:
        """Return the task of a full-text search."""
        from lance_spark.mem_wal.fresh.found_rows import read_fields
        from lance_spark.mem_wal.fresh.text import FreshTextTask, has_fresh_rows

        # All rows count as documents of columns that are searched as one.
        documents = () if search.has_combined_fields else prefilter
        after = tuple(
            condition for condition in filters if all(condition is not own for own in documents)
        )
        searched = [plan.path[0].id for plan in search.columns.values()]
        columns = [field for field in self.table.schema.fields if field.id in searched]
        read = Schema(read_fields(schema, columns, after))
        self._check(read, prefilter, None)
        sources = self.scan.sources_of(documents)
        base = super().text_task(
            search,
            schema,
            prefilter,
            sources.unshadowed(filters),
            batch_size=batch_size,
            limit=limit,
            keeps_ties=keeps_ties,
        )
        if not sources.shards:
            return base
        fresh = sources.fresh_tasks(read, documents, batch_size) if has_fresh_rows(search) else ()
        return FreshTextTask.of(base, sources.keys, tuple(fresh), after)
