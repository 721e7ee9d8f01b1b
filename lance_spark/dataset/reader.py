"""`VersionReader`: plans the reads of one version, and keeps what several reads need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from lance_spark.arguments import check_least
from lance_spark.dataset.scan_keywords import (
    DEFAULT_BATCH_SIZE,
    IndexKeywords,
    ProjectionKeywords,
    TaskKeywords,
)
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.keywords import checked, of_group, without_group
from lance_spark.predicates.conditions import Condition, top_fields
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.plan import (
    ScanPlan,
    collection_paused,
    default_target_rows,
    estimated_bytes,
    pack,
    read_bytes,
    select_fragments,
    with_positions,
)
from lance_spark.scan.search_keywords import IndexSearchKeywords
from lance_spark.scan.take import RowFinder
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import ListedFragments, counted_fragments
from lance_spark.table.manifest.codec import check_columns
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from pyroaring import BitMap

    from lance_spark.dataset.scan_keywords import Filter
    from lance_spark.indexes.candidates import Candidates, CandidateSearch, TableIndexes
    from lance_spark.indexes.search_task import OpenedRows, SearchedVersion
    from lance_spark.indexes.text.queries import QueryLike
    from lance_spark.indexes.text.search import TextScanTask, TextSearch
    from lance_spark.indexes.vectors.columns import VectorType
    from lance_spark.indexes.vectors.query import NearestQuery
    from lance_spark.indexes.vectors.search import VectorScanTask, VectorSearch
    from lance_spark.table.rows.u64_segments import UInt64Array


_Task = TypeVar("_Task", bound="TextScanTask | VectorScanTask")


class NearestTaskKeywords(IndexKeywords, total=False):
    """Keywords of the task of a vector search."""

    batch_size: int


class TextTaskKeywords(TypedDict, total=False):
    """Keywords of the task of a full-text search; see `TextScanTask`."""

    batch_size: int
    limit: int | None
    keeps_ties: bool


class VersionReader:
    """Plans the reads of one version.

    Keeps its fragments with their rows counted, open files, indexes and row ids. `FreshReader` also
    reads the rows of a MemWAL.

    - `storage_options`: Settings of the store.
    - `open_files`: Files that reads of rows by position leave open for the next ones.
    """

    def __init__(self, table: OpenTable, storage_options: Mapping[str, str]) -> None:
        self.table = table
        self.storage_options = storage_options
        self.open_files = OpenFiles()
        self._fragments: ListedFragments | None = None
        self._finder: RowFinder | None = None
        self._indexes: TableIndexes | None = None

    def __repr__(self) -> str:
        return f"Dataset({self.table.store.display!r}, version={self.table.version})"

    # Rows and columns

    @property
    def fragments(self) -> ListedFragments:
        """The fragments, in the table's order."""
        if self._fragments is None:
            counted = counted_fragments(self.table.paths, self.table.manifest)
            self._fragments = ListedFragments(counted)
        return self._fragments

    @property
    def has_only_fragments(self) -> bool:
        """Whether all rows are rows of fragments."""
        return True

    @property
    def max_rows(self) -> int:
        """The maximum number of rows, without reading any."""
        return self.fragments.num_rows

    def select(
        self, columns: Sequence[str] | None, **keywords: Unpack[ProjectionKeywords]
    ) -> Schema:
        """Return the columns of a read.

        Raises InvalidInputError: a column does not exist.
        """
        selected = row_meta.select(
            self.table.schema,
            columns,
            with_row_id=bool(keywords.get("with_row_id")),
            with_row_address=bool(keywords.get("with_row_address")),
        )
        check_columns(self.table.manifest, selected.fields)
        return self.as_read(selected, keywords.get("blob_handling"))

    def as_read(self, schema: Schema, blob_handling: str | None) -> Schema:
        """Return columns of the table with blobs as a scan returns them."""
        version = self.table.manifest.data_storage_version
        return handled(schema, Handling.parse(blob_handling), version)

    def conditions(
        self, filters: Iterable[Sequence[Any]] | None, filter: Filter | None
    ) -> tuple[Condition, ...]:
        """Return the conditions of a read, parsed.

        Raises InvalidInputError: a condition is not valid.
        """
        if filters is None and filter is None:
            return ()
        from lance_spark.predicates.tuples import parse_filters

        known = row_meta.with_all(self.table.schema)
        conditions: tuple[Condition, ...] = parse_filters(filters, known)
        if filter is None:
            return conditions
        if isinstance(filter, str):
            from lance_spark.predicates.sql import parse_local

            return (*conditions, parse_local(filter, known))
        if hasattr(filter, "paths"):
            return (*conditions, filter)
        import pyarrow.compute as pc

        if isinstance(filter, pc.Expression):
            from lance_spark.predicates.arrow import arrow_condition

            return (*conditions, arrow_condition(filter, known))
        raise InvalidInputError(
            "filter must be a string, a pyarrow expression or a Predicate, not "
            f"{type(filter).__name__}"
        )

    def row_finder(self) -> RowFinder:
        """Return what finds rows by their ids."""
        if self._finder is None:
            self._finder = RowFinder(self.table, self.fragments)
        return self._finder

    def find_rows(self, row_ids: UInt64Array) -> tuple[npt.NDArray[np.bool_], UInt64Array]:
        """Return which rows exist, and their addresses; see `RowFinder.find`."""
        return self.row_finder().find(row_ids)

    # Scans

    def count_rows(self, conditions: Sequence[Condition], **keywords: Unpack[IndexKeywords]) -> int:
        """Return the number of live rows that meet all conditions."""
        if not conditions:
            return self.max_rows
        uses_indexes = keywords.get("use_scalar_index") is not False
        nulls = self._count_nulls(conditions) if uses_indexes else None
        if nulls is not None:
            return nulls
        num_rows, fragment_ids = 0, None
        if uses_indexes and self.table.manifest.index_section is not None:
            check_columns(self.table.manifest, top_fields(conditions))
            known = self._table_indexes().num_live_rows(conditions)
            if known is not None:
                num_rows, fragment_ids = known
                if not fragment_ids:
                    return num_rows
        plan = self.plan(
            [],
            conditions,
            rows_per_task=1 << 62,
            fragment_ids=fragment_ids,
            **keywords,
        )
        return num_rows + sum(
            int(batch.num_rows)
            for task in plan.tasks
            for batch in task._batches(self.table.paths, self.open_files)
        )

    def _count_nulls(self, conditions: Sequence[Condition]) -> int | None:
        """Return for how many rows one `IsNull` holds, by indexes; None for other conditions."""
        from lance_spark.indexes.aggregates import value_count
        from lance_spark.predicates.columns import IsNull

        if len(conditions) != 1 or not isinstance(conditions[0], IsNull):
            return None
        (path,) = conditions[0].paths
        if path[0].id < 0 or self.table.manifest.index_section is None:
            return None
        count = value_count(self.table, self.fragments, [node.name for node in path])
        if count is None or conditions[0].inverted:
            return count
        return self.max_rows - count

    def plan(
        self,
        columns: Sequence[str] | None,
        conditions: Sequence[Condition] = (),
        **keywords: Unpack[TaskKeywords],
    ) -> ScanPlan:
        """Plan a scan; see `Dataset.plan`."""
        return self.plan_version(columns, conditions, **keywords)

    @collection_paused()
    def plan_version(
        self,
        columns: Sequence[str] | None,
        conditions: Sequence[Condition] = (),
        **keywords: Unpack[TaskKeywords],
    ) -> ScanPlan:
        """Plan a scan of the rows of the version."""
        given = checked(TaskKeywords, keywords)
        rows_per_task, min_partitions = given["rows_per_task"], given["min_partitions"]
        check_least("batch_size", given["batch_size"], 1)
        check_least("min_partitions", min_partitions, 1)
        if rows_per_task is not None:
            check_least("rows_per_task", rows_per_task, 1)
        schema = self.select(columns, **of_group(ProjectionKeywords, given))
        fragments: Sequence[Fragment] = self.fragments
        manifest = self.table.manifest
        read = (*schema.fields, *top_fields(conditions))
        check_columns(manifest, read)
        selected = select_fragments(fragments, given["fragment_ids"])
        if rows_per_task is None:
            rows = sum([fragment.physical_rows for fragment in selected])
            stored = estimated_bytes(selected, rows)
            rows_per_task = default_target_rows(
                rows,
                read_bytes(stored, rows, read, self.table.schema.fields),
                min_partitions,
                max(len(schema.fields), 1),
            )
        candidates: Candidates | None = None
        uses_indexes = given["use_scalar_index"] is not False
        if uses_indexes and conditions and manifest.index_section is not None:
            candidates = self._candidates(conditions)
        left = frozenset() if candidates is None else candidates.deferred_fragments
        if manifest.flags.stable_row_ids:
            row_meta.check_row_ids(fragments, read)
            # Tasks that search indexes find rows by their ids.
            selected = row_meta.without_unused_lineage(
                selected, (*read, *((row_meta.ROW_ID,) if left else ()))
            )
        if candidates is not None:
            kept = candidates.rows.keys() | left
            selected = [fragment for fragment in selected if fragment.id in kept]
        groups = pack(selected, rows_per_task, whole_fragments=given["whole_fragments"])
        if candidates is not None:
            from lance_spark.indexes.candidates import narrowed

            groups = narrowed(groups, candidates.rows, rows_per_task, left)
        if row_meta.needs(read, row_meta.ROW_OFFSET):
            groups = with_positions(groups, row_meta.first_positions(fragments))
        tasks = [
            ScanTask(
                uri=self.table.store.uri,
                lance_schema=schema,
                slices=slices,
                batch_size=given["batch_size"],
                filters=tuple(conditions),
                base_paths=manifest.base_paths,
                storage_options=self.storage_options,
                index_search=self._search_by_task(conditions, slices, left) if left else None,
            )
            for slices in groups
        ]
        return ScanPlan(tasks, () if candidates is None else candidates.used)

    @property
    def title(self) -> str:
        """The table and its version, for texts that describe a read."""
        return f"{self.table.store.display}, version {self.table.version}"

    def explained_sources(self, conditions: tuple[Condition, ...]) -> str:
        """Return a line about what a scan reads besides the version; empty if there is nothing."""
        return ""

    # Indexes of columns

    def _candidates(self, conditions: Sequence[Condition]) -> Candidates | None:
        """Return the rows that indexes leave; see `TableIndexes.candidates`."""
        from lance_spark.indexes.candidates import Searcher

        return self._table_indexes().candidates(conditions, Searcher.DRIVER)

    def _table_indexes(self) -> TableIndexes:
        from lance_spark.indexes.candidates import TableIndexes
        from lance_spark.indexes.coverage import checked_section

        if self._indexes is None:
            manifest = self.table.manifest
            self._indexes = TableIndexes(
                self.table.paths,
                checked_section(self.table.paths, manifest),
                manifest.flags.stable_row_ids,
                self.fragments,
                self.find_rows,
            )
        return self._indexes

    def _search_by_task(
        self,
        conditions: Sequence[Condition],
        slices: Sequence[FragmentSlice],
        left: Collection[int],
    ) -> CandidateSearch | None:
        """Return the search of a task for those of its fragments that are left to tasks."""
        ids = {piece.fragment.id for piece in slices if piece.fragment.id in left}
        if not ids or self._indexes is None:
            return None
        return self._indexes.search_by_task(conditions, ids)

    # Searches of texts and vectors

    def searched_version(self, **keywords: Unpack[IndexSearchKeywords]) -> SearchedVersion:
        """Return what searches are planned on."""
        from lance_spark.indexes.coverage import checked_section
        from lance_spark.indexes.search_task import SearchedVersion

        table = self.table
        return SearchedVersion(
            table.paths,
            checked_section(table.paths, table.manifest),
            self.fragments,
            table.schema.path,
            table.manifest.flags.stable_row_ids,
            bool(keywords.get("fast_search")),
        )

    def opened_rows(self) -> OpenedRows:
        """Return all rows, for searches."""
        from lance_spark.indexes.search_task import OpenedRows

        return OpenedRows(self.table.paths, self.find_rows, self.open_files)

    def plan_text(
        self,
        query: QueryLike,
        *,
        use_index: bool = True,
        **keywords: Unpack[IndexSearchKeywords],
    ) -> TextSearch:
        """Plan a full-text search; see `plan_search`."""
        from lance_spark.dataset.queries import parsed_query, score_field
        from lance_spark.indexes.text.search import plan_search

        score_field(self.table.schema.names)
        parsed = parsed_query(self.table, query)
        return plan_search(self.searched_version(**keywords), parsed, use_index=use_index)

    def check_nearest(self, query: NearestQuery) -> VectorType:
        """Return the type of the column of a query, without reading files of an index.

        Raises InvalidInputError.
        """
        from lance_spark.indexes.vectors.search import checked_type

        return checked_type(self.table.schema.path(query.column), query)

    def plan_nearest(
        self,
        query: NearestQuery,
        *,
        use_index: bool = True,
        **keywords: Unpack[IndexSearchKeywords],
    ) -> VectorSearch:
        """Plan a vector search; see `plan_vectors`."""
        from lance_spark.dataset.queries import search_fields
        from lance_spark.indexes.vectors.search import plan_vectors

        search = plan_vectors(self.searched_version(**keywords), query, use_index=use_index)
        search_fields(self.table.schema.names, is_batch=search.query.is_batch)
        return search

    def search_schema(
        self,
        columns: Sequence[str] | None,
        last: Field,
        first: Field | None = None,
        *,
        adds: bool = True,
        **keywords: Unpack[ProjectionKeywords],
    ) -> Schema:
        """Return the columns of a search.

        - `last`: `_score` or `_distance`. If it is not named, it follows the columns.
        - `first`: `query_index` of a batch of queries: the first column.
        - `adds`: Whether these columns are added if they are not named. Otherwise, `first` has the
          place where it is named.

        Raises InvalidInputError: one of these columns is named twice, or a column does not exist.
        """
        computed = {field.name: field for field in (last, first) if field is not None}
        names = None if columns is None else list(columns)
        for name in computed:
            if names is not None and names.count(name) > 1:
                raise InvalidInputError(f"column {name!r} is named twice")
        read = None if names is None else [name for name in names if name not in computed]
        schema = self.select(read, **keywords)
        fields = list(schema.fields)
        number = len(self.select(read, blob_handling=keywords.get("blob_handling")).fields)
        for position, name in enumerate(names or ()):
            if name in computed and (not adds or name == last.name):
                fields.insert(min(position, number), computed[name])
                number += 1
        if adds:
            if last not in fields:
                fields.insert(number, last)
            if first is not None:
                fields.insert(0, first)
        return Schema(tuple(fields), schema.metadata)

    def text_schema(
        self,
        columns: Sequence[str] | None,
        *,
        adds: bool = True,
        **keywords: Unpack[ProjectionKeywords],
    ) -> Schema:
        """Return the columns of a full-text search; see `search_schema`."""
        return self.search_schema(columns, row_meta.SCORE, adds=adds, **keywords)

    def nearest_schema(
        self,
        columns: Sequence[str] | None,
        *,
        is_batch: bool = False,
        adds: bool = True,
        **keywords: Unpack[ProjectionKeywords],
    ) -> Schema:
        """Return the columns of a vector search; see `search_schema`."""
        first = row_meta.QUERY_INDEX if is_batch else None
        return self.search_schema(columns, row_meta.DISTANCE, first, adds=adds, **keywords)

    def text_task(
        self,
        search: TextSearch,
        schema: Schema,
        prefilter: tuple[Condition, ...],
        filters: tuple[Condition, ...],
        **keywords: Unpack[TextTaskKeywords],
    ) -> TextScanTask:
        """Return the task of a search, or of a share of it; see `TextScanTask`."""
        from lance_spark.indexes.text.search import TextScanTask

        return self._search_task(TextScanTask, search, schema, prefilter, filters, **keywords)

    def nearest_task(
        self,
        search: VectorSearch,
        schema: Schema,
        prefilter: tuple[Condition, ...],
        filters: tuple[Condition, ...],
        **keywords: Unpack[NearestTaskKeywords],
    ) -> VectorScanTask:
        """Return the task of a search, or of a share of it; see `VectorScanTask`."""
        from lance_spark.indexes.vectors.search import VectorScanTask

        return self._search_task(
            VectorScanTask,
            search,
            schema,
            prefilter,
            filters,
            (search.path[0], row_meta.ROW_ID),
            uses_indexes=keywords.get("use_scalar_index") is not False,
            **without_group(IndexKeywords, keywords),
        )

    def _search_task(
        self,
        task: type[_Task],
        search: Any,
        schema: Schema,
        prefilter: tuple[Condition, ...],
        filters: tuple[Condition, ...],
        searched: tuple[Field, ...] = (),
        *,
        uses_indexes: bool = False,
        **own: Any,
    ) -> _Task:
        """Return the task of a search.

        - `search`: As the task has it.
        - `searched`: Columns that it reads beside those of the result and of conditions.
        - `uses_indexes`: Whether indexes rule out rows by `prefilter`.
        - `**own`: Further attributes of the task.
        """
        manifest = self.table.manifest
        computed = {field.id for field in row_meta.SEARCH_FIELDS}
        fields = [field for field in schema.fields if field.id not in computed]
        read = (*fields, *searched, *top_fields(filters), *top_fields(prefilter))
        check_columns(manifest, read)
        if search.stable_row_ids:
            row_meta.check_row_ids(self.fragments, read)
        candidates = None
        if uses_indexes and prefilter and manifest.index_section is not None:
            candidates = self._candidates(prefilter)
        return task(
            uri=self.table.store.uri,
            lance_schema=schema,
            slices=self._searched_slices(search.fragments, read, candidates),
            filters=filters,
            base_paths=manifest.base_paths,
            storage_options=self.storage_options,
            search=search,
            prefilter=prefilter,
            **{"batch_size": DEFAULT_BATCH_SIZE, **own},
        )

    def _searched_slices(
        self,
        fragment_ids: BitMap,
        read: Sequence[Any],
        candidates: Candidates | None = None,
    ) -> tuple[FragmentSlice, ...]:
        """Return the slices of the fragments of a search, which reads some fields."""
        fragments = [fragment for fragment in self.fragments if fragment.id in fragment_ids]
        groups = [tuple(FragmentSlice(part, 0, part.physical_rows) for part in fragments)]
        if candidates is not None:
            from lance_spark.indexes.candidates import narrowed

            groups = narrowed(groups, candidates.rows, 1 << 62, candidates.deferred_fragments)
        if row_meta.needs(read, row_meta.ROW_OFFSET):
            groups = with_positions(groups, row_meta.first_positions(self.fragments))
        return groups[0] if groups else ()
