"""`Dataset.fresh`: reads of a table with the rows of its MemWAL."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.decorators import prefixes_errors
from lance_spark.dataset.reader import NearestTaskKeywords, TextTaskKeywords, VersionReader
from lance_spark.dataset.scan_keywords import (
    DEFAULT_BATCH_SIZE,
    CountKeywords,
    ExplainKeywords,
    IndexKeywords,
    PlanKeywords,
    ProjectionKeywords,
    TaskKeywords,
)
from lance_spark.dataset.scan_request import count_rows, planned, scan_request
from lance_spark.dataset.scanner import Scanner, explained
from lance_spark.dataset.search import searched_rows
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.schema.schema import Schema
from lance_spark.keywords import checked, of_group, parameters_of
from lance_spark.mem_wal.clone_progress import check_generations
from lance_spark.mem_wal.fresh.scan import FreshScan, LogTask, SsTableTask, count_sources
from lance_spark.mem_wal.snapshot import FreshState, read_state
from lance_spark.mem_wal.table.details import details_of
from lance_spark.mem_wal.table.shard_manifest import ShardManifest, SsTable, is_sstable_folder
from lance_spark.predicates.conditions import Condition, top_fields
from lance_spark.predicates.tuples import Comparison
from lance_spark.scan.fragment.row_meta import DISTANCE, META_FIELDS, ROW_ADDRESS
from lance_spark.scan.plan import ScanPlan
from lance_spark.scan.search_keywords import IndexSearchKeywords
from lance_spark.scan.task import ScanTask

if TYPE_CHECKING:
    from lance_spark.dataset.arrow_dataset import ArrowDataset
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.dataset.refs import Branches, Tags
    from lance_spark.dataset.scan_keywords import Filter
    from lance_spark.indexes.text.queries import QueryLike
    from lance_spark.indexes.text.search import TextScanTask, TextSearch
    from lance_spark.indexes.vectors.search import VectorScanTask, VectorSearch
    from lance_spark.table.commit.transaction import Transaction
    from lance_spark.table.fragments.fragment import Fragment
    from lance_spark.table.manifest.history import VersionInfo
    from lance_spark.table.open import Reference
    from lance_spark.table.paths import BasePath


# --------------------------------------------------------------------------------------------------
# `FreshReader`: plans reads of a version together with the rows of its MemWAL.


class FreshReader(VersionReader):
    """Plans reads of a version, and of the rows of its MemWAL that the version does not have.

    - `storage_options`: Settings of the store.
    - `key_columns`: Columns by which rows replace older rows; by default those of the primary key.
    - `scan`: The rows of the MemWAL.
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

    def count_rows(self, conditions: Sequence[Condition], **keywords: Unpack[IndexKeywords]) -> int:
        """Return the number of rows that meet all conditions.

        The keys of all rows are read, if the MemWAL has rows.
        """
        if self.has_only_fragments:
            return super().count_rows(conditions, **keywords)
        plan = self.plan([], conditions, rows_per_task=1 << 62, **keywords)
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
        schema = self.select(columns, **of_group(ProjectionKeywords, given))
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
        **keywords: Unpack[NearestTaskKeywords],
    ) -> VectorScanTask:
        """Return the task of a vector search."""
        from lance_spark.mem_wal.fresh.searches import FreshNearestTask, read_fields

        read = Schema(read_fields(schema, search.path[:1], filters))
        self._check(read, prefilter, None)
        sources = self.scan.sources_of(prefilter)
        batch_size = keywords.get("batch_size", DEFAULT_BATCH_SIZE)
        fresh = tuple(sources.fresh_tasks(read, prefilter, batch_size))
        if fresh:
            search = replace(search, measures_again=True)
        base = super().nearest_task(
            search,
            schema,
            sources.unshadowed(prefilter),
            (),
            **keywords,
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
        from lance_spark.mem_wal.fresh.searches import with_fresh_rows

        search = super().plan_text(query, use_index=use_index, **keywords)
        num_rows = self.scan.sources.max_rows
        return with_fresh_rows(search, num_rows) if num_rows else search

    def text_task(
        self,
        search: TextSearch,
        schema: Schema,
        prefilter: tuple[Condition, ...],
        filters: tuple[Condition, ...],
        **keywords: Unpack[TextTaskKeywords],
    ) -> TextScanTask:
        """Return the task of a full-text search."""
        from lance_spark.mem_wal.fresh.searches import FreshTextTask, has_fresh_rows, read_fields

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
            **keywords,
        )
        if not sources.shards:
            return base
        batch_size = keywords.get("batch_size", DEFAULT_BATCH_SIZE)
        fresh = sources.fresh_tasks(read, documents, batch_size) if has_fresh_rows(search) else ()
        return FreshTextTask.of(base, sources.keys, tuple(fresh), after)


