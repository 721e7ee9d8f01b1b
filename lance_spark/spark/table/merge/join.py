"""The join of a merge, and its clauses on it: each sees the sides that its rows have.

| step | what expressions see |
| --- | --- |
| join | both sides, with the rows of each that have no partner if a clause is about them |
| whenMatched... | both sides |
| whenNotMatched... | the source; columns of the table are out of sight |
| whenNotMatchedBySource... | the table, under its alias again; columns of the source are gone |

Each step adds the number of the clause that applies, and its values, for the rows that it is about.
So names that both sides have need no alias where only one side can be meant, and what an expression
raises for other rows is never raised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_spark.file.schema.field import Field
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS
from lance_spark.spark.table.dataframes import frame, named_in, to_column, understood
from lance_spark.spark.table.merge.casts import cast_to_field
from lance_spark.spark.table.merge.clauses import SOURCE, TARGET, Clause, Rows, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableBase

ADDRESS, ACTION, VALUE = "__merge_address", "__merge_action", "__merge_value_{}"
#: A column that a clause with all columns takes from the source, by its place there.
GIVEN = "__merge_given_{}"
_IN_SOURCE, _OWN = "__merge_in_source", "__merge_own_{}"
_ACTION_OF, _VALUE_OF = "__merge_action_{}", "__merge_value_{}_{}"


@dataclass(frozen=True, slots=True)
class Join:
    """A merge that is to be written as a frame.

    Attributes
    ----------
    base : TableBase
    dataset : Dataset
        At the version.
    source : DataFrame
    condition : str or Column
    clauses : sequence of Clause
    given : sequence of mapping of str to Column
        By clause, values by column of the table.
    taken : collection of int
        Columns of the source that clauses take, by their places.
    """

    base: TableBase
    dataset: Dataset
    source: DataFrame
    condition: str | Column
    clauses: Sequence[Clause]
    given: Sequence[Mapping[str, Column]]
    taken: Sequence[int]

    def rows(self, names: Sequence[str]) -> DataFrame:
        """Return the rows to which a clause applies: address, action, and values of columns.

        As few columns of the table are read as Spark can make sense of. The source has the alias
        that the user gave it, if there is one, or that of pylance.

        Raises
        ------
        InvalidInputError
            Spark cannot make sense of a condition or expression.
        SchemaMismatchError
            Children of a struct have other names.
        """
        from pyspark.errors import AnalysisException

        texts = texts_of(self.condition, self.clauses)
        text = "\n".join(map(str, texts)).lower()
        marked = self._marked()
        sides = [marked, marked.alias(SOURCE)]
        if re.search(rf"(?<!\w){SOURCE}`?\s*\.", text):
            sides.reverse()
        # A struct with a new child is made of its other children, which no text names.
        given = [value for item in self.given for value in item.values()]
        named = named_in(self.dataset, *texts, *given)
        every = [*self.dataset.schema.names, *META_FIELDS]
        failed: AnalysisException | None = None
        for columns in (named, every):
            for side in sides:
                try:
                    result = self._with(
                        list(dict.fromkeys([*columns, ROW_ADDRESS.name])), side, names
                    )
                    # Spark Connect analyses when it is asked for the schema.
                    _ = result.schema
                except AnalysisException as error:
                    failed = error if failed is None or side is sides[0] else failed
                    continue
                return result
        assert failed is not None
        with understood("merge"):
            raise failed
        raise AssertionError("it raises")

    @property
    def _alias(self) -> str:
        return self.base.alias_name or TARGET

    @property
    def _kinds(self) -> set[Rows]:
        return {clause.rows for clause in self.clauses}

    def _marked(self) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        names = self.source.columns
        extra = [
            F.col(quoted(names[position])).alias(GIVEN.format(position)) for position in self.taken
        ]
        with understood("source"):
            marked = self.source.select("*", F.lit(True).alias(_IN_SOURCE), *extra)
            _ = marked.schema
        return marked

    def _with(self, columns: Sequence[str], source: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the rows, with these columns of the table in the join."""
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        rows = self._joined(columns, source)
        made: list[str] = [ADDRESS, _IN_SOURCE]
        kinds = self._kinds
        own = [F.col(quoted(self._alias, name)) for name in columns]
        if Rows.MATCHED in kinds:
            rows = self._applied(rows, Rows.MATCHED, names, made)
        if Rows.NOT_MATCHED in kinds:
            if len(kinds) > 1:
                hidden = [item.alias(_OWN.format(index)) for index, item in enumerate(own)]
                rows = rows.select("*", *hidden).drop(*own)
                own = [F.col(_OWN.format(index)) for index in range(len(own))]
            rows = self._applied(rows, Rows.NOT_MATCHED, names, made)
        if Rows.NOT_MATCHED_BY_SOURCE in kinds:
            if len(kinds) > 1:
                shown = [item.alias(name) for item, name in zip(own, columns, strict=True)]
                rows = rows.select(*made, *shown).alias(self._alias)
            rows = self._applied(rows, Rows.NOT_MATCHED_BY_SOURCE, names, made)
        actions = [_ACTION_OF.format(item.name) for item in Rows if item in kinds]
        values = [
            F.coalesce(
                *(
                    F.col(_VALUE_OF.format(number, index))
                    for number, item in enumerate(self.given)
                    if name in item
                )
            ).alias(VALUE.format(index))
            for index, name in enumerate(names)
        ]
        # Of a row only one clause has values.
        result = rows.select(ADDRESS, F.coalesce(*map(F.col, actions)).alias(ACTION), *values)
        return result.where(F.col(ACTION).isNotNull())

    def _joined(self, columns: Sequence[str], source: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        on = to_column(self.condition, "merge condition")
        own = frame(self.base, self.dataset, columns)
        own = own.select("*", F.col(ROW_ADDRESS.name).alias(ADDRESS))
        if self.base.alias_name is None:
            own = own.alias(TARGET)
        kinds = self._kinds
        if kinds == {Rows.NOT_MATCHED}:
            alone = source.join(own, on, "left_anti")
            return alone.select("*", F.lit(None).cast("bigint").alias(ADDRESS))
        if kinds == {Rows.NOT_MATCHED_BY_SOURCE}:
            nothing = F.lit(None).cast("boolean").alias(_IN_SOURCE)
            return own.join(source, on, "left_anti").select("*", nothing)
        if kinds == {Rows.MATCHED}:
            return own.join(source, on, "inner")
        if Rows.NOT_MATCHED not in kinds:
            return own.join(source, on, "left_outer")
        how = "full_outer" if Rows.NOT_MATCHED_BY_SOURCE in kinds else "right_outer"
        return own.join(source, on, how)

    def _applied(
        self, rows: DataFrame, kind: Rows, names: Sequence[str], made: list[str]
    ) -> DataFrame:
        """Add which clause applies to rows of a kind, and its values; note the names of what was
        added.
        """
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        clauses = {n: item for n, item in enumerate(self.clauses) if item.rows is kind}
        there, given = F.col(ADDRESS).isNotNull(), F.col(_IN_SOURCE).isNotNull()
        about = {
            Rows.MATCHED: there & given,
            Rows.NOT_MATCHED: ~there,
            Rows.NOT_MATCHED_BY_SOURCE: ~given,
        }[kind]
        tests: Column | None = None
        for number, item in clauses.items():
            test = F.lit(True) if item.condition is None else to_column(item.condition, "clause")
            tests = (F if tests is None else tests).when(test, F.lit(number))
        assert tests is not None
        action = _ACTION_OF.format(kind.name)
        rows = rows.select("*", F.when(about, tests).alias(action))
        fields: dict[str, Field] = {item.name: item for item in self.dataset._table.schema.fields}
        wanted = [(number, name) for number in clauses for name in self.given[number]]
        # The first column is there for deletes, which have none.
        types = rows.select(action, *(self.given[n][name] for n, name in wanted)).schema.fields[1:]
        values = []
        for (number, name), made_of in zip(wanted, types, strict=True):
            by_name = clauses[number].takes_all
            value = cast_to_field(self.given[number][name], made_of.dataType, fields[name], by_name)
            made.append(_VALUE_OF.format(number, names.index(name)))
            values.append(F.when(F.col(action) == number, value).alias(made[-1]))
        made.append(action)
        return rows.select("*", *values)


def texts_of(condition: str | Column, clauses: Sequence[Clause]) -> list[str | Column]:
    """Return all expressions of a merge."""
    results: list[str | Column] = [condition]
    for clause in clauses:
        results += [clause.condition] if clause.condition is not None else []
        results += (clause.values or {}).values()
    return results
