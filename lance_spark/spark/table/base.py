"""What all changes of a table through Spark share: which table, at which version, and how a change
is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError
from lance_spark.mutations.retry import DEFAULT_CONFLICT_RETRIES, retry_on_conflict
from lance_spark.mutations.rows.row_address_guard import RowAddressGuard
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.options.options import ReadOptions
from lance_spark.spark.read import reader
from lance_spark.spark.table.dataframes import named_in
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

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

    def change(
        self,
        what: str,
        plan: Callable[[Job, Dataset], Manifest],
        *,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
        naming: Sequence[str | Column | None] = (),
    ) -> Manifest:
        """Make a change; plan all of it again on the newest version as often as others commit what
        it does not fit.

        Parameters
        ----------
        what : str
            Name of the change.
        plan : callable
            Runs Spark jobs by the job that it gets, and commits; returns the version that is the
            newest then. Called again with the same job and a newer version. Does not try again by
            itself.
        conflict_retries : int
            How often to plan it again.
        naming : sequence of str, Column or None
            Expressions and names of columns by which it chooses rows. If they say where rows are,
            it is not planned again once these may have moved.

        Raises
        ------
        CommitConflictError
            It did not fit what others committed, `conflict_retries` + 1 times; or they moved rows
            that it names by where they were.
        LanceError, PySparkException
            What `plan` raises. Nothing is left behind, unless it is not certain that it was not
            committed.
        """
        table = self.writable(what)
        storage = self._read_options.storage_options or None
        places = RowAddressGuard(table)
        with Job(self.spark, table, what) as job:

            def attempt(current: OpenTable) -> Manifest:
                return plan(job, Dataset(current, storage))

            def check(newer: OpenTable) -> None:
                places.check(newer, named_in(Dataset(table, storage), *naming))

            manifest = retry_on_conflict(
                table, attempt, conflict_retries, whatever=True, again=check
            ).manifest
            job.committed(manifest)
        return manifest

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
