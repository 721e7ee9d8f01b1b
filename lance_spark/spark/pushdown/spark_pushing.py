"""How Spark itself pushes filters, from 4.1 on and if `spark.sql.python.filterPushdown.enabled` is
true.

| setting | what pyspark's planning process does |
| --- | --- |
| true | calls `reader.pushFilters(filters)`; Spark checks those that are returned |
| false (default) | fails if `reader.pushFilters.__func__` is not that of `DataSourceReader` |

A reader is not told the setting. So `pushFilters` is no method of the class, but an object of each
reader that can be called, and whose `__func__` is what the check looks for.

No filter is taken unless the option push_filters says so, because Spark 4.1 to 4.3 keep the plan of
the last filters with the loaded DataFrame, and answer other queries over it from that plan: after
``df.where("a = 3")``, ``df.count()`` counts what that kept, and ``df.where("a =
1").union(df.where("a = 2"))`` has the rows of ``a = 2`` twice. The rule of Spark's optimizer
(`request`) plans each scan by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader


class PushFilters:
    """The `pushFilters` of a reader; see the module's text.

    Parameters
    ----------
    push : callable
        Takes the filters of Spark, and returns those that Spark must still apply.
    """

    def __init__(self, push: Callable[[Sequence[Any]], list[Any]]) -> None:
        self._push = push
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Sequence[Any]) -> list[Any]:
        """Take filters, and return those that Spark must still apply."""
        return self._push(filters)
