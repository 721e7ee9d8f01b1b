"""The table of SQL functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lance_spark.scan.predicates.expressions import arithmetic, conditionals, dates, strings
from lance_spark.scan.predicates.expressions.node import Expression
from lance_spark.scan.predicates.sql_settings import SqlSettings

#: Builds the expression of a function call from its arguments.
Builder = Callable[[Sequence[Expression], SqlSettings], Expression]

#: The possible numbers of arguments and the builder of each function, by its name in SQL.
FUNCTIONS: dict[str, tuple[range, Builder]] = {
    **arithmetic.FUNCTIONS,
    **strings.FUNCTIONS,
    **dates.FUNCTIONS,
    **conditionals.FUNCTIONS,
}
