"""The condition of an expression of Arrow: Arrow itself evaluates it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import read_json
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.kept_dictionaries import decoded, is_preserved
from lance_spark.scan.predicates.arrow.bounds import bounds_of
from lance_spark.scan.predicates.arrow.evaluation import Evaluation, evaluation_of
from lance_spark.scan.predicates.arrow.tree import tree_of
from lance_spark.scan.predicates.conditions import ColumnBound, Condition, RangePruner
from lance_spark.scan.predicates.tree import Predicate

#: Most characters of an expression in errors.
_SHOWN = 200


# Expressions have no truth value, so that two of them cannot be compared.
@dataclass(frozen=True, slots=True, eq=False)
class ArrowCondition:
    """A condition that holds for the rows for which an expression is true.

    - `fields`: The top-level columns that it reads.
    - `bounds`: Holds for all of these rows, and maybe for more.
    """

    evaluation: Evaluation
    fields: tuple[Field, ...]
    bounds: Predicate | None

    def __str__(self) -> str:
        return str(self.evaluation)

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns, whole."""
        return tuple((field,) for field in self.fields)

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null.

        Raises EvaluationError: Arrow cannot compute the expression for a row.
        """
        rows = _as_declared(batch, self.fields) if self.fields else batch
        try:
            return self.evaluation.of(rows).fill_null(False)
        except pa.ArrowException as error:
            raise EvaluationError(f"filter {_shown(self.evaluation)}: {error}") from None

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the rows for which it can hold by statistics; None if they do not decide."""
        return None if self.bounds is None else self.bounds.candidates(statistics)

    @property
    def is_decided(self) -> bool:
        """False: other rows may be among the candidates."""
        return False

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the condition itself."""
        yield self

    def column_bound(self) -> ColumnBound | None:
        """Return None: it is not one comparison of a column."""
        return None


def arrow_condition(expression: pc.Expression, schema: Schema) -> ArrowCondition:
    """Return the condition of an expression.

    - `schema`: Of the table, with the columns of row metadata.

    Raises InvalidInputError: a column does not exist or is a blob column, or the expression is not
    a condition.
    """
    tree = tree_of(expression)
    evaluation = evaluation_of(expression, tree, schema.fields)
    # The columns of row metadata are not columns of the table.
    fields = tuple(field for field in schema.fields if field.id >= 0 and not field.is_blob)
    if tree is not None:
        names = dict.fromkeys(tree.columns())
        by_name = {field.name: field for field in schema.fields}
        for name in names:
            if name not in by_name:
                raise _error(evaluation, f"column {name!r} not found")
        fields = tuple(by_name[name] for name in names)
        compared = set(tree.columns(tests_null=False))
        blobs = [field.name for field in fields if field.is_blob and field.name in compared]
        if blobs:
            raise _error(
                evaluation,
                f"column {blobs[0]!r} has blobs, which a filter tests only by is_null and is_valid",
            )
    no_rows = Schema(fields).to_arrow().empty_table()
    try:
        dtype = evaluation.of(no_rows).type
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _error(evaluation, str(error)) from None
    if not pat.is_boolean(dtype):
        raise _error(evaluation, f"must be boolean, not {dtype}")
    bounds = None if tree is None else bounds_of(tree.root, schema.fields)
    return ArrowCondition(evaluation, fields, bounds)


def _error(evaluation: Evaluation, message: str) -> InvalidInputError:
    return InvalidInputError(f"filter {_shown(evaluation)}: {message}")


def _shown(evaluation: Evaluation) -> str:
    text = str(evaluation)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _as_declared(batch: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
    """Return columns with the types of a table, for which the expression was checked.

    Filters read some columns as dictionaries, and JSON as JSONB. Arrow compares the bytes of JSONB,
    and has functions of texts that do not take dictionaries.
    """
    columns = []
    for field in fields:
        array = batch.column(batch.schema.get_field_index(field.name))
        if is_preserved(array, field):
            array = decoded(array)
        if field.has_json and not array.type.equals(field.arrow_field.type):
            array = read_json(array, field, "filter")
        columns.append(array)
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])