# --------------------------------------------------------------------------------------------------
# `FreshRows`, what `Dataset.fresh` returns.


@prefixes_errors
class FreshRows:
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
        dataset: Dataset,
        state: FreshState | None = None,
        key_columns: Sequence[str] | None = None,
    ) -> None:
        state = read_state(dataset._table) if state is None else state
        self._dataset = dataset._committed(state.table)
        self._table = state.table
        self._reader = FreshReader(state, dataset._storage_options, key_columns)

    def __repr__(self) -> str:
        return repr(self._reader)

    # The version, and the rows of the MemWAL

    @property
    def uri(self) -> str:
        """URI or path of the root of the table, or of the branch."""
        return self._dataset.uri

    @property
    def version(self) -> int:
        """Number of the version."""
        return self._dataset.version

    @property
    def branch(self) -> str | None:
        """Name of the branch of the version; None for the main branch."""
        return self._dataset.branch

    @property
    def latest_version(self) -> int:
        """Number of the branch's newest version, which is looked up."""
        return self._dataset.latest_version

    @property
    def data_storage_version(self) -> str:
        """File version of new data files, for example ``2.2``."""
        return self._dataset.data_storage_version

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments of the version, in the table's order."""
        return self._reader.fragments

    @property
    def key_columns(self) -> list[str]:
        """Paths of the columns by which rows replace older rows; empty without a primary key."""
        return self._reader.key_columns

    @property
    def num_shards(self) -> int:
        """Number of shards that are read."""
        return len(self._reader.scan.sources.shards)

    @property
    def num_sstables(self) -> int:
        """Number of SSTables that are read."""
        return self._reader.scan.sources.num_sstables

    @property
    def num_entries(self) -> int:
        """Number of WAL entries that are read."""
        return self._reader.scan.sources.num_entries

    @property
    def dataset(self) -> Dataset:
        """The version, without the rows of the MemWAL, with all methods of `Dataset`."""
        return self._dataset

    @property
    def tags(self) -> Tags:
        """The tags of the table."""
        return self._dataset.tags

    @property
    def branches(self) -> Branches:
        """The branches of the table."""
        return self._dataset.branches

    def base_paths(self) -> dict[int, BasePath]:
        """Return the base paths of the version, by id."""
        return self._dataset.base_paths()

    def versions(self) -> list[VersionInfo]:
        """Return all existing versions of the branch; see `Dataset.versions`."""
        return self._dataset.versions()

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created a version; see `Dataset.read_transaction`."""
        return self._dataset.read_transaction(version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return the newest transactions; see `Dataset.get_transactions`."""
        return self._dataset.get_transactions(recent_transactions)

    # Scans and searches

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table, with the metadata of the schema and of its fields."""
        return self._dataset.schema

    def schema_of(
        self,
        columns: Sequence[str] | None = None,
        **keywords: Unpack[ProjectionKeywords],
    ) -> pa.Schema:
        """Return the Arrow schema of a read with these arguments; see `Dataset.scanner`."""
        return self._dataset.schema_of(columns, **keywords)

    @parameters_of(scan_request)
    def scanner(self, *arguments: Any, **keywords: Any) -> Scanner:
        """Return a scanner; see `Dataset.scanner`."""
        return Scanner(self._reader, scan_request(self._reader, *arguments, **keywords))

    @parameters_of(scan_request)
    def to_table(self, *arguments: Any, **keywords: Any) -> pa.Table:
        """Return the rows as an Arrow table; see `Dataset.scanner`."""
        return self.scanner(*arguments, **keywords).to_table()

    @parameters_of(scan_request)
    def to_batches(self, *arguments: Any, **keywords: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches; see `Dataset.scanner`."""
        yield from self.scanner(*arguments, **keywords).to_batches()

    def count_rows(self, filter: Filter | None = None, **keywords: Unpack[CountKeywords]) -> int:
        """Return the number of rows that meet conditions; see `Dataset.count_rows`."""
        return count_rows(self._reader, filter, **keywords)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count_rows()

    def plan(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[PlanKeywords]
    ) -> list[ScanTask]:
        """Split a scan into tasks; see `Dataset.plan`."""
        return planned(self._reader, columns, **keywords).tasks

    def explain(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[ExplainKeywords]
    ) -> str:
        """Return a text that says what a scan reads; see `Dataset.explain`."""
        return explained(self._reader, columns, **keywords)

    def arrow_dataset(self) -> ArrowDataset:
        """Return the rows as a `pyarrow.dataset.Dataset`; see `Dataset.arrow_dataset`."""
        from lance_spark.dataset.arrow_dataset import ArrowDataset

        return ArrowDataset(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows as a stream of Arrow's PyCapsule interface."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    # What only a version has

    def checkout_version(self, version: Reference) -> NoReturn:
        """Refuse: the rows of a MemWAL belong to the newest version."""
        raise InvalidInputError(
            f"{self._table.store.display}: a fresh read is of the newest version; open version "
            f"{version!r} by open_dataset, or by checkout_version of a Dataset"
        )

    def take(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no positions."""
        raise self._reader.without_addresses("take")

    def take_rows(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no row ids."""
        raise self._reader.without_addresses("take_rows")

    def take_blobs(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: rows of a MemWAL have no positions, row ids or addresses."""
        raise self._reader.without_addresses("take_blobs")

    def _stored_schema(
        self, columns: Sequence[str] | None = None, blob_handling: str | None = None
    ) -> pa.Schema:
        """Return the Arrow schema of a read, with stored types in place of extension types."""
        return self._dataset._stored_schema(columns, blob_handling)


# --------------------------------------------------------------------------------------------------
# SSTables that a caller names, and their rows together with those of a version.


@dataclass
class ShardSnapshot:
    """SSTables of a shard that a scan reads.

    Parameters
    ----------
    shard_id : str
        A UUID.

    Examples
    --------
    >>> snapshot = ShardSnapshot(shard_id).with_sstable(1, "0123abcd_gen_1")
    """

    shard_id: str
    spec_id: int = 0
    current_generation: int = 1
    sstables: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.shard_id = str(uuid.UUID(self.shard_id))
        except (ValueError, AttributeError, TypeError):
            raise InvalidInputError(f"shard_id must be a UUID, not {self.shard_id!r}") from None

    def with_spec_id(self, spec_id: int) -> ShardSnapshot:
        """Set the id of the sharding."""
        check_least("spec_id", spec_id, 0)
        self.spec_id = spec_id
        return self

    def with_current_generation(self, generation: int) -> ShardSnapshot:
        """Set the generation that the next SSTable will have."""
        check_least("generation", generation, 1)
        self.current_generation = generation
        return self

    def with_sstable(self, generation: int, path: str) -> ShardSnapshot:
        """Add an SSTable.

        Parameters
        ----------
        generation : int
        path : str
            Name of its folder below that of the shard.
        """
        check_least("generation", generation, 1)
        if not isinstance(path, str) or not is_sstable_folder(path):
            raise InvalidInputError(f"path must be the name of a folder of the shard, not {path!r}")
        self.sstables.append((generation, path))
        return self


def rows_of(
    dataset: Dataset,
    snapshots: Sequence[ShardSnapshot],
    pk_columns: Sequence[str] | None = None,
) -> FreshRows:
    """Return the rows of a version and of SSTables.

    Raises CorruptTableError, StorageError. Raises InvalidInputError: a generation of a shard is
    given twice, or a column of the key does not exist. Raises UnsupportedFeatureError: the table
    has no primary key, and `pk_columns` is not given.
    """
    table = dataset._table
    manifests = []
    for snapshot in snapshots:
        shard = uuid.UUID(snapshot.shard_id)
        generations = [generation for generation, _ in snapshot.sstables]
        if len(set(generations)) < len(generations):
            raise InvalidInputError(f"shard {shard}: a generation is given twice: {generations}")
        manifests.append(
            ShardManifest(
                shard,
                current_generation=max(
                    [snapshot.current_generation, *(g + 1 for g in generations)]
                ),
                sstables=tuple(SsTable(*pair) for pair in sorted(snapshot.sstables)),
                spec_id=snapshot.spec_id,
            )
        )
    details = details_of(table.manifest)
    if details is not None:
        check_generations(table.store, manifests, details.compacted)
    state = FreshState(table, details, tuple(manifests), has_logs=False)
    rows = FreshRows(dataset, state, pk_columns)
    if not rows.key_columns:
        raise UnsupportedFeatureError(f"{table.store.display}: the table has no primary key")
    return rows


# --------------------------------------------------------------------------------------------------
# Scans and lookups over given SSTables of shards, by pylance's names.
#
# `Dataset.fresh` finds the rows of a MemWAL itself, those in logs, too. These classes read a
# version and the SSTables that the caller names. SSTables whose rows the version has are left out;
# pylance reads them, and then returns old rows.

GENERATION = pa.field("_memtable_gen", pa.uint64(), nullable=False)


class LsmScanner:
    """Scans a table together with rows of its MemWAL; of each key, the newest row.

    Made by `LsmScanner.from_snapshots`, or by `Dataset.lsm_scanner`, which reads logs, too.

    Examples
    --------
    >>> scanner = LsmScanner.from_snapshots(dataset, [snapshot])
    >>> scanner.project(["id", "value"]).filter("value > 0.5").to_table()
    """

    def __init__(self, rows: FreshRows) -> None:
        self._rows = rows
        self._columns: list[str] | None = None
        self._filter: str | None = None
        self._limit: int | None = None
        self._offset = 0
        self._row_address = False
        self._generation = False

    @staticmethod
    def from_snapshots(dataset: Dataset, shard_snapshots: Sequence[ShardSnapshot]) -> LsmScanner:
        """Scan a version and SSTables, without logs.

        Raises
        ------
        UnsupportedFeatureError
            The table has no primary key.
        InvalidInputError, CorruptTableError, StorageError
        """
        return LsmScanner(rows_of(dataset, shard_snapshots))

    def project(self, columns: Sequence[str]) -> LsmScanner:
        """Read only these columns, and those of the primary key."""
        self._columns = list(columns)
        return self

    def filter(self, expr: str) -> LsmScanner:
        """Read only rows that meet a condition; see `Dataset.to_batches`."""
        self._filter = expr
        return self

    def limit(self, n: int | None = None, offset: int | None = None) -> LsmScanner:
        """Read at most `n` rows, after the first `offset` rows."""
        for name, value in (("n", n), ("offset", offset)):
            if value is not None:
                check_least(name, value, 0)
        self._limit, self._offset = n, offset or 0
        return self

    def with_row_address(self) -> LsmScanner:
        """Append ``_rowaddr``, which is null for rows that are not in the table yet."""
        self._row_address = True
        return self

    def with_memtable_gen(self) -> LsmScanner:
        """Append ``_memtable_gen``: the generation of a row, 0 if it is in the table."""
        self._generation = True
        return self

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        schema = self._schema().to_arrow()
        if self._row_address:
            schema = schema.append(ROW_ADDRESS.arrow_field)
        return schema.append(GENERATION) if self._generation else schema

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows as record batches."""
        return list(self._batches())

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def to_batch(self) -> pa.RecordBatch:
        """Return the rows as one record batch."""
        batches = self.to_table().combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self.schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        if self._limit is None and not self._offset:
            return self._rows.count_rows(self._filter)
        return sum(batch.num_rows for batch in self._batches())

    def _schema(self) -> Schema:
        if self._columns is None:
            return self._rows._reader.select(None)
        names = dict.fromkeys([*self._columns, *self._rows.key_columns])
        return self._rows._reader.select(list(names))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        skipped, remaining = self._offset, self._limit
        for task in self._tasks() if remaining != 0 else ():
            for batch in task.batches(prefetch=remaining is None):
                rows = batch.slice(skipped)
                skipped -= batch.num_rows - rows.num_rows
                rows = rows.slice(0, remaining)
                if rows.num_rows:
                    yield self._completed(rows, task, schema)
                if remaining is not None:
                    remaining -= rows.num_rows
                    if remaining <= 0:
                        return

    def _completed(self, rows: pa.RecordBatch, task: ScanTask, schema: pa.Schema) -> pa.RecordBatch:
        arrays = rows.columns
        is_fresh = isinstance(task, SsTableTask | LogTask)
        if self._row_address and is_fresh:
            arrays.append(pa.nulls(rows.num_rows, pa.uint64()))
        if self._generation:
            generation = task.generation if isinstance(task, SsTableTask | LogTask) else 0
            arrays.append(pa.repeat(pa.scalar(generation, pa.uint64()), rows.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _tasks(self) -> list[ScanTask]:
        schema = self._schema()
        conditions = self._rows._reader.conditions(None, self._filter)
        tasks = self._rows._reader.tasks(schema.names, conditions)
        if not self._row_address:
            return tasks
        with_address = replace(schema, fields=(*schema.fields, ROW_ADDRESS))
        return [
            task
            if isinstance(task, SsTableTask | LogTask)
            else replace(task, lance_schema=with_address)
            for task in tasks
        ]


class ExecutionPlan:
    """A planned lookup or search. Each call reads the rows again."""

    def __init__(
        self,
        schema: pa.Schema,
        dataset_schema: pa.Schema,
        tasks: Sequence[ScanTask],
        read: Callable[[], Iterator[pa.RecordBatch]],
    ) -> None:
        self._schema, self._dataset_schema = schema, dataset_schema
        self._planned, self._batches = tuple(tasks), read

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return self._dataset_schema

    def explain(self) -> str:
        """Return what is read, a line for each source."""
        lines = []
        for task in self._planned:
            if isinstance(task, LogTask):
                lines.append(f"log of shard {task.log.shard}: {task.log.num_rows} rows")
            elif isinstance(task, SsTableTask):
                lines.append(f"SSTable of generation {task.generation}: {task.num_rows} rows")
            else:
                lines.append(f"table: {task.num_rows} rows of {len(task.slices)} slices")
        return "\n".join(lines)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows as record batches."""
        return list(self._batches())

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return pa.Table.from_batches(self._batches(), self.schema)


class LsmPointLookupPlanner:
    """Plans lookups of keys in a table and in rows of its MemWAL.

    Bloom filters rule SSTables out that do not have a key.

    Parameters
    ----------
    dataset : Dataset
    shard_snapshots : sequence of ShardSnapshot
    pk_columns : sequence of str, optional
        The columns of the key; by default those of the primary key of the table.

    Examples
    --------
    >>> planner = LsmPointLookupPlanner(dataset, [snapshot])
    >>> planner.plan_lookup(pa.array([42], pa.int64())).to_table()
    """

    def __init__(
        self,
        dataset: Dataset,
        shard_snapshots: Sequence[ShardSnapshot],
        pk_columns: Sequence[str] | None = None,
    ) -> None:
        self._rows = rows_of(dataset, shard_snapshots, pk_columns)

    def plan_lookup(
        self, pk_value: pa.Array, columns: Sequence[str] | None = None
    ) -> ExecutionPlan:
        """Plan the lookup of a key.

        Parameters
        ----------
        pk_value : pyarrow.Array
            One value; for a key of several columns, a struct with a field for each.
        columns : sequence of str, optional
            Columns to read besides those of the key; all columns by default.

        Raises
        ------
        InvalidInputError
            There is not exactly one value, or it is not of the type of the key.
        """
        rows = self._rows
        keys = _key_columns(pk_value, rows)
        conditions: tuple[Condition, ...] = tuple(
            Comparison(path, "==", values[0])
            for path, values in zip(rows._reader.scan.paths, keys, strict=True)
        )
        names = None if columns is None else [*dict.fromkeys([*columns, *rows.key_columns])]
        schema = rows._reader.select(names)
        tasks = rows._reader.tasks(schema.names, conditions)

        def read() -> Iterator[pa.RecordBatch]:
            for task in tasks:
                yield from task.batches(prefetch=False)

        return ExecutionPlan(schema.to_arrow(), rows.schema, tasks, read)


class LsmVectorSearchPlanner:
    """Plans vector searches in a table and in rows of its MemWAL.

    All vectors of SSTables, and of rows of the table that no index covers, are measured. pylance
    searches by indexes only.

    Parameters
    ----------
    dataset : Dataset
    shard_snapshots : sequence of ShardSnapshot
    vector_column : str
    pk_columns : sequence of str, optional
        The columns of the key; by default those of the primary key of the table.
    distance_type : str, optional
        The metric: ``l2``, ``cosine``, ``dot`` or ``hamming``; by default that of the index, or
        ``l2``.
    filter : str, optional
        Only rows that meet this condition are searched.

    Examples
    --------
    >>> planner = LsmVectorSearchPlanner(dataset, [snapshot], "vector")
    >>> planner.plan_search(pa.array([0.5, 0.1], pa.float32()), k=10).to_table()
    """

    def __init__(
        self,
        dataset: Dataset,
        shard_snapshots: Sequence[ShardSnapshot],
        vector_column: str,
        pk_columns: Sequence[str] | None = None,
        distance_type: str | None = None,
        filter: str | None = None,
    ) -> None:
        self._rows = rows_of(dataset, shard_snapshots, pk_columns)
        self._column, self._metric, self._filter = vector_column, distance_type, filter

    def plan_search(
        self,
        query: pa.Array,
        k: int = 10,
        nprobes: int = 20,
        columns: Sequence[str] | None = None,
        refine_base_table: bool = False,
        overfetch_factor: float = 1.0,
    ) -> ExecutionPlan:
        """Plan the search of the rows that are nearest to a vector.

        Parameters
        ----------
        query : pyarrow.Array
            The numbers of the vector.
        k : int
            Number of rows.
        nprobes : int
            Number of partitions of an index that are searched.
        columns : sequence of str, optional
            Columns to read besides those of the key and ``_distance``; all columns by default.
        refine_base_table : bool
            Whether rows that an index finds are measured by their vectors. They are, if SSTables
            have rows.
        overfetch_factor : float
            At least 1. Ignored: hidden rows take no place of other rows.

        Raises
        ------
        InvalidInputError
        """
        for name, value in (("k", k), ("nprobes", nprobes)):
            check_least(name, value, 1)
        if not 1 <= overfetch_factor < math.inf:
            raise InvalidInputError(f"overfetch_factor must be at least 1, not {overfetch_factor}")
        rows = self._rows
        nearest: dict[str, Any] = {"column": self._column, "q": query, "k": k, "nprobes": nprobes}
        if self._metric is not None:
            nearest["metric"] = self._metric
        if refine_base_table:
            nearest["refine_factor"] = 1
        names = None if columns is None else [*dict.fromkeys([*columns, *rows.key_columns])]
        schema = rows._reader.select(names).to_arrow().append(DISTANCE.arrow_field)
        conditions = rows._reader.conditions(None, self._filter)

        def read() -> Iterator[pa.RecordBatch]:
            request = scan_request(
                rows._reader, names, self._filter, nearest=nearest, prefilter=True
            )
            table = searched_rows(rows._reader, request)
            yield from table.to_batches()

        return ExecutionPlan(
            schema, rows.schema, rows._reader.tasks([self._column], conditions), read
        )


def _key_columns(pk_value: pa.Array, rows: FreshRows) -> list[pa.Array]:
    """Return the columns of a key that a caller passed."""
    if not isinstance(pk_value, pa.Array) or len(pk_value) != 1:
        count = len(pk_value) if isinstance(pk_value, pa.Array) else None
        problem = f"not {type(pk_value).__name__}" if count is None else f"but it has {count} rows"
        raise InvalidInputError(f"pk_value must be an array of exactly one row, {problem}")
    names, paths = rows.key_columns, rows._reader.scan.paths
    columns = [pk_value]
    if len(names) > 1:
        if not pa.types.is_struct(pk_value.type):
            raise InvalidInputError(
                f"pk_value must be a struct with the fields {', '.join(names)}, not {pk_value.type}"
            )
        missing = [name for name in names if pk_value.type.get_field_index(name) < 0]
        if missing:
            raise InvalidInputError(f"pk_value does not have the field {missing[0]!r}")
        columns = [pk_value.field(name) for name in names]
    try:
        columns = [
            column.cast(path[-1].arrow_field.type)
            for column, path in zip(columns, paths, strict=True)
        ]
    except pa.ArrowException as error:
        raise InvalidInputError(f"pk_value is not of the type of the key: {error}") from None
    if any(column.null_count for column in columns):
        raise InvalidInputError("pk_value is null, but no row has a null key")
    return columns
