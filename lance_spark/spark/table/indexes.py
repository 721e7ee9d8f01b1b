"""Methods of `LanceTable` for indexes.

| method | runs on | effect |
| --- | --- | --- |
| `createIndex` | executors write, the driver commits | adds an index of a column |
| `dropIndex` | driver | removes an index |
| `optimizeIndices` | executors write, the driver commits | extends indexes to new rows |
| `indexes` | driver | lists indexes, and how many rows they cover |
| `checkIndex` | executors | compares an index with its column |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from lance_spark.mutations.indexes.check import CheckTask, plan_check
from lance_spark.mutations.indexes.create import (
    IndexConfig,
    IndexRequest,
    commit_index,
    config_of,
    default_segments,
    plan_index,
)
from lance_spark.mutations.indexes.optimize import OptimizeRequest, extend
from lance_spark.mutations.indexes.task import IndexTask, undo_of
from lance_spark.spark.job import Job, parallelism
from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.table.commit.options import (
    DEFAULT_CONFLICT_RETRIES,
    CommitKeywords,
    CommitOptions,
    RetryKeywords,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.table.manifest.manifest import Manifest

INDEX_COLUMNS = (
    "name string, fields array<string>, index_type string, num_indexed_fragments long, "
    "num_indexed_rows long, num_unindexed_fragments long, num_unindexed_rows long, "
    "num_segments long"
)
CHECK_COLUMNS = (
    "segment string, is_valid boolean, num_rows long, missing long, wrong long, stale long, "
    "problems array<string>"
)
STEP = "write an index"
CHECK_STEP = "compare an index with its column"


class IndexMethods(TableBase):
    """Methods of `LanceTable` for indexes."""

    def createIndex(  # noqa: N802 - as its siblings
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        num_segments: int | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
        **options: Any,
    ) -> ChangeResult:
        """Create an index of a column, which scans with filters use.

        Each task reads the column of some fragments, and writes one segment of the index.

        Parameters
        ----------
        column : str
            Name of a column, or dotted path of a child of structs.
        index_type : str or IndexConfig
            A type of `Dataset.create_scalar_index`, in any case.
        name : str, optional
            Name of the index; ``<column>_idx`` by default.
        replace : bool
            Whether an index of the same name and column is replaced. Otherwise it is an error.
        train : bool
            Whether the index covers the rows of this version. Otherwise it is empty.
        num_segments : int, optional
            Most segments, each of which a task makes. By default as many as tasks run at the same
            time, and more if a segment would have more than 64 million rows; 16 million for
            ``INVERTED``, as a task has their texts in memory.
        commit_message : str, optional
        transaction_properties : mapping of str to str, optional
            Stored in the transaction.
        conflict_retries : int
            Maximum number of times to create the index again after another client rewrote
            fragments.
        **options
            Options of the type; see `Dataset.create_scalar_index`.

        Returns
        -------
        ChangeResult
            `version` is the version that was committed.

        Raises
        ------
        InvalidInputError
            The column or the type does not exist; an index has the name, and is not replaced or is
            on another column; or the options of the table name a version.
        InvalidOptionError
            An option is unknown or out of range.
        UnsupportedTypeError
            The index does not take columns of this type.
        CommitConflictError
            Another client changed the index, or rewrote fragments in all attempts.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> table.createIndex("user_id", "BTREE")  # doctest: +SKIP
        >>> table.toDF().where("user_id = 17").show()  # doctest: +SKIP
        """
        commit = CommitOptions.of(
            commit_message=commit_message,
            transaction_properties=transaction_properties,
            conflict_retries=conflict_retries,
        )
        config = config_of(index_type, options)

        def plan(job: Job, dataset: Dataset) -> tuple[Manifest, ChangeResult]:
            count = num_segments or default_segments(
                dataset._table, config.index_type, parallelism(self.spark)
            )
            (path,) = self._spelled(dataset, column)
            request = IndexRequest(
                column=path,
                index_type=config.index_type,
                name=name,
                replace=replace,
                train=train,
                num_segments=count,
                options=config.parameters,
            )
            tasks = plan_index(dataset._table, request)
            segments = job.runner(STEP).run(tasks, IndexTask.run, undo_of(tasks))
            manifest = commit_index(dataset._table, request, segments, commit)
            return manifest, ChangeResult(manifest.version)

        return self._change("create index", plan, commit)

    def dropIndex(  # noqa: N802 - as its siblings
        self,
        name: str,
        **keywords: Unpack[CommitKeywords],
    ) -> ChangeResult:
        """Drop an index. `vacuum` removes its files; see `Dataset.drop_index`."""
        self._writable("drop index")
        return ChangeResult(self.dataset().drop_index(name, **keywords).version)

    def optimizeIndices(  # noqa: N802 - as its siblings
        self,
        names: Sequence[str] | None = None,
        *,
        num_indices_to_merge: int = 1,
        retrain: bool = False,
        num_segments: int | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Extend indexes to the fragments that they do not cover.

        Parameters
        ----------
        names : sequence of str, optional
            Names of indexes; by default all that this release can extend. A warning names others.
        num_indices_to_merge : int
            Number of the newest segments of an index that become one with the new rows. More than
            one segment are merged even if no rows are new. Segments that can have older values of
            new rows are merged in any case.
        retrain : bool
            Whether to create the indexes again over all fragments, in place of their segments.
        num_segments : int, optional
            Most new segments of an index. By default, segments and new rows are merged as long as
            they have at most 64 million rows together; 16 million for ``INVERTED``.

        Returns
        -------
        ChangeResult
            `version` is the version that was committed; the newest version if all rows are
            covered.

        Raises
        ------
        InvalidInputError
            An index does not exist, or this release cannot create its type.
        CommitConflictError, CorruptTableError, CorruptFileError, StorageError
        """
        commit = CommitOptions.of(**keywords)

        def plan(job: Job, dataset: Dataset) -> tuple[Manifest, ChangeResult]:
            table = dataset._table
            request = OptimizeRequest(
                names=names,
                num_indices_to_merge=num_indices_to_merge,
                retrain=retrain,
                num_segments=num_segments,
                parallelism=parallelism(self.spark),
            )
            manifest = extend(table, request, commit, job.runner(STEP))
            return manifest, ChangeResult(manifest.version)

        return self._change("optimize indices", plan, commit)

    def indexes(self) -> DataFrame:
        """Return the indexes as a DataFrame, with the fragments and rows that they cover.

        Raises
        ------
        CorruptTableError, StorageError
        """
        dataset = self.dataset()
        fragments = {fragment.id for fragment in dataset.fragments}
        num_rows = dataset.count_rows()
        rows = []
        for index in dataset.describe_indices():
            covered = {number for part in index.segments for number in part.fragment_ids or ()}
            num_covered = len(fragments & covered)
            rows.append(
                (
                    index.name,
                    list(index.field_names),
                    index.index_type,
                    num_covered,
                    index.num_rows_indexed,
                    len(fragments) - num_covered,
                    num_rows - index.num_rows_indexed,
                    index.num_segments,
                )
            )
        return self._data_frame(rows, INDEX_COLUMNS)

    def checkIndex(self, name: str) -> DataFrame:  # noqa: N802 - as its siblings
        """Compare an index with its column, and return a row for each segment of the index.

        Each task reads one segment, and the column of the fragments that it covers. Nothing is
        changed. See `Dataset.check_index` for what is compared, and its result for the meaning of
        the numbers.

        Parameters
        ----------
        name : str
            Name of the index.

        Raises
        ------
        InvalidInputError
            The index does not exist, or its type cannot be checked.
        UnsupportedFeatureError
            The version of the index is unknown.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> table.checkIndex("user_id_idx").where("NOT is_valid").show()  # doctest: +SKIP
        """
        table = self.dataset()._table
        tasks = plan_check(table, name)
        with Job(self.spark, table, "check index") as job:
            results = job.run_tasks(tasks, CheckTask.run, CHECK_STEP, writes=False)
        rows = [
            (
                result.uuid,
                result.is_valid,
                result.num_rows,
                result.missing,
                result.wrong,
                result.stale,
                list(result.problems),
            )
            for result in results
        ]
        return self._data_frame(rows, CHECK_COLUMNS)
