"""HTML view of a table in a notebook: key numbers, columns and a bar for each fragment.

It reads one manifest.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lance_spark.inspect.formatting import clean, number, shortened
from lance_spark.inspect.html import Bar, small_plot
from lance_spark.inspect.text import heading_lines

if TYPE_CHECKING:
    from lance_spark.inspect.report import VersionFacts
    from lance_spark.spark.table.base import TableHandle

#: Maximum number of columns, and of characters of a type, that are shown.
_MAX_COLUMNS = 40
_MAX_TYPE_LENGTH = 120
# Styles are inline: the HTML is part of a page whose other elements it must not change.
_CELL = 'style="text-align:left;padding:2px 14px 2px 0"'
_SOFT = 'style="opacity:.7"'


def table_html(table: TableHandle) -> str:
    """Return a table as HTML for a notebook.

    It never raises: if the table cannot be opened, the HTML shows the error.
    """
    try:
        from lance_spark.inspect.collect import version_facts

        return facts_html(version_facts(table.dataset()._table))
    except Exception as error:  # A notebook would show a traceback instead of the table.
        return f"<div><b>LanceTable</b> <span {_SOFT}>{escape(clean(str(error)))}</span></div>"


def facts_html(facts: VersionFacts) -> str:
    """Return the facts of a manifest as HTML for a notebook."""
    lines = "<br>".join(escape(line) for line in heading_lines(facts))
    columns = facts.columns[:_MAX_COLUMNS]
    rows = "".join(
        f"<tr><td {_CELL}>{escape(clean(column.name))}</td>"
        f"<td {_CELL}><code>{escape(clean(shortened(column.kind, _MAX_TYPE_LENGTH)))}</code></td>"
        f"<td {_CELL}>{'' if column.nullable else 'not null'}</td></tr>"
        for column in columns
    )
    hidden = len(facts.columns) - len(columns)
    note = f"<div {_SOFT}>and {number(hidden)} more columns</div>" if hidden else ""
    header = "".join(f"<th {_CELL}>{name}</th>" for name in ("column", "type", ""))
    return (
        f"<div><div><b>LanceTable</b> {escape(clean(facts.name))}</div>"
        f"<div {_SOFT}>{lines}</div>{_plot(facts)}"
        f"<table><tr>{header}</tr>{rows}</table>{note}</div>"
    )


def _plot(facts: VersionFacts) -> str:
    bars = [
        Bar(
            fragment.num_rows,
            fragment.num_deleted_rows,
            f"fragment {fragment.id}: {number(fragment.num_rows)} rows, "
            f"{number(fragment.num_deleted_rows)} deleted",
        )
        for fragment in facts.fragments
    ]
    return small_plot(bars) if bars else ""
