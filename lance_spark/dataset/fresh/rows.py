"""`FreshRows`, what `Dataset.fresh` returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from lance_spark.dataset.planning import DEFAULT_BATCH_SIZE
from lance_spark.dataset.scanning.methods import ScannerMethods
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.fresh.scan import FreshScan
from lance_spark.mem_wal.fresh.tasks import count_sources
from lance_spark.mem_wal.snapshot import FreshState, read_state
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.scan.plan import ScanPlan
from lance_spark.scan.predicates.conditions import Condition, top_fields
from lance_spark.scan.task import ScanTask
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from lance_spark.dataset.planning import Filter
    from lance_spark.scan.text.queries import QueryLike
    from lance_spark.scan.text.search import TextSearch
    from lance_spark.scan.text.task import TextScanTask
    from lance_spark.scan.vectors.search import VectorSearch
    from lance_spark.scan.vectors.task import VectorScanTask
    from lance_spark.table.open import Reference


class FreshRows(ScannerMethods):
    """The newest version of a table, and the rows of its MemWAL that the version does not have.

    Made by `Dataset.fresh`. Rows are read as if the rows of the MemWAL had been merged into the
    table by its primary key. Later writes are not visible; each shard is as it was when it was
    read.

    Rows of a MemWAL have no row ids, row addresses and positions, so they cannot be selected or
    returned by these. Values of blob columns can be read as bytes.

    Attributes
    ----------
    num_shards, num_sstables, num_entries : int
        Shards with rows that the version does not have, and their SSTables and WAL entries.

    Examples
    --------
    >>> dataset.fresh().to_table(["id", "name"], filter="id > 5")
    """

    def __init__(
        self,
        table: OpenTable,
        storage_options: Mapping[str, str] | None = None,
        state: FreshState | None = None,
        key_columns: Sequence[str] | None = None,
    ) -> None:
        state = read_state(table) if state is None else state
        super().__init__(state.table, storage_options)
        paths = None
        if key_columns is not None:
            paths = tuple(state.table.schema.path(name) for name in key_columns)
        self._scan = FreshScan(state, paths)

    def __repr__(self) -> str:
        sources = f"{self.num_sstables} SSTables, {self.num_entries} WAL entries"
        return f"FreshRows({self._table.store.display!r}, version={self.version}, {sources})"

    @property
    def key_columns(self) -> list[str]:
        """Paths of the columns by which rows replace older rows; empty without a primary key."""
        return [".".join(node.name for node in path) for path in self._scan.paths]

    @property
    def num_shards(self) -> int:
        """Number of shards that are read."""
        return len(self._scan.sources.shards)

    @property
    def num_sstables(self) -> int:
        """Number of SSTables that are read."""
        return self._scan.sources.num_sstables

    @property
    def num_entries(self) -> int:
        """Number of WAL entries that are read."""
        return self._scan.sources.num_entries

    @property
    def _max_rows(self) -> int:
        """The maximum number of rows, without reading any: hidden rows are counted."""
        return super()._max_rows + self._scan.sources.max_rows

    @property
    def _has_only_fragments(self) -> bool:
        """Whether it is known that all rows are rows of fragments."""
        return not self._scan.state.manifests

    def _count_rows(self, conditions: Sequence[Condition], use_scalar_index: bool) -> int:
        """Return the number of rows that meet all conditions.

        The keys of all rows are read, if the MemWAL has rows.
        """
        if self._has_only_fragments:
            return super()._count_rows(conditions, use_scalar_index)
        plan = self._plan(
            [],
            rows_per_task=1 << 62,
            min_partitions=1,
            conditions=conditions,
            use_scalar_index=use_scalar_index,
        )
        return sum(batch.num_rows for task in plan.tasks for batch in task.batches(prefetch=True))

    def checkout_version(self, version: Reference) -> NoReturn:
        """Refuse: the rows of a MemWAL belong to the newest version."""
        raise InvalidInputError(
            f"{self._table.store.display}: a fresh read is of the newest version; open version "
            f"{version!r} by open_dataset, or by checkout_version of a Dataset"
        )

    def take(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no positions."""
        raise self._without_addresses("take")

    def take_rows(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no row ids."""
        raise self._without_addresses("take_rows")

    def take_blobs(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no positions, row ids or addresses."""
        raise self._without_addresses("take_blobs")

    def _plan(
        self,
        columns: Sequence[str] | None,
        *,
        rows_per_task: int | None,
        min_partitions: int,
        batch_size: int = DEFAULT_BATCH_SIZE,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: Filter | None = None,
        conditions: Sequence[Condition] | None = None,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        fragment_ids: Collection[int] | None = None,
        whole_fragments: bool = False,
        use_scalar_index: bool = True,
    ) -> ScanPlan:
        if conditions is None:
            conditions = self._conditions(filters, filter)
        conditions = tuple(conditions)
        schema = self._select(columns, blob_handling, with_row_id, with_row_address)
        self._check(schema, conditions, fragment_ids)
        plan = super()._plan(
            columns,
            rows_per_task=rows_per_task,
            min_partitions=min_partitions,
            batch_size=batch_size,
            conditions=conditions,
            blob_handling=blob_handling,
            whole_fragments=whole_fragments,
            use_scalar_index=use_scalar_index,
        )
        sources = self._scan.sources_of(conditions)
        tasks = sources.base_tasks(plan.tasks, conditions)
        fresh = sources.fresh_tasks(schema, conditions, batch_size)
        return ScanPlan([*tasks, *fresh], plan.indexes)

    def _tasks(self, columns: Sequence[str], conditions: Sequence[Condition]) -> list[ScanTask]:
        """Return tasks of large parts, in the order of the table, rows of the MemWAL first."""
        plan = self._plan(columns, rows_per_task=1 << 62, min_partitions=1, conditions=conditions)
        return sorted(plan.tasks, key=lambda task: type(task) is ScanTask)

    def _explain(
        self,
        columns: Sequence[str] | None,
        conditions: tuple[Condition, ...],
        condition: str,
        **options: Any,
    ) -> str:
        """Describe a scan of the version, and which sources of the MemWAL it reads."""
        version = ScannerMethods(self._table, self._storage_options)
        text = version._explain(columns, conditions, condition, **options)
        tasks = self._scan.sources_of(conditions).fresh_tasks(Schema(()), conditions, 1)
        sstables, entries = count_sources(tasks)
        return f"{text}\n  fresh: {sstables} SSTables, {entries} WAL entries"

    def _check(
        self,
        schema: Schema,
        conditions: Sequence[Condition],
        fragment_ids: Collection[int] | None,
    ) -> None:
        """Refuse what rows of a MemWAL do not have."""
        if fragment_ids is not None:
            raise InvalidInputError(
                f"{self._table.store.display}: fragment_ids cannot be given for a fresh read: the "
                "rows of a MemWAL are in no fragment"
            )
        known = {field.id for field in META_FIELDS.values()}
        for column in (*schema.fields, *top_fields(conditions)):
            if column.id in known:
                raise self._without_addresses(column.name)
            if any(node.has_blobs and node.logical_type == "struct" for node in column.walk()):
                raise InvalidInputError(
                    f"{self._table.store.display}: a fresh read cannot return descriptors of blobs "
                    f"(column {column.name!r}); read the bytes with blob_handling='all_binary', or "
                    "leave the column out"
                )

    def _without_addresses(self, name: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self._table.store.display}: {name} cannot be used in a fresh read: the rows of a "
            "MemWAL have no row ids, addresses, positions and versions"
        )

    def _nearest_task(
        self,
        search: VectorSearch,
        schema: Schema,
        prefilter: tuple[Condition, ...],
        filters: tuple[Condition, ...],
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        use_scalar_index: bool = True,
    ) -> VectorScanTask:
        from lance_spark.mem_wal.fresh.found_rows import read_fields
        from lance_spark.mem_wal.fresh.nearest import FreshNearestTask

        read = Schema(read_fields(schema, search.path[:1], filters))
        self._check(read, prefilter, None)
        sources = self._scan.sources_of(prefilter)
        fresh = tuple(sources.fresh_tasks(read, prefilter, batch_size))
        if fresh:
            search = replace(search, measures_again=True)
        base = super()._nearest_task(
            search,
            schema,
            sources.unshadowed(prefilter),
            (),
            batch_size=batch_size,
            use_scalar_index=use_scalar_index,
        )
        return FreshNearestTask.of(base, fresh, filters)

    def _plan_text(
        self, query: QueryLike, *, fast_search: bool, use_index: bool = True
    ) -> TextSearch:
        from lance_spark.mem_wal.fresh.text import with_fresh_rows

        search = super()._plan_text(query, fast_search=fast_search, use_index=use_index)
        num_rows = self._scan.sources.max_rows
        return with_fresh_rows(search, num_rows) if num_rows else search

    def _text_task(
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
        from lance_spark.mem_wal.fresh.found_rows import read_fields
        from lance_spark.mem_wal.fresh.text import FreshTextTask, has_fresh_rows

        # All rows count as documents of columns that are searched as one.
        documents = () if search.has_combined_fields else prefilter
        after = tuple(
            condition for condition in filters if all(condition is not own for own in documents)
        )
        searched = [plan.path[0].id for plan in search.columns.values()]
        columns = [field for field in self._table.schema.fields if field.id in searched]
        read = Schema(read_fields(schema, columns, after))
        self._check(read, prefilter, None)
        sources = self._scan.sources_of(documents)
        base = super()._text_task(
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
