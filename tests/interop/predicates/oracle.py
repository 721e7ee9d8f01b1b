"""The rows that Spark keeps: many predicates in one job over Parquet.

| outcome | Spark |
| --- | --- |
| rows | keeps them |
| `refusal` | cannot parse or analyse the predicate |
| `raised` | raises for some row; `rows` are those that it keeps of the others |

Each predicate is evaluated as ``TRY_EVAL(COALESCE(predicate, false))``: null says that it raised
for the row, so that one row of one predicate does not end the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.interop.predicates.judge import Analysis, judge

#: Expressions in one job.
_TOGETHER = 100


@dataclass(frozen=True)
class Outcome:
    """The outcome of a predicate in Spark.

    Attributes
    ----------
    rows : frozenset of int
    raised : frozenset of int
        Rows for which it raises.
    refusal : str
        Why it takes the predicate for none; empty if it does not.
    analysis : Analysis, optional
        What Spark makes of it before any job.
    """

    rows: frozenset[int] = frozenset()
    raised: frozenset[int] = frozenset()
    refusal: str = ""
    analysis: Analysis | None = field(default=None, compare=False, repr=False)


def outcomes(spark: Any, view: str, texts: Sequence[str]) -> list[Outcome]:
    """Return the outcomes of predicates on a view, by the settings of the session."""
    frame = spark.table(view)
    analyses = judge(spark).analyse(frame, texts)
    known = [number for number, analysis in enumerate(analyses) if not analysis.refusal]
    by_number = {
        number: Outcome(refusal=analysis.refusal[:200])
        for number, analysis in enumerate(analyses)
        if analysis.refusal
    }
    for start in range(0, len(known), _TOGETHER):
        by_number.update(_run(spark, frame, analyses, known[start : start + _TOGETHER]))
    return [
        replace(by_number[number], analysis=analysis) for number, analysis in enumerate(analyses)
    ]


def _run(
    spark: Any, frame: Any, analyses: Sequence[Analysis], known: Sequence[int]
) -> dict[int, Outcome]:
    """Return the outcomes of analysed predicates. If their job fails, try each predicate alone."""
    try:
        columns = [analyses[number].column for number in known]
        rows = judge(spark).select(frame, columns).toArrow()
    except (PySparkException, Py4JJavaError):
        if len(known) == 1:
            # An error outside of TRY_EVAL, as of BETWEEN, whose value is computed before: no row is
            # known.
            every = judge(spark).select(frame, []).toArrow()["row"].to_pylist()
            return {known[0]: Outcome(raised=frozenset(every))}
        half = len(known) // 2
        return {
            **_run(spark, frame, analyses, known[:half]),
            **_run(spark, frame, analyses, known[half:]),
        }
    numbers = rows["row"].to_numpy()
    by_number = {}
    for place, number in enumerate(known):
        values = rows[f"p{place}"]
        kept = numbers[values.fill_null(False).to_numpy()]
        raised = numbers[values.is_null().to_numpy()]
        by_number[number] = Outcome(frozenset(kept.tolist()), frozenset(raised.tolist()))
    return by_number
