"""Builder of merges, and upserts by the primary key.

| clauses | apply to | expressions may name |
| --- | --- | --- |
| whenMatched... | rows of the table that match a row of the source | both sides |
| whenNotMatched... | rows of the source that match no row of the table | the source |
| whenNotMatchedBySource... | rows of the table that match no row of the source | the table |

For each row, the first clause of its kind whose condition is true applies; a condition that is null
is not true. Rows to which no clause applies do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from lance_spark.dataset.dataset import Dataset
from lance_spark.dataset.decorators import prefixes_errors_by
from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.spark.job import Job
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.projection import find_exactly, finder
from lance_spark.spark.table.base import ChangeResult, TableHandle
from lance_spark.spark.table.dataframes import cast_to
from lance_spark.spark.table.jobs.find_rows import predicate_list
from lance_spark.spark.table.merge.evolve import with_new_columns
from lance_spark.spark.table.merge.join import SOURCE, TARGET, Action, Clause, Rows, expressions_of
from lance_spark.spark.table.merge.plan import column_of
from lance_spark.spark.table.merge.task import merge
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.primary_key import primary_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.spark.table.base import ChangeFrame

#: Of a merge, in the order of Delta.
_RESULT_COLUMNS = ", ".join(
    f"num_{rows}_rows long NOT NULL" for rows in ("affected", "updated", "deleted", "inserted")
)


@prefixes_errors_by(lambda merge: parse_uri(merge._handle.path).display)
class MergeBuilder:
    """Builder of a merge; returned by `LanceTable.merge`.

    Each method adds a clause and returns a new builder. `execute` makes the merge.

    Parameters
    ----------
    handle : TableHandle
    source : DataFrame
    condition : str or Column
    options : CommitOptions
    clauses : sequence of Clause
    unchanged : sequence of str
        Columns that updates with all columns do not write, because matching rows have the same
        values in them.
    evolves : bool
        Whether the table gets the columns that the merge assigns and the table lacks.
    """

    def __init__(
        self,
        handle: TableHandle,
        source: DataFrame,
        condition: str | Column,
        options: CommitOptions,
        *,
        clauses: Sequence[Clause] = (),
        unchanged: Sequence[str] = (),
        evolves: bool = False,
    ) -> None:
        self._handle = handle
        self._source = source
        self._condition = condition
        self._options = options
        self._clauses = tuple(clauses)
        self._unchanged = tuple(unchanged)
        self._evolves = evolves

    def whenMatchedUpdate(  # noqa: N802 - as DeltaTable has it
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as DeltaTable has it
    ) -> MergeBuilder:
        """Update columns of matching rows.

        Parameters
        ----------
        condition : str or Column, optional
            Condition on both sides; by default the clause applies to all matching rows.
        set : mapping of str to str or Column
            Expressions over both sides, by the name of a column of the table, or of a child of a
            struct. Other columns keep their values.

        Raises
        ------
        InvalidInputError
            `set` is empty, or an earlier clause for matching rows has no condition.
        """
        return self._with(Rows.MATCHED, Action.UPDATE, condition, _checked(set, "set"))

    def whenMatchedUpdateAll(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Update matching rows with the values of all columns that the source has.

        Columns are matched by name, without regard to case unless ``spark.sql.caseSensitive`` is
        set. Other columns of the table keep their values. A column of the source that the table
        does not have is an error, unless a condition or an expression of the merge names it.

        Parameters
        ----------
        condition : str or Column, optional
            As in `whenMatchedUpdate`.

        Raises
        ------
        InvalidInputError
            An earlier clause for matching rows has no condition.
        """
        return self._with(Rows.MATCHED, Action.UPDATE, condition)

    def whenMatchedDelete(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Delete matching rows of the table.

        Parameters
        ----------
        condition : str or Column, optional
            As in `whenMatchedUpdate`.

        Raises
        ------
        InvalidInputError
            An earlier clause for matching rows has no condition.
        """
        return self._with(Rows.MATCHED, Action.DELETE, condition)

    def whenNotMatchedInsert(  # noqa: N802 - as DeltaTable has it
        self,
        condition: str | Column | None = None,
        values: Mapping[str, str | Column] | None = None,
    ) -> MergeBuilder:
        """Insert a row for each row of the source that matches no row of the table.

        Parameters
        ----------
        condition : str or Column, optional
            Condition on the source.
        values : mapping of str to str or Column
            Expressions over the source, by the name of a column of the table. Other columns are
            null.

        Raises
        ------
        InvalidInputError
            `values` is empty, or an earlier clause for these rows has no condition.
        """
        return self._with(Rows.NOT_MATCHED, Action.INSERT, condition, _checked(values, "values"))

    def whenNotMatchedInsertAll(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Insert the rows of the source that match no row of the table.

        Columns are matched as in `whenMatchedUpdateAll`. Other columns of the table are null.

        Parameters
        ----------
        condition : str or Column, optional
            Condition on the source.

        Raises
        ------
        InvalidInputError
            An earlier clause for these rows has no condition.
        """
        return self._with(Rows.NOT_MATCHED, Action.INSERT, condition)

    def whenNotMatchedBySourceUpdate(  # noqa: N802 - as DeltaTable has it
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as DeltaTable has it
    ) -> MergeBuilder:
        """Update columns of the rows of the table that match no row of the source.

        Parameters
        ----------
        condition : str or Column, optional
            Condition on the table.
        set : mapping of str to str or Column
            Expressions over the table, by the name of a column, or of a child of a struct.

        Raises
        ------
        InvalidInputError
            `set` is empty, or an earlier clause for these rows has no condition.
        """
        values = _checked(set, "set")
        return self._with(Rows.NOT_MATCHED_BY_SOURCE, Action.UPDATE, condition, values)

    def whenNotMatchedBySourceDelete(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Delete the rows of the table that match no row of the source.

        Parameters
        ----------
        condition : str or Column, optional
            Condition on the table.

        Raises
        ------
        InvalidInputError
            An earlier clause for these rows has no condition.
        """
        return self._with(Rows.NOT_MATCHED_BY_SOURCE, Action.DELETE, condition)

    def withSchemaEvolution(self) -> MergeBuilder:  # noqa: N802 - as DeltaTable has it
        """Let the table get the columns of the source that the merge assigns and the table lacks.

        These are all columns of the source if a clause takes all of them, and the columns that
        other clauses set. `execute` adds them with nulls in existing rows, in a version of its
        own, before it makes the merge. Types of columns do not change, and structs get no fields.
        """
        return self._copy(evolves=True)

    def execute(self) -> ChangeFrame:
        """Make the merge in one commit. If no clause applies to any row, nothing is committed.

        Returns
        -------
        DataFrame
            A row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows. The
            object also has the attributes of a `ChangeResult`, such as `version`.

        Raises
        ------
        InvalidInputError
            The merge has no clause, Spark cannot analyse a condition or expression, a column that
            is not nullable gets a null, or the options name a version.
        SchemaMismatchError
            A column is not found, or a new row has no value for a column that is not nullable.
        AmbiguousMergeError
            Several rows of the source match a row that is updated, or that is deleted by a clause
            with a condition; or several new rows have the same primary key.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            An expression raised an error for some row.
        """
        done = self._run()
        counts = (done.num_updated_rows, done.num_deleted_rows, done.num_inserted_rows)
        return self._handle.change_frame(done, (sum(counts), *counts), _RESULT_COLUMNS)

    def _run(self) -> ChangeResult:
        """Make the merge as `execute`, and return the version and the numbers of rows."""
        if not self._clauses:
            raise InvalidInputError("merge: add a clause by whenMatchedUpdate or a similar method")
        predicate = predicate_list(self._condition)
        options = self._options.with_operation("MERGE", predicate=predicate)

        def plan(job: Job, dataset: Dataset) -> tuple[Manifest, ChangeResult]:
            if self._evolves:
                dataset = with_new_columns(
                    self._handle, dataset, self._source, self._clauses, self._options
                )
            return merge(
                self._handle,
                job,
                dataset,
                self._source,
                self._condition,
                self._clauses,
                options,
                self._unchanged,
            )

        selectors = expressions_of(self._condition, self._clauses)
        return self._handle.change("merge", plan, options, selectors)

    def _with(
        self,
        rows: Rows,
        action: Action,
        condition: str | Column | None,
        values: Mapping[str, str | Column] | None = None,
    ) -> MergeBuilder:
        if any(clause.rows is rows and clause.condition is None for clause in self._clauses):
            raise InvalidInputError(
                f"merge: a clause for rows {rows.value} has no condition, so a later clause can "
                "never apply; only the last clause may have no condition"
            )
        return self._copy(clauses=(*self._clauses, Clause(rows, action, condition, values)))

    def _copy(
        self, clauses: Sequence[Clause] | None = None, evolves: bool | None = None
    ) -> MergeBuilder:
        return MergeBuilder(
            self._handle,
            self._source,
            self._condition,
            self._options,
            clauses=self._clauses if clauses is None else clauses,
            unchanged=self._unchanged,
            evolves=self._evolves if evolves is None else evolves,
        )


def upsert(handle: TableHandle, source: DataFrame, options: CommitOptions) -> ChangeResult:
    """Update and insert rows by the primary key; see `LanceTable.upsert`."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    table = handle.writable("upsert")
    key = primary_key(table.schema)
    if not key:
        raise InvalidInputError(
            f"upsert: {table.store.display} has no primary key; set the metadata "
            "lance-schema:unenforced-primary-key of a column, or use merge() with a condition"
        )
    find = finder(handle.spark)
    comparisons = []
    for path in key:
        name = column_of(table.schema, path[0].name, "upsert", find_exactly)
        position = find(source.columns, name)
        if position < 0:
            raise SchemaMismatchError(
                f"upsert: the source has no column {name!r} of the primary key; it has "
                f"{', '.join(source.columns)}"
            )
        children = [field.name for field in path[1:]]
        # Keys are compared as they would be inserted: cast to the type of the column.
        value = cast_to(F.col(quoted(SOURCE, source.columns[position], *children)), path[-1])
        comparisons.append(F.col(quoted(TARGET, name, *children)) == value)
    unchanged = [path[0].name for path in key if len(path) == 1]
    builder = MergeBuilder(
        TableHandle(handle.spark, handle.path, handle.options, TARGET),
        source.alias(SOURCE),
        reduce(and_, comparisons),
        options,
        unchanged=unchanged,
    )
    if any(find(unchanged, name) < 0 for name in source.columns):
        builder = builder.whenMatchedUpdateAll()
    return builder.whenNotMatchedInsertAll()._run()


def _checked(
    values: Mapping[str, str | Column] | None, parameter: str
) -> Mapping[str, str | Column]:
    if not isinstance(values, Mapping) or not values:
        raise InvalidInputError(f"merge: {parameter} must map at least one column to an expression")
    return dict(values)
