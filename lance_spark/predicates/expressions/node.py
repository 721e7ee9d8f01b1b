"""The nodes of expressions: each has a type, a value for each row, and the columns it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.predicates import typed_literals as literals
from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.predicates.comparison import widened
from lance_spark.predicates.expressions import kernels
from lance_spark.predicates.expressions.kernels import LONG_DIGITS, Kernel, is_small
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.tree import Column, Constant, Predicate, evaluated_where
from lance_spark.predicates.typed_literals import (
    TIME,
    FailedCastError,
    Typed,
    is_bytes,
    is_datetime,
    is_number,
    is_text,
    shown_type,
    type_name,
)
from lance_spark.subjects import JSON_KERNEL, load

#: The name of the kernel of functions of JSON documents.
JSON = "json"
_KERNELS: dict[str, Kernel] = {
    **kernels.NUMBER_KERNELS,
    **kernels.STRING_KERNELS,
    **kernels.DATE_KERNELS,
    **kernels.CAST_KERNELS,
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

        Raises EvaluationError: Spark raises an error for one of the rows.
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

    - `name`: The name of the kernel. A name, and not the kernel, because a call is pickled.
    - `detail`: Another argument of the kernel: a hashable value that is the same for all rows.
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

    - `branches`: Tuple of (Predicate, Expression).
    - `otherwise`: Has the same type as all branches.
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

    Raises EvaluationError: the evaluation fails.
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


# --------------------------------------------------------------------------------------------------
# Casts of expressions: the pairs of types that are supported, and Spark's rules for literals.

#: Java writes decimals up to this scale without an exponent.
_MAX_PLAIN_SCALE = 6


def casted(
    value: Expression, dtype: pa.DataType, settings: SqlSettings, *, null_if_failed: bool = False
) -> Expression:
    """Return a value cast to another type.

    - `dtype`: One of the table in `typed_values`.
    - `null_if_failed`: Whether it is a ``TRY_CAST``: it has the rules of ANSI mode, with null
      instead of an error.

    Raises NoCommonTypeError: Spark does not cast between these types, or this package does not.
    Raises CastError: the cast of a literal fails.
    """
    source = value.dtype
    if source.equals(dtype):
        return value
    strict = replace(settings, ansi=settings.ansi or null_if_failed)
    if pat.is_float64(dtype) and isinstance(value, Call) and value.name == "cast":
        (inner,) = value.args
        if pat.is_float32(source) and pat.is_integer(inner.dtype):
            # Spark's optimizer drops the cast to float, although it can change the value.
            return casted(inner, dtype, settings)
    via_double = pat.is_decimal(source) and source.precision > LONG_DIGITS and is_small(dtype)
    if isinstance(value, Literal) and not via_double:
        try:
            return Literal(literals.cast(value.typed, dtype, strict))
        except FailedCastError:
            if settings.ansi and not null_if_failed:
                raise
            if is_text(source):
                return Literal(Typed(None, dtype))
    if not _is_supported(source, dtype) and not pat.is_null(source):
        raise NoCommonTypeError(
            f"{type_name(source)} is not cast to {type_name(dtype)} here; leave it to "
            "DataFrame.where"
        )
    mode = "try" if null_if_failed else "ansi" if settings.ansi else "java"
    return folded(Call("cast", (value,), dtype, (mode, settings.time_zone)))


def _is_supported(source: pa.DataType, dtype: pa.DataType) -> bool:
    if is_text(dtype):
        return bool(
            pat.is_integer(source)
            or pat.is_boolean(source)
            or is_datetime(source)
            or source.equals(TIME)
            or (pat.is_decimal(source) and source.scale <= _MAX_PLAIN_SCALE)
        )
    if is_text(source):
        return (
            is_number(dtype)
            or is_datetime(dtype)
            or dtype.equals(TIME)
            or pat.is_boolean(dtype)
            or is_bytes(dtype)
        )
    if is_number(source) and is_number(dtype):
        return not (pat.is_floating(source) and pat.is_decimal(dtype))
    if is_number(source) and pat.is_boolean(dtype):
        return not pat.is_decimal(source)
    if pat.is_boolean(source):
        return is_number(dtype) and not pat.is_decimal(dtype)
    return is_datetime(source) and is_datetime(dtype)
