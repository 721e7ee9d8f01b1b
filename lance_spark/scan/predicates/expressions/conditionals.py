"""Choices between values: ``coalesce``, ``nullif``, ``if``, ``CASE``. Values that are not chosen raise no errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import list_type
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.holds import Holds, ValueIsNull
from lance_spark.scan.predicates.expressions.node import Choice, Expression, Literal
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.tree import Constant, Predicate
from lance_spark.scan.predicates.typed_values import Typed


def choice(
    branches: Sequence[tuple[Predicate, Expression]], otherwise: Expression, settings: SqlSettings
) -> Expression:
    """Return the value of the first branch whose condition is true, all in one type.

    Raises
    ------
    NoCommonTypeError
        The values have none.
    """
    values = [*(value for _, value in branches), otherwise]
    common = list_type([one.dtype for one in values], settings, strings=True)
    typed = [_in_type(one, common, settings) for one in values]
    conditions = [condition for condition, _ in branches]
    return Choice(tuple(zip(conditions, typed[:-1], strict=True)), typed[-1])


def _in_type(value: Expression, dtype: pa.DataType, settings: SqlSettings) -> Expression:
    return value if pat.is_null(dtype) else casted(value, dtype, settings)


def _coalesce(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    # The casted value is asked whether it is null: a cast can make it null.
    common = list_type([one.dtype for one in args], settings, strings=True)
    values = [_in_type(one, common, settings) for one in args]
    branches = tuple((ValueIsNull(one, inverted=True), one) for one in values[:-1])
    return Choice(branches, values[-1]) if branches else values[0]


def _nvl2(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return choice([(ValueIsNull(args[0], inverted=True), args[1])], args[2], settings)


def truth(value: Expression) -> Predicate:
    """Return a boolean value as a condition."""
    if isinstance(value, Literal):
        return Constant(value.typed.value)
    return Holds(value)


def nullif(value: Expression, equal: Predicate) -> Expression:
    """Return a value, or null where a condition is true."""
    return Choice(((equal, Literal(Typed(None, value.dtype))),), value)


FUNCTIONS: dict[str, tuple[range, Callable[[Sequence[Expression], SqlSettings], Expression]]] = {
    "coalesce": (range(1, 1000), _coalesce),
    **dict.fromkeys(("ifnull", "nvl"), (range(2, 3), _coalesce)),
    "nvl2": (range(3, 4), _nvl2),
}
