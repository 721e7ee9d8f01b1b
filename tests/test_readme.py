"""Figures of the README are those of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BENCHMARKS = (ROOT / "benchmarks" / "README.md").read_text()

Row = tuple[str, ...]
_NUMBERS: list[Row] = [("ints+floats",), ("strings",), ("low-cardinality",), ("nullable ints",)]
_SCAN, _WRITE = "Scans into Spark", "Writes from Spark"
_QUERIES, _CHANGES, _SEARCH = (
    "Queries that need a part of a table",
    "Changes through Spark",
    "Vector search",
)
#: The work of each row of the README: for each of its two columns the section of
#: benchmarks/README.md, the first cells of rows, and the column.
SOURCES: dict[str, tuple[tuple[str, list[Row], str] | None, tuple[str, list[Row], str] | None]] = {
    "`count(*)` of 8 million rows": (
        (_QUERIES, [("count(*)", "ints+floats")], "speed / Parquet"),
        (_QUERIES, [("count(*)", "ints+floats")], "speed / pylance"),
    ),
    "ten rows of a table of vectors": (
        (_QUERIES, [("ten rows", "vectors")], "speed / Parquet"),
        (_QUERIES, [("ten rows", "vectors")], "speed / pylance"),
    ),
    "all rows of a table of vectors": (
        (_SCAN, [("vectors",)], "speed / Parquet"),
        (_SCAN, [("vectors",)], "speed / pylance"),
    ),
    "all columns of numbers or strings": (
        (_SCAN, _NUMBERS, "speed / Parquet"),
        (_SCAN, _NUMBERS, "speed / pylance"),
    ),
    "write vectors": (
        (_WRITE, [("vectors",)], "speed / Parquet"),
        (_WRITE, [("vectors",)], "speed / pylance"),
    ),
    "write numbers or strings": (
        (_WRITE, _NUMBERS, "speed / Parquet"),
        (_WRITE, _NUMBERS, "speed / pylance"),
    ),
    "add a column to a table of vectors": (
        (_CHANGES, [("add a column", "vectors")], "speed / Parquet"),
        None,
    ),
    "delete 0.1 % of 5 million rows": (
        (_CHANGES, [("delete 0.1 %", "rows")], "speed / Parquet"),
        None,
    ),
    "the nearest of 1 million vectors: of one, exact; of 10,000, by an index": (
        (_SEARCH, [("128 items",)], "speed of Spark / a UDF over Parquet"),
        (_SEARCH, [("128 items",)], "speed / pylance in a UDF"),
    ),
}


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of the lines of Markdown tables."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def measured(section: str, rows: list[Row], column: str) -> str:
    """Return the figures of a column of benchmarks/README.md as the README writes them."""
    text = BENCHMARKS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    figures = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, *lines = table_rows(table)
        if column in header:
            chosen = [line for line in lines if any(tuple(line[: len(row)]) == row for row in rows)]
            figures += [float(line[header.index(column)]) for line in chosen]
    assert len(figures) == len(rows), (section, column, figures)
    ends = [f"{end:.1f}" if end < 10 else f"{end:.0f}" for end in (min(figures), max(figures))]
    return ends[0] if len(figures) == 1 else " to ".join(ends)


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    rows = table_rows(README.partition("## What you gain")[2].partition("\n## ")[0])[2:]
    expected = [
        [work, *(measured(*source) if source else "" for source in sources)]
        for work, sources in SOURCES.items()
    ]
    tpch = re.search(r"The geometric mean is ([\d.]+)", BENCHMARKS)
    assert tpch is not None
    expected.append(["the queries of TPC-H", tpch[1], ""])
    assert sorted(rows) == sorted(expected)
