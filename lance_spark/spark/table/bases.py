"""Base paths of a table through Spark: which there are, new ones, and fragments that move from one
to another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.compaction.plan import CompactionOptions
from lance_spark.mutations.compaction.run import Compaction
from lance_spark.mutations.move_fragments import check_fragment_ids, with_target
from lance_spark.spark.table.base import ChangeResult, TableBase, option_text
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.table.bases import TargetBases
from lance_spark.table.commit.options import DEFAULT_CONFLICT_RETRIES, CommitOptions
from lance_spark.table.refs.branch_repair import repair_branches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.mutations.compaction.task import CompactionMetrics
    from lance_spark.spark.jobs.job import Job
    from lance_spark.table.bases import BaseLike
    from lance_spark.table.manifest.manifest import Manifest

_BASES = (
    "id long, name string, path string, is_dataset_root boolean, num_fragments long, "
    "num_data_files long, size_bytes long"
)
_REPAIRS = "branch string, version long, bases array<long>, problem string"
_METRICS = ("fragments_removed", "fragments_added", "files_removed", "files_added")


class BaseMethods(TableBase):
    """Base paths: other places that files of the table lie in."""

    def bases(self) -> DataFrame:
        """Return the places that data files of the table lie in: the table itself, and its base
        paths.

        Returns
        -------
        DataFrame
            id (null for the table itself), name, path (without what could be a secret),
            is_dataset_root, num_fragments (with data files there), num_data_files, size_bytes (of
            these files, as far as noted).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.inspect.collect import base_facts

        rows = [
            (
                item.id,
                item.name,
                item.path,
                item.is_dataset_root,
                item.num_fragments,
                item.num_files,
                item.num_bytes,
            )
            for item in base_facts(self.dataset()._table)
        ]
        return self.spark.createDataFrame(rows, _BASES)

    def addBases(  # noqa: N802 - Spark's habit
        self,
        bases: Iterable[BaseLike],
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
    ) -> ChangeResult:
        """Add base paths: other places that files of the table may lie in.

        Parameters
        ----------
        bases : iterable of BasePath
            `lance_spark.BasePath` or pylance's `DatasetBasePath`. Those without an id, or of the id
            0, are given one.
        commit_message, transaction_properties
            As in `delete`.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            The table has one of that name, path or id; or the options name a version.
        CommitConflictError
            Others added such a one meanwhile.
        """
        from lance_spark.mutations.metadata_updates import add_bases

        table = self.writable("addBases")
        options = CommitOptions.of(commit_message, transaction_properties)
        return ChangeResult(add_bases(table, bases, options).version)

    def repointBase(  # noqa: N802 - Spark's habit
        self,
        base: int | str,
        path: str,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
    ) -> ChangeResult:
        """Give a base path another path, after its files were copied there.

        Only the new version of this branch looks there: older versions and other branches keep the
        path that they have. Nobody should write to the base path meanwhile: pylance does not notice
        that files which it has just written belong elsewhere now.

        Parameters
        ----------
        base : int or str
            Id or name of the base path.
        path : str
            The new path or URI.
        commit_message, transaction_properties
            As in `delete`.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            There is no such base path, another one has that path, or the options name a version.
        MissingFileError
            A data file, deletion file or index of the newest version is not there, or a data file
            has another size.
        CommitConflictError
            Others changed base paths, or the table again and again.
        """
        from lance_spark.mutations.metadata_updates import repoint_base

        table = self.writable("repointBase")
        options = CommitOptions.of(commit_message, transaction_properties)
        return ChangeResult(repoint_base(table, base, path, options).version)

    def repairBranches(self) -> DataFrame:  # noqa: N802 - Spark's habit
        """Have the branches of a table that was copied or moved find its files where it is now.

        A branch refers to files of the main line, or of other branches, by an absolute path. In a
        copy of the table it is the original's, and the branch is refused until it is repaired. Only
        the newest version of each branch is; older ones stay refused.

        Returns
        -------
        DataFrame
            For each branch: branch, version (the new one, null if nothing was changed), bases (ids
            of the base paths that were changed), problem (why it could not be repaired, null if it
            is sound).

        Raises
        ------
        CommitConflictError
            Somebody changes a branch at the same time.
        """
        result = self.writable("repairBranches")
        rows = [
            (item.branch, item.version, list(item.bases), item.problem or None)
            for item in repair_branches(result.main)
        ]
        return self.spark.createDataFrame(rows, _REPAIRS)

    def withTargetBases(  # noqa: N802 - Spark's habit
        self,
        targetBases: Sequence[str] | None = None,  # noqa: N803 - Spark's habit
        *,
        targetAllBases: bool | None = None,  # noqa: N803 - Spark's habit
    ) -> Self:
        """Return the same table, with other places for the data files of its changes.

        Parameters
        ----------
        targetBases : sequence of str, optional
            Names or paths of base paths; the path of the table stands for the table itself. New
            data files go to them one after the other. None: rows and columns of a fragment stay in
            its base path, and new rows go to the table itself.
        targetAllBases : bool, optional
            True: new data files go to the table itself and all base paths, one after the other;
            False: to all base paths.

        Raises
        ------
        InvalidOptionError
            Both are given, or the names cannot be used. A change raises it too if the table has no
            such base path.

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
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> DataFrame:
        """Move fragments to a base path, or back to the table itself: executors write their rows
        there.

        Fragments whose data files are all there already stay as they are. The old files stay for
        older versions: `vacuum` removes those in the table itself, and none in base paths.

        Parameters
        ----------
        base : str
            Name or path of the base path; the path of the table stands for the table itself.
        where : str or Column, optional
            Only fragments with a row that meets this condition, with all their rows.
        fragment_ids : collection of int, optional
            Only these fragments.
        commit_message, transaction_properties, conflict_retries
            As in `optimize`.

        Returns
        -------
        DataFrame
            A row: fragments_removed, fragments_added, files_removed, files_added.

        Raises
        ------
        InvalidInputError
            The condition cannot be analysed, there is no such fragment, or the table is open at a
            version.
        InvalidOptionError
            The table has no such base path, or it is the root of another table.
        CommitConflictError
            Others changed the same fragments, again and again.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> table.moveFragments("cold", "day < '2024-01-01'")
        """
        if where is not None and fragment_ids is not None:
            raise InvalidInputError("moveFragments: give where or fragment_ids, not both")
        table = with_target(self.writable("moveFragments"), base)
        commit = CommitOptions.of(commit_message, transaction_properties, conflict_retries)
        chosen = None if fragment_ids is None else check_fragment_ids(table, fragment_ids)
        with Compaction(CompactionOptions(), commit) as compaction:

            def plan(job: Job, dataset: Dataset) -> tuple[Manifest, CompactionMetrics]:
                ids = {one.id for one in dataset.fragments}
                if where is not None:
                    ids &= set(find_rows(self, job, dataset, where))
                elif chosen is not None:
                    ids &= chosen
                compaction.options = replace(compaction.options, moved_fragment_ids=ids)
                runner = job.runner("move fragments")
                manifest = compaction.commit(dataset._table, runner=runner)
                return manifest, compaction.metrics

            metrics = self.withTargetBases([base])._change("moveFragments", plan, commit)
        row = tuple(getattr(metrics, name) for name in _METRICS)
        return self.spark.createDataFrame([row], ", ".join(f"{name} long" for name in _METRICS))
