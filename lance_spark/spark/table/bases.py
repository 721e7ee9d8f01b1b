"""Methods of `LanceTable` for base paths, and for moving fragments between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Self, Unpack

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.run import Compaction, check_fragment_ids, with_target
from lance_spark.spark.table.base import ChangeResult, TableBase, option_text
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.table.bases import TargetBases
from lance_spark.table.commit.options import CommitKeywords, CommitOptions, RetryKeywords
from lance_spark.table.refs.branch_repair import repair_branches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.mutations.compaction.task import CompactionMetrics
    from lance_spark.spark.job import Job
    from lance_spark.table.bases import BaseLike
    from lance_spark.table.manifest.manifest import Manifest

BASE_COLUMNS = (
    "id long, name string, path string, is_dataset_root boolean, num_fragments long, "
    "num_data_files long, size_bytes long"
)
_BASE_VALUES = (
    *("id", "name", "path", "is_dataset_root", "num_fragments", "num_files", "num_bytes"),
)
REPAIR_COLUMNS = "branch string, version long, bases array<long>, problem string"


class BaseMethods(TableBase):
    """Methods of `LanceTable` for base paths."""

    def bases(self) -> DataFrame:
        """Return the folders that hold data files of the table: its root, and its base paths.

        Returns
        -------
        DataFrame
            id (null for the root), name, path (without secrets), is_dataset_root, num_fragments
            (with data files there), num_data_files, size_bytes (of these files, if recorded).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.inspect.collect import base_facts

        rows = map(attrgetter(*_BASE_VALUES), base_facts(self.dataset()._table))
        return self._data_frame(list(rows), BASE_COLUMNS)

    def addBases(  # noqa: N802 - Spark's habit
        self,
        bases: Iterable[BaseLike],
        **keywords: Unpack[CommitKeywords],
    ) -> ChangeResult:
        """Add base paths: other folders that may hold files of the table.

        Parameters
        ----------
        bases : iterable of BasePath
            `lance_spark.BasePath` or pylance's `DatasetBasePath`. A base path without an id, or
            with the id 0, gets a new id.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            The table has a base path of that name, path or id, or the options name a version.
        CommitConflictError
            Another client added such a base path at the same time.
        """
        from lance_spark.mutations.metadata_updates import add_bases

        table = self._writable("addBases")
        options = CommitOptions.of(**keywords)
        return ChangeResult(add_bases(table, bases, options).version)

    def repointBase(  # noqa: N802 - Spark's habit
        self,
        base: int | str,
        path: str,
        **keywords: Unpack[CommitKeywords],
    ) -> ChangeResult:
        """Change the path of a base path, after its files were copied there.

        Only the new version of this branch has the new path: older versions and other branches keep
        the old one. No client should write to the base path at the same time: pylance would not
        notice that the files which it has just written are in the old folder.

        Parameters
        ----------
        base : int or str
            Id or name of the base path.
        path : str
            The new path or URI.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            The base path is not found, another base path has the new path, or the options name a
            version.
        MissingFileError
            A data file, deletion file or index of the newest version is missing at the new path,
            or a data file has another size.
        CommitConflictError
            Another client changed base paths, or committed first in all attempts.
        """
        from lance_spark.mutations.metadata_updates import repoint_base

        table = self._writable("repointBase")
        options = CommitOptions.of(**keywords)
        return ChangeResult(repoint_base(table, base, path, options).version)

    def repairBranches(self) -> DataFrame:  # noqa: N802 - Spark's habit
        """Update the absolute paths in the branches of a table that was copied or moved.

        A branch refers to files of the main branch, or of other branches, by an absolute path. In a
        copy of the table this is the path of the original table, and readers refuse the branch
        until it is repaired. Only the newest version of each branch is repaired.

        Returns
        -------
        DataFrame
            A row per branch: branch, version (the new version, null if nothing was changed), bases
            (ids of the changed base paths), problem (why the branch could not be repaired, null if
            it is valid).

        Raises
        ------
        CommitConflictError
            Another client changed a branch at the same time.
        """
        table = self._writable("repairBranches")
        rows = [
            (repair.branch, repair.version, list(repair.bases), repair.problem or None)
            for repair in repair_branches(table.main)
        ]
        return self._data_frame(rows, REPAIR_COLUMNS)

    def withTargetBases(  # noqa: N802 - Spark's habit
        self,
        targetBases: Sequence[str] | None = None,  # noqa: N803 - Spark's habit
        *,
        targetAllBases: bool | None = None,  # noqa: N803 - Spark's habit
    ) -> Self:
        """Return the same table with other targets for the data files of its changes.

        Parameters
        ----------
        targetBases : sequence of str, optional
            Names or paths of base paths; the path of the table stands for its root. New data files
            go to these targets in turn. By default, files of existing rows stay in the base path of
            their fragment, and new rows go to the root.
        targetAllBases : bool, optional
            True: new data files go to the root and all base paths in turn. False: to all base paths
            in turn.

        Raises
        ------
        InvalidOptionError
            Both arguments are given, or a name is not valid. If a base path is not found, the
            change raises this error.

        Examples
        --------
        >>> table.withTargetBases(["cold"]).optimize()
        """
        TargetBases(targetBases, targetAllBases)  # type: ignore[arg-type]
        names = ("target_bases", "target_all_bases")
        options = {name: text for name, text in self.options.items() if name.lower() not in names}
        if targetBases:
            options["target_bases"] = option_text(list(targetBases))
        if targetAllBases is not None:
            options["target_all_bases"] = option_text(targetAllBases)
        return type(self)(self.spark, self.path, options, self.alias_name)

    def moveFragments(  # noqa: N802 - Spark's habit
        self,
        base: str,
        where: str | Column | None = None,
        *,
        fragment_ids: Collection[int] | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> DataFrame:
        """Move fragments to a base path, or to the table's root, by rewriting their rows there.

        Fragments whose data files are all there already are not rewritten. The old files stay for
        older versions: `vacuum` removes them from the table's root, but not from base paths.

        Parameters
        ----------
        base : str
            Name or path of the base path; the path of the table stands for its root.
        where : str or Column, optional
            Move only fragments with a row that meets this condition.
        fragment_ids : collection of int, optional
            Move only these fragments.

        Returns
        -------
        DataFrame
            A row: fragments_removed, fragments_added, files_removed, files_added.

        Raises
        ------
        InvalidInputError
            Spark cannot analyse the condition, a fragment is not found, or the options name a
            version.
        InvalidOptionError
            The base path is not found, or is the root of another table.
        CommitConflictError
            Other clients changed the same fragments in all attempts.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> table.moveFragments("cold", "day < '2024-01-01'")
        """
        if where is not None and fragment_ids is not None:
            raise InvalidInputError("moveFragments: set where or fragment_ids, not both")
        table = with_target(self._writable("moveFragments"), base)
        commit = CommitOptions.of(**keywords)
        chosen = None if fragment_ids is None else check_fragment_ids(table, fragment_ids)
        with Compaction(CompactionOptions(), commit) as compaction:

            def plan(job: Job, dataset: Dataset) -> tuple[Manifest, CompactionMetrics]:
                ids = {fragment.id for fragment in dataset.fragments}
                if where is not None:
                    ids &= set(find_rows(self, job, dataset, where))
                elif chosen is not None:
                    ids &= chosen
                compaction.options = CompactionOptions(moved_fragment_ids=ids)
                runner = job.runner("move fragments")
                manifest = compaction.commit(dataset._table, runner=runner)
                return manifest, compaction.metrics

            metrics = self.withTargetBases([base])._change("moveFragments", plan, commit)
        return self._compaction_frame(metrics)
