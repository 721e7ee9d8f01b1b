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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.meta import BLOB_KEY
from lance_spark.errors import InvalidInputError, UnsupportedError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.assignments import Path, check_disjoint_paths, names_of, path_to
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS
from lance_spark.spark.catalog.tables import MIN_TABLE_ROWS
from lance_spark.spark.job import job_group
from lance_spark.spark.jvm.classes import PACKAGE, call_static, conditions_class, is_connect
from lance_spark.spark.jvm.shims.pyspark_names import java_error, java_frame, jvm_of
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.planning import known_columns
from lance_spark.spark.table.conditions import cast_to_field
from lance_spark.spark.table.dataframes import analysis_errors, frame, named_columns, to_column
from lance_spark.spark.types.mapping import written_as
from lance_spark.spark.types.recorded import text_limit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle


# --------------------------------------------------------------------------------------------------
# Clauses of a merge, and new values of columns as Spark expressions.
#
# If a child of a struct gets a new value, the struct is built from all its children. So a null
# struct becomes non-null, as in Delta Lake.

#: Default aliases of the two sides, as in pylance.
TARGET, SOURCE = "target", "source"


class Rows(Enum):
    """The kinds of rows to which a clause can apply."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(Enum):
    """The change that a clause makes."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a merge.

    - `values`: Expressions of an update or insert by column. None: all columns of the source.
    """

    rows: Rows
    action: Action
    condition: str | Column | None = None
    values: Mapping[str, str | Column] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether the clause writes all columns of the source."""
        return self.values is None and self.action is not Action.DELETE


@dataclass(frozen=True, slots=True)
class TaskClause:
    """A clause as tasks need it.

    - `names`: Columns of the table that the clause writes.
    """

    action: Action
    names: tuple[str, ...]
    conditional: bool


def assigned_columns(
    schema: Schema,
    values: Mapping[str, str | Column],
    label: str,
    *,
    find: Callable[[Sequence[str], str], int],
    alias: str | None = None,
    qualifier: Sequence[str] = (),
) -> dict[str, str | Column]:
    """Return an expression for each column that gets new values, by its name in the table.

    - `values`: New values by the name of a column, or the dotted path of a child of a struct. Names
      with special characters are in backticks.
    - `label`: Name of `values` in errors.
    - `find`: Returns the index of a name in a sequence, as the session resolves names; see
      `projection.finder`.
    - `alias`: Alias of the table, which can precede the names.
    - `qualifier`: Qualifier of the columns of the table in the returned expressions.

    Raises InvalidInputError: a column gets two values, or a value is not an expression. Raises
    SchemaMismatchError: a column is not found. Raises UnsupportedError: a child of a struct with
    blobs gets a new value.
    """
    by_path: dict[Path, str | Column] = {}
    columns: dict[str, Field] = {}
    for name, value in values.items():
        fields = path_to(schema, name, find, alias)
        path = names_of(fields)
        check_disjoint_paths(path, list(by_path), label)
        by_path[path] = to_column(value, f"{label}[{name!r}]") if len(path) > 1 else value
        columns[path[0]] = fields[0]
    return {
        name: by_path[(name,)]
        if (name,) in by_path
        else _struct(field, (name,), by_path, qualifier)
        for name, field in columns.items()
    }


def _struct(
    field: Field, path: Path, values: Mapping[Path, str | Column], qualifier: Sequence[str]
) -> Column:
    """Return a struct of its children, with new values for some of them."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    children = []
    for child in field.children:
        child_path = (*path, child.name)
        if child_path in values:
            # The caller casts the struct. This cast matches the children of the value by name.
            value = to_column(values[child_path], ".".join(child_path))
        elif any(path_with_value[: len(child_path)] == child_path for path_with_value in values):
            value = _struct(child, child_path, values, qualifier)
        else:
            value = F.col(quoted(*qualifier, *child_path))
        children.append(value.alias(child.name))
    return F.struct(*children)


# --------------------------------------------------------------------------------------------------
# The join of a merge, and its clauses as expressions over the join.

ADDRESS, CLAUSE, VALUE = "__merge_address", "__merge_action", "__merge_value_{}"
#: A copy of a column of the source, by its index, for a clause that writes all columns.
SOURCE_COLUMN = "__merge_given_{}"
_IN_SOURCE, _HIDDEN = "__merge_in_source", "__merge_own_{}"
_KIND_CLAUSE, _CLAUSE_VALUE = "__merge_action_{}", "__merge_value_{}_{}"


@dataclass(frozen=True, slots=True)
class MergeJoin:
    """The inputs of the joined frame of a merge.

    - `clause_values`: For each clause, new values by column of the table.
    - `source_columns`: Indexes of the columns of the source that clauses with all columns write.
    - `filter_tree`: Condition that rows of the table meet if they match a row of the source; see
      `keys`.
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

        Raises InvalidInputError: Spark cannot analyse a condition or expression. Raises
        SchemaMismatchError: children of a struct have other names.
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


