"""Access to `Judge.java` in the JVM of a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from lance_spark.spark.jvm.classes import extension_class

_judges: WeakKeyDictionary[Any, Judge] = WeakKeyDictionary()


class PlanError(Exception):
    """Spark cannot optimise the plan of a predicate."""


@dataclass(frozen=True)
class Analysis:
    """What Spark makes of a text before any job.

    Attributes
    ----------
    refusal : str
        Why it is no predicate; empty if it is one.
    column : py4j Column, optional
        True, false, or null where it raises.
    pushed : dict
        `trees` that push-down is handed, how many conditions are `left` to Spark; or `empty`.
    plan_error : str
        Why Spark does not optimise it.
    """

    refusal: str
    column: Any
    pushed: dict[str, Any]
    plan_error: str


def judge(spark: Any) -> Judge:
    """Return the judge of a session, compiled once."""
    gateway = spark.sparkContext._gateway
    if gateway not in _judges:
        _judges[gateway] = Judge(spark)
    return _judges[gateway]


class Judge:
    """Analyses many texts in one call."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._gateway = spark.sparkContext._gateway
        loader = extension_class(spark).getClassLoader()
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook((Path(__file__).parent / "Judge.java").read_text(encoding="utf-8"))
        owner = compiler.getClassLoader().loadClass("org.lancespark.predicates.Judge")
        anything = self._jvm.java.lang.Class.forName("java.lang.Object")
        expression = self._jvm.java.lang.Class.forName(
            "org.apache.spark.sql.catalyst.expressions.Expression"
        )
        self._rules = [
            self._method(loader.loadClass(f"org.lancespark.{name}"), method, argument)
            for name, method, argument in (
                ("Expressions", "write", expression),
                ("Forms", "isSent", anything),
                ("Forms", "json", anything),
            )
        ]
        self._analyse = self._call(owner, "analyse", 5)
        self._select = self._call(owner, "select", 2)

    def analyse(self, frame: Any, texts: Sequence[str]) -> list[Analysis]:
        """Return the analyses of texts on a frame by Spark."""
        analyses = []
        for refusal, column, plan_error, pushed in self._analyse(
            frame._jdf, self._array(texts), *self._rules
        ):
            trees = {} if pushed is None else json.loads(pushed)
            analyses.append(Analysis(refusal or "", column, trees, plan_error or ""))
        return analyses

    def select(self, frame: Any, columns: Sequence[Any]) -> Any:
        """Return a frame with the numbers of the rows and columns p0, p1, ..."""
        from pyspark.sql import DataFrame

        return DataFrame(self._select(frame._jdf, self._array(columns)), frame.sparkSession)

    def _array(self, values: Sequence[Any]) -> Any:
        array = self._gateway.new_array(self._jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def _method(self, owner: Any, name: str, *arguments: Any) -> Any:
        types = self._gateway.new_array(self._jvm.java.lang.Class, len(arguments))
        for index, argument in enumerate(arguments):
            types[index] = argument
        method = owner.getDeclaredMethod(name, types)
        method.setAccessible(True)
        return method

    def _call(self, owner: Any, name: str, count: int) -> Callable[..., Any]:
        anything = self._jvm.java.lang.Class.forName("java.lang.Object")
        method = self._method(owner, name, *[anything] * count)
        return lambda *values: method.invoke(None, self._array(values))
