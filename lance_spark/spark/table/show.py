"""How a table shows itself in a notebook: a few numbers, its columns and a bar for each fragment,
from one manifest.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lance_spark.inspect.formatting import clean, number, shortened
from lance_spark.inspect.plots import Bar, small_plot
from lance_spark.inspect.text import heading_lines

if TYPE_CHECKING:
    from lance_spark.inspect.report import VersionFacts
    from lance_spark.spark.table.base import TableBase

#: Columns that are shown.
_COLUMNS = 40
_KIND = 120
# A page of somebody else's: nothing here may change how the rest of it looks.
_CELL = 'style="text-align:left;padding:2px 14px 2px 0"'
_SOFT = 'style="opacity:.7"'


def shown(table: TableBase) -> str:
    """Return a table as HTML for a notebook. Never raises: a table that cannot be opened says
    why.
    """
    try:
        from lance_spark.inspect.collect import version_facts

        return as_html(version_facts(table.dataset()._table))
    except Exception as error:  # A notebook would show the error in the place of the table.
        return f"<div><b>LanceTable</b> <span {_SOFT}>{escape(clean(str(error)))}</span></div>"


def as_html(about: VersionFacts) -> str:
    """Return what a manifest says as HTML for a notebook."""
    lines = "<br>".join(escape(line) for line in heading_lines(about))
    columns = about.columns[:_COLUMNS]
    rows = "".join(
        f"<tr><td {_CELL}>{escape(clean(column.name))}</td>"
        f"<td {_CELL}><code>{escape(clean(shortened(column.kind, _KIND)))}</code></td>"
        f"<td {_CELL}>{'' if column.nullable else 'not null'}</td></tr>"
        for column in columns
    )
    more = len(about.columns) - len(columns)
    note = f"<div {_SOFT}>and {number(more)} more columns</div>" if more else ""
    return (
        f"<div><div><b>LanceTable</b> {escape(clean(about.name))}</div><div "
        f"{_SOFT}>{lines}</div>{_plot(about)}"
        f"<table><tr><th {_CELL}>column</th><th {_CELL}>type</th><th "
        f"{_CELL}></th></tr>{rows}</table>{note}</div>"
    )


def _plot(about: VersionFacts) -> str:
    bars = [
        Bar(
            fragment.num_rows,
            fragment.num_deleted_rows,
            f"fragment {fragment.id}: {number(fragment.num_rows)} rows, "
            f"{number(fragment.num_deleted_rows)} deleted",
        )
        for fragment in about.fragments
    ]
    return small_plot(bars) if bars else ""
