"""Methods of `Dataset` that plan reads, and those that say what it has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.history import HistoryMethods
from lance_spark.errors import InvalidInputError, naming
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.extension_types import extended_schema
from lance_spark.file.schema.schema import Schema
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
from lance_spark.scan.predicates.conditions import Condition, top_fields
from lance_spark.scan.predicates.tuples import parse_filters
from lance_spark.scan.take import RowFinder
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.listed import ListedFragments
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.repairs import check_columns
from lance_spark.table.open import OpenTable
from lance_spark.turns import turn

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.scan.pruning.candidates import Candidates, CandidateSearch, TableIndexes
    from lance_spark.scan.search_task import OpenedRows, SearchedVersion
    from lance_spark.scan.text.queries import QueryLike
    from lance_spark.scan.text.search import TextSearch
    from lance_spark.scan.text.task import TextScanTask
    from lance_spark.table.rows.u64_segments import UInt64Array

    #: A condition: text, an expression of Arrow, or a parsed condition.
    Filter: TypeAlias = str | pc.Expression | Predicate
    #: Columns of a scan: their names, or expressions by the names of the results.
    Columns: TypeAlias = Sequence[str] | Mapping[str, str]

#: Default for the maximum number of rows of a batch. Columnar engines work best with large batches.
DEFAULT_BATCH_SIZE = 65_536


def written_filters(
    filters: Sequence[Any] | None, filter: Filter | None, conditions: Sequence[Condition]
) -> tuple[Any, ...]:
    """Return filters as the caller wrote them, for `str`.

    Parameters
    ----------
    filters, filter
        As in `Dataset.to_batches`.
    conditions : sequence of Condition
        What they are parsed to. Arrow's text of a deep expression overflows the stack; that of its
        condition does not.
    """
    last = () if filter is None else (filter if isinstance(filter, str) else conditions[-1],)
    return (*(filters or ()), *last)


class PlanMethods(HistoryMethods):
    """Methods of `Dataset` that plan reads."""

    def __init__(self, table: OpenTable, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(table, storage_options)
        self._fragments: ListedFragments | None = None
        self._open_files = OpenFiles()
        self._finder: RowFinder | None = None
        self._indexes: TableIndexes | None = None

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table, with the metadata of the schema and of its fields."""
        return extended_schema(self._table.schema.to_arrow())

    def schema_of(
        self,
        columns: Sequence[str] | None = None,
        *,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> pa.Schema:
        """Return the Arrow schema of a read with these arguments; see `to_batches`."""
        from lance_spark.dataset.scanning.children import child_columns

        read = self._select(columns, blob_handling, with_row_id, with_row_address).to_arrow()
        children = child_columns(columns, self._table.schema)
        return extended_schema(read if children is None else children.schema(read))

    def _stored_schema(
        self, columns: Sequence[str] | None = None, blob_handling: str | None = None
    ) -> pa.Schema:
        """Return the Arrow schema of a read, with stored types in place of extension types."""
        with naming(self._table.store.display):
            return self._select(columns, blob_handling).to_arrow()

    @property
    def data_storage_version(self) -> str:
        """File version of new data files, for example ``2.2``."""
        major, minor = self._table.manifest.data_storage_version
        return f"{major}.{minor}"

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments, in the table's order."""
        return self._listed_fragments()

    def _listed_fragments(self) -> ListedFragments:
        if self._fragments is None:
            counted = counted_fragments(self._table.paths, self._table.manifest)
            self._fragments = ListedFragments(counted)
        return self._fragments

    @property
    def _has_only_fragments(self) -> bool:
        """Whether all rows are rows of fragments."""
        return True

    @property
    def _max_rows(self) -> int:
        """The maximum number of rows, without reading any."""
        return self._listed_fragments().num_rows

    def __len__(self) -> int:
        """Return the number of live rows."""
        return self.count_rows()

    def count_rows(
        self,
        filter: Filter | None = None,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        use_scalar_index: bool = True,
    ) -> int:
        """Return the number of live rows that meet conditions; of all live rows without conditions.

        The number of all rows is that of the manifest, without data files. Conditions read the
        rows that indexes leave, and only the columns of the conditions. `IS NULL` and `IS NOT NULL`
        alone are answered by indexes that know it, without rows. So are comparisons and sets of
        values that are not floats, and `AND` and `OR` of them, if all their columns have a BTREE or
        BITMAP index, which leaves few rows, and the table has no stable row ids.

        Parameters
        ----------
        filter, filters
            As in `to_batches`.
        use_scalar_index : bool
            Whether indexes of columns in the conditions rule out rows.

        Raises
        ------
        InvalidInputError
            A condition is not valid, or cannot be computed for a row.
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        with turn(local=self._table.store.is_local):
            return self._count_rows(self._conditions(filters, filter), use_scalar_index)

    def _count_rows(self, conditions: Sequence[Condition], use_scalar_index: bool) -> int:
        """Return the number of live rows that meet all conditions."""
        if not conditions:
            return self._max_rows
        nulls = self._count_nulls(conditions) if use_scalar_index else None
        if nulls is not None:
            return nulls
        num_rows, fragment_ids = 0, None
        if use_scalar_index and self._table.manifest.index_section is not None:
            check_columns(self._table.manifest, top_fields(conditions))
            known = self._table_indexes().num_live_rows(conditions)
            if known is not None:
                num_rows, fragment_ids = known
                if not fragment_ids:
                    return num_rows
        plan = self._plan(
            [],
            rows_per_task=1 << 62,
            min_partitions=1,
            conditions=conditions,
            fragment_ids=fragment_ids,
            use_scalar_index=use_scalar_index,
        )
        return num_rows + sum(
            int(batch.num_rows)
            for task in plan.tasks
            for batch in task._batches(self._table.paths, self._open_files)
        )

    def _count_nulls(self, conditions: Sequence[Condition]) -> int | None:
        """Return for how many rows one `IsNull` holds, by indexes; None for other conditions."""
        from lance_spark.scan.predicates.column_predicates import IsNull
        from lance_spark.scan.pruning.metadata_aggregates import value_count

        if len(conditions) != 1 or not isinstance(conditions[0], IsNull):
            return None
        (path,) = conditions[0].paths
        if path[0].id < 0 or self._table.manifest.index_section is None:
            return None
        count = value_count(self._table, self.fragments, [node.name for node in path])
        if count is None or conditions[0].inverted:
            return count
        return self.count_rows() - count

    def plan(
        self,
        columns: Sequence[str] | None = None,
        *,
        rows_per_task: int | None = None,
        min_partitions: int = 1,
        batch_size: int = DEFAULT_BATCH_SIZE,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: Filter | None = None,
        blob_handling: str | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        fragment_ids: Collection[int] | None = None,
        whole_fragments: bool = False,
        use_scalar_index: bool = True,
    ) -> list[ScanTask]:
        """Split a scan into tasks that can be pickled and run by workers.

        Parameters
        ----------
        columns : sequence of str, optional
            As in `to_batches`.
        rows_per_task : int, optional
            Number of rows that a task aims at; by default, tasks read about 128 MiB of files, and
            there are at least `min_partitions` of them if possible.
        min_partitions : int
            Number of tasks that can run at the same time.
        batch_size, filters, filter, blob_handling, with_row_id, with_row_address
            As in `to_batches`.
        fragment_ids : collection of int, optional
            Read only rows of these fragments.
        whole_fragments : bool
            Whether one task must read all rows of a fragment.
        use_scalar_index : bool
            Whether indexes of columns in the filters rule out rows.

        Returns
        -------
        list of ScanTask
            The tasks in the table's order; empty if no rows can match. `ScanTask.batches` yields
            the record batches of a task.

        Raises
        ------
        InvalidInputError
            A column or fragment does not exist, or a number is not positive.
        CorruptTableError, CorruptFileError, StorageError
        """
        return self._plan(
            columns,
            rows_per_task=rows_per_task,
            min_partitions=min_partitions,
            batch_size=batch_size,
            filters=filters,
            filter=filter,
            blob_handling=blob_handling,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            fragment_ids=fragment_ids,
            whole_fragments=whole_fragments,
            use_scalar_index=use_scalar_index,
        ).tasks

    @collection_paused()
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
        """Plan a scan; see `plan`. Conditions may be given parsed."""
        check_least("batch_size", batch_size, 1)
        check_least("min_partitions", min_partitions, 1)
        if rows_per_task is not None:
            check_least("rows_per_task", rows_per_task, 1)
        schema = self._select(columns, blob_handling, with_row_id, with_row_address)
        fragments: Sequence[Fragment] = self.fragments
        manifest = self._table.manifest
        if conditions is None:
            conditions = self._conditions(filters, filter)
        read = (*schema.fields, *top_fields(conditions))
        check_columns(manifest, read)
        selected = select_fragments(fragments, fragment_ids)
        if rows_per_task is None:
            rows = sum([fragment.physical_rows for fragment in selected])
            stored = estimated_bytes(selected, rows)
            rows_per_task = default_target_rows(
                rows,
                read_bytes(stored, rows, read, self._table.schema.fields),
                min_partitions,
                max(len(schema.fields), 1),
            )
        candidates: Candidates | None = None
        if use_scalar_index and conditions and manifest.index_section is not None:
            candidates = self._candidates(conditions)
        left = frozenset() if candidates is None else candidates.left
        if manifest.flags.stable_row_ids:
            row_meta.check_row_ids(fragments, read)
            # Tasks that search indexes find rows by their ids.
            selected = row_meta.light(selected, (*read, *((row_meta.ROW_ID,) if left else ())))
        if candidates is not None:
            kept = candidates.rows.keys() | left
            selected = [fragment for fragment in selected if fragment.id in kept]
        groups = pack(selected, rows_per_task, whole_fragments=whole_fragments)
        if candidates is not None:
            from lance_spark.scan.pruning.narrowing import narrowed

            groups = narrowed(groups, candidates.rows, rows_per_task, left)
        if row_meta.needs(read, row_meta.ROW_OFFSET):
            groups = with_positions(groups, row_meta.first_positions(fragments))
        tasks = [
            ScanTask(
                uri=self.uri,
                lance_schema=schema,
                slices=slices,
                batch_size=batch_size,
                filters=tuple(conditions),
                base_paths=manifest.base_paths,
                storage_options=self._storage_options,
                index_search=self._search_by_task(conditions, slices, left) if left else None,
            )
            for slices in groups
        ]
        return ScanPlan(tasks, () if candidates is None else candidates.used)

    def _candidates(self, conditions: Sequence[Condition]) -> Candidates | None:
        """Return the rows that indexes leave; see `TableIndexes.candidates`."""
        from lance_spark.scan.pruning.column_indexes import Searcher

        return self._table_indexes().candidates(conditions, Searcher.DRIVER)

    def _table_indexes(self) -> TableIndexes:
        from lance_spark.scan.pruning.candidates import TableIndexes
        from lance_spark.scan.pruning.coverage import checked_section

        if self._indexes is None:
            manifest = self._table.manifest
            self._indexes = TableIndexes(
                self._table.paths,
                checked_section(self._table.paths, manifest),
                manifest.flags.stable_row_ids,
                self.fragments,
                self._find_rows,
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

    def _plan_text(
        self, query: QueryLike, *, fast_search: bool, use_index: bool = True
    ) -> TextSearch:
        """Plan a full-text search; see `plan_search`."""
        from lance_spark.dataset.full_text import parsed_query, score_field
        from lance_spark.scan.text.search import plan_search

        score_field(self._table.schema.names)
        parsed = parsed_query(self._table, query)
        return plan_search(
            self._searched_version(), parsed, fast_search=fast_search, use_index=use_index
        )

    def _text_schema(
        self,
        columns: Sequence[str] | None,
        blob_handling: str | None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        *,
        adds_score: bool = True,
    ) -> Schema:
        """Return the columns of a full-text search.

        If `_score` is not named, it follows the columns, unless `adds_score` is false.
        """
        from lance_spark.dataset.full_text import split_columns, with_score

        names, position = split_columns(columns)
        schema = self._select(names, blob_handling, with_row_id, with_row_address)
        if position is None and not adds_score:
            return schema
        if position is None:
            position = len(self._select(names, blob_handling).fields)
        return with_score(schema, position)

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
        """Return the task of a search, or of a share of it; see `TextScanTask`."""
        from lance_spark.scan.text.task import TextScanTask

        manifest = self._table.manifest
        fields = [field for field in schema.fields if field.id != row_meta.SCORE.id]
        read = (*fields, *top_fields(filters), *top_fields(prefilter))
        check_columns(manifest, read)
        if search.stable_row_ids:
            row_meta.check_row_ids(self.fragments, read)
        numbers = search.fragments
        fragments = [fragment for fragment in self.fragments if fragment.id in numbers]
        groups = [tuple(FragmentSlice(part, 0, part.physical_rows) for part in fragments)]
        if row_meta.needs(read, row_meta.ROW_OFFSET):
            groups = with_positions(groups, row_meta.first_positions(self.fragments))
        return TextScanTask(
            uri=self.uri,
            lance_schema=schema,
            slices=groups[0],
            batch_size=batch_size,
            filters=filters,
            base_paths=manifest.base_paths,
            storage_options=self._storage_options,
            search=search,
            prefilter=prefilter,
            limit=limit,
            keeps_ties=keeps_ties,
        )

    def _conditions(
        self, filters: Iterable[Sequence[Any]] | None, filter: Filter | None
    ) -> tuple[Condition, ...]:
        known = row_meta.with_all(self._table.schema)
        conditions: tuple[Condition, ...] = parse_filters(filters, known)
        if filter is None:
            return conditions
        if isinstance(filter, str):
            from lance_spark.scan.predicates.sql import parse_local

            return (*conditions, parse_local(filter, known))
        if hasattr(filter, "paths"):
            return (*conditions, filter)
        import pyarrow.compute as pc

        if isinstance(filter, pc.Expression):
            from lance_spark.scan.predicates.arrow.condition import arrow_condition

            return (*conditions, arrow_condition(filter, known))
        raise InvalidInputError(
            "filter must be a string, a pyarrow expression or a Predicate, not "
            f"{type(filter).__name__}"
        )

    def _find_rows(self, row_ids: UInt64Array) -> tuple[npt.NDArray[np.bool_], UInt64Array]:
        return self._row_finder().find(row_ids)

    def _searched_version(self) -> SearchedVersion:
        """Return what searches are planned on."""
        from lance_spark.scan.pruning.coverage import checked_section
        from lance_spark.scan.search_task import SearchedVersion

        table = self._table
        return SearchedVersion(
            table.paths,
            checked_section(table.paths, table.manifest),
            self.fragments,
            table.schema.path,
            table.manifest.flags.stable_row_ids,
        )

    def _opened_rows(self) -> OpenedRows:
        """Return all rows, for searches."""
        from lance_spark.scan.search_task import OpenedRows

        return OpenedRows(self._table.paths, self._find_rows, self._open_files)

    def _row_finder(self) -> RowFinder:
        if self._finder is None:
            self._finder = RowFinder(self._table, self.fragments)
        return self._finder

    def _select(
        self,
        columns: Sequence[str] | None,
        blob_handling: str | None,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> Schema:
        schema = self._table.schema
        selected = row_meta.select(
            schema, columns, with_row_id=with_row_id, with_row_address=with_row_address
        )
        check_columns(self._table.manifest, selected.fields)
        return self._as_read(selected, blob_handling)

    def _as_read(self, schema: Schema, blob_handling: str | None) -> Schema:
        """Return columns of the table with blobs as a scan returns them."""
        version = self._table.manifest.data_storage_version
        return handled(schema, Handling.parse(blob_handling), version)
