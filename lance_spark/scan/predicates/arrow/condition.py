"""The condition of an expression of Arrow: Arrow itself evaluates it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates.arrow.bounds import bounds_of
from lance_spark.scan.predicates.arrow.tree import Call, FieldRef, Node, tree_of
from lance_spark.scan.predicates.conditions import ColumnBound, Condition, RangePruner
from lance_spark.scan.predicates.tree import Predicate

_RESULT = "holds"


# Expressions have no truth value, so that two of them cannot be compared.
@dataclass(frozen=True, slots=True, eq=False)
class ArrowCondition:
    """A condition that holds for the rows for which an expression is true.

    Attributes
    ----------
    expression : pc.Expression
    fields : tuple of Field
        The top-level columns that it reads.
    bounds : Predicate, optional
        Holds for all of these rows, and maybe for more.
    """

    expression: pc.Expression
    fields: tuple[Field, ...]
    bounds: Predicate | None

    def __str__(self) -> str:
        return str(self.expression)

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns, whole."""
        return tuple((field,) for field in self.fields)

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""
        return _evaluated(self.expression, batch).fill_null(False)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the rows for which it can hold by statistics; None if they do not decide."""
        return None if self.bounds is None else self.bounds.candidates(statistics)

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the condition itself."""
        yield self

    def column_bound(self) -> ColumnBound | None:
        """Return None: it is not one comparison of a column."""
        return None


def arrow_condition(expression: pc.Expression, schema: Schema) -> ArrowCondition:
    """Return the condition of an expression.

    Parameters
    ----------
    expression : pc.Expression
    schema : Schema
        Of the table, with the columns of row metadata.

    Raises
    ------
    InvalidInputError
        A column does not exist or is a blob column, or the expression is not a condition.
    """
    _, (serialized, *_) = expression.__reduce__()
    tree = tree_of(serialized)
    fields = schema.fields
    if tree is not None:
        names = dict.fromkeys(_names(tree))
        by_name = {field.name: field for field in schema.fields}
        for name in names:
            if name not in by_name:
                raise InvalidInputError(f"filter {expression}: column {name!r} not found")
        fields = tuple(by_name[name] for name in names)
        compared = set(_names(tree, tests_null=False))
        blobs = [field.name for field in fields if field.is_blob and field.name in compared]
        if blobs:
            raise InvalidInputError(
                f"filter {expression}: column {blobs[0]!r} has blobs, which a filter tests only by "
                "is_null and is_valid"
            )
    elif any(field.is_blob for field in fields):
        fields = tuple(field for field in fields if not field.is_blob)
    no_rows = Schema(fields).to_arrow().empty_table()
    try:
        dtype = _evaluated(expression, no_rows).type
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInputError(f"filter {expression}: {error}") from None
    if not pat.is_boolean(dtype):
        raise InvalidInputError(f"filter {expression}: must be boolean, not {dtype}")
    bounds = None if tree is None else bounds_of(tree, schema.fields)
    return ArrowCondition(expression, fields, bounds)


def _names(node: Node, *, tests_null: bool = True) -> Iterator[str]:
    """Yield the columns of an expression, with those that are only tested for null if wanted."""
    if isinstance(node, FieldRef):
        yield node.path[0]
    elif isinstance(node, Call):
        is_test = node.function in ("is_null", "is_valid")
        for arg in node.args:
            if tests_null or not (is_test and isinstance(arg, FieldRef) and len(arg.path) == 1):
                yield from _names(arg, tests_null=tests_null)


def _evaluated(expression: pc.Expression, rows: pa.RecordBatch | pa.Table) -> Any:
    """Return the value of an expression for each row."""
    # Takes a quarter of a second, which other filters are spared.
    from pyarrow import acero

    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if not table.num_columns:
        # A table without columns has no rows for Arrow.
        table = table.append_column(_RESULT, pa.nulls(table.num_rows))
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.ProjectNodeOptions([expression], [_RESULT])
    plan = acero.Declaration("project", project, inputs=[source])
    # Threads would change the order of the rows.
    column = plan.to_table(use_threads=False).column(0)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
