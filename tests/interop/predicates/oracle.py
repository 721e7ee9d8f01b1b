"""What Spark itself keeps: many predicates in one job over Parquet.

| outcome | Spark |
| --- | --- |
| rows | keeps them |
| `refusal` | cannot parse or analyse the predicate |
| `raised` | raises for some row; `rows` are those that it keeps of the others |

Each predicate is evaluated as ``TRY_EVAL(COALESCE(predicate, false))``: null says that it raised for the row, so that one row of one
predicate does not end the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column

#: Expressions of one job.
_TOGETHER = 100


@dataclass(frozen=True)
class Outcome:
    """What Spark makes of a predicate.

    Attributes
    ----------
    rows : frozenset of int
    raised : frozenset of int
        Rows for which it raises.
    refusal : str
        Why it takes the predicate for none; empty if it does not.
    frame : DataFrame, optional
        The rows that `DataFrame.where` keeps, which no job has computed.
    """

    rows: frozenset[int] = frozenset()
    raised: frozenset[int] = frozenset()
    refusal: str = ""
    frame: Any = field(default=None, compare=False, repr=False)


def outcomes(spark: Any, view: str, texts: Sequence[str]) -> list[Outcome]:
    """Return what Spark makes of predicates on a view, by the settings of the session."""
    oracle = _Oracle(spark, view)
    found: dict[int, Outcome] = {}
    known: list[tuple[int, Any]] = []
    frames: dict[int, Any] = {}
    for at, text in enumerate(texts):
        try:
            frames[at], column = oracle.analysed(text)
            known.append((at, column))
        except (PySparkException, Py4JJavaError) as error:
            found[at] = Outcome(refusal=_first_line(error))
    for start in range(0, len(known), _TOGETHER):
        found.update(oracle.run(known[start : start + _TOGETHER]))
    return [replace(found[at], frame=frames.get(at)) for at in range(len(texts))]


class _Oracle:
    def __init__(self, spark: Any, view: str) -> None:
        self._frame = spark.table(view)
        self._jvm = spark._jvm
        self._parser = spark._jsparkSession.sessionState().sqlParser()
        self._catalyst = spark._jvm.org.apache.spark.sql.catalyst.expressions
        self._false = self._catalyst.Literal.create(
            False, spark._jvm.org.apache.spark.sql.types.DataTypes.BooleanType
        )
        self._utils = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils

    def analysed(self, text: str) -> tuple[Any, Any]:
        """Return the rows that `where` keeps, which says whether Spark takes a text for a predicate, and its column."""
        from pyspark.sql import functions as F

        frame = self._frame.where(F.expr(text))
        expression = self._parser.parseExpression(text)
        children = self._jvm.java.util.ArrayList()
        children.add(expression)
        children.add(self._false)
        to_scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala
        both = self._catalyst.Coalesce(to_scala(children).toSeq())
        return frame, Column(self._utils.column(self._catalyst.TryEval(both)))

    def run(self, known: Sequence[tuple[int, Any]]) -> dict[int, Outcome]:
        """Return the outcomes of analysed predicates; those of a job that fails all the same are tried one by one."""
        try:
            columns = [column.alias(f"p{at}") for at, column in known]
            rows = self._frame.select("row", *columns).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            if len(known) == 1:
                return {known[0][0]: Outcome(raised=frozenset([-1]), refusal=_first_line(error))}
            half = len(known) // 2
            return {**self.run(known[:half]), **self.run(known[half:])}
        numbers = rows["row"].to_pylist()
        found = {}
        for at, _ in known:
            values = rows[f"p{at}"].to_pylist()
            kept = frozenset(n for n, value in zip(numbers, values, strict=True) if value)
            raised = frozenset(n for n, value in zip(numbers, values, strict=True) if value is None)
            found[at] = Outcome(kept, raised)
        return found


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
