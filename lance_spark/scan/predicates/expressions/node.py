"""The nodes of expressions: each has a type, a value for each row, and the columns it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.scan.predicates.comparison import widened
from lance_spark.scan.predicates.expressions.kernels import (
    Kernel,
    arithmetic,
    casts,
    dates,
    strings,
)
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.tree import Column, Constant, Predicate, evaluated_where
from lance_spark.scan.predicates.typed_values import Typed, shown_type, type_name
from lance_spark.subjects import JSON_KERNEL, load

#: The name of the kernel of functions of JSON documents.
JSON = "json"
_KERNELS: dict[str, Kernel] = {
    **arithmetic.KERNELS,
    **strings.KERNELS,
    **dates.KERNELS,
    **casts.KERNELS,
}


def _kernel(name: str) -> Kernel:
    if name != JSON:
        return _KERNELS[name]
    kernel: Kernel = load(JSON_KERNEL)
    return kernel


class Expression(ABC):
    """A value of each row. Immutable, and can be pickled."""

    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> pa.DataType:
        """The type of the values: one of the table in `typed_values`."""

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the value of each row of a batch.

        Raises
        ------
        EvaluationError
            Spark raises an error for one of the rows.
        """

    @abstractmethod
    def columns(self) -> Iterator[Column]:
        """Yield the columns that the expression reads."""


@dataclass(frozen=True, slots=True)
class ColumnValue(Expression):
    """The value of a column, in the type that the column has in Spark."""

    column: Column

    @property
    def dtype(self) -> pa.DataType:
        """The type of the column in Spark, or the type that it is cast to."""
        shown = shown_type(self.column.cast_type or self.column.field.arrow_field.type)
        if shown is None:
            raise InvalidInputError(
                f"filter on {str(self.column)!r}: expressions of type "
                f"{self.column.field.arrow_field.type} are not supported"
            )
        return shown

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        import pyarrow.compute as pc

        array, dtype = self.column.values(batch), self.dtype
        if array.type.equals(dtype):
            return array
        if pat.is_timestamp(dtype) and pat.is_timestamp(array.type):
            array = array.view(pa.timestamp(array.type.unit, dtype.tz))
            # Spark rounds nanoseconds down to microseconds.
            if array.type.unit == "ns":
                array = pc.floor_temporal(array, unit="microsecond")
        if pat.is_integer(dtype):
            try:
                return array.cast(dtype)
            except pa.ArrowInvalid:
                raise EvaluationError(
                    f"filter on {str(self.column)!r}: a value does not fit {type_name(dtype)}, "
                    "the type of the column in Spark"
                ) from None
        return widened(array, dtype)

    def columns(self) -> Iterator[Column]:
        yield self.column


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """The same value for all rows."""

    typed: Typed

    @property
    def dtype(self) -> pa.DataType:
        """The type of the literal."""
        return self.typed.dtype

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.repeat(pa.scalar(self.typed.value, self.typed.dtype), batch.num_rows)

    def columns(self) -> Iterator[Column]:
        yield from ()


class Document(Expression):
    """A document, or a value in documents: not a value of SQL."""

    __slots__ = ()

    @abstractmethod
    def exists(self) -> Expression:
        """Return a value that is null if there is no such document or value."""


@dataclass(frozen=True, slots=True)
class Truth(Expression):
    """The truth value of a condition."""

    predicate: Predicate

    @property
    def dtype(self) -> pa.DataType:
        """Boolean."""
        return pa.bool_()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        return self.predicate.evaluate(batch)

    def columns(self) -> Iterator[Column]:
        yield from self.predicate.columns()


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """The result of a kernel for the values of arguments.

    Attributes
    ----------
    name : str
        The name of the kernel. A name, and not the kernel, because a call is pickled.
    args : tuple of Expression
    result : pa.DataType
    detail : object
        Another argument of the kernel: a hashable value that is the same for all rows.
    """

    name: str
    args: tuple[Expression, ...]
    result: pa.DataType
    detail: Any = None

    @property
    def dtype(self) -> pa.DataType:
        """The type of the result."""
        return self.result

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        arrays = [arg.evaluate(batch) for arg in self.args]
        try:
            return _kernel(self.name)(arrays, self.detail, self.result)
        except (ValueError, pa.ArrowException, OverflowError) as error:
            # A `RowError`, or a time zone that is missing or unknown.
            names = ", ".join(dict.fromkeys(str(column) for column in self.columns()))
            columns_text = f" on {names!r}" if names else ""
            raise EvaluationError(f"filter{columns_text}: {error}") from None

    def columns(self) -> Iterator[Column]:
        for arg in self.args:
            yield from arg.columns()


@dataclass(frozen=True, slots=True)
class Choice(Expression):
    """The value of the first branch whose condition is true.

    Attributes
    ----------
    branches : tuple of (Predicate, Expression)
    otherwise : Expression
        Has the same type as all branches.
    """

    branches: tuple[tuple[Predicate, Expression], ...]
    otherwise: Expression

    @property
    def dtype(self) -> pa.DataType:
        """The type of every branch."""
        return self.otherwise.dtype

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the value of each row's branch. A branch may fail for rows that do not take it."""
        import pyarrow.compute as pc

        undecided = pa.repeat(pa.scalar(True), batch.num_rows)
        chosen: list[tuple[pa.Array, pa.Array]] = []
        for condition, value in self.branches:
            holds = evaluated_where(condition.evaluate, batch, undecided).fill_null(False)
            in_branch = pc.and_(undecided, holds)
            undecided = pc.and_not(undecided, in_branch)
            chosen.append((in_branch, evaluated_where(value.evaluate, batch, in_branch)))
        result = evaluated_where(self.otherwise.evaluate, batch, undecided)
        for in_branch, values in reversed(chosen):
            result = pc.if_else(in_branch, values, result)
        return result

    def columns(self) -> Iterator[Column]:
        for condition, value in self.branches:
            yield from condition.columns()
            yield from value.columns()
        yield from self.otherwise.columns()


#: Builds the expression of a function call from its arguments.
Builder = Callable[[Sequence[Expression], SqlSettings], Expression]


def folded(expression: Expression) -> Expression:
    """Return an expression without columns as a literal; other expressions as they are.

    Raises
    ------
    EvaluationError
        The evaluation fails.
    """
    if isinstance(expression, Literal) or next(iter(expression.columns()), None) is not None:
        return expression
    row = pa.record_batch([pa.nulls(1)], ["none"])
    return Literal(typed_of(expression.evaluate(row)[0], expression.dtype))


def typed_of(scalar: pa.Scalar, dtype: pa.DataType) -> Typed:
    """Return a scalar of one of the types in `typed_values` as a computed literal."""
    if not scalar.is_valid:
        return Typed(None, dtype)
    if pat.is_temporal(dtype):
        return Typed(scalar.value, dtype)
    return Typed(scalar.as_py(), dtype)


def as_expression(operand: Column | Typed | Predicate | Expression) -> Expression:
    """Return a column, a literal or a condition as an expression."""
    if isinstance(operand, Expression):
        return operand
    if isinstance(operand, Column):
        return ColumnValue(operand)
    if isinstance(operand, Typed):
        return Literal(operand)
    if isinstance(operand, Constant) and operand.where_valid is None:
        return Literal(Typed(operand.value, pa.bool_()))
    return Truth(operand)
