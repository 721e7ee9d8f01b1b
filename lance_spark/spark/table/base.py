"""A table of a session, as `LanceTable` and its jobs have it, and the loop of a change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from pyspark.errors import PySparkException

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError, InvalidOptionError, TableNotFoundError
from lance_spark.file.schema.schema import spelled
from lance_spark.mutations.commits import retry_on_conflict
from lance_spark.mutations.rows.conditions import RowAddressGuard
from lance_spark.spark.job import Job
from lance_spark.spark.options.declared import TIME_NAMES, canonical
from lance_spark.spark.options.read import ReadOptions, with_offsets
from lance_spark.spark.read import reader
from lance_spark.spark.table.dataframes import VERSION_OPTIONS, named_columns, without_version
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result of a change.

    Attributes
    ----------
    version : int
        The version that the change committed, or the newest version if nothing changed.
    num_inserted_rows, num_updated_rows, num_deleted_rows : int
    """

    version: int
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0


if TYPE_CHECKING:

    class ChangeFrame(DataFrame, ChangeResult):
        """A DataFrame of one row about a change, with the attributes of its result.

        Delta returns a DataFrame for some changes, which lacks the number of the new version.
        """


class TableHandle:
    """A table, and the session that works on it.

    Parameters
    ----------
    spark : SparkSession
    path : str
        Folder or URI.
    options : mapping of str to str
        Options of a read: settings of the store, ``branch``, ``target_bases`` and
        ``target_all_bases``. With ``version``, ``tag`` or ``timestamp`` the table is read-only.
    alias : str, optional
        Name of the table in conditions and expressions.
    name : str, optional
        Name of the table in a catalog.

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
        name: str | None = None,
    ) -> None:
        self.spark = spark
        self.path = path
        self.name = name
        self.options = dict(options)
        if any(canonical(name) in TIME_NAMES for name in options):
            # Such a text keeps its meaning if the zone of the session is changed.
            self.options = with_offsets(options, session_zone(spark))
        self.alias_name = alias
        self.read_options = ReadOptions.parse({**self.options, "path": path})
        if self.read_options.fresh:
            raise InvalidOptionError(
                f"{reader.display(path)}: option fresh applies to reads, not to a table: use "
                'spark.read.format("lance").option("fresh", "true")'
            )
        for option, method in (("full_text_query", "search"), ("nearest", "nearest")):
            if getattr(self.read_options, option) is not None:
                raise InvalidOptionError(
                    f"{reader.display(path)}: option {option} applies to reads, not to a table: "
                    f"use LanceTable.{method}"
                )

    def with_options(self, options: Mapping[str, str]) -> Self:
        """Return the same table with other options."""
        return type(self)(self.spark, self.path, options, self.alias_name, self.name)

    def under(self, alias: str) -> Self:
        """Return the same table under another alias."""
        return type(self)(self.spark, self.path, self.options, alias, self.name)

    def at(self, version: Mapping[str, Any]) -> Self:
        """Return the table at a version that options select. Options that are None are ignored."""
        options = without_version(self.options)
        if "branch" not in version and version.get("tag") is None:
            options |= {k: v for k, v in self.options.items() if canonical(k) == "branch"}
        return self.with_options({**options, **option_texts(version)})

    def dataset(self) -> Dataset:
        """Open the newest version of the branch, or the version that the options name.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, StorageError
        """
        return reader.open_table(self.read_options)

    def writable(self, change: str) -> OpenTable:
        """Open the newest version for a change.

        Parameters
        ----------
        change : str
            Name of the change, for errors.

        Raises
        ------
        InvalidInputError
            The options name a version.
        """
        for name in VERSION_OPTIONS:
            value = getattr(self.read_options, name)
            if value is not None:
                raise InvalidInputError(
                    f"{change}: {reader.display(self.path)} is open at {name} {value}, which is "
                    f"read-only; leave out the option {name} to change the newest version"
                )
        return replace(self.dataset()._table, target_bases=self.read_options.target_bases)

    def change(
        self,
        name: str,
        plan: Callable[[Job, Dataset], tuple[Manifest, _Result]],
        options: CommitOptions,
        selectors: Sequence[str | Column | None] = (),
    ) -> _Result:
        """Make a change. After each conflict, plan it again on the newest version.

        Parameters
        ----------
        name : str
            Name of the change, such as "delete".
        plan : callable
            Runs Spark jobs with the job that it receives, and commits. Returns the newest version
            after that, and the result. It does not retry; after a conflict it is called again with
            the same job and a newer version.
        options : CommitOptions
            `conflict_retries` limits the number of these calls.
        selectors : sequence of str, Column or None
            Expressions and column names that select rows. If they name row addresses, the change
            is not planned again after another client may have moved these rows.

        Raises
        ------
        CommitConflictError
            `plan` met a conflict `conflict_retries` + 1 times, or another client moved rows that
            the change names by their addresses.
        LanceError, PySparkException
            An error of `plan`. Its files are deleted, unless the commit is uncertain.
        """
        table = self.writable(name)
        storage = self.read_options.storage_options or None
        guard = RowAddressGuard(table)
        with Job(self.spark, table, name) as job:

            def attempt(current: OpenTable) -> tuple[Manifest, _Result]:
                return plan(job, Dataset(current, storage))

            def check(newer: OpenTable) -> None:
                guard.check(newer, named_columns(Dataset(table, storage), *selectors))

            manifest, result = retry_on_conflict(
                table, attempt, options, replan_always=True, before_replan=check
            )
            job.committed(manifest)
        return result

    def spelled_paths(self, dataset: Dataset, *paths: str) -> list[str]:
        """Return paths of columns as the table spells them, by the case sensitivity of Spark."""
        schema = dataset._stored_schema()
        exact = self.is_case_sensitive()
        return [spelled(schema, path, exact=exact) for path in paths]

    def is_case_sensitive(self) -> bool:
        """Return whether names in another case are other names."""
        return str(self.spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"

    def data_frame(self, rows: Iterable[tuple[Any, ...]], schema: str) -> DataFrame:
        """Return rows as a DataFrame."""
        return self.spark.createDataFrame(list(rows), schema)

    def change_frame(self, result: ChangeResult, row: tuple[Any, ...], schema: str) -> ChangeFrame:
        """Return a row about a change as a DataFrame that has the attributes of the result."""
        frame: Any = self.data_frame([row], schema)
        for field in fields(result):
            setattr(frame, field.name, getattr(result, field.name))
        return cast("ChangeFrame", frame)


def session_zone(spark: SparkSession | None) -> str | None:
    """Return the zone by which the session reads times without an offset.

    None without a session: procedures that run no Spark jobs have none.
    """
    return None if spark is None else str(spark.conf.get("spark.sql.session.timeZone"))


def option_text(value: Any) -> str:
    """Return the value of an option as Spark passes it: lists and mappings as JSON.

    A datetime without a zone is a local time, as in pyspark.
    """
    if isinstance(value, datetime):
        return value.astimezone().isoformat()
    if isinstance(value, (list, tuple, Mapping)):
        return json.dumps(list(value) if isinstance(value, tuple) else value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark passes them, without those that are None."""
    return {name: option_text(value) for name, value in options.items() if value is not None}


