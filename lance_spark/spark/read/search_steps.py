"""What Spark does with the rows that the tasks of a search return.

| step | value |
| --- | --- |
| `order` | list of columns with whether the order is descending; nulls are last |
| `limit`, `offset` | number of rows |
| `where` | condition in Spark's SQL |
| `select` | list of expressions in Spark's SQL |
| `drop` | name of a column |

`LanceTable` and the table functions in the JVM (`SearchFunction.java`) make the same steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX, ROW_ADDRESS, ROW_ID, SCORE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Step = tuple[str, Any]
_NUMBER = "__number"


def text_steps(limit: int | None, ties: Sequence[str] = (ROW_ADDRESS.name,)) -> list[Step]:
    """Return the steps to the rows with the greatest scores.

    - `ties`: The columns that order rows with equal scores.
    """
    order: Step = ("order", [(SCORE.name, True), *((name, False) for name in ties)])
    return [order] if limit is None else [order, ("limit", limit)]


def nearest_steps(k: int, *, is_batch: bool, ties: Sequence[str] = (ROW_ID.name,)) -> list[Step]:
    """Return the steps to the nearest rows: of each query, if there are several.

    - `ties`: The columns that order rows with equal distances.
    """
    keys = [(name, False) for name in (DISTANCE.name, *ties)]
    if not is_batch:
        return [("order", keys), ("limit", k)]
    order = ", ".join(f"{name} NULLS LAST" for name, _ in keys)
    window = f"PARTITION BY {QUERY_INDEX.name} ORDER BY {order}"
    return [
        ("select", ["*", f"row_number() OVER ({window}) AS {_NUMBER}"]),
        ("where", f"{_NUMBER} <= {k}"),
        ("drop", _NUMBER),
        ("order", [(QUERY_INDEX.name, False), *keys]),
    ]


def last_steps(where: str | None, added: str, columns: Collection[str]) -> list[Step]:
    """Return the steps that filter found rows, and leave out a column that is not selected."""
    steps: list[Step] = [] if where is None else [("where", where)]
    return steps if added in columns else [*steps, ("drop", added)]


def after(frame: DataFrame, steps: Iterable[Step]) -> DataFrame:
    """Return rows after some steps."""
    from pyspark.sql import functions

    for step, value in steps:
        match step:
            case "order":
                keys: Sequence[tuple[str, bool]] = value
                frame = frame.orderBy(
                    *(
                        functions.desc(name) if down else functions.asc_nulls_last(name)
                        for name, down in keys
                    )
                )
            case "select":
                frame = frame.selectExpr(*value)
            case _:
                frame = getattr(frame, step)(value)
    return frame
