"""Vector search of a `Dataset`: the nearest rows, with the column `_distance`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.dataset.planning import DEFAULT_BATCH_SIZE, PlanMethods, written_filters
from lance_spark.errors import CorruptError, InvalidInputError, MissingFileError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.plan import UsedIndex, with_positions
from lance_spark.scan.predicates.conditions import Condition, top_fields
from lance_spark.scan.pruning.zone_places import INDEX_ERRORS
from lance_spark.scan.task import FragmentSlice
from lance_spark.table.manifest.repairs import check_columns

if TYPE_CHECKING:
    from lance_spark.dataset.planning import Filter
    from lance_spark.scan.vectors.columns import VectorType
    from lance_spark.scan.vectors.query import NearestQuery
    from lance_spark.scan.vectors.search import VectorSearch
    from lance_spark.scan.vectors.task import VectorScanTask

_LOG = logging.getLogger(__name__)

#: Queries of a batch whose partitions are counted.
_EXPLAINED = 100


class NearestMethods(PlanMethods):
    """Methods of `Dataset` that search vectors."""

    def _check_nearest(self, query: NearestQuery) -> VectorType:
        """Return the type of the column of a query, without reading files of an index.

        Raises
        ------
        InvalidInputError
        """
        from lance_spark.scan.vectors.search import checked_type

        return checked_type(self._table.schema.path(query.column), query)

    def _plan_nearest(
        self, query: NearestQuery, *, fast_search: bool = False, use_index: bool = True
    ) -> VectorSearch:
        """Plan a vector search; see `plan_vectors`."""
        from lance_spark.scan.vectors.search import plan_vectors

        search = plan_vectors(
            self._searched_version(), query, fast_search=fast_search, use_index=use_index
        )
        search_fields(self._table.schema.names, is_batch=search.query.is_batch)
        return search

    def explain(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Iterable[Sequence[Any]] | None = None,
        filter: Filter | None = None,
        blob_handling: str | None = None,
        rows_per_task: int | None = None,
        min_partitions: int = 1,
        use_scalar_index: bool = True,
        nearest: Mapping[str, Any] | None = None,
        prefilter: bool = False,
        fast_search: bool = False,
    ) -> str:
        """Return a text that says what a scan reads: tasks, fragments, rows after pruning, bytes.

        Of a vector search, it says which index is searched, how many of its partitions and vectors,
        and which rows are measured without the index. If there are fewer than `k` live rows in
        these partitions, the search reads more partitions.

        The parameters have the meaning that they have in `plan` and `to_table`.

        Examples
        --------
        >>> print(dataset.explain(nearest={"column": "v", "q": q, "k": 5}))  # doctest: +SKIP
        Vector search of /data/t.lance, version 3
          column: v, metric l2, k 5
          index: v_idx (VECTOR): 90000 rows, IVF_PQ l2, 20 of 300 partitions, 5,722 rows measured
        """
        # The filters may be an iterator.
        filters = None if filters is None else list(filters)
        conditions = self._conditions(filters, filter)
        return self._explain(
            columns,
            conditions,
            " AND ".join(map(str, written_filters(filters, filter, conditions))),
            rows_per_task=rows_per_task,
            min_partitions=min_partitions,
            blob_handling=blob_handling,
            use_scalar_index=use_scalar_index,
            nearest=nearest,
            prefilter=prefilter,
            fast_search=fast_search,
        )

    def _explain(
        self,
        columns: Sequence[str] | None,
        conditions: tuple[Condition, ...],
        condition: str,
        *,
        rows_per_task: int | None = None,
        min_partitions: int = 1,
        blob_handling: str | None = None,
        use_scalar_index: bool = True,
        nearest: Mapping[str, Any] | None = None,
        prefilter: bool = False,
        fast_search: bool = False,
        fragment_ids: Collection[int] | None = None,
    ) -> str:
        """Describe a scan; see `explain`. Conditions are parsed, with their text."""
        from lance_spark.scan.plan import explained

        paths = self._table.paths
        name = f"{paths.store.display}, version {self.version}"
        if nearest is not None:
            return self._explain_nearest(
                name, nearest, condition, prefilter=prefilter, fast_search=fast_search
            )
        plan = self._plan(
            columns,
            rows_per_task=rows_per_task,
            min_partitions=min_partitions,
            conditions=conditions,
            blob_handling=blob_handling,
            use_scalar_index=use_scalar_index,
            fragment_ids=fragment_ids,
        )
        return explained(plan, paths, self.fragments, name, condition)

    def _explain_nearest(
        self,
        name: str,
        nearest: Mapping[str, Any],
        condition: str,
        *,
        prefilter: bool,
        fast_search: bool,
    ) -> str:
        from lance_spark.scan.vectors.query import parse_nearest

        search = self._plan_nearest(parse_nearest(nearest), fast_search=fast_search)
        query = search.query
        of_batch = f", {len(query.vectors)} queries" if query.is_batch else ""
        lines = [
            f"Vector search of {name}",
            f"  column: {query.column}, metric {search.metric.value}, k {query.k}{of_batch}",
        ]
        if condition:
            lines.append(
                f"  {'prefilter' if prefilter else 'filter of the rows found'}: {condition}"
            )
        lines += [f"  index: {index}" for index in self._vector_indexes(search)]
        if search.uncovered and not search.segments:
            lines.append(f"  no index: {sum(search.uncovered.values()):,} rows measured")
        return "\n".join(lines)

    def _vector_indexes(self, search: VectorSearch) -> tuple[UsedIndex, ...]:
        """Return the indexes of a search, with the partitions that are searched first."""
        from lance_spark.scan.vectors.distances import normalized
        from lance_spark.scan.vectors.metric import Metric
        from lance_spark.scan.vectors.probes import probed

        vectors = search.dtype.query(search.query.vectors[:_EXPLAINED], search.metric)
        if search.metric is Metric.COSINE:
            vectors = normalized(vectors)
        num_probed = num_partitions = num_measured = 0
        if not search.segments:
            return ()
        try:
            for segment in search.segments:
                opened = segment.open(self._table.paths)
                numbers = probed(opened.ivf, opened.metric, search.query, vectors)
                num_probed += len(numbers)
                num_partitions += segment.num_partitions
                num_measured += int(opened.ivf.lengths[numbers].sum())
        except INDEX_ERRORS:
            # The search itself says what is wrong.
            return search.indexes
        parts = [
            f"{opened.index_type} {search.metric.value}",
            f"{num_probed:,} of {num_partitions:,} partitions",
            f"{num_measured:,} rows measured",
        ]
        if search.measures_again:
            factor = search.query.refine_factor or 1
            parts.append(f"{factor * search.query.k:,} of them again by their vectors")
        if search.uncovered:
            parts.append(f"{sum(search.uncovered.values()):,} rows without an index")
        return tuple(index._replace(search=", ".join(parts)) for index in search.indexes)

    def _nearest_schema(
        self,
        columns: Sequence[str] | None,
        blob_handling: str | None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        *,
        is_batch: bool = False,
        adds_distance: bool = True,
    ) -> Schema:
        """Return the columns of a vector search.

        If `_distance` is not named, it follows the columns, unless `adds_distance` is false.
        `query_index` is the first column of a batch of queries; with `adds_distance` false, it has
        the place where it is named.
        """
        computed = {DISTANCE.name: DISTANCE}
        if is_batch:
            computed[QUERY_INDEX.name] = QUERY_INDEX
        names = None if columns is None else list(columns)
        for name in computed:
            if names is not None and names.count(name) > 1:
                raise InvalidInputError(f"column {name!r} is named twice")
        read = None if names is None else [name for name in names if name not in computed]
        schema = self._select(read, blob_handling, with_row_id, with_row_address)
        fields = list(schema.fields)
        number = len(self._select(read, blob_handling).fields)
        for position, name in enumerate(names or ()):
            if name in computed and (adds_distance is False or name == DISTANCE.name):
                fields.insert(min(position, number), computed[name])
                number += 1
        if adds_distance:
            if DISTANCE not in fields:
                fields.insert(number, DISTANCE)
            if is_batch:
                fields.insert(0, QUERY_INDEX)
        return Schema(tuple(fields), schema.metadata)

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
        """Return the task of a search, or of a share of it; see `VectorScanTask`."""
        from lance_spark.scan.pruning.narrowing import narrowed
        from lance_spark.scan.vectors.task import VectorScanTask

        manifest = self._table.manifest
        fields = [field for field in schema.fields if field.id not in (DISTANCE.id, QUERY_INDEX.id)]
        read = (*fields, search.path[0], *top_fields(filters), *top_fields(prefilter))
        check_columns(manifest, read)
        if search.stable_row_ids:
            row_meta.check_row_ids(self.fragments, (*read, row_meta.ROW_ID))
        numbers = search.fragments
        fragments = [fragment for fragment in self.fragments if fragment.id in numbers]
        groups = [tuple(FragmentSlice(part, 0, part.physical_rows) for part in fragments)]
        if use_scalar_index and prefilter and manifest.index_section is not None:
            candidates = self._candidates(prefilter)
            if candidates is not None:
                groups = narrowed(groups, candidates.rows, 1 << 62, candidates.left)
        if row_meta.needs(read, row_meta.ROW_OFFSET):
            groups = with_positions(groups, row_meta.first_positions(self.fragments))
        return VectorScanTask(
            uri=self.uri,
            lance_schema=schema,
            slices=groups[0] if groups else (),
            batch_size=batch_size,
            filters=filters,
            base_paths=manifest.base_paths,
            storage_options=self._storage_options,
            search=search,
            prefilter=prefilter,
        )

    def _nearest_rows(
        self,
        nearest: Mapping[str, Any],
        limit: int | None,
        columns: Sequence[str] | None,
        conditions: tuple[Condition, ...],
        blob_handling: str | None,
        with_row_id: bool,
        with_row_address: bool,
        *,
        prefilter: bool,
        fast_search: bool,
        use_scalar_index: bool,
    ) -> pa.Table:
        """Return the rows of a vector search, by query and distance."""
        from lance_spark.scan.vectors.query import parse_nearest

        query = parse_nearest(nearest)
        if limit and nearest.get("k") is None:
            query = replace(query, k=limit)
        before, after = (conditions, ()) if prefilter else ((), conditions)
        opened = self._opened_rows()

        def rows_of(search: VectorSearch) -> pa.Table:
            schema = self._nearest_schema(
                columns,
                blob_handling,
                with_row_id,
                with_row_address,
                is_batch=search.query.is_batch,
            )
            task = self._nearest_task(
                search, schema, before, after, use_scalar_index=use_scalar_index
            )
            return task.nearest_rows(ScanMetrics(), opened, limit)

        search = self._plan_nearest(query, fast_search=fast_search)
        try:
            return rows_of(search)
        except (CorruptError, MissingFileError) as error:
            if fast_search or not search.segments:
                raise
            _LOG.warning("the vector index of column %r is ignored: %s", query.column, error)
        return rows_of(self._plan_nearest(query, use_index=False))


def search_fields(names: Sequence[str], *, is_batch: bool) -> tuple[pa.Field | None, pa.Field]:
    """Return the columns that a search adds to a table with columns of some names.

    Returns
    -------
    tuple of pa.Field
        The number of the query, if there are several; and the distance.

    Raises
    ------
    InvalidInputError
        A column of the table has such a name.
    """
    for field in (QUERY_INDEX, DISTANCE) if is_batch else (DISTANCE,):
        if field.name in names:
            raise InvalidInputError(
                f"the table has a column {field.name!r}, which is a name of a column of a vector "
                "search; rename it"
            )
    return QUERY_INDEX.arrow_field if is_batch else None, DISTANCE.arrow_field
