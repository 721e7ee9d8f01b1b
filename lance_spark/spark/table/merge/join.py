"""The join of a merge, and its clauses as expressions over the join.

| step | columns that expressions can name |
| --- | --- |
| join | both sides; rows without a match are kept if a clause applies to them |
| whenMatched... | both sides |
| whenNotMatched... | the source; columns of the table have hidden names |
| whenNotMatchedBySource... | the table, under its alias; columns of the source are dropped |

Each step adds two things for the rows that it applies to: the number of the clause, and its values.
So a name that both sides have needs no alias in a clause that sees one side, and an expression is
not evaluated for other rows, for which it could raise an error.

Values are cast to the types of columns, with children of structs by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_spark.file.schema.field import Field
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS
from lance_spark.spark.jvm.classes import PACKAGE, call_static, conditions_class, is_connect
from lance_spark.spark.jvm.shims.pyspark_names import java_frame, jvm_of
from lance_spark.spark.quoting import quoted
from lance_spark.spark.table.casts import cast_to_field
from lance_spark.spark.table.dataframes import analysis_errors, frame, named_columns, to_column
from lance_spark.spark.table.merge.clauses import SOURCE, TARGET, Clause, Rows
from lance_spark.spark.types.mapping import written_as
from lance_spark.spark.types.recorded import text_limit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle

ADDRESS, CLAUSE, VALUE = "__merge_address", "__merge_action", "__merge_value_{}"
#: A copy of a column of the source, by its index, for a clause that writes all columns.
SOURCE_COLUMN = "__merge_given_{}"
_IN_SOURCE, _HIDDEN = "__merge_in_source", "__merge_own_{}"
_KIND_CLAUSE, _CLAUSE_VALUE = "__merge_action_{}", "__merge_value_{}_{}"


@dataclass(frozen=True, slots=True)
class MergeJoin:
    """The inputs of the joined frame of a merge.

    Attributes
    ----------
    clause_values : sequence of mapping of str to Column
        For each clause, new values by column of the table.
    source_columns : sequence of int
        Indexes of the columns of the source that clauses with all columns write.
    filter_tree : mapping, optional
        Condition that rows of the table meet if they match a row of the source; see `keys`.
    """

    handle: TableHandle
    dataset: Dataset
    source: DataFrame
    condition: str | Column
    clauses: Sequence[Clause]
    clause_values: Sequence[Mapping[str, Column]]
    source_columns: Sequence[int]
    filter_tree: Mapping[str, Any] | None = None

    def rows(self, names: Sequence[str]) -> DataFrame:
        """Return the rows to which a clause applies: address, clause, and values of columns.

        It reads the columns of the table that expressions name, or all columns if Spark needs
        more. The source has the alias of the user, or else the alias ``source``.

        Raises
        ------
        InvalidInputError
            Spark cannot analyse a condition or expression.
        SchemaMismatchError
            Children of a struct have other names.
        """
        from pyspark.errors import AnalysisException

        expressions = expressions_of(self.condition, self.clauses)
        text = "\n".join(map(str, expressions)).lower()
        source = self._marked_source()
        sources = [source, source.alias(SOURCE)]
        if re.search(rf"(?<!\w){SOURCE}`?\s*\.", text):
            sources.reverse()
        # A struct with a new child is built from its other children, which no text names.
        values = [value for by_column in self.clause_values for value in by_column.values()]
        named = named_columns(self.dataset, *expressions, *values)
        every = [*self.dataset.schema.names, *META_FIELDS]
        failure: AnalysisException | None = None
        for columns in (named, every):
            for aliased in sources:
                try:
                    rows = self._apply_clauses(
                        list(dict.fromkeys([*columns, ROW_ADDRESS.name])), aliased, names
                    )
                    # Spark Connect analyses when it is asked for the schema.
                    _ = rows.schema
                except AnalysisException as error:
                    failure = error if failure is None or aliased is sources[0] else failure
                    continue
                return rows
        assert failure is not None
        with analysis_errors("merge"):
            raise failure
        raise AssertionError("the failure is raised above")

    @property
    def _alias(self) -> str:
        return self.handle.alias_name or TARGET

    @property
    def _kinds(self) -> set[Rows]:
        return {clause.rows for clause in self.clauses}

    def _marked_source(self) -> DataFrame:
        """Return the source with a column that marks its rows, and copies of columns."""
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        names = self.source.columns
        copies = [
            F.col(quoted(names[index])).alias(SOURCE_COLUMN.format(index))
            for index in self.source_columns
        ]
        with analysis_errors("source"):
            marked = self.source.select("*", F.lit(True).alias(_IN_SOURCE), *copies)
            _ = marked.schema
        return marked

    def _apply_clauses(
        self, columns: Sequence[str], source: DataFrame, names: Sequence[str]
    ) -> DataFrame:
        """Return the rows of `rows`, with these columns of the table in the join."""
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        rows = self._joined(columns, source)
        added: list[str] = [ADDRESS, _IN_SOURCE]
        row_kinds = self._kinds
        target = [F.col(quoted(self._alias, name)) for name in columns]
        if Rows.MATCHED in row_kinds:
            rows = self._apply_kind(rows, Rows.MATCHED, names, added)
        if Rows.NOT_MATCHED in row_kinds:
            if len(row_kinds) > 1:
                hidden = [column.alias(_HIDDEN.format(i)) for i, column in enumerate(target)]
                rows = rows.select("*", *hidden).drop(*target)
                target = [F.col(_HIDDEN.format(i)) for i in range(len(target))]
            rows = self._apply_kind(rows, Rows.NOT_MATCHED, names, added)
        if Rows.NOT_MATCHED_BY_SOURCE in row_kinds:
            if len(row_kinds) > 1:
                shown = [column.alias(name) for column, name in zip(target, columns, strict=True)]
                rows = rows.select(*added, *shown).alias(self._alias)
            rows = self._apply_kind(rows, Rows.NOT_MATCHED_BY_SOURCE, names, added)
        numbers = [_KIND_CLAUSE.format(row_kind.name) for row_kind in Rows if row_kind in row_kinds]
        # Only one clause has values for a row.
        values = [
            F.coalesce(
                *(
                    F.col(_CLAUSE_VALUE.format(number, index))
                    for number, by_column in enumerate(self.clause_values)
                    if name in by_column
                )
            ).alias(VALUE.format(index))
            for index, name in enumerate(names)
        ]
        rows = rows.select(ADDRESS, F.coalesce(*map(F.col, numbers)).alias(CLAUSE), *values)
        return rows.where(F.col(CLAUSE).isNotNull())

    def _joined(self, columns: Sequence[str], source: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        condition = to_column(self.condition, "merge condition")
        target = frame(self.handle, self.dataset, columns, filter_tree=self.filter_tree)
        target = target.select("*", F.col(ROW_ADDRESS.name).alias(ADDRESS))
        if self.handle.alias_name is None:
            target = target.alias(TARGET)
        row_kinds = self._kinds
        if row_kinds == {Rows.NOT_MATCHED}:
            rows = self._by_keys(source.join(target, condition, "left_anti"))
            return rows.select("*", F.lit(None).cast("bigint").alias(ADDRESS))
        if row_kinds == {Rows.NOT_MATCHED_BY_SOURCE}:
            rows = self._by_keys(target.join(source, condition, "left_anti"))
            return rows.select("*", F.lit(None).cast("boolean").alias(_IN_SOURCE))
        if row_kinds == {Rows.MATCHED}:
            join_type = "inner"
        elif Rows.NOT_MATCHED not in row_kinds:
            join_type = "left_outer"
        elif Rows.NOT_MATCHED_BY_SOURCE in row_kinds:
            join_type = "full_outer"
        else:
            join_type = "right_outer"
        return self._by_keys(target.join(source, condition, join_type))

    def _by_keys(self, rows: DataFrame) -> DataFrame:
        """Return the rows of a join in which keys of char(n) match without spaces at their end.

        Spark Connect has no access to the plan: there, strings of the source must be padded.
        """
        from pyspark.sql import DataFrame

        spark = self.handle.spark
        fields = self.dataset._table.schema.fields
        limits = ((field.name, text_limit(field.to_arrow())) for field in fields)
        padded = [name for name, limit in limits if limit is not None and limit[2]]
        if is_connect(spark) or not padded:
            return rows
        conditions = conditions_class(spark)
        if conditions is None:
            return rows
        owner = conditions.getClassLoader().loadClass(f"{PACKAGE}.CharComparisons")
        jvm: Any = jvm_of(spark)
        given = jvm.java.util.HashMap()
        for name, value in (("rows", java_frame(rows)), ("names", padded), ("mark", ADDRESS)):
            given.put(name, value)
        return DataFrame(call_static(spark, owner, "ofJoin", given), spark)

    def _apply_kind(
        self, rows: DataFrame, row_kind: Rows, names: Sequence[str], added: list[str]
    ) -> DataFrame:
        """Add the number of the clause and its values, for rows of a kind.

        The names of the new columns are appended to `added`.
        """
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        clauses = {n: clause for n, clause in enumerate(self.clauses) if clause.rows is row_kind}
        in_target, in_source = F.col(ADDRESS).isNotNull(), F.col(_IN_SOURCE).isNotNull()
        applies = {
            Rows.MATCHED: in_target & in_source,
            Rows.NOT_MATCHED: ~in_target,
            Rows.NOT_MATCHED_BY_SOURCE: ~in_source,
        }[row_kind]
        cases: Column | None = None
        for number, clause in clauses.items():
            condition = (
                F.lit(True) if clause.condition is None else to_column(clause.condition, "clause")
            )
            cases = (F if cases is None else cases).when(condition, F.lit(number))
        assert cases is not None
        applied = _KIND_CLAUSE.format(row_kind.name)
        rows = rows.select("*", F.when(applies, cases).alias(applied))
        fields: dict[str, Field] = {
            field.name: field for field in self.dataset._table.schema.fields
        }
        values = [
            (number, name, value)
            for number in clauses
            for name, value in self.clause_values[number].items()
        ]
        # The number is selected too, because deletes have no values.
        types = rows.select(applied, *(value for _, _, value in values)).schema.fields[1:]
        columns = []
        for (number, name, value), source in zip(values, types, strict=True):
            by_name = clauses[number].takes_all
            cast = cast_to_field(value, source.dataType, fields[name], by_name)
            added.append(_CLAUSE_VALUE.format(number, names.index(name)))
            columns.append(written_as(F.when(F.col(applied) == number, cast), added[-1], name))
        added.append(applied)
        return rows.select("*", *columns)


def expressions_of(condition: str | Column, clauses: Sequence[Clause]) -> list[str | Column]:
    """Return all conditions and values of a merge."""
    expressions: list[str | Column] = [condition]
    for clause in clauses:
        expressions += [clause.condition] if clause.condition is not None else []
        expressions += (clause.values or {}).values()
    return expressions
