"""The evaluation of an expression of Arrow, whole or in parts.

Arrow nests a disjunction of thousands of comparisons call by call. This takes time that grows with
the square of their number, and overflows the stack of the process. So such a chain is evaluated in
parts, whose results are combined here: sets of values that one column is compared with, and
expressions of few comparisons each. The result is the same, with the same nulls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.scan.predicates.arrow.bounds import exact_equality
from lance_spark.scan.predicates.arrow.tree import (
    ASSOCIATIVE,
    ArrowCall,
    ArrowNode,
    ExpressionTree,
    call,
    depth_of,
)
from lance_spark.scan.predicates.column_predicates import any_of
from lance_spark.scan.predicates.tree import Predicate

#: Deeper expressions are evaluated in parts.
_WHOLE = 50
#: Levels that are taken apart, and most levels of a part. A level takes up to 3 KB of the stack.
_MAX_SPLIT = 100
_MAX_DEPTH = 1000
_DISJUNCTIONS = ("or_kleene", "or")


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """A function of conditions: the numbers of expressions, predicates, and other functions."""

    function: str
    parts: tuple[int | Predicate | Combined, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """How an expression is evaluated.

    - `expressions`: Evaluated by Arrow.
    - `combined`: The function of them; None for one expression that is the whole.
    """

    expressions: tuple[pc.Expression, ...]
    combined: Combined | None = None

    def __str__(self) -> str:
        if self.combined is None:
            return str(self.expressions[0])
        function = self.combined.function.removesuffix("_kleene")
        shown = [str(self.expressions[0])] if self.expressions else []
        shown += [str(part) for part in self.combined.parts if isinstance(part, Predicate)][:1]
        return f" {function} ".join([*shown, "..."])

    def of(self, rows: pa.RecordBatch | pa.Table) -> Any:
        """Return the value of each row. Raises pa.ArrowException, ValueError, TypeError."""
        values = _evaluated(self.expressions, rows) if self.expressions else []
        if self.combined is None:
            return values[0]
        if isinstance(rows, pa.Table):
            rows = rows.combine_chunks().to_batches()[0] if rows.num_rows else _no_rows(rows)
        return _value(self.combined, values, rows)


def evaluation_of(
    expression: pc.Expression, tree: ExpressionTree | None, fields: Sequence[Field]
) -> Evaluation:
    """Return how an expression is evaluated.

    - `tree`: Its tree, if it is known.
    - `fields`: The top-level fields of the table.

    Raises InvalidInputError: Arrow would overflow the stack.
    """
    if tree is None or depth_of(tree.root) <= _WHOLE:
        return Evaluation((expression,))
    splitter = _Splitter(tree, fields)
    combined = splitter.split(tree.root, 0)
    if isinstance(combined, Combined):
        return Evaluation(tuple(splitter.expressions), combined)
    return Evaluation(tuple(splitter.expressions))


class _Splitter:
    def __init__(self, tree: ExpressionTree, fields: Sequence[Field]) -> None:
        self._tree = tree
        self._fields = fields
        self.expressions: list[pc.Expression] = []

    def split(self, node: ArrowNode, level: int) -> int | Combined:
        """Return the number of the expression of a node, or a function of its parts."""
        if depth_of(node) > _WHOLE and isinstance(node, ArrowCall) and level < _MAX_SPLIT:
            if node.function == "invert":
                return Combined(node.function, (self.split(node.args[0], level + 1),))
            if node.function in ASSOCIATIVE:
                return self._chain(node, level)
        if depth_of(node) > _MAX_DEPTH:
            raise InvalidInputError(
                f"filter: the expression has {depth_of(node)} levels, and at most {_MAX_DEPTH} are "
                "possible; a chain of & or of | is no level, and isin takes many values"
            )
        self.expressions.append(self._tree.expression(node))
        return len(self.expressions) - 1

    def _chain(self, node: ArrowCall, level: int) -> Combined:
        parts: list[int | Predicate | Combined] = []
        equalities: list[Predicate] = []
        small: list[ArrowNode] = []
        for arg in node.args:
            equality = None
            if node.function in _DISJUNCTIONS:
                equality = exact_equality(arg, self._fields)
            if equality is not None:
                equalities.append(equality)
            elif depth_of(arg) > _WHOLE:
                parts.append(self.split(arg, level + 1))
            else:
                small.append(arg)
        if equalities:
            parts.append(any_of(equalities))
        for start in range(0, len(small), _WHOLE):
            args = small[start : start + _WHOLE]
            whole = args[0] if len(args) == 1 else call(node.function, args)
            self.expressions.append(self._tree.expression(whole))
            parts.append(len(self.expressions) - 1)
        return Combined(node.function, tuple(parts))


def _value(
    part: int | Predicate | Combined, values: Sequence[pa.Array], rows: pa.RecordBatch
) -> pa.Array:
    if isinstance(part, int):
        return values[part]
    if isinstance(part, Predicate):
        return part.evaluate(rows)
    result = _value(part.parts[0], values, rows)
    if part.function == "invert":
        return pc.invert(result)
    for other in part.parts[1:]:
        result = pc.call_function(part.function, [result, _value(other, values, rows)])
    return result


def _evaluated(
    expressions: Sequence[pc.Expression], rows: pa.RecordBatch | pa.Table
) -> list[pa.Array]:
    """Return the value of each expression for each row."""
    # Takes a quarter of a second, which other filters are spared.
    from pyarrow import acero

    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if not table.num_columns:
        # A table without columns has no rows for Arrow.
        table = table.append_column("rows", pa.nulls(table.num_rows))
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    names = [str(number) for number in range(len(expressions))]
    project = acero.ProjectNodeOptions(list(expressions), names)
    plan = acero.Declaration("project", project, inputs=[source])
    # Threads would change the order of the rows.
    columns = plan.to_table(use_threads=False).columns
    return [
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in columns
    ]


def _no_rows(table: pa.Table) -> pa.RecordBatch:
    arrays = [pa.array([], field.type) for field in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
