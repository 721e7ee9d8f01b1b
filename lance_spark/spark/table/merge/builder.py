"""Merges: the clauses that say what becomes of rows, and their rules.

| clauses | rows | expressions see |
| --- | --- | --- |
| whenMatched... | of the table, with a row of the source for which the condition is true | both sides |
| whenNotMatched... | of the source, without such a row of the table | the source |
| whenNotMatchedBySource... | of the table, without such a row of the source | the table |

Clauses of one kind are asked in the order that they are given, and the first one whose condition is
true applies: one that is null does not. Rows for which none applies stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lance_spark.dataset.dataset import Dataset
from lance_spark.dataset.error_paths import names_table_by
from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.mutations.retry import DEFAULT_CONFLICT_RETRIES
from lance_spark.mutations.rows.merge import primary_key
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.read.projection import find_exactly, finder
from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.spark.table.dataframes import cast_to
from lance_spark.spark.table.merge.clauses import SOURCE, TARGET, Action, Clause, Rows, quoted
from lance_spark.spark.table.merge.join import texts_of
from lance_spark.spark.table.merge.plan import column_of
from lance_spark.spark.table.merge.task import Counts, merge
from lance_spark.storage.uri import parse_uri
from lance_spark.table.manifest.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@names_table_by(lambda merge: parse_uri(merge._base.path).display)
class MergeBuilder:
    """A merge that is put together clause by clause, and made by `execute`; see `LanceTable.merge`,
    which returns it.

    Each method returns another builder.

    Parameters
    ----------
    base : TableBase
    source : DataFrame
    condition : str or Column
    properties : mapping of str to str, optional
        Of the transaction.
    conflict_retries : int
    clauses : sequence of Clause
    kept : sequence of str
        Columns that updates leave as they are, as they are the same on both sides of a match.
    """

    def __init__(
        self,
        base: TableBase,
        source: DataFrame,
        condition: str | Column,
        *,
        properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
        clauses: Sequence[Clause] = (),
        kept: Sequence[str] = (),
    ) -> None:
        self._base = base
        self._source = source
        self._condition = condition
        self._properties = properties
        self._conflict_retries = conflict_retries
        self._clauses = tuple(clauses)
        self._kept = tuple(kept)

    def whenMatchedUpdate(  # noqa: N802 - as DeltaTable has it
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as DeltaTable has it
    ) -> MergeBuilder:
        """Give rows that match new values.

        Parameters
        ----------
        condition : str or Column, optional
            Of both sides.
        set : mapping of str to str or Column
            By column of the table, or by child of a struct, an expression of both sides; others
            stay as they are.

        Raises
        ------
        InvalidInputError
            `set` is empty, or a clause before it has no condition.
        """
        return self._with(Rows.MATCHED, Action.UPDATE, condition, _given(set, "set"))

    def whenMatchedUpdateAll(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Give rows that match the source's values of all columns that the source has; others stay
        as they are.

        Columns go by name, in any case of letters. Columns of the source that the table does not
        have are an error, unless a condition or an expression of the merge names them.

        Parameters
        ----------
        condition : str or Column, optional

        Raises
        ------
        InvalidInputError
            A clause before it has no condition.
        """
        return self._with(Rows.MATCHED, Action.UPDATE, condition)

    def whenMatchedDelete(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Delete rows that match.

        Parameters
        ----------
        condition : str or Column, optional

        Raises
        ------
        InvalidInputError
            A clause before it has no condition.
        """
        return self._with(Rows.MATCHED, Action.DELETE, condition)

    def whenNotMatchedInsert(  # noqa: N802 - as DeltaTable has it
        self,
        condition: str | Column | None = None,
        values: Mapping[str, str | Column] | None = None,
    ) -> MergeBuilder:
        """Insert rows of the source that match none.

        Parameters
        ----------
        condition : str or Column, optional
            Of the source.
        values : mapping of str to str or Column
            By column of the table, an expression of the source; others are null.

        Raises
        ------
        InvalidInputError
            `values` is empty, or a clause before it has no condition.
        """
        return self._with(Rows.NOT_MATCHED, Action.INSERT, condition, _given(values, "values"))

    def whenNotMatchedInsertAll(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Insert rows of the source that match none, with all columns that the source has; others
        are null.

        Columns go as in `whenMatchedUpdateAll`.

        Parameters
        ----------
        condition : str or Column, optional
            Of the source.

        Raises
        ------
        InvalidInputError
            A clause before it has no condition.
        """
        return self._with(Rows.NOT_MATCHED, Action.INSERT, condition)

    def whenNotMatchedBySourceUpdate(  # noqa: N802 - as DeltaTable has it
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as DeltaTable has it
    ) -> MergeBuilder:
        """Give rows of the table that no row of the source matches new values.

        Parameters
        ----------
        condition : str or Column, optional
            Of the table.
        set : mapping of str to str or Column
            By column, or by child of a struct, an expression of the table.

        Raises
        ------
        InvalidInputError
            `set` is empty, or a clause before it has no condition.
        """
        given = _given(set, "set")
        return self._with(Rows.NOT_MATCHED_BY_SOURCE, Action.UPDATE, condition, given)

    def whenNotMatchedBySourceDelete(  # noqa: N802 - as DeltaTable has it
        self, condition: str | Column | None = None
    ) -> MergeBuilder:
        """Delete rows of the table that no row of the source matches.

        Parameters
        ----------
        condition : str or Column, optional
            Of the table.

        Raises
        ------
        InvalidInputError
            A clause before it has no condition.
        """
        return self._with(Rows.NOT_MATCHED_BY_SOURCE, Action.DELETE, condition)

    def execute(self) -> ChangeResult:
        """Make the merge, in one version; in none, if no clause applies to any row.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            There is no clause, Spark cannot make sense of a condition or expression, a column that
            must not be null gets nulls, or the options name a version.
        SchemaMismatchError
            The table has no such column, or a new row lacks one that must not be null.
        AmbiguousMergeError
            Several rows of the source match a row that is to change, other than by clauses that
            delete it whatever they are; or new rows have one primary key.
        CommitConflictError
            Others were faster, again and again.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            What an expression raises for some row.
        """
        if not self._clauses:
            raise InvalidInputError("merge: say what is to be done, by whenMatched... and the like")
        result = [Counts()]

        def plan(job: Job, dataset: Dataset) -> Manifest:
            manifest, result[0] = merge(
                self._base,
                job,
                dataset,
                self._source,
                self._condition,
                self._clauses,
                self._properties,
                self._kept,
            )
            return manifest

        manifest = self._base.change(
            "merge",
            plan,
            conflict_retries=self._conflict_retries,
            naming=texts_of(self._condition, self._clauses),
        )
        counts = result[0]
        return ChangeResult(manifest.version, counts.inserted, counts.updated, counts.deleted)

    def _with(
        self,
        rows: Rows,
        action: Action,
        condition: str | Column | None,
        values: Mapping[str, str | Column] | None = None,
    ) -> MergeBuilder:
        if any(clause.rows is rows and clause.condition is None for clause in self._clauses):
            raise InvalidInputError(
                f"merge: a clause for rows {rows.value} has no condition, so none after it can "
                "apply; only the last one can lack it"
            )
        return MergeBuilder(
            self._base,
            self._source,
            self._condition,
            properties=self._properties,
            conflict_retries=self._conflict_retries,
            clauses=(*self._clauses, Clause(rows, action, condition, values)),
            kept=self._kept,
        )


def upsert(
    base: TableBase,
    source: DataFrame,
    properties: Mapping[str, str] | None,
    conflict_retries: int,
) -> ChangeResult:
    """Update and insert rows by the primary key; see `LanceTable.upsert`."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    table = base.writable("upsert")
    key = primary_key(table.schema)
    if not key:
        raise InvalidInputError(
            f"upsert: {table.store.display} has no primary key; set one by the metadata "
            "lance-schema:unenforced-primary-key of a "
            "column, or say what matches by merge()"
        )
    condition = F.lit(True)
    for path in key:
        name = column_of(table.schema, path[0].name, "upsert", find_exactly)
        position = finder(base.spark)(source.columns, name)
        if position < 0:
            raise SchemaMismatchError(
                f"upsert: the source has no column {name!r} of the primary key; it has "
                f"{', '.join(source.columns)}"
            )
        below = [one.name for one in path[1:]]
        # What would be inserted is compared, not what it is made of.
        given = cast_to(F.col(quoted(SOURCE, source.columns[position], *below)), path[-1])
        one = F.col(quoted(TARGET, name, *below)) == given
        condition = one if path is key[0] else condition & one
    kept = [path[0].name for path in key if len(path) == 1]
    builder = MergeBuilder(
        TableBase(base.spark, base.path, base.options, TARGET),
        source.alias(SOURCE),
        condition,
        properties=properties,
        conflict_retries=conflict_retries,
        kept=kept,
    )
    if any(finder(base.spark)(kept, name) < 0 for name in source.columns):
        builder = builder.whenMatchedUpdateAll()
    return builder.whenNotMatchedInsertAll().execute()


def _given(values: Mapping[str, str | Column] | None, what: str) -> Mapping[str, str | Column]:
    if not isinstance(values, Mapping) or not values:
        raise InvalidInputError(f"merge: {what} must map one column at least to an expression")
    return dict(values)