# --------------------------------------------------------------------------------------------------
# Where the tables of a session's catalogs are.

_FIRST_PART = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^`.\s]+))\s*\.")


def named_table(spark: SparkSession, name: str) -> tuple[str, str | None, dict[str, str]]:
    """Return path and whole name of a table by its name in SQL, and the settings of its store.

    Raises
    ------
    TableNotFoundError
        No catalog of Lance tables has the name.
    """
    try:
        # A statement of the catalog: a plain table has the name, too, for Spark alone.
        (row,) = spark.sql(f"DESCRIBE DETAIL {name}").collect()
        path = str(row["uri"])
    except (PySparkException, KeyError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise TableNotFoundError(
            f"{name!r} is not the name of a Lance table of a catalog: {first}; call "
            "lance_spark.enable(spark), or use LanceTable.forPath"
        ) from error
    # SET shows no secrets.
    prefix = f"spark.sql.catalog.{_catalog(spark, name)}."
    return (
        path,
        row["name"],
        {
            key.removeprefix(prefix): str(spark.conf.get(key))
            for (key, *_) in spark.sql("SET").collect()
            if key.startswith(f"{prefix}storage.")
        },
    )


def _catalog(spark: SparkSession, name: str) -> str:
    match = _FIRST_PART.match(name)
    if match is not None:
        first = (match["quoted"] or match["plain"]).replace("``", "`")
        if spark.conf.get(f"spark.sql.catalog.{first}", None) is not None:
            return first
    return str(spark.catalog.currentCatalog())
