"""What all changes of a table through Spark share: which table, at which version, and how a change
is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError
from lance_spark.mutations.retry import retry_on_conflict
from lance_spark.mutations.rows.row_address_guard import RowAddressGuard
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.options.options import ReadOptions
from lance_spark.spark.read import reader
from lance_spark.spark.table.dataframes import named_in
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_Result = TypeVar("_Result")
_PINNING = ("version", "tag", "timestamp")


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What a change did.

    Attributes
    ----------
    version : int
        The newest version after it: its own, unless nothing changed.
    num_inserted_rows, num_updated_rows, num_deleted_rows : int
    """

    version: int
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0


class TableBase:
    """A table, and the session that works on it.

    Parameters
    ----------
    spark : SparkSession
    path : str
        Folder or URI.
    options : mapping of str to str
        Those of a read: settings of the store, ``branch``, ``target_bases`` and
        ``target_all_bases``; ``version``, ``tag`` and ``timestamp`` make a table that is only read.
    alias : str, optional
        Name of the table in conditions and expressions.

    Raises
    ------
    InvalidOptionError
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        options: Mapping[str, str],
        alias: str | None = None,
    ) -> None:
        self.spark = spark
        self.path = path
        self.options = dict(options)
        self.alias_name = alias
        self._read_options = ReadOptions.parse({**options, "path": path})

    def dataset(self) -> Dataset:
        """Open the newest version of the branch, or the one that the options name.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, StorageError
        """
        return reader.open_table(self._read_options)

    def writable(self, what: str) -> OpenTable:
        """Open the newest version, to be changed.

        Parameters
        ----------
        what : str
            Name of the change.

        Raises
        ------
        InvalidInputError
            The options name a version.
        """
        for name in _PINNING:
            value = getattr(self._read_options, name)
            if value is not None:
                raise InvalidInputError(
                    f"{what}: this is {reader.display(self.path)} at {name} {value}, which can "
                    "only be read; leave the option "
                    f"{name} out to change the newest version"
                )
        return replace(self.dataset()._table, target_bases=self._read_options.target_bases)

    def _change(
        self,
        what: str,
        plan: Callable[[Job, Dataset], tuple[Manifest, _Result]],
        options: CommitOptions,
        naming: Sequence[str | Column | None] = (),
    ) -> _Result:
        """Make a change; plan all of it again on the newest version after each conflict.

        Parameters
        ----------
        what : str
            Name of the change.
        plan : callable
            Runs Spark jobs with the job that it receives, and commits. Returns the version that
            is then the newest, and the result. Called again with the same job and a newer version
            after a conflict; does not retry by itself.
        options : CommitOptions
            Its `conflict_retries` count here.
        naming : sequence of str, Column or None
            Expressions and names of columns that choose rows. If they name row addresses, the
            change is not planned again once these rows may have moved.

        Returns
        -------
        object
            The result of `plan`.

        Raises
        ------
        CommitConflictError
            There was a conflict `conflict_retries` + 1 times; or another client moved rows that
            the change names by their addresses.
        LanceError, PySparkException
            Errors of `plan`. The files are deleted, unless the commit is uncertain.
        """
        table = self.writable(what)
        storage = self._read_options.storage_options or None
        places = RowAddressGuard(table)
        with Job(self.spark, table, what) as job:

            def attempt(current: OpenTable) -> tuple[Manifest, _Result]:
                return plan(job, Dataset(current, storage))

            def check(newer: OpenTable) -> None:
                places.check(newer, named_in(Dataset(table, storage), *naming))

            manifest, result = retry_on_conflict(
                table,
                attempt,
                options.conflict_retries,
                replan_always=True,
                before_replan=check,
            )
            job.committed(manifest)
        return result

    def storage_options(self) -> dict[str, str]:
        """Return the options for frames of any version of the table: all that name none, and no
        branch.
        """
        names = (*_PINNING, "branch")
        return {name: value for name, value in self.options.items() if name.lower() not in names}


def option_text(value: Any) -> str:
    """Return the value of an option as Spark has it: lists and mappings as JSON."""
    if isinstance(value, (list, tuple, Mapping)):
        return json.dumps(list(value) if isinstance(value, tuple) else value)
    return str(value).lower() if isinstance(value, bool) else str(value)