# --------------------------------------------------------------------------------------------------
# The join keys of a small source, as a filter of the target of a merge.
#
# A merge without clauses for rows that match no row of the source needs only rows of the table
# whose keys are in the source. The scan leaves out the others: by indexes and statistics of the
# table, and before Spark shuffles rows.
#
# | source | its keys are collected |
# | --- | --- |
# | rows that are part of the plan | if they are few |
# | a projection of anything | if it has few rows |
# | the same with filters or aggregates | if it also reads few bytes |
# | any other | never: to count its rows may cost as much as the merge |
#
# Spark keeps the rows of a source that is not part of the plan, so that the collected keys are
# those of the rows that are joined.
#
# Spark resolves the condition. A comparison ``target column = expression`` counts if Spark compares
# the column in its own type, or integers in a wider type. Others, such as ``<=>``, are left to the
# join.

#: Most rows of a source whose keys are collected.
MAX_ROWS = 10_000
#: Most bytes, by Spark's estimate, that a source with filters and aggregates reads.
_MAX_BYTES = 16 * 1024 * 1024
_FIXED = frozenset({"LocalRelation", "SubqueryAlias", "View"})
_CHEAP = frozenset({"Filter", "Aggregate", "Sort", "GlobalLimit", "LocalLimit"})
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_OTHERS = frozenset({"string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"})
_Json = dict[str, Any]


def kept_source(source: DataFrame, dataset: Dataset) -> DataFrame | None:
    """Return a small source, with rows that stay the same when it is read again.

    Returns None if the source is not small, or if to know that may be much work.
    """
    if is_connect(source.sparkSession) or source.isStreaming:
        return None
    if dataset.count_rows() < MIN_TABLE_ROWS:
        return None
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    try:
        execution = java_frame(source).queryExecution()
        is_fixed = all(_name(node) in _FIXED for node in _nodes(execution.analyzed()))
        if not is_fixed and not _is_cheap(execution.optimizedPlan()):
            return None
        if not is_fixed and any(BLOB_KEY in field.metadata for field in source.schema.fields):
            # To keep its rows is to keep the bytes of blobs, which otherwise stay in their files.
            return None
    except java_error():
        # The error is reported when the source is joined.
        return None
    with job_group(source.sparkSession, _title(dataset)):
        if len(source.select(F.lit(1)).take(MAX_ROWS + 1)) > MAX_ROWS:
            return None
        return source if is_fixed else source.localCheckpoint()


def _title(dataset: Dataset) -> str:
    """Return the description of the Spark jobs."""
    return f"lance merge {dataset._table.store.display}: read the keys of the source"


def key_tree(joined: DataFrame, source: DataFrame, dataset: Dataset) -> _Json | None:
    """Return the filter of the table by the keys of a source, as a tree of `filter_trees`.

    - `joined`: The rows of `Join.rows`.
    - `source`: The result of `kept_source`, which is joined.

    Returns None if the condition has no key whose values scans compare as Spark does.
    """
    try:
        keys = _keys(java_frame(joined).queryExecution().analyzed(), len(source.columns))
    except java_error():
        return None
    if not keys:
        return None
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    numbered = source.toDF(*map(str, range(len(source.columns))))
    values = [F.col(str(position)).cast(dtype) for _, _, position, dtype in keys]
    with job_group(source.sparkSession, _title(dataset)):
        rows = numbered.select(*(value.alias(f"k{i}") for i, value in enumerate(values))).toArrow()
    known, parts = known_columns(dataset), []
    for (name, dtype, _, _), column in zip(keys, rows.columns, strict=True):
        part = _in(name, dtype, column)
        try:
            to_predicate(part, known)
        except (InvalidInputError, UnsupportedError):
            continue
        parts.append(part)
    return {"op": "and", "args": parts} if parts else None


