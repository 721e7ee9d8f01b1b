"""Compares Spark and every entry point of this package for predicates, and counts outcomes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lance_spark.errors import LanceError
from tests.interop.predicates import oracle, ways
from tests.interop.predicates.grammar import Predicates, Tree
from tests.interop.predicates.oracle import Outcome
from tests.interop.predicates.sessions import QUICK, SESSIONS, Session, silent_settings
from tests.interop.predicates.tables import VERSIONS, Table, make
from tests.interop.predicates.ways import Bench, LeftToSparkError

#: Predicates of a batch, on one table in one session.
BATCH = 100
#: How often the harness tries to shrink a failure.
_TRIES = 25
_SHOWN_ROWS = 3
#: The share of predicates that `Dataset` evaluates too: it has the same parser as the way `text`.
_DEFAULTS = 0.25
#: The share of predicates that `LanceTable` reads: it passes on what the way `pushed` evaluates.
_NATIVE = 0.3


@dataclass(frozen=True)
class Failure:
    """A predicate for which a way keeps other rows than Spark."""

    seed: int
    predicate: str
    way: str
    session: Session
    version: str
    missing: tuple[int, ...]
    extra: tuple[int, ...]
    values: str
    why: str = ""

    def __str__(self) -> str:
        rows = f"missing rows {self.missing[:9]}, extra rows {self.extra[:9]}"
        return (
            f"seed {self.seed}, way {self.way!r}, session {self.session.name!r} "
            f"{self.session.conf}, files {self.version}\n"
            f"  {self.predicate!r}\n  {self.why or rows}\n  {self.values}"
        )


@dataclass
class Report:
    """Counts of many predicates.

    Attributes
    ----------
    predicates : int
    counts : Counter
        By way and by what came of it.
    reasons : Counter
        Of refusals, by way and text, names left out.
    examples : dict
        A predicate of each reason.
    failures : list of Failure
    lenient : list of str
        Predicates that were answered where Spark raises for some row.
    """

    predicates: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    lenient: list[str] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self.predicates += report.predicates
        self.counts += report.counts
        self.reasons += report.reasons
        self.examples = {**report.examples, **self.examples}
        self.failures += report.failures
        self.lenient += report.lenient

    def noted(self) -> dict[str, Any]:
        """Return the counts as JSON has them, for `from_noted`."""
        return {
            "predicates": self.predicates,
            "counts": [[*key, count] for key, count in self.counts.items()],
            "reasons": [
                [*key, count, self.examples.get(key, "")] for key, count in self.reasons.items()
            ],
            "lenient": self.lenient,
        }

    @classmethod
    def from_noted(cls, noted: dict[str, Any]) -> Report:
        """Return a report of counts."""
        report = cls(noted["predicates"], lenient=noted["lenient"])
        for way, answer, count in noted["counts"]:
            report.counts[way, answer] = count
        for way, reason, count, example in noted["reasons"]:
            report.reasons[way, reason] = count
            report.examples[way, reason] = example
        return report

    def __str__(self) -> str:
        answers = sorted({answer for _, answer in self.counts})
        names = list(dict.fromkeys(way for way, _ in sorted(self.counts)))
        lines = [f"{self.predicates} predicates", " | ".join(["way", *answers])]
        for way in names:
            lines.append(" | ".join([way, *(str(self.counts[way, answer]) for answer in answers)]))
        lines.append("refusals by reason:")
        for (way, reason), count in self.reasons.most_common(40):
            example = self.examples.get((way, reason), "")
            lines.append(f"{count:6} {way}: {reason}   e.g. {example[:120]}")
        lines.append(f"answered where Spark raises for a row: {len(self.lenient)}")
        lines += [f"       {example}" for example in self.lenient[:5]]
        lines.append(f"failures: {len(self.failures)}")
        return "\n".join(lines)


class Harness:
    """Runs batches of predicates on tables, each of which is made when it is needed first.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        For tables and their copies.
    jobs, copies : float
        The share of predicates that go through a way by Spark jobs, and through one that copies the
        table.
    shrink : bool
        Whether failures are made smaller.
    families : sequence of str
        Families of columns that most random predicates are about; all are as frequent by default.
    """

    def __init__(
        self,
        spark: Any,
        folder: Path,
        *,
        jobs: float = 0.01,
        copies: float = 0.1,
        shrink: bool = True,
        families: Sequence[str] = (),
    ) -> None:
        self.spark = spark
        self._folder = folder
        self._tables: dict[str, Table] = {}
        self._jobs = jobs
        self._copies = copies
        self._shrink = shrink
        self._families = families

    def table(self, number: int) -> Table:
        """Return one of the tables. Numbers go through the file versions in turns."""
        version = VERSIONS[number % len(VERSIONS)]
        if version not in self._tables:
            self._tables[version] = make(self.spark, version, self._folder)
        return self._tables[version]

    def random_batch(self, seed: int, count: int = BATCH) -> Report:
        """Run random predicates. The seed also chooses table and session."""
        table = self.table(seed)
        session = SESSIONS[seed // len(VERSIONS) % len(SESSIONS)]
        source = Predicates(seed, table.names, self._families)
        return self.run(seed, [source.predicate() for _ in range(count)], table, session)

    def run(self, seed: int, predicates: Sequence[Tree], table: Table, session: Session) -> Report:
        """Run predicates on one table in one session."""
        report = Report(len(predicates))
        with silent_settings(
            self.spark, {**QUICK, "spark.sql.session.timeZone": "UTC", **session.conf}
        ):
            folder = self._folder / f"seed{seed}"
            folder.mkdir(exist_ok=True)
            bench = Bench(self.spark, table, session, folder, random.Random(seed))
            texts = [str(predicate) for predicate in predicates]
            expected = oracle.outcomes(self.spark, table.view, texts)
            bench.analyses = {
                text: outcome.analysis
                for text, outcome in zip(texts, expected, strict=True)
                if outcome.analysis is not None
            }
            for tree, outcome in zip(predicates, expected, strict=True):
                for way, call in self._ways(bench):
                    wrong = self._try(bench, str(tree), way, call, outcome, report)
                    if wrong is not None:
                        report.failures.append(self._failure(seed, bench, tree, way, call, wrong))
        return report

    def _ways(self, bench: Bench) -> list[tuple[str, Callable[[Bench, str], Any]]]:
        chosen = dict(ways.CHEAP)
        if bench.random.random() > _DEFAULTS:
            chosen.pop("dataset", None)
        if bench.random.random() > _NATIVE:
            chosen.pop("native", None)
        if bench.random.random() < self._copies:
            name = bench.random.choice(list(ways.COPYING))
            chosen[name] = ways.COPYING[name]
        if bench.random.random() < self._jobs:
            name = bench.random.choice(list(ways.JOBS))
            chosen[name] = ways.JOBS[name]
        return [
            (name, call)
            for name, call in chosen.items()
            if bench.session.is_default or name not in ways.WITHOUT_SESSION
        ]

    def _try(
        self,
        bench: Bench,
        text: str,
        way: str,
        call: Callable[[Bench, str], Any],
        expected: Outcome,
        report: Report | None,
    ) -> tuple[frozenset[int], frozenset[int], str] | None:
        """Return missing rows, extra rows and the problem; None if the outcome is right."""
        report = report or Report()
        partly = False
        try:
            answer = call(bench, text)
            if isinstance(answer, tuple):
                answer, partly = answer
        except LeftToSparkError:
            report.counts[way, "left to Spark"] += 1
            return None
        except (LanceError, PySparkException, Py4JJavaError) as error:
            self._count_refusal(way, error, text, expected, report)
            return None
        except Exception as error:
            return frozenset(), frozenset(), f"{type(error).__name__}: {str(error)[:300]}"
        if expected.refusal:
            report.counts[way, "more than Spark takes"] += 1
            if 'of type "VOID" is not a boolean' in expected.refusal and not answer:
                # NULL keeps no row, for any type.
                return None
            return frozenset(), frozenset(), f"Spark: {expected.refusal}"
        missing = expected.rows - answer
        extra = answer - expected.rows - expected.raised
        if partly:
            extra = frozenset()
        if missing or extra:
            report.counts[way, "wrong"] += 1
            return missing, extra, ""
        if expected.raised:
            report.counts[way, "Spark raises"] += 1
            report.lenient.append(f"{way}: {text}")
            return None
        report.counts[way, "partly" if partly else "agrees"] += 1
        return None

    def _count_refusal(
        self, way: str, error: Exception, text: str, expected: Outcome, report: Report
    ) -> None:
        if expected.refusal:
            report.counts[way, "both refuse"] += 1
            return
        if expected.raised:
            report.counts[way, "both raise"] += 1
            return
        report.counts[way, "refuses"] += 1
        reason = (way, reason_of(error))
        report.reasons[reason] += 1
        report.examples.setdefault(reason, text)

    def _failure(
        self,
        seed: int,
        bench: Bench,
        tree: Tree,
        way: str,
        call: Callable[[Bench, str], Any],
        wrong: tuple[frozenset[int], frozenset[int], str],
    ) -> Failure:
        if self._shrink:
            tree, wrong = self._smaller(bench, tree, way, call, wrong)
        missing, extra, why = wrong
        return Failure(
            seed,
            str(tree),
            way,
            bench.session,
            bench.table.version,
            tuple(sorted(missing)),
            tuple(sorted(extra)),
            _values(bench, str(tree), sorted(missing | extra)[:_SHOWN_ROWS]),
            why,
        )

    def _smaller(
        self,
        bench: Bench,
        tree: Tree,
        way: str,
        call: Callable[[Bench, str], Any],
        wrong: tuple[frozenset[int], frozenset[int], str],
    ) -> tuple[Tree, tuple[frozenset[int], frozenset[int], str]]:
        tries = _TRIES
        while tries > 0:
            for smaller_tree in tree.smaller():
                tries -= 1
                (expected,) = oracle.outcomes(self.spark, bench.table.view, [str(smaller_tree)])
                still = self._try(bench, str(smaller_tree), way, call, expected, None)
                if still is not None:
                    tree, wrong = smaller_tree, still
                    break
                if tries <= 0:
                    break
            else:
                break
        return tree, wrong


def reason_of(error: Exception) -> str:
    """Return the text of an error without table, names and values."""
    first = re.sub(r"^/\S+: ", "", str(error).partition("\n")[0])
    for pattern in (r"'(?:[^'\\]|\\.)*'", r'"(?:[^"\\]|\\.)*"', r"\d+"):
        first = re.sub(pattern, "…", first)
    return f"{type(error).__name__}: {first[:140]}"


def _values(bench: Bench, text: str, rows: Sequence[int]) -> str:
    """Return the values of some rows, in the columns that a text names."""
    names = [column.name for column in bench.dataset.schema if column.name.lower() in text.lower()]
    table = bench.dataset.to_table(["row", *names])
    chosen = (
        table.filter(pc.is_in(table["row"], value_set=pc.cast(list(rows), "int32")))
        if rows
        else table.slice(0, 0)
    )
    return "; ".join(str(row) for row in chosen.to_pylist())
