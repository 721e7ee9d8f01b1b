"""The page `docs/reference/procedures.md`: all procedures, as the catalog describes them to Spark.

`python -m tests.support.procedures_page` writes the page. A test of the procedures holds it to
their descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lance_spark.spark.catalog.procedures.call import list_procedures
from lance_spark.spark.catalog.procedures.table import PROCEDURES
from lance_spark.table.commit.options import RetryKeywords

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "procedures.md"
_INTRODUCTION = """# Procedures

`CALL lance.system.NAME(...)` runs a procedure of the catalog `lance`. Arguments are given in the
order of the parameters, or by name: `table => 'db.t'`. They are expressions without columns. A
parameter in bold must be given; the others can be left out, or be null. A condition that chooses
rows must not be null. [SQL](sql.md) has statements for some of the procedures. A procedure that
runs Spark jobs runs them in the session of the statement: what cancels the statement cancels the
jobs.

| parameter of many procedures | |
|---|---|
"""
#: Parameters that the introduction describes, so that they have no rows of their own.
_SHARED = ("table", *RetryKeywords.__annotations__, "branch", "table_options")


def text() -> str:
    """Return the text of the page."""
    procedures = list_procedures({})["procedures"]
    comments = {row["name"]: row["comment"] for row in procedures[0]["parameters"]}
    parts = [_INTRODUCTION, *(f"| `{name}` | {comments[name]} |\n" for name in _SHARED)]
    parts.append("\nThis page is written by `make procedures`.\n")
    for described in procedures:
        parts.append(f"\n## {described['name']}\n\n{_markdown(described['comment'])}")
        procedure = PROCEDURES[described["name"]]
        if procedure.has_jobs:
            parts.append(" Runs Spark jobs.")
        if procedure.aliases:
            parts.append(f" Other names: {', '.join(f'`{name}`' for name in procedure.aliases)}.")
        parts.append("\n\n| parameter | type | |\n|---|---|---|\n")
        rows = described["parameters"]
        parts += (_row(row) for row in rows if row["name"] not in _SHARED[1:])
        also = [f"`{row['name']}`" for row in rows if row["name"] in _SHARED[1:]]
        if also:
            parts.append(f"\nAlso: {', '.join(also)}.\n")
        parts.append(f"\nResult: `{procedure.result}`.\n")
    return "".join(parts)


def _row(parameter: dict[str, Any]) -> str:
    name = f"`{parameter['name']}`"
    if parameter["required"]:
        name = f"**{name}**"
    return f"| {name} | `{parameter['type']}` | {_markdown(parameter['comment'] or '')} |\n"


def _markdown(comment: str) -> str:
    return " ".join(comment.split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
