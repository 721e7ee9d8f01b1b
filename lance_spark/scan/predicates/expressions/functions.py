"""The table of functions and kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lance_spark.scan.predicates.expressions import arithmetic, casts, conditionals, dates, strings
from lance_spark.scan.predicates.expressions.node import Expression, Kernel
from lance_spark.scan.predicates.sql_settings import SqlSettings

#: Makes an expression of arguments.
Builder = Callable[[Sequence[Expression], SqlSettings], Expression]

KERNELS: dict[str, Kernel] = {
    **arithmetic.KERNELS,
    **strings.KERNELS,
    **dates.KERNELS,
    **casts.KERNELS,
}
#: By name in SQL: how many arguments a function takes, and what it makes of them.
FUNCTIONS: dict[str, tuple[range, Builder]] = {
    **arithmetic.FUNCTIONS,
    **strings.FUNCTIONS,
    **dates.FUNCTIONS,
    **conditionals.FUNCTIONS,
}
