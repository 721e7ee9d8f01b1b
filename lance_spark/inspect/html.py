"""The facts of a table as one page for a browser: no scripts, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lance_spark.inspect.formatting import clean, counted, moment, number, share, size
from lance_spark.inspect.plots import Bar, columns_plot, rows_plot, shared
from lance_spark.inspect.report import FragmentFacts, TableFacts, VersionFacts
from lance_spark.inspect.rows import (
    BASE_NAMES,
    FRAGMENT_NAMES,
    INDEX_NAMES,
    VERSION_NAMES,
    base_rows,
    fragment_rows,
    index_rows,
    version_rows,
)

#: Fragments, columns and files that are told one by one.
_FRAGMENTS = 500
_COLUMNS = 60
_FILES = 64

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667085; --line: #e3e6ea; --ground: #fff; --box: #f7f8fa;
  --live: #3b78c4; --gone: #e0913a; --bar: #2f9a8c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #98a2b3; --line: #32373e; --ground: #16181c;
  --box: #1f2228; --live: #5b9be6; --gone: #e8a355; --bar: #43b8a8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 1080px; margin: 0 auto;
  padding: 28px 24px 60px; }
h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 36px 0 10px; }
p { margin: 4px 0; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 20px; }
.card { background: var(--box); border-radius: 8px; padding: 12px 14px; }
.card b { display: block; font-size: 20px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.r, th.r { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.c { font: 12px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; } td.n { white-space: nowrap; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--soft); overflow-wrap: anywhere; }
svg { width: 100%; min-width: 640px; height: auto; display: block; font: 12px system-ui, sans-serif; } svg text { fill: var(--soft); }
svg text.name { fill: var(--ink); } .axis { stroke: var(--line); } .live { fill: var(--live); } .gone { fill: var(--gone); }
.bar { fill: var(--bar); } .hit { fill: transparent; } g:hover .live, g:hover .bar { opacity: .75; }
.key { white-space: nowrap; } .key::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 6px 0 14px;
  background: var(--live); } .key.gone::before { background: var(--gone); } .key.gone { color: inherit; }
.bad { color: #c0392b; }
"""


def as_html(facts: TableFacts) -> str:
    """Return the facts of a table as a whole page."""
    about = facts.version
    parts = [
        _top(about),
        _fragment_plots(about),
        _column_plot(facts),
        _columns(facts),
        _versions(facts),
        _around(facts),
        _files(facts),
    ]
    name = escape(clean(about.name))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}, version {about.version}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _top(about: VersionFacts) -> str:
    branch = f", branch {about.branch}" if about.branch else ""
    ids = "stable row ids" if about.stable_row_ids else "row ids are addresses"
    line = f"version {about.version}{branch}, committed {moment(about.timestamp)} UTC; {ids}"
    cards = [
        (number(about.num_rows), "rows"),
        (size(about.num_bytes), "in data files"),
        (number(len(about.fragments)), "fragments"),
        (number(about.num_files), f"data files, {', '.join(about.file_versions) or 'none'}"),
        (
            number(about.num_deleted_rows),
            f"deleted rows in files, {share(about.num_deleted_rows, about.physical_rows)}",
        ),
        (number(len(about.columns)), "columns"),
    ]
    told = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what in cards
    )
    return f'<h1>{escape(clean(about.name))}</h1><p>{escape(clean(line))}</p><div class="cards">{told}</div>'


def _fragment_plots(about: VersionFacts) -> str:
    fragments = about.fragments
    if not fragments:
        return ""

    def name(first: int, stop: int) -> str:
        some = fragments[first:stop]
        rows = sum(one.num_rows for one in some) // len(some)
        bytes_ = sum(one.num_bytes for one in some) // len(some)
        return f"fragments {some[0].id} to {some[-1].id}: {number(rows)} rows, {size(bytes_)} each"

    bars = [Bar(one.num_rows, one.num_deleted_rows, _title(one)) for one in fragments]
    sizes = [Bar(one.num_bytes, 0, _title(one)) for one in fragments]
    key = (
        '<span class="key">live</span><span class="key gone">deleted</span>'
        if about.num_deleted_rows
        else ""
    )
    mean = "" if len(bars) == len(shared(bars, name)) else "; neighbours share a bar, of their mean"
    rows = columns_plot(shared(bars, name), _short, "rows of each fragment")
    parts = [f"<h2>Fragments</h2><p>rows of each{mean} {key}</p>{rows}"]
    if about.num_bytes:
        plot = columns_plot(
            shared(sizes, name), lambda value: size(int(value)), "bytes of each fragment", base=1024
        )
        parts.append(f"<p>bytes of the data files of each{mean}</p>{plot}")
    return "".join(parts)


def _title(one: FragmentFacts) -> str:
    deleted = f", {number(one.num_deleted_rows)} deleted" if one.num_deleted_rows else ""
    return f"fragment {one.id}: {counted(one.num_rows, 'row')}{deleted}, {size(one.num_bytes)}"


