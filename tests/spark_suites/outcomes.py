"""What a statement or a test does with a source, and how two sources compare."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

#: Text that differs between two runs of the same statement, or says where a table is.
_MASKED = (
    (re.compile(r"#\d+L?"), "#"),
    (re.compile(r"(?i)\b(?:lance|parquet)\b"), "<source>"),
    (re.compile(r"\b(Created By|Created Time|Last Access|Location|Owner)[: \t].*"), r"\1"),
    (re.compile(r"\b(Partition Statistics|Statistics|Table Properties)[: \t].*"), r"\1"),
    (re.compile(r"transient_lastDdlTime=\d+"), "transient_lastDdlTime"),
    (re.compile(r"file:/[^\s'\"`\])]*"), "<path>"),
)


@dataclass(frozen=True)
class Outcome:
    """What a statement or a test returns.

    - `file`, `number`, `text`: The statement: its file, its place there from 1 on, and its text. A
      test has the module, and its name as text.
    - `schema`: As text; empty for an error.
    - `rows`: One text for each row.
    - `is_ordered`: Whether the statement orders the rows.
    - `condition`: The condition of an error of Spark, else the name of its class; empty if there is
      no error.
    - `error`: The message.
    """

    file: str
    number: int
    text: str
    schema: str = ""
    rows: tuple[str, ...] = ()
    is_ordered: bool = False
    condition: str = ""
    error: str = ""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Outcome:
        """Return the outcome of a line of JSON."""
        return cls(**{**values, "rows": tuple(values["rows"])})

    def values(self) -> dict[str, Any]:
        """Return what a line of JSON has."""
        return asdict(self)


def masked(text: str) -> str:
    """Return a text without what differs between two runs."""
    for pattern, replacement in _MASKED:
        text = pattern.sub(replacement, text)
    return text


def difference(parquet: Outcome, lance: Outcome) -> str:
    """Return how an outcome with Lance differs from one with Parquet; empty if it does not."""
    if parquet.condition or lance.condition:
        if parquet.condition == lance.condition:
            return ""
        expected = parquet.condition or "no error"
        return f"error: {lance.condition or 'no error'} instead of {expected}: {lance.error}"
    if masked(parquet.schema) != masked(lance.schema):
        return f"schema: {lance.schema} instead of {parquet.schema}"
    expected_rows = [masked(row) for row in parquet.rows]
    rows = [masked(row) for row in lance.rows]
    if rows == expected_rows:
        return ""
    if sorted(rows) == sorted(expected_rows):
        return "order: other order of the same rows" if parquet.is_ordered else ""
    return "rows: " + _first_difference(expected_rows, rows)


def _first_difference(expected: list[str], rows: list[str]) -> str:
    lacking = [row for row in expected if row not in rows][:2]
    others = [row for row in rows if row not in expected][:2]
    return f"{others} instead of {lacking} ({len(rows)} and {len(expected)} rows)"
