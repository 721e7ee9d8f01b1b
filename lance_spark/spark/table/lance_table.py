"""`LanceTable`: a table that a Spark session reads and changes.

Each change is a method: Spark jobs, if rows are involved, and one commit. The methods check, call
and return; the work of a subject is in the modules beside this one, and in `jobs` and `merge`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, overload

from lance_spark.arguments import checks_arguments, pylance_keywords
from lance_spark.dataset.decorators import prefixes_errors_by
from lance_spark.dataset.indexes import ExtendKeywords
from lance_spark.dataset.mem_wal import NewMemWalKeywords, ShardingKeywords
from lance_spark.errors import InvalidInputError, TableNotFoundError, UnsupportedError
from lance_spark.keywords import (
    also_takes,
    checked,
    of_group,
    parameters_of,
    without_group,
)
from lance_spark.mem_wal.cleanup import DEFAULT_GRACE
from lance_spark.mutations.compaction.options import CompactionKeywords, CompactionOptions
from lance_spark.mutations.indexes.create import IndexConfig, IndexRequest, config_of
from lance_spark.mutations.indexes.optimize import OptimizeRequest
from lance_spark.spark.options.declared import RowKeywords, SearchReadKeywords, TableKeywords
from lance_spark.spark.table.base import ChangeResult, TableHandle, option_text, option_texts
from lance_spark.spark.table.dataframes import without_version
from lance_spark.spark.table.indexes import ExtendRetryKeywords
from lance_spark.spark.table.jobs.find_rows import predicate_list
from lance_spark.spark.table.maintenance import (
    IGNORED,
    OptimizeBuilder,
    OptimizeKeywords,
    builder_without_arguments,
)
from lance_spark.spark.table.searches import RecallKeywords, VectorSearchKeywords, nearest_join
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.options import CommitKeywords, CommitOptions, RetryKeywords

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.dataset.recall import IndexRecall
    from lance_spark.indexes.text.queries import QueryLike
    from lance_spark.spark.table.base import ChangeFrame
    from lance_spark.spark.table.create import Mode, TableBuilder
    from lance_spark.spark.table.jobs.update import UpdateMode
    from lance_spark.spark.table.merge.builder import MergeBuilder
    from lance_spark.table.bases import BaseLike


@prefixes_errors_by(lambda table: parse_uri(table._handle.path).display)
class LanceTable:
    """A Lance table that a Spark session reads and changes; returned by `forPath`.

    Each call opens the newest version, unless the options name a version.

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

    Raises
    ------
    InvalidOptionError
    """

    _handle_class: ClassVar[type[TableHandle]] = TableHandle

    def __init__(
        self, spark: SparkSession, path: str, options: Mapping[str, str], alias: str | None = None
    ) -> None:
        self._handle = self._handle_class(spark, path, options, alias)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._handle.spark

    @property
    def path(self) -> str:
        """The folder or URI."""
        return self._handle.path

    @property
    def options(self) -> Mapping[str, str]:
        """Options of a read of the table."""
        return self._handle.options

    def __repr__(self) -> str:
        from lance_spark.spark.read.reader import display

        return f"LanceTable({display(self.path)})"

    def _repr_html_(self) -> str:
        from lance_spark.spark.table.show import table_html

        return table_html(self._handle)

    # Tables: opened and created

    @classmethod
    @checks_arguments
    @also_takes(TableKeywords)
    def forPath(  # noqa: N802 - as DeltaTable has it
        cls,
        sparkSession: SparkSession,  # noqa: N803 - as DeltaTable has it
        path: str,
        hadoopConf: Mapping[str, Any] | None = None,  # noqa: N803 - as DeltaTable has it
        **options: Any,
    ) -> Self:
        """Return the table at a path.

        Parameters
        ----------
        sparkSession : SparkSession
        path : str
            Folder or URI.
        hadoopConf : mapping of str to value, optional
            The same options as `options`. Settings of Hadoop are not known: Lance has its own for
            stores.
        **options
            Other options of a read: settings of the store.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, InvalidOptionError, StorageError
        """
        table = cls(sparkSession, path, option_texts({**(hadoopConf or {}), **options}))
        table.dataset()
        return table

    @classmethod
    @checks_arguments
    @also_takes(TableKeywords)
    def forName(  # noqa: N802 - as DeltaTable has it
        cls,
        sparkSession: SparkSession,  # noqa: N803 - as DeltaTable has it
        tableOrViewName: str,  # noqa: N803 - as DeltaTable has it
        **options: Any,
    ) -> Self:
        """Return the table with a name, in a catalog of a session that `enable` has extended.

        Parameters
        ----------
        sparkSession : SparkSession
        tableOrViewName : str
            Name of a table in SQL, such as ``lance.db.t``, or ``t`` in the current catalog and
            namespace. Views are not tables.
        **options
            As of `forPath`, beside the settings of the catalog for its stores.

        Raises
        ------
        TableNotFoundError
            No catalog of Lance tables has the name.
        VersionNotFoundError, InvalidOptionError, StorageError

        Examples
        --------
        >>> LanceTable.forName(spark, "lance.db.flights").history()  # doctest: +SKIP
        """
        from lance_spark.spark.table.base import named_table

        path, name, settings = named_table(sparkSession, tableOrViewName)
        table = cls.forPath(sparkSession, path, **{**settings, **options})
        table._handle.name = name
        return table

    @classmethod
    @checks_arguments
    @also_takes(TableKeywords)
    def isLanceTable(  # noqa: N802 - as DeltaTable has it
        cls,
        sparkSession: SparkSession,  # noqa: N803 - as DeltaTable has it
        identifier: str,
        **options: Any,
    ) -> bool:
        """Return whether a path holds a Lance table.

        Parameters
        ----------
        sparkSession : SparkSession
        identifier : str
            Folder or URI.
        **options
            As of `forPath`.

        Raises
        ------
        InvalidOptionError
        StorageError
            The store refused the request, so the answer is unknown.
        """
        try:
            cls.forPath(sparkSession, identifier, **options)
        except TableNotFoundError:
            return False
        return True

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> TableBuilder:  # noqa: N803 - as DeltaTable has it
        """Return a builder of a new table. There must be no table of its path or name.

        Without a session, this and the following methods take the active one.
        """
        return cls._builder(sparkSession, "create")

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> TableBuilder:  # noqa: N802, N803 - as DeltaTable has it
        """Return a builder of a new table. An existing table stays as it is."""
        return cls._builder(sparkSession, "createIfNotExists")

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> TableBuilder:  # noqa: N803 - as DeltaTable has it
        """Return a builder that replaces an existing table. Its older versions stay."""
        return cls._builder(sparkSession, "replace")

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> TableBuilder:  # noqa: N802, N803 - as DeltaTable has it
        """Return a builder that creates a table, or replaces an existing table."""
        return cls._builder(sparkSession, "createOrReplace")

    @classmethod
    def _builder(cls, spark: SparkSession | None, mode: Mode) -> TableBuilder:
        from pyspark.sql import SparkSession

        from lance_spark.spark.table.create import TableBuilder

        spark = spark or SparkSession.getActiveSession()
        if spark is None:
            raise InvalidInputError("there is no active session; pass the session as sparkSession")
        return TableBuilder(cls, spark, mode)

    @classmethod
    def convertToDelta(  # noqa: N802 - as DeltaTable has it
        cls,
        sparkSession: SparkSession,  # noqa: N803 - as DeltaTable has it
        identifier: str,
        partitionSchema: Any = None,  # noqa: N803 - as DeltaTable has it
    ) -> Self:
        """Refuse to make a table of Parquet files in their folder.

        Raises
        ------
        UnsupportedError
        """
        raise UnsupportedError(
            f"convertToDelta({identifier!r}): a Lance table has files of its own, so Parquet files "
            "cannot stay where they are; read them, and write the rows by "
            '.write.format("lance").save(path)'
        )

    def alias(self, aliasName: str) -> Self:  # noqa: N803 - as DeltaTable has it
        """Return the same table under a name for conditions and expressions: ``name.column``."""
        if not aliasName:
            raise InvalidInputError("an alias must not be empty: give aliasName")
        return self._of(self._handle.under(aliasName))

    def dataset(self) -> Dataset:
        """Open the newest version of the branch, or the version that the options name.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, StorageError
        """
        return self._handle.dataset()

    # Reads and searches

    @also_takes(RowKeywords)
    def toDF(  # noqa: N802 - as DeltaTable has it
        self,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return the table as a DataFrame.

        Each query reads the version that is the newest when Spark plans it, unless the options
        name a version.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to read, or dotted paths of children of structs; all columns by default.
        **options
            Other options of a read.
        """
        from lance_spark.spark.table.searches import read_frame

        return read_frame(self._handle, columns, options)

    @also_takes(SearchReadKeywords)
    def search(
        self,
        query: QueryLike,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        k: int | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return the rows whose text matches a query, those with the greatest scores first.

        The DataFrame has the columns and ``_score``. As for `toDF`, a query over it reads the
        newest version. Tasks search parts of the index, and each returns its best rows. Conditions
        on the DataFrame, such as ``where``, choose among its rows.

        Parameters
        ----------
        query : str, mapping or FullTextQuery
            Words, ``"a phrase"`` in quotation marks, a mapping with the keys ``query`` and
            ``columns``, or a query of `lance_spark.query`. Without columns, all columns with an
            INVERTED index are searched.
        columns : sequence of str, optional
            Columns to return, as in `toDF`. ``_score`` is added if it is not named.
        limit : int, optional
            Maximum number of rows; all that match by default. Of rows with equal scores, those with
            the least addresses are first.
        k : int, optional
            Another name of `limit`.
        **options
            Other options of a read.

        Raises
        ------
        InvalidInputError
            The query is malformed, the limit is negative, or the table has a column ``_score``.
            A column that does not exist, and an index that this release cannot search, are errors
            of queries over the DataFrame.

        Examples
        --------
        >>> table.search("quick fox", ["id", "text"], limit=10).show()  # doctest: +SKIP
        """
        from lance_spark.spark.table.searches import text_search

        if k is not None and limit is not None:
            raise InvalidInputError("give limit, and not k, which means the same, too")
        return text_search(self._handle, query, columns, k if limit is None else limit, options)

    @also_takes(VectorSearchKeywords)
    def nearest(
        self,
        column: str,
        q: Any,
        k: int = 10,
        *,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return the rows whose vectors are nearest to a vector, the nearest first.

        The DataFrame has the columns and ``_distance``. An index of the column is searched, if
        there is one; rows that it does not cover are searched exactly. The driver answers a small
        search; tasks search parts of a large one. As for `toDF`, a query over the DataFrame reads
        the newest version, and conditions on it choose among its rows.

        Parameters
        ----------
        column : str
            Column of vectors.
        q : sequence of float, or array
            A vector; or several ones, as a sequence of vectors or an array of two dimensions. The
            column ``query_index`` is then first, and there are `k` rows for each vector.
        k : int
            Maximum number of rows. Of rows with equal distances, those with the least row ids are
            first.
        columns : sequence of str, optional
            Columns to return, as in `toDF`. ``_distance`` is added if it is not named.
        **options
            Other options of a read.

        Raises
        ------
        InvalidInputError
            An argument is invalid. A column that does not exist, or has vectors of another length,
            is an error of queries over the DataFrame.

        Examples
        --------
        >>> table.nearest("vector", [0.1, 0.7], k=5, columns=["id"]).show()  # doctest: +SKIP
        """
        from lance_spark.spark.table.searches import vector_search

        return vector_search(self._handle, column, q, k, columns, options)

    @also_takes(SearchReadKeywords)
    def hybrid_search(
        self,
        text: QueryLike,
        q: Any,
        k: int = 10,
        *,
        column: str = "vector",
        reranker: str | Callable[[pa.Table], Any] = "rrf",
        candidates: int | None = None,
        rrf_k: float = 60.0,
        weight: float = 0.7,
        columns: Sequence[str] | None = None,
        nearest: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return rows that a vector search or a full-text search finds, the most relevant first.

        The DataFrame has the columns, ``_distance``, ``_score`` and ``_relevance_score``. The
        distance is null in rows that only the full-text search finds, and the score in rows that
        only the vector search finds.

        Parameters
        ----------
        text : str, mapping or FullTextQuery
            As in `search`.
        q : sequence of float, or array
            One vector.
        k : int
            Maximum number of rows.
        column : str
            Column of vectors.
        reranker : str or callable
            ``rrf`` (reciprocal rank fusion): the sum of 1 / (rank + `rrf_k`), with ranks from 0.
            ``linear``: `weight` parts of similarity and the rest of the score, each scaled to 0 to
            1 among the candidates. Or a function that gets a `pyarrow.Table` of all candidates,
            with ``_distance`` and ``_score``, and returns a number for each row, greater for rows
            that are more relevant. A task calls it once.
        candidates : int, optional
            How many rows each search finds; `k` by default, and at least.
        rrf_k, weight : float
        columns : sequence of str, optional
            Columns to return, as in `toDF`. ``_distance``, ``_score`` and ``_relevance_score`` are
            added.
        nearest : mapping, optional
            More arguments of `nearest`: ``metric``, ``nprobes`` and others.
        **options
            Other options of a read.

        Raises
        ------
        InvalidInputError
            An argument is invalid, or the table has no primary key for `fresh`.

        Examples
        --------
        >>> table.hybrid_search("quick fox", [0.1, 0.7], k=5).show()  # doctest: +SKIP
        """
        from lance_spark.spark.table.searches import hybrid_search

        return hybrid_search(
            self._handle,
            text,
            q,
            k,
            column,
            columns,
            candidates,
            reranker,
            rrf_k,
            weight,
            nearest or {},
            options,
        )

    @parameters_of(nearest_join)
    def nearest_join(self, *arguments: Any, **keywords: Any) -> DataFrame:
        """Return the rows of a DataFrame, each with the rows whose vectors are nearest to its own.

        The DataFrame has the columns of `queries`, the columns of the table, and ``_distance``.
        There are up to `k` rows for each query, in any order. The join is planned for many queries:
        each part of the table is read once for all its queries. `queries` is computed once. The
        version of the table is the newest at the time of this call.

        Raises
        ------
        InvalidInputError
            An argument is invalid, or a name occurs in both.

        Examples
        --------
        >>> table.nearest_join(users, ("taste", "vector"), k=5, columns=["id"])  # doctest: +SKIP
        """
        return nearest_join(self._handle, *arguments, **keywords)

    def delete(
        self,
        condition: str | Column | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Delete the rows for which a condition is true, or all rows.

        Executors find the rows and write deletion files; data files do not change. Fragments
        without remaining rows are dropped. Another client can delete other rows at the same time.

        Parameters
        ----------
        condition : str or Column, optional
            Expression in Spark's SQL, which can have subqueries, or a Column. If it names
            ``_rowaddr``, it is not evaluated again after another client moved rows.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            Spark cannot analyse the condition, or the options name a version.
        CommitConflictError
            Other clients committed conflicting changes in all attempts, or moved rows that the
            condition selects by their addresses.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            The condition raised an error for some row.
        """
        from lance_spark.spark.table.jobs.find_rows import delete

        options = CommitOptions.of(**keywords)
        return self._handle.change(
            "delete",
            lambda job, dataset: delete(self._handle, job, dataset, condition, options),
            options,
            [condition],
        )

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as DeltaTable has it
        *,
        mode: UpdateMode = "auto",
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Update values of the rows for which a condition is true, or of all rows.

        Spark reads only the columns that it needs to compute the new values. Other columns are
        copied from file to file, or their files stay as they are. Rows keep their stable row ids,
        if the table has these.

        Parameters
        ----------
        condition : str or Column, optional
            As in `delete`.
        set : mapping of str to str or Column
            New values by the name of a column, or of a child of a struct (``address.city``):
            expressions in SQL or Columns over the old values, cast to the type of the column. If a
            child of a null struct is set, the struct becomes non-null and its other children are
            null.
        mode : str
            ``rows``: the update writes the new rows to new fragments, and deletes the old rows.
            ``columns``: the rows stay in their fragments. For each fragment with a row to update,
            the update writes a new file with all values of the updated columns. ``overlay``: the
            rows stay, and the update writes their new values alone, to overlay files. Other
            clients do not open the table then, unless they allow overlays, until a compaction has
            removed the overlays. ``auto``: the update finds the rows first, and then chooses
            ``rows`` or ``columns``, whichever writes less.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            Spark cannot analyse the condition or an expression, a column that is not nullable gets
            a null, or the options name a version.
        SchemaMismatchError
            A column is not found.
        CommitConflictError
            As in `delete`.
        UnsupportedError
            The mode is ``columns`` or ``overlay`` and a column holds blobs, the mode is ``overlay``
            and files are of version 0.1, a child of a struct with blobs is set, or the table uses a
            feature that this release cannot change.
        UnsupportedFeatureError, StorageError
        PySparkException
            An expression raised an error for some row.
        """
        from lance_spark.spark.table.jobs.update import update

        predicate = predicate_list(condition)
        options = CommitOptions.of(**keywords).with_operation("UPDATE", predicate=predicate)
        # A value can select rows too, by CASE.
        selectors = [condition, *(set.values() if isinstance(set, Mapping) else ())]
        return self._handle.change(
            "update",
            lambda job, dataset: update(self._handle, job, dataset, condition, set, mode, options),
            options,
            selectors,
        )

    def update_columns(
        self,
        columns: Mapping[str, str | Column],
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Replace all values of columns, in new data files of these columns.

        Rows stay in their fragments. Equal to `update` without a condition, in the mode
        ``columns``.

        Parameters
        ----------
        columns : mapping of str to str or Column
            As `set` in `update`.

        Returns
        -------
        ChangeResult

        Raises
        ------
        LanceError, PySparkException
            As in `update`.
        """
        return self.update(None, columns, mode="columns", **keywords)

    def replace_where(
        self,
        source: DataFrame,
        condition: str | Column,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Replace the rows for which a condition is true by the rows of a DataFrame, in one commit.

        Parameters
        ----------
        source : DataFrame
            Columns are matched by name; nullable columns may be missing. All rows must meet the
            condition. Each attempt reads it once, and
            may read its first 10,000 rows before.
        condition : str or Column
            Condition on columns of the table, as in `delete`.

        Returns
        -------
        ChangeResult
            With the numbers of inserted and of deleted rows.

        Raises
        ------
        InvalidInputError
            A row of the DataFrame does not meet the condition, a value does not fit its column,
            Spark cannot analyse the condition, or the options name a version.
        SchemaMismatchError
            The columns do not fit the table.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            The DataFrame or the condition raised an error for some row.
        """
        from lance_spark.spark.table.jobs.partial_overwrite import replace_where

        options = CommitOptions.of(**keywords)
        return self._handle.change(
            "replace where",
            lambda job, dataset: replace_where(
                self._handle, job, dataset, source, condition, options
            ),
            options,
        )

    def merge(
        self,
        source: DataFrame,
        condition: str | Column,
        **keywords: Unpack[RetryKeywords],
    ) -> MergeBuilder:
        """Return a builder of a merge, which changes rows by the rows of a DataFrame.

        Clauses of the builder say which rows are updated, deleted and inserted; `execute` makes the
        change in one commit. The names ``target`` and ``source`` qualify columns, unless the table
        and the DataFrame have aliases. Updated rows keep their stable row ids, if the table has
        these. If two merges insert the same primary key at the same time, the later one is planned
        again, and then finds the row.

        Parameters
        ----------
        source : DataFrame
            Any DataFrame; it may read this table too. Each attempt reads it once, and
            may read its first 10,000 rows before.
        condition : str or Column
            Selects the pairs of rows that match, as in ``target.id = source.id``. A pair for which
            it is null does not match.

        Returns
        -------
        MergeBuilder
        """
        from lance_spark.spark.table.merge.builder import MergeBuilder

        return MergeBuilder(self._handle, source, condition, CommitOptions.of(**keywords))

    def upsert(self, source: DataFrame, **keywords: Unpack[RetryKeywords]) -> ChangeResult:
        """Update the rows whose primary key is in a DataFrame, and insert its other rows.

        Parameters
        ----------
        source : DataFrame
            Columns are matched by name. In columns that it does not have, updated rows keep their
            values, and inserted rows are null.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            The table has no primary key (metadata ``lance-schema:unenforced-primary-key`` of its
            columns), a column that is not nullable gets a null, or the options name a version.
        SchemaMismatchError
            The DataFrame lacks a column of the key or a column that is not nullable, or has a
            column that the table does not have.
        AmbiguousMergeError
            Several rows of the DataFrame have the same key.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, UnsupportedError, StorageError, PySparkException
        """
        from lance_spark.spark.table.merge.builder import upsert

        return upsert(self._handle, source, CommitOptions.of(**keywords))

    # Columns

    def add_columns(
        self,
        columns: Mapping[str, str | Column],
        *,
        nullable: bool = True,
        options: Mapping[str, Any] | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Add columns that are computed from existing columns.

        Executors read the columns that the expressions name, and write one new data file for each
        fragment; existing files are not rewritten. If another client changes or appends rows at the
        same time, values of these rows are computed before the commit.

        Parameters
        ----------
        columns : mapping of str to str or Column
            An expression in SQL, or a Column, by the name of the new column. Window functions are
            computed after a shuffle.
        nullable : bool
            Whether the columns are nullable.
        options : mapping, optional
            Types and encodings, as options of a write: ``{"vector.arrow.fixed-size-list.size":
            128}``.

        Raises
        ------
        InvalidInputError
            A column exists already, Spark cannot analyse an expression, a value of a column that is
            not nullable is null, or the options of the table name a version.
        InvalidOptionError, UnsupportedTypeError
            A type is not valid.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            An expression raised an error for some row.
        """
        from lance_spark.spark.table.columns import add_columns

        commit = CommitOptions.of(**keywords)
        return add_columns(self._handle, columns, nullable, options, commit)

    def add_columns_from(
        self,
        source: DataFrame,
        key: str | Sequence[str],
        *,
        missing: Literal["null", "error"] = "null",
        options: Mapping[str, Any] | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Add the columns of a DataFrame, joined by a key.

        Executors read only the key of the table, and write one new data file for each fragment;
        existing files are not rewritten.

        Parameters
        ----------
        source : DataFrame
            The key, and the new columns, with one row per key.
        key : str or sequence of str
            Columns of both; ``_rowid`` and ``_rowaddr`` are columns of every table. Row addresses
            refer to the newest version. If another client moves rows before the commit, the change
            raises `CommitConflictError`.
        missing : str
            ``null``: rows whose key is not in the DataFrame get nulls. ``error``: such a row is an
            error.
        options : mapping, optional
            As in `add_columns`.

        Raises
        ------
        InvalidInputError
            Two rows of the DataFrame have the same key, a row has no value and `missing` is
            ``error``, a new column exists already, or a column of the key is not found.
        InvalidOptionError, UnsupportedTypeError, CommitConflictError, UnsupportedFeatureError,
        UnsupportedError, StorageError
        PySparkException
            The DataFrame raised an error.
        """
        from lance_spark.spark.table.columns import add_columns_from

        commit = CommitOptions.of(**keywords)
        return add_columns_from(self._handle, source, key, missing, options, commit)

    def update_columns_from(
        self,
        source: DataFrame,
        key: str | Sequence[str],
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Update columns by the values that a DataFrame has for the same key.

        Rows stay in their fragments: for each fragment with a row to update, executors write a new
        file with all values of the updated columns. Rows whose key is not in the DataFrame keep
        their values.

        Parameters
        ----------
        source : DataFrame
            The key, and columns of the table, with one row per key. Values are cast to the types of
            the columns.
        key : str or sequence of str
            As in `add_columns_from`.

        Raises
        ------
        InvalidInputError
            Two rows of the DataFrame have the same key, or a column of the key is not found.
        SchemaMismatchError
            A column of the DataFrame is not found in the table.
        UnsupportedError
            A column holds blobs.
        CommitConflictError, UnsupportedFeatureError, StorageError
        PySparkException
            The DataFrame raised an error.
        """
        from lance_spark.spark.table.columns import update_columns_from

        return update_columns_from(self._handle, source, key, CommitOptions.of(**keywords))

    def drop_columns(
        self,
        *names: str,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Drop columns, or children of structs by dotted paths. Data files are not rewritten.

        Raises
        ------
        InvalidInputError, CommitConflictError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.spark.table.columns import drop_columns

        return drop_columns(self._handle, names, CommitOptions.of(**keywords))

    def rename_column(
        self,
        name: str,
        new_name: str,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Rename a column, or a child of a struct by its dotted path. Data files do not change.

        Raises
        ------
        InvalidInputError, CommitConflictError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.spark.table.columns import rename_column

        return rename_column(self._handle, name, new_name, CommitOptions.of(**keywords))

    def alter_column(
        self,
        name: str,
        *,
        nullable: bool | None = None,
        data_type: str | DataType | pa.DataType | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Change the nullability or the type of a column. Executors cast its values to a new type.

        Parameters
        ----------
        name : str
            Name of the column, or dotted path of a child of a struct.
        nullable : bool, optional
            Whether the column is nullable.
        data_type : str, DataType or pa.DataType, optional
            The new type: text in Spark's DDL, Spark's type, or Arrow's type, which also has
            vectors, large strings, float16 and others. A change to or from a type of Spark that
            Arrow lacks, such as ``char(4)`` or ``string collate UNICODE``, makes a version of its
            own. ``string`` keeps the collation of a column, as in SQL.

        Raises
        ------
        InvalidInputError
            The column is not found, a value does not fit, or no change is given.
        CommitConflictError, UnsupportedTypeError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.spark.table.columns import alter_column

        commit = CommitOptions.of(**keywords)
        return alter_column(self._handle, name, nullable, data_type, commit)

    def reorder_columns(
        self,
        *names: str,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Move columns to the front, in the given order; other columns follow in their old order.

        Data files are not rewritten.

        Raises
        ------
        InvalidInputError
            A column is not found, or is named twice.
        CommitConflictError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.spark.table.columns import reorder_columns

        return reorder_columns(self._handle, names, CommitOptions.of(**keywords))

    # Indexes

    @also_takes(RetryKeywords)
    def create_index(
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        num_segments: int | None = None,
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
        >>> table.create_index("user_id", "BTREE")  # doctest: +SKIP
        >>> table.toDF().where("user_id = 17").show()  # doctest: +SKIP
        """
        from lance_spark.spark.table.indexes import create_index

        commit = CommitOptions.of(**of_group(RetryKeywords, options))
        config = config_of(index_type, without_group(RetryKeywords, options))
        request = IndexRequest(
            column=column,
            index_type=config.index_type,
            name=name,
            replace=replace,
            train=train,
            options=config.parameters,
        )
        return create_index(self._handle, request, num_segments, commit)

    def drop_index(
        self,
        name: str,
        **keywords: Unpack[CommitKeywords],
    ) -> ChangeResult:
        """Drop an index. `vacuum` removes its files; see `Dataset.drop_index`."""
        self._handle.writable("drop index")
        return ChangeResult(self.dataset().drop_index(name, **keywords).version)

    def optimize_indices(
        self,
        index_names: Sequence[str] | None = None,
        *,
        num_segments: int | None = None,
        **keywords: Unpack[ExtendRetryKeywords],
    ) -> ChangeResult:
        """Extend indexes to the fragments that they do not cover.

        Parameters
        ----------
        index_names : sequence of str, optional
            Names of indexes; by default all that this release can extend. A warning names others.
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
        from lance_spark.spark.table.indexes import optimize_indices

        extended = of_group(ExtendKeywords, keywords)
        request = OptimizeRequest(names=index_names, num_segments=num_segments, **extended)
        commit = CommitOptions.of(**of_group(RetryKeywords, keywords))
        return optimize_indices(self._handle, request, commit)

    def indexes(self) -> DataFrame:
        """Return the indexes as a DataFrame, with the fragments and rows that they cover.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.spark.table.indexes import indexes_frame

        return indexes_frame(self._handle)

    def check_index(self, name: str) -> DataFrame:
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
        >>> table.check_index("user_id_idx").where("NOT is_valid").show()  # doctest: +SKIP
        """
        from lance_spark.spark.table.indexes import check_index

        return check_index(self._handle, name)

    def index_recall(
        self,
        name: str,
        sample: int = 100,
        k: int = 10,
        *,
        seed: int = 0,
        **keywords: Unpack[RecallKeywords],
    ) -> IndexRecall:
        """Measure how many of the nearest rows an index of vectors finds.

        The two searches, by the index and exact, are joins by tasks. See `Dataset.index_recall` for
        what is measured.

        Parameters
        ----------
        name : str
            Name of the index.
        sample : int
            Number of queries.
        k : int
            Rows for each query.
        seed : int
            Another seed chooses other rows.

        Raises
        ------
        InvalidInputError
            The index does not exist, or is not an index of vectors.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> table.index_recall("vector_idx", nprobes=20).recall  # doctest: +SKIP
        0.97
        """
        from lance_spark.spark.table.searches import index_recall

        return index_recall(self._handle, name, sample, k, seed, keywords)

    # Maintenance

    @overload
    def optimize(self) -> OptimizeBuilder: ...

    @overload
    def optimize(
        self,
        where: str | Column | None = None,
        sort_by: str | Column | Sequence[str | Column] | None = None,
        z_order_by: str | Column | Sequence[str | Column] | None = None,
        **keywords: Unpack[OptimizeKeywords],
    ) -> DataFrame: ...

    @builder_without_arguments
    @pylance_keywords(unused=IGNORED)
    def optimize(
        self,
        where: str | Column | None = None,
        sort_by: str | Column | Sequence[str | Column] | None = None,
        z_order_by: str | Column | Sequence[str | Column] | None = None,
        **keywords: Unpack[OptimizeKeywords],
    ) -> Any:
        """Rewrite small fragments to large fragments, without their deleted rows.

        Without any argument, the call returns an `OptimizeBuilder`, as Delta's does, and nothing is
        rewritten before ``optimize().executeCompaction()`` or
        ``optimize().where(...).executeZOrderBy(...)``.

        Other clients can append and delete rows at the same time: their deletions are kept. In the
        second half of the `conflict_retries`, fragments that change during the commit are left out.

        Parameters
        ----------
        where : str or Column, optional
            Rewrite only fragments with a row that meets this condition.
        sort_by : str, Column, or sequence of them, optional
            Rewrite all of these fragments, with their rows sorted by these columns, nulls first:
            filters on the columns then skip most of the table. If they are all fragments, and the
            columns are names, the order is recorded, and queries do not sort again. Fragments that
            an index covers are not mixed with others. Indexes that hold row addresses (BTREE, and
            all indexes of a table without stable row ids) do not cover these rows afterwards. After
            another client changed a row, all fragments are sorted again.
        z_order_by : str, Column, or sequence of them, optional
            As `sort_by`, but rows that are similar in all of these columns, at most six, are stored
            together: for filters on any of them.

        Returns
        -------
        DataFrame or OptimizeBuilder
            A row: fragments_removed, fragments_added, files_removed, files_added.

        Raises
        ------
        InvalidOptionError
            An option is not known, its value is out of range, or ``excluded_fragment_ids`` names a
            fragment that the table does not have.
        InvalidInputError
            Spark cannot analyse the condition, or the options of the table name a version.
        CommitConflictError
            Other clients changed the same fragments in all attempts.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.spark.table.maintenance import compaction_frame, optimize

        commit = CommitOptions.of(**of_group(RetryKeywords, keywords))
        options = CompactionOptions(**of_group(CompactionKeywords, keywords))
        metrics = optimize(self._handle, where, sort_by, z_order_by, options, commit)
        return compaction_frame(self._handle, metrics)

    def vacuum(
        self,
        retentionHours: float | None = None,  # noqa: N803 - as DeltaTable has it
        *,
        before_version: int | None = None,
        before_timestamp_millis: int | None = None,
        retain_versions: int | None = None,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = False,
        dry_run: bool = False,
    ) -> DataFrame:
        """Remove old versions of the branch, and the files that only they refer to.

        A version is removed only if it meets all conditions that are given. The newest version is
        never removed, nor are versions with a tag, and versions and files that branches need.
        Clones in other folders are unknown: tag the versions that they need.

        Parameters
        ----------
        retentionHours : float, optional
            Remove only versions of at least this age in hours; two weeks if no other condition is
            given.
        before_version : int, optional
            Remove only versions with a lower number.
        before_timestamp_millis : int, optional
            Remove only versions that were committed before this time, in milliseconds since 1970.
        retain_versions : int, optional
            Keep this number of newest versions.
        delete_unverified : bool
            Whether to remove files that no version refers to regardless of their age, instead of
            only those older than 7 days. No client may be writing to the table.
        error_if_tagged_old_versions : bool
            Whether it is an error if a version that meets the conditions has a tag; otherwise it is
            kept without an error, as Delta's vacuum keeps what is in use.
        dry_run : bool
            Remove nothing; only return what would be removed.

        Returns
        -------
        DataFrame
            A row: bytes_removed, old_versions (number of removed versions).

        Raises
        ------
        InvalidInputError
            A limit is out of range, or a version that meets the conditions has a tag, and that is
            an error. Nothing is removed.
        StorageError
            Some files could not be deleted. All others are deleted.
        CorruptTableError, UnsupportedFeatureError
            A version cannot be read, so its references are unknown. Nothing is removed.
        """
        from lance_spark.spark.table.maintenance import vacuum, vacuum_policy

        policy = vacuum_policy(
            retentionHours,
            before_version,
            before_timestamp_millis,
            retain_versions,
            delete_unverified,
            error_if_tagged_old_versions,
        )
        return vacuum(self._handle, policy, dry_run)

    def cleanup(
        self,
        older_than: timedelta = timedelta(days=7),
        dry_run: bool = False,
    ) -> DataFrame:
        """Remove files of failed jobs, to which no version refers. Versions are not removed.

        Parameters
        ----------
        older_than : timedelta
            Keep younger files: a job may be about to commit them.
        dry_run : bool
            Remove nothing; only return what would be removed.

        Returns
        -------
        DataFrame
            A row: bytes_removed, files_removed.

        Raises
        ------
        InvalidInputError, StorageError, CorruptTableError, UnsupportedFeatureError
            As in `vacuum`.
        """
        from lance_spark.spark.table.maintenance import cleanup_failed_jobs

        return cleanup_failed_jobs(self._handle, older_than, dry_run)

    def validate(self) -> None:
        """Check the newest version, or the version that the options name; see `Dataset.validate`.

        Raises
        ------
        CorruptTableError
            The version is damaged; the message lists the first problems with their fragments and
            files.
        TableNotFoundError, UnsupportedFeatureError, UnsupportedEncodingError, StorageError
        """
        self.dataset().validate()

    # Versions, tags and branches

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the existing versions of the branch, newest first.

        Parameters
        ----------
        limit : int, optional
            Maximum number of versions; for each, one manifest is read.

        Returns
        -------
        DataFrame
            version, timestamp, operation (as in SQL: ``WRITE``, ``MERGE``), message, properties (of
            the transaction), read_version (on which the change was planned), num_fragments,
            num_rows, num_deleted_rows (that are still in files), size_bytes (of data files, if
            recorded), operationParameters (as far as the transaction has them), transaction (its
            name in Lance's format).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.spark.table.history import history_frame

        return history_frame(self._handle, limit)

    def detail(self) -> DataFrame:
        """Return one row with facts about the table.

        Returns
        -------
        DataFrame
            format, uri, branch (null for the main branch), version, created_at (null if the first
            version was removed), last_modified, data_storage_version, stable_row_ids (without them,
            a change feed shows updates as deleted and inserted rows), num_rows, num_deleted_rows
            (that are still in files), num_fragments, num_data_files, size_bytes, indexes and tags
            (names), config, metadata, reader_features and writer_features (names of the feature
            flags). Also, by Delta's names: name (in its catalog, null for a path), description,
            location, createdAt, lastModified, partitionColumns (of the property ``partitionBy``),
            clusteringColumns (none), numFiles, sizeInBytes, properties (config and metadata).

        Raises
        ------
        TableNotFoundError, CorruptTableError, StorageError
        """
        from lance_spark.spark.table.history import detail_frame

        return detail_frame(self._handle)

    def restoreToVersion(  # noqa: N802 - as DeltaTable has it
        self,
        version: int,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeFrame:
        """Commit the content of an older version of the branch as a new version.

        The versions between them stay.

        Parameters
        ----------
        version : int
            The first version of a table is 1.

        Returns
        -------
        DataFrame
            A row: version (the new one), table_size_after_restore (bytes of data files, if
            recorded), num_of_files_after_restore, num_removed_files, num_restored_files,
            removed_files_size, restored_files_size. The object also has the attributes of a
            `ChangeResult`.

        Raises
        ------
        VersionNotFoundError
            The version is not found; cleanup may have removed it.
        CommitConflictError, InvalidInputError, UnsupportedFeatureError, CorruptTableError,
        StorageError
        """
        from lance_spark.spark.table.history import restore

        return restore(self._handle, {"version": version}, CommitOptions.of(**keywords))

    def restoreToTimestamp(  # noqa: N802 - as DeltaTable has it
        self,
        timestamp: str | datetime,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeFrame:
        """Commit the content that the branch had at a time; see `restoreToVersion`.

        Parameters
        ----------
        timestamp : str or datetime
            A text without an offset is a time in the zone of the session, as `history` shows times
            and as SQL reads them. A datetime without a zone is a local time, as `collect` returns
            times.
        """
        from lance_spark.spark.table.history import restore

        time = {"timestamp": option_text(timestamp)}
        return restore(self._handle, time, CommitOptions.of(**keywords))

    def restore_to_tag(
        self,
        tag: str,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeFrame:
        """Commit the content of the version that a tag names; see `restoreToVersion`.

        The version must be on this branch.
        """
        from lance_spark.spark.table.history import restore

        return restore(self._handle, {"tag": tag}, CommitOptions.of(**keywords))

    def tags(self) -> DataFrame:
        """Return the tags of all branches.

        Returns
        -------
        DataFrame
            name, branch, version, created_at, updated_at, manifest_size, metadata.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.spark.table.history import tags_frame

        return tags_frame(self._handle)

    def create_tag(
        self,
        name: str,
        version: int | str | None = None,
    ) -> None:
        """Create a tag: a name for a version, which `vacuum` then does not remove.

        Parameters
        ----------
        name : str
        version : int or str, optional
            A version of this branch, or the name of another tag. By default the newest version, or
            the version that the options name.

        Raises
        ------
        InvalidInputError
            The name is not valid for a tag, or the tag exists already.
        VersionNotFoundError, CorruptTableError, StorageError
        """
        self.dataset().tags.create(name, version)

    def update_tag(
        self,
        name: str,
        version: int | str | None = None,
    ) -> None:
        """Move a tag to another version; see `create_tag`."""
        self.dataset().tags.update(name, version)

    def delete_tag(self, name: str) -> None:
        """Delete a tag. Its version stays.

        Raises
        ------
        VersionNotFoundError
            The tag is not found.
        """
        self.dataset().tags.delete(name)

    def branches(self) -> DataFrame:
        """Return all branches except the main branch.

        Returns
        -------
        DataFrame
            name, parent_branch, parent_version, created_at, manifest_size, metadata.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.spark.table.history import branches_frame

        return branches_frame(self._handle)

    def create_branch(
        self,
        name: str,
        version: int | str | None = None,
    ) -> Self:
        """Create a branch from a version, and return the table on the branch.

        Parameters
        ----------
        name : str
            Letters, digits, ".", "-", "_", with "/" between parts.
        version : int or str, optional
            As in `create_tag`.

        Raises
        ------
        InvalidInputError, VersionNotFoundError, UncertainCommitError, CorruptTableError,
        StorageError
        """
        self.dataset().create_branch(name, version)
        return self.checkout(branch=name)

    def delete_branch(self, name: str) -> None:
        """Delete a branch with all its versions.

        Raises
        ------
        VersionNotFoundError
            The branch is not found.
        InvalidInputError
            A tag names a version of the branch, or another branch was created from it.
        """
        self.dataset().branches.delete(name)

    def checkout(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        version: int | None = None,
    ) -> Self:
        """Return the table on another branch, or, read-only, at a version or tag.

        Parameters
        ----------
        branch : str, optional
            ``main`` for the main branch; by default the current branch.
        tag : str, optional
        version : int, optional

        Raises
        ------
        InvalidOptionError
            Both a tag and a version are given.
        VersionNotFoundError, StorageError
        """
        options: dict[str, Any] = {"tag": tag, "version": version}
        if branch is not None:
            options["branch"] = branch
        table = self._of(self._handle.at(options))
        table.dataset()
        return table

    def clone(
        self,
        target: str | os.PathLike[str],
        isShallow: bool = False,  # noqa: N803 - as DeltaTable has it
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        *,
        version: int | str | None = None,
    ) -> Self:
        """Create a table with the rows of a version, and return it.

        Parameters
        ----------
        target : str or path
            Path of the new table.
        isShallow : bool
            True: the new table refers to the files of this table. Tag the version then, so that
            `vacuum` keeps these files. False: all files are copied.
        replace : bool
            Accepted if the path holds no table. A table that exists is not replaced: overwrite its
            rows, or drop it first.
        properties : mapping of str to str, optional
            Properties that the new table has in addition, or instead of those of this table; they
            are set in a version of its own.
        version : int or str, optional
            As in `create_tag`.

        Raises
        ------
        TableExistsError
            The path holds a table already.
        VersionNotFoundError, UncertainCommitError, UnsupportedFeatureError, CorruptTableError,
        StorageError
        """
        from lance_spark.spark.table.history import clone

        path = clone(self._handle, target, isShallow, replace, properties, version)
        return type(self)(self.spark, path, without_version(self.options))

    def cloneAtVersion(  # noqa: N802 - as DeltaTable has it
        self,
        version: int,
        target: str | os.PathLike[str],
        isShallow: bool = False,  # noqa: N803 - as DeltaTable has it
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a table with the rows of a version; see `clone`."""
        return self.clone(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(  # noqa: N802 - as DeltaTable has it
        self,
        timestamp: str | datetime,
        target: str | os.PathLike[str],
        isShallow: bool = False,  # noqa: N803 - as DeltaTable has it
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a table with the rows that this table had at a time; see `clone`.

        Parameters
        ----------
        timestamp : str or datetime
            As in `restoreToTimestamp`.
        target, isShallow, replace, properties
            As in `clone`.
        """
        old = self._handle.at({"timestamp": option_text(timestamp)}).dataset()
        return self.clone(target, isShallow, replace, properties, version=old.version)

    # Calls of Delta without a meaning for Lance

    def generate(self, mode: str) -> None:
        """Refuse to write lists of files for Presto and Athena.

        Raises
        ------
        UnsupportedError
        """
        raise UnsupportedError(
            f"generate({mode!r}): data files of Lance are not Parquet files, so lists of them are "
            "of no use to other engines; these read the table itself"
        )

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:  # noqa: N802, N803 - as DeltaTable has it
        """Refuse to change versions of a protocol.

        Raises
        ------
        UnsupportedError
        """
        raise UnsupportedError(
            "upgradeTableProtocol: a Lance table has no versions of a protocol; each version of "
            "the table names the features that it needs (detail)"
        )

    def addFeatureSupport(self, featureName: str) -> None:  # noqa: N802, N803 - as DeltaTable has it
        """Refuse to add a feature of a protocol.

        Raises
        ------
        UnsupportedError
        """
        raise UnsupportedError(
            f"addFeatureSupport({featureName!r}): a Lance table gets a feature with the first "
            "change that needs it, or when it is created (enable_stable_row_ids)"
        )

    def dropFeatureSupport(  # noqa: N802 - as DeltaTable has it
        self,
        featureName: str,  # noqa: N803 - as DeltaTable has it
        truncateHistory: bool | None = None,  # noqa: N803 - as DeltaTable has it
    ) -> None:
        """Refuse to drop a feature of a protocol.

        Raises
        ------
        UnsupportedError
        """
        raise UnsupportedError(
            f"dropFeatureSupport({featureName!r}): a version of a Lance table names the features "
            "that it needs, and no other; vacuum removes older versions"
        )

    # Base paths

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
        from lance_spark.spark.table.bases import bases_frame

        return bases_frame(self._handle)

    def add_bases(
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

        table = self._handle.writable("add_bases")
        return ChangeResult(add_bases(table, bases, CommitOptions.of(**keywords)).version)

    def repoint_base(
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

        table = self._handle.writable("repoint_base")
        return ChangeResult(repoint_base(table, base, path, CommitOptions.of(**keywords)).version)

    def repair_branches(self) -> DataFrame:
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
        from lance_spark.spark.table.bases import repaired_branches

        return repaired_branches(self._handle)

    def with_target_bases(
        self,
        target_bases: Sequence[str] | None = None,
        *,
        target_all_bases: bool | None = None,
    ) -> Self:
        """Return the same table with other targets for the data files of its changes.

        Parameters
        ----------
        target_bases : sequence of str, optional
            Names or paths of base paths; the path of the table stands for its root. New data files
            go to these targets in turn. By default, files of existing rows stay in the base path of
            their fragment, and new rows go to the root.
        target_all_bases : bool, optional
            True: new data files go to the root and all base paths in turn. False: to all base paths
            in turn.

        Raises
        ------
        InvalidOptionError
            Both arguments are given, or a name is not valid. If a base path is not found, the
            change raises this error.

        Examples
        --------
        >>> table.with_target_bases(["cold"]).optimize().executeCompaction()
        """
        from lance_spark.spark.table.bases import with_target_bases

        return self._of(with_target_bases(self._handle, target_bases, target_all_bases))

    def move_fragments(
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
        >>> table.move_fragments("cold", "day < '2024-01-01'")
        """
        from lance_spark.spark.table.bases import move_fragments

        commit = CommitOptions.of(**keywords)
        return move_fragments(self._handle, base, where, fragment_ids, commit)

    # MemWAL

    def initialize_mem_wal(
        self,
        **keywords: Unpack[NewMemWalKeywords],
    ) -> ChangeResult:
        """Give the table a MemWAL, for upserts with low latency.

        Returns
        -------
        ChangeResult
            `version` is the version that was committed.

        Raises
        ------
        LanceError
            Errors of `Dataset.initialize_mem_wal`.

        Examples
        --------
        >>> table.initialize_mem_wal(bucket_column="id", num_buckets=4)  # doctest: +SKIP
        """
        from lance_spark.mem_wal.setup import initialize_mem_wal

        table = initialize_mem_wal(
            self._handle.writable("initialize the MemWAL"),
            CommitOptions.of(**of_group(CommitKeywords, keywords)),
            checked(ShardingKeywords, of_group(ShardingKeywords, keywords)),
            keywords.get("writer_options"),
        )
        return ChangeResult(table.version)

    def shards(self) -> DataFrame:
        """Return the shards of the MemWAL, with the rows that are not compacted.

        Returns
        -------
        DataFrame
            A row for each shard; see `Dataset.mem_wal_shards`.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.spark.table.mem_wal import shards_frame

        return shards_frame(self._handle)

    def compact_mem_wal(
        self,
        flush: bool = False,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Bring the rows of all SSTables into the table, in one commit.

        Parameters
        ----------
        flush : bool
            Whether to make SSTables of rows that only the logs have. This ends the writers of their
            shards.

        Returns
        -------
        ChangeResult
            The version that was committed, or the newest if no SSTable was left to compact, and the
            numbers of rows.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CommitConflictError, CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.spark.table.mem_wal import compact

        return compact(self._handle, flush, CommitOptions.of(**keywords))

    def clean_mem_wal(self, older_than: timedelta = DEFAULT_GRACE) -> DataFrame:
        """Remove files of the MemWAL that no reader or writer needs any more.

        Parameters
        ----------
        older_than : timedelta
            Keep files that were needed within this time. It must be longer than any fresh read, and
            any write, takes.

        Returns
        -------
        DataFrame
            A row: bytes_removed, sstables_removed, entries_removed.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, or the time is negative.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.spark.table.mem_wal import clean

        return clean(self._handle, older_than)

    def disable_mem_wal(
        self,
        compact: bool = True,
        **keywords: Unpack[CommitKeywords],
    ) -> ChangeResult:
        """Remove the MemWAL with all its files. Its writers end. Stop them before.

        Parameters
        ----------
        compact : bool
            Whether to bring the rows of the MemWAL into the table first. If False, a MemWAL with
            rows that are not in the table is refused.

        Returns
        -------
        ChangeResult
            `version` is the version that was committed.

        Raises
        ------
        LanceError
            Errors of `Dataset.disable_mem_wal`.
        """
        from lance_spark.spark.table.mem_wal import disable

        return disable(self._handle, compact, CommitOptions.of(**keywords))

    def _of(self, handle: TableHandle) -> Self:
        """Return the table of a handle."""
        table = type(self).__new__(type(self))
        table._handle = handle
        return table
