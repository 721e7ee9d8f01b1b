"""Differences of outcomes, and reasons for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.spark_suites.outcomes import Outcome, difference
from tests.spark_suites.reasons import REASONS, Reasons

PARQUET = Outcome("a/b.sql", 3, "SELECT a FROM t", schema="struct<a:int>", rows=("1", "2"))
FAILED = Outcome("a/b.sql", 3, "SELECT a FROM t", condition="DIVIDE_BY_ZERO", error="1 / 0")


@pytest.mark.parametrize(
    ("parquet", "lance", "expected"),
    [
        (PARQUET, PARQUET, ""),
        (PARQUET, replace(PARQUET, rows=("2", "1")), ""),
        (replace(PARQUET, is_ordered=True), replace(PARQUET, rows=("2", "1")), "order: "),
        (PARQUET, replace(PARQUET, rows=("1", "3")), "rows: ['3'] instead of ['2'] "),
        (PARQUET, replace(PARQUET, rows=("1", "2", "2")), "rows: "),
        (PARQUET, replace(PARQUET, schema="struct<a:bigint>"), "schema: struct<a:bigint> "),
        (PARQUET, FAILED, "error: DIVIDE_BY_ZERO instead of no error: 1 / 0"),
        (FAILED, PARQUET, "error: no error instead of DIVIDE_BY_ZERO"),
        (FAILED, replace(FAILED, error="other text"), ""),
        (
            replace(PARQUET, rows=("USING parquet LOCATION file:/tmp/a",)),
            replace(PARQUET, rows=("USING lance LOCATION file:/tmp/b",)),
            "",
        ),
        (
            replace(PARQUET, rows=("Table: v\nCreated Time: Mon Nov 30 21:05:20\nType: VIEW",)),
            replace(PARQUET, rows=("Table: v\nCreated Time: Mon Nov 30 21:05:23\nType: VIEW",)),
            "",
        ),
        (
            replace(PARQUET, rows=("Created Time: Mon Nov 30 21:05:20\nType: VIEW",)),
            replace(PARQUET, rows=("Created Time: Mon Nov 30 21:05:23\nType: TABLE",)),
            "rows: ",
        ),
    ],
)
def test_difference(parquet: Outcome, lance: Outcome, expected: str) -> None:
    found = difference(parquet, lance)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
    assert Outcome.of(lance.values()) == lance


def test_reasons(tmp_path: Path) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text(
        """
        [[reason]]
        file = "a/*"
        differs = "^error: DIVIDE"
        reason = "first"

        [[reason]]
        text = "select A"
        reason = "second"

        [[reason]]
        file = "c/*"
        reason = "third"
        """
    )
    reasons = Reasons.read(path)
    assert reasons.find(FAILED, difference(PARQUET, FAILED)) == "first"
    assert reasons.find(PARQUET, "rows: other") == "second"
    assert reasons.find(replace(PARQUET, text="SHOW TABLES"), "rows: other") == ""
    assert reasons.unused({"a/b.sql"}, is_all=True) == []
    assert [reason.reason for reason in reasons.unused({"c/d.sql"}, is_all=False)] == ["third"]
    other = Reasons.read(path).unused({"a/b.sql"}, is_all=True)
    assert [reason.reason for reason in other] == ["first", "second"]
    other = Reasons.read(path).unused({"a/b.sql"}, is_all=False)
    assert [reason.reason for reason in other] == ["first"]


def test_the_file_of_reasons() -> None:
    reasons = Reasons.read(REASONS).reasons
    assert all(reason.text or reason.differs for reason in reasons)
    assert len(set(reasons)) == len(reasons)