def _short(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _column_plot(facts: TableFacts) -> str:
    columns = sorted(facts.columns, key=lambda one: -one.num_bytes)[:_COLUMNS]
    if not columns:
        return ""
    whole = sum(one.num_bytes for one in facts.columns)
    bars = [
        Bar(
            one.num_bytes,
            0,
            f"{clean(one.path)} ({clean(one.kind)}): {counted(one.num_pages, 'page')}",
        )
        for one in columns
    ]
    more = f", the largest {_COLUMNS}" if len(facts.columns) > _COLUMNS else ""
    plot = rows_plot(
        [clean(one.path) for one in columns],
        bars,
        lambda value: f"{size(int(value))} ({share(int(value), whole)})",
        "bytes of each column",
    )
    return f"<h2>Bytes of columns</h2><p>pages{_of_files(facts)}{more}</p>{plot}"


def _of_files(facts: TableFacts) -> str:
    read, there = len(facts.files), facts.version.num_files
    return (
        f" in all {counted(there, 'data file')}"
        if read == there
        else f" in {number(read)} of {number(there)} data files"
    )


def _columns(facts: TableFacts) -> str:
    if not facts.columns:
        plain = [
            [one.name, one.kind, "" if one.nullable else "not null"]
            for one in facts.version.columns
        ]
        return "<h2>Columns</h2>" + _table(["column", "type", ""], plain, "ncn")
    rows = []
    for one in facts.columns:
        told = [
            encoding if len(one.encodings) < 2 else f"{number(pages)} x {encoding}"
            for encoding, pages, _ in one.encodings
        ]
        per_row = f"{one.num_bytes / one.num_rows:,.1f}" if one.num_rows else ""
        rows.append(
            [
                one.path,
                one.kind,
                size(one.num_bytes),
                per_row,
                number(one.num_pages),
                "\n".join(told),
            ]
        )
    names = ["column", "type", "size", "bytes/row", "pages", "encoding"]
    return f"<h2>Columns and encodings</h2><p>as{_of_files(facts)}</p>" + _table(
        names, rows, "ncrrrc"
    )


def _versions(facts: TableFacts) -> str:
    rows = version_rows(facts.versions)
    more = facts.num_versions - len(rows)
    note = f"<p>and {number(more)} older ones</p>" if more > 0 else ""
    return "<h2>Versions</h2>" + _table(VERSION_NAMES, rows, "nnnrrrrt") + note if rows else ""


def _fragments(about: VersionFacts) -> str:
    shown = about.fragments[:_FRAGMENTS]
    rows = fragment_rows(shown)
    more = len(about.fragments) - len(shown)
    note = f"<p>and {number(more)} more</p>" if more else ""
    told = _table(FRAGMENT_NAMES, rows, "nrrnrr") + note
    return _folded(f"all {counted(len(about.fragments), 'fragment')}", told) if rows else ""


def _files(facts: TableFacts) -> str:
    parts = []
    for file in facts.files[:_FILES]:
        rows = [
            [
                column.path,
                f"0-{column.num_pages - 1}"
                if column.num_pages != len(column.pages)
                else str(place),
                number(page.num_rows),
                size(page.num_bytes),
                page.encoding,
            ]
            for column in file.columns
            for place, page in enumerate(column.pages)
        ]
        title = f"fragment {file.fragment_id}, {file.path}: version {file.version}, {size(file.num_bytes)}"
        told = _table(["column", "page", "rows", "size", "encoding"], rows, "nrrrc")
        bad = f'<p class="bad">{escape(clean(file.problem))}</p>' if file.problem else ""
        parts.append(_folded(title, bad + told))
    told = _fragments(facts.version) + "".join(parts)
    return f"<h2>Fragments, files and pages</h2>{told}" if told else ""


def _around(facts: TableFacts) -> str:
    parts = []
    if len(facts.version.bases) > 1:
        told = _table(BASE_NAMES, base_rows(facts.version.bases), "rncnrrr")
        parts.append(f"<h2>Base paths</h2>{told}")
    if facts.indexes:
        told = _table(INDEX_NAMES, index_rows(facts.indexes), "nntrrr")
        parts.append(f"<h2>Indexes</h2>{told}")
    named = [("Tags", facts.tags), ("Branches", facts.branches)]
    named += [("Configuration", facts.version.config), ("Metadata", facts.version.metadata)]
    for title, entries in named:
        if entries:
            rows = [[key, text] for key, text in sorted(entries.items())]
            parts.append(f"<h2>{title}</h2>" + _table([], rows, "nc"))
    if facts.problems:
        told = "".join(f'<p class="bad">{escape(clean(one))}</p>' for one in facts.problems)
        parts.append(f"<h2>Could not be read</h2>{told}")
    return "".join(parts)


def _folded(title: str, told: str) -> str:
    return f"<details><summary>{escape(clean(title))}</summary>{told}</details>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], kinds: str) -> str:
    """Return a table; `kinds` has the CSS class of each column."""
    head = "".join(
        f'<th class="{kind}">{escape(name)}</th>' for name, kind in zip(names, kinds, strict=False)
    )
    lines = [
        "<tr>"
        + "".join(
            f'<td class="{kind}">{"<br>".join(escape(clean(line)) for line in cell.split(chr(10)))}</td>'
            for cell, kind in zip(row, kinds, strict=True)
        )
        + "</tr>"
        for row in rows
    ]
    return f'<div class="wide"><table>{f"<tr>{head}</tr>" if head else ""}{"".join(lines)}</table></div>'
