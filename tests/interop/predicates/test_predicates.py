"""Thousands of random predicates, and predicates of tests of other projects, at every entry point.

A seed is all it takes to see a failure again: ``harness.random_batch(seed)``.
`python -m tests.interop.predicates` tries others.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.interop.predicates.grammar import Tree
from tests.interop.predicates.harness import BATCH, Harness, Report
from tests.interop.predicates.listed import SUBJECTS
from tests.interop.predicates.sessions import ANSI, ESCAPED, SESSIONS, ZONE, Session
from tests.support.cells import number_of

PREDICATES = number_of(50, 50_000)
LONG = PREDICATES > 10_000
SEEDS = range(-(-PREDICATES // BATCH))
Check = Callable[[Report], None]

#: Texts for which a way once kept other rows: the example, and the session that it needs.
ONCE_WRONG = [
    (r"word = 'O''Brien'", SESSIONS[0]),
    (r"word LIKE '%''%'", SESSIONS[0]),
    (r"word = 'a\b'", Session("escaped strings", {ESCAPED: "true"})),
    ("single < 16777217", SESSIONS[0]),
    ("single = 16777217", SESSIONS[0]),
    ("single IN (16777217)", SESSIONS[0]),
    ("single <= 16777215.5", SESSIONS[0]),
    ("`comment` = 'a' and comment = 'a'", SESSIONS[0]),
    ("values = 5 or key = 5", SESSIONS[0]),
    # Spark reads this as a row of an inline table, not as the column.
    ("(values IN (5, 128)) IS TRUE", SESSIONS[0]),
    ("number IN (values - 5)", SESSIONS[0]),
    ("(-99999999999999999999999999999999999999 BETWEEN u8 AND -128) IS NOT NULL", SESSIONS[0]),
    # `VALUES NOT IN (x)` is a table of one row too: NOT of the function IN with an empty list,
    # which is true for every row.
    (
        "(day = '1970-01-01'::date) AND (values NOT IN (float('0.1')))",
        Session("without ANSI", {ANSI: "false"}),
    ),
    (
        "clock = TIMESTAMP'9999-12-31 23:59:59.999999'",
        Session("New York", {ZONE: "America/New_York"}),
    ),
    ("0.99999999999999999999999999999999999999 < number", SESSIONS[0]),
    ("word NOT LIKE ANY ('a%', 'b')", SESSIONS[0]),
    ("word NOT LIKE ALL ('a%', NULL)", SESSIONS[0]),
    ("word = 5", Session("without ANSI", {ANSI: "false"})),
    ("at = '2024-11-03 01:30:00'", Session("New York", {ZONE: "America/New_York"})),
]


@pytest.fixture
def check(record_property: Callable[[str, object], None]) -> Check:
    """Record the counts for the summary of the run, then fail the test if outcomes differ."""

    def run(report: Report) -> None:
        record_property("predicates", json.dumps(report.noted()))
        failures = "\n".join(str(failure) for failure in report.failures[:10])
        assert not report.failures, f"{len(report.failures)} differ\n{failures}"

    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_random(harness: Harness, check: Check, seed: int) -> None:
    check(harness.random_batch(seed, min(BATCH, PREDICATES)))


@pytest.mark.sample(16)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_listed(harness: Harness, check: Check, subject: str) -> None:
    """Try two thirds of the texts by Spark's defaults, and the others in another session. A long
    run tries all texts in all sessions.
    """
    position = list(SUBJECTS).index(subject)
    trees = [Tree(text) for text in SUBJECTS[subject]]
    report = Report()
    for seed, session in enumerate(SESSIONS):
        table = harness.table(position + seed)
        if LONG:
            report.add(harness.run(seed, trees, table, session))
        elif seed == 0:
            usual = [tree for place, tree in enumerate(trees) if place % 3 != position % 3]
            report.add(harness.run(seed, usual, table, session))
        elif seed == 1 + position % (len(SESSIONS) - 1):
            report.add(harness.run(seed, trees[position % 3 :: 3], table, session))
    check(report)


@pytest.mark.parametrize(("text", "session"), ONCE_WRONG, ids=[text for text, _ in ONCE_WRONG])
def test_once_wrong(harness: Harness, check: Check, text: str, session: Session) -> None:
    check(harness.run(0, [Tree(text)], harness.table(0), session))