def _is_cheap(plan: Any) -> bool:
    """Return whether to count a few rows of a plan is little work."""
    nodes = list(_nodes(plan))
    inner = {_name(node) for node in nodes if not node.children().isEmpty()}
    leaves = [node for node in nodes if node.children().isEmpty()]
    if len(leaves) != 1 or not inner <= _CHEAP | {"Project"}:
        return False
    if inner <= {"Project"}:
        return True
    return int(str(leaves[0].stats().sizeInBytes())) <= _MAX_BYTES


def _keys(plan: Any, num_columns: int) -> list[tuple[str, str, int, str]]:
    """Return the keys of the join in an analyzed plan.

    Returns
    -------
    list of (str, str, int, str)
        Column of the table, its type, position of the column of the source, and the type that it is
        cast to.
    """
    join = next(node for node in _nodes(plan) if _name(node) == "Join")
    if join.condition().isEmpty():
        return []
    left, right = list(_seq(join.left().output())), list(_seq(join.right().output()))
    target, source = (
        (left, right) if any(side.name() == ADDRESS for side in left) else (right, left)
    )
    columns = {side.exprId().id(): side for side in target}
    positions = {side.exprId().id(): i for i, side in enumerate(source[:num_columns])}
    keys = []
    for comparison in _conjuncts(join.condition().get()):
        if _name(comparison) != "EqualTo":
            continue
        sides = [_column_of(side) for side in (comparison.left(), comparison.right())]
        for own, other in (sides, sides[::-1]):
            if own is None or other is None or own[0] not in columns or other[0] not in positions:
                continue
            column = columns[own[0]]
            dtype = column.dataType().catalogString()
            if _is_compared(dtype, own[1]):
                keys.append((column.name(), dtype, positions[other[0]], other[1]))
    return keys


def _is_compared(dtype: str, common: str) -> bool:
    """Return whether values of a column, cast to another type, equal the same values only."""
    if dtype in _INTEGERS:
        return _INTEGERS.get(common, 0) >= _INTEGERS[dtype]
    return dtype == common and (dtype in _OTHERS or dtype.startswith("decimal("))


def _column_of(expression: Any) -> tuple[int, str] | None:
    """Return the id of a column, and its type after a cast; None for other expressions."""
    dtype = expression.dataType().catalogString()
    if _name(expression) == "Cast" and str(expression.evalMode()) != "TRY":
        expression = expression.child()
    if _name(expression) != "AttributeReference":
        return None
    return expression.exprId().id(), dtype


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _name(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _in(name: str, dtype: str, column: pa.ChunkedArray) -> _Json:
    """Return the condition that a column of the table has one of some values, as a tree."""
    values = column.combine_chunks().drop_null().unique()
    if dtype in _INTEGERS:
        limit = 1 << (_INTEGERS[dtype] - 1)
        values = values.cast(pa.int64())
        values = values.filter(
            pc.and_(pc.greater_equal(values, -limit), pc.less_equal(values, limit - 1))
        )
    if not len(values):
        return {"lit": "false", "type": "boolean"}
    literals = [{"lit": text, "type": dtype} for text in _texts(values)]
    return {"op": "in", "args": [{"col": [name]}, *literals]}


def _texts(values: pa.Array) -> list[str]:
    dtype = values.type
    if pat.is_binary(dtype) or pat.is_large_binary(dtype):
        return [value.hex() for value in values.to_pylist()]
    if pat.is_date32(dtype):
        values = values.cast(pa.int32())
    elif pat.is_timestamp(dtype):
        values = values.cast(pa.timestamp("us", dtype.tz)).cast(pa.int64())
    elif pat.is_decimal(dtype):
        return [format(value, "f") for value in values.to_pylist()]
    texts: list[str] = values.cast(pa.string()).to_pylist()
    return texts


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _seq(plan.children()):
        yield from _nodes(child)


def _seq(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.length()))


def _name(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name
