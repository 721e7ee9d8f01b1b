"""The HTML report about a table: one page without scripts and without external resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from lance_spark.inspect.formatting import (
    BASE_NAMES,
    FRAGMENT_NAMES,
    INDEX_NAMES,
    SEGMENT_NAMES,
    VERSION_NAMES,
    base_rows,
    bytes_per_row,
    clean,
    counted,
    encoding_texts,
    fragment_rows,
    index_rows,
    moment,
    number,
    schema_rows,
    segment_rows,
    share,
    shortened,
    size,
    version_rows,
)
from lance_spark.inspect.report import (
    FragmentFacts,
    IndexFacts,
    PartitionFacts,
    TableFacts,
    VersionFacts,
)

# --------------------------------------------------------------------------------------------------
# SVG plots without a plotting library: vertical bars for fragments, horizontal bars for columns.
#
# The page's CSS classes `live`, `gone`, `bar`, `axis` and `wide` give the colours. The title of
# each bar has its numbers; browsers show it when the pointer is on the bar.

#: Maximum number of vertical bars. If there are more values, neighbours share a bar.
MAX_BARS = 240
_WIDTH = 1000
_HEIGHT = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 8, 12, 26
_ROW = 24
_NAMES_WIDTH = 250
_VALUES_WIDTH = 150
_MAX_NAME_CHARS = 34
_SMALL_WIDTH, _SMALL_HEIGHT = 480, 36


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar.

    - `value`: Length of the bar.
    - `gone`: Length of the part at its top that has another colour.
    """

    value: float
    gone: float
    title: str


def columns_plot(
    bars: Sequence[Bar], label_of: Callable[[float], str], title: str, *, base: int = 1000
) -> str:
    """Return a plot of vertical bars side by side.

    - `bars`: At most `MAX_BARS`.
    - `label_of`: Returns the text of a value on the axis.
    - `title`: Description of the plot, for screen readers.
    - `base`: Ratio between units, so that the labels of the axis are short numbers of units.
    """
    top = _axis_end(max((bar.value for bar in bars), default=0), base)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    step = width / max(len(bars), 1)
    thickness = min(step * 0.84 if step > 4 else step * 0.95, 60.0)
    parts = [_open_svg(_WIDTH, _HEIGHT, title)]
    for quarter in range(5):
        y = _TOP + height * (1 - quarter / 4)
        label = escape(label_of(top * quarter / 4))
        parts.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for index, bar in enumerate(bars):
        x = _LEFT + step * index + (step - thickness) / 2
        full, gone = height * bar.value / top, height * bar.gone / top
        y = _TOP + height - full
        parts.append(f"<g><title>{escape(bar.title)}</title>")
        parts.append(_rect("live", x, y + gone, thickness, full - gone))
        if gone:
            parts.append(_rect("gone", x, y, thickness, gone))
        # A transparent bar of full height, so that the pointer hits short bars as well.
        parts.append(f"{_rect('hit', x, _TOP, max(thickness, 1), height)}</g>")
    return "".join([*parts, "</svg></div>"])


def rows_plot(
    names: Sequence[str], bars: Sequence[Bar], label_of: Callable[[float], str], title: str
) -> str:
    """Return a plot of horizontal bars, each with its name and value; see `columns_plot`."""
    top = max((bar.value for bar in bars), default=0) or 1
    height = _ROW * len(bars) + 8
    width = _WIDTH - _NAMES_WIDTH - _VALUES_WIDTH
    parts = [_open_svg(_WIDTH, height, title)]
    for index, (name, bar) in enumerate(zip(names, bars, strict=True)):
        y = 4 + _ROW * index
        length = max(width * bar.value / top, 1.0)
        shown = escape(shortened(name, _MAX_NAME_CHARS))
        parts += [
            f"<g><title>{escape(bar.title)}</title>",
            f'<text x="{_NAMES_WIDTH - 10}" y="{y + 16}" text-anchor="end" ',
            f'class="name">{shown}</text>',
            _rect("bar", _NAMES_WIDTH, y + 4, length, _ROW - 8),
            f'<text x="{_NAMES_WIDTH + length + 8:.1f}" y="{y + 16}">',
            f"{escape(label_of(bar.value))}</text></g>",
        ]
    return "".join([*parts, "</svg></div>"])


def shared(bars: Sequence[Bar], title_of: Callable[[int, int], str]) -> list[Bar]:
    """Return at most `MAX_BARS` bars, each with the mean of several neighbours if necessary.

    - `title_of`: Returns the title of the bar for the bars from a first index to a stop index.
    """
    if len(bars) <= MAX_BARS:
        return list(bars)
    means = []
    for index in range(MAX_BARS):
        first = index * len(bars) // MAX_BARS
        stop = (index + 1) * len(bars) // MAX_BARS
        group = bars[first:stop]
        means.append(
            Bar(
                sum(bar.value for bar in group) / len(group),
                sum(bar.gone for bar in group) / len(group),
                title_of(first, stop),
            )
        )
    return means


def small_plot(bars: Sequence[Bar]) -> str:
    """Return vertical bars without an axis. The colours need no style sheet, as for a notebook."""
    bars = shared(bars, lambda first, stop: f"{first} to {stop - 1}")
    top = max((bar.value for bar in bars), default=0) or 1
    step = min(_SMALL_WIDTH / max(len(bars), 1), 24.0)
    parts = [
        f'<svg width="{_SMALL_WIDTH}" height="{_SMALL_HEIGHT}" role="img" '
        'aria-label="rows of each fragment" xmlns="http://www.w3.org/2000/svg">'
    ]
    for index, bar in enumerate(bars):
        x, width = step * index, step * 0.85
        full, gone = (_SMALL_HEIGHT * value / top for value in (bar.value, bar.gone))
        y = _SMALL_HEIGHT - full
        parts.append(f"<g><title>{escape(bar.title)}</title>")
        parts.append(_rect("live", x, y + gone, width, full - gone, "#3b78c4"))
        parts.append(_rect("gone", x, y, width, gone, "#e0913a"))
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def _open_svg(width: int, height: int, title: str) -> str:
    # Scrolls in narrow windows: scaled down, its text could not be read.
    return (
        f'<div class="wide"><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">'
    )


def _rect(
    css_class: str, x: float, y: float, width: float, height: float, colour: str | None = None
) -> str:
    fill = f'class="{css_class}"' if colour is None else f'fill="{colour}"'
    return (
        f'<rect {fill} x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{max(height, 0):.2f}"/>'
    )


def _axis_end(top: float, base: int) -> float:
    """Return the smallest number of at least `top` whose quarters are short numbers of units."""
    unit = 1.0
    while top / unit >= base:
        unit *= base
    top = max(top / unit, 4.0 if unit == 1 else 1.0)
    power = 10.0 ** math.floor(math.log10(top))
    return unit * next(
        power * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if power * step >= top
    )


# --------------------------------------------------------------------------------------------------
# The HTML report about a table: one page without scripts and without external resources.

#: Fragments, columns and data files that the page lists.
_MAX_FRAGMENTS = 500
_MAX_COLUMNS = 60
_MAX_FILES = 64
#: Segments of an index whose partitions the page shows.
_MAX_PLOTS = 8

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667085; --line: #e3e6ea; --ground: #fff;
  --box: #f7f8fa; --live: #3b78c4; --gone: #e0913a; --bar: #2f9a8c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #98a2b3; --line: #32373e;
  --ground: #16181c; --box: #1f2228; --live: #5b9be6; --gone: #e8a355; --bar: #43b8a8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 10px; }
p { margin: 4px 0; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin-top: 20px; }
.card { background: var(--box); border-radius: 8px; padding: 12px 14px; }
.card b { display: block; font-size: 20px; font-weight: 600; }
.card span { color: var(--soft); font-size: 13px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.r, th.r { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.c { font: 12px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
td.n { white-space: nowrap; }
details { margin-top: 8px; }
summary { cursor: pointer; color: var(--soft); overflow-wrap: anywhere; }
svg { width: 100%; min-width: 640px; height: auto; display: block;
  font: 12px system-ui, sans-serif; } svg text { fill: var(--soft); }
svg text.name { fill: var(--ink); } .axis { stroke: var(--line); } .live { fill: var(--live); }
.gone { fill: var(--gone); }
.bar { fill: var(--bar); } .hit { fill: transparent; } g:hover .live, g:hover .bar { opacity: .75; }
.key { white-space: nowrap; } .key::before { content: ""; display: inline-block; width: 10px;
  height: 10px; border-radius: 2px; margin: 0 6px 0 14px; background: var(--live); }
.key.gone::before { background: var(--gone); } .key.gone { color: inherit; }
.bad { color: #c0392b; }
"""


def as_html(facts: TableFacts) -> str:
    """Return the HTML report as a complete page."""
    version = facts.version
    parts = [
        _summary(version),
        _fragment_plots(version),
        _column_plot(facts),
        _columns(facts),
        _versions(facts),
        _further_tables(facts),
        _files(facts),
    ]
    name = escape(clean(version.name))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{name}, version {version.version}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _summary(version: VersionFacts) -> str:
    branch = f", branch {version.branch}" if version.branch else ""
    ids = "stable row ids" if version.stable_row_ids else "row ids are addresses"
    line = f"version {version.version}{branch}, committed {moment(version.timestamp)} UTC; {ids}"
    deleted = share(version.num_deleted_rows, version.physical_rows)
    cards = [
        (number(version.num_rows), "rows"),
        (size(version.num_bytes), "in data files"),
        (number(len(version.fragments)), "fragments"),
        (number(version.num_files), f"data files, {', '.join(version.file_versions) or 'none'}"),
        (number(version.num_deleted_rows), f"deleted rows in files, {deleted}"),
        (number(len(version.columns)), "columns"),
    ]
    content = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label in cards
    )
    return (
        f"<h1>{escape(clean(version.name))}</h1><p>{escape(clean(line))}</p>"
        f'<div class="cards">{content}</div>'
    )


def _fragment_plots(version: VersionFacts) -> str:
    fragments = version.fragments
    if not fragments:
        return ""

    def title_of(first: int, stop: int) -> str:
        group = fragments[first:stop]
        rows = sum(fragment.num_rows for fragment in group) // len(group)
        num_bytes = sum(fragment.num_bytes for fragment in group) // len(group)
        ids = f"{group[0].id} to {group[-1].id}"
        return f"fragments {ids}: {number(rows)} rows, {size(num_bytes)} each"

    rows = [
        Bar(fragment.num_rows, fragment.num_deleted_rows, _title(fragment))
        for fragment in fragments
    ]
    sizes = [Bar(fragment.num_bytes, 0, _title(fragment)) for fragment in fragments]
    key = (
        '<span class="key">live</span><span class="key gone">deleted</span>'
        if version.num_deleted_rows
        else ""
    )
    note = "; each bar is the mean of several fragments" if len(rows) > MAX_BARS else ""
    plot = columns_plot(shared(rows, title_of), _short_number, "rows of each fragment")
    parts = [f"<h2>Fragments</h2><p>rows of each{note} {key}</p>{plot}"]
    if version.num_bytes:
        plot = columns_plot(shared(sizes, title_of), _size, "bytes of each fragment", base=1024)
        parts.append(f"<p>bytes of the data files of each{note}</p>{plot}")
    return "".join(parts)


def _size(value: float) -> str:
    return size(int(value))


def _title(fragment: FragmentFacts) -> str:
    rows = counted(fragment.num_rows, "row")
    if fragment.num_deleted_rows:
        rows += f", {number(fragment.num_deleted_rows)} deleted"
    return f"fragment {fragment.id}: {rows}, {size(fragment.num_bytes)}"


def _short_number(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _column_plot(facts: TableFacts) -> str:
    columns = sorted(facts.columns, key=lambda column: -column.num_bytes)[:_MAX_COLUMNS]
    if not columns:
        return ""
    total_bytes = sum(column.num_bytes for column in facts.columns)
    bars = [
        Bar(
            column.num_bytes,
            0,
            f"{clean(column.path)} ({clean(column.kind)}): {counted(column.num_pages, 'page')}",
        )
        for column in columns
    ]
    note = f", the largest {_MAX_COLUMNS}" if len(facts.columns) > _MAX_COLUMNS else ""
    plot = rows_plot(
        [clean(column.path) for column in columns],
        bars,
        lambda value: f"{_size(value)} ({share(int(value), total_bytes)})",
        "bytes of each column",
    )
    return f"<h2>Bytes of columns</h2><p>pages{_in_files(facts)}{note}</p>{plot}"


def _in_files(facts: TableFacts) -> str:
    read, total = len(facts.files), facts.version.num_files
    return (
        f" in all {counted(total, 'data file')}"
        if read == total
        else f" in {number(read)} of {number(total)} data files"
    )


def _columns(facts: TableFacts) -> str:
    if not facts.columns:
        names = ["column", "type", ""]
        return "<h2>Columns</h2>" + _table(names, schema_rows(facts.version), "ncn")
    rows = [
        [
            column.path,
            column.kind,
            size(column.num_bytes),
            bytes_per_row(column),
            number(column.num_pages),
            "\n".join(encoding_texts(column)),
        ]
        for column in facts.columns
    ]
    names = ["column", "type", "size", "bytes/row", "pages", "encoding"]
    return f"<h2>Columns and encodings</h2><p>pages{_in_files(facts)}</p>" + _table(
        names, rows, "ncrrrc"
    )


def _versions(facts: TableFacts) -> str:
    rows = version_rows(facts.versions)
    num_older = facts.num_versions - len(rows)
    note = f"<p>and {number(num_older)} older ones</p>" if num_older > 0 else ""
    return "<h2>Versions</h2>" + _table(VERSION_NAMES, rows, "nnnrrrrt") + note if rows else ""


def _fragments(version: VersionFacts) -> str:
    shown = version.fragments[:_MAX_FRAGMENTS]
    rows = fragment_rows(shown)
    num_hidden = len(version.fragments) - len(shown)
    note = f"<p>and {number(num_hidden)} more</p>" if num_hidden else ""
    content = _table(FRAGMENT_NAMES, rows, "nrrnrr") + note
    return _details(f"all {counted(len(version.fragments), 'fragment')}", content) if rows else ""


def _files(facts: TableFacts) -> str:
    parts = [_fragments(facts.version)]
    for file in facts.files[:_MAX_FILES]:
        rows = [
            [column.path, name, number(page.num_rows), size(page.num_bytes), page.encoding]
            for column in file.columns
            for name, page in zip(column.page_names, column.pages, strict=True)
        ]
        title = (
            f"fragment {file.fragment_id}, {file.path}: version {file.version}, "
            f"{size(file.num_bytes)}"
        )
        problem = _problem(file.problem) if file.problem else ""
        pages = _table(["column", "page", "rows", "size", "encoding"], rows, "nrrrc")
        parts.append(_details(title, problem + pages))
    content = "".join(parts)
    return f"<h2>Fragments, files and pages</h2>{content}" if content else ""


def _further_tables(facts: TableFacts) -> str:
    """Return the sections that only some tables have."""
    parts = []
    if len(facts.version.bases) > 1:
        table = _table(BASE_NAMES, base_rows(facts.version.bases), "rncnrrr")
        parts.append(f"<h2>Base paths</h2>{table}")
    if facts.indexes:
        table = _table(INDEX_NAMES, index_rows(facts.indexes), "nntrrrrrnnt")
        parts.append(f"<h2>Indexes</h2>{table}{''.join(map(_segments, facts.indexes))}")
    mappings = [("Tags", facts.tags), ("Branches", facts.branches)]
    mappings += [("Configuration", facts.version.config), ("Metadata", facts.version.metadata)]
    for title, entries in mappings:
        if entries:
            rows = [[key, text] for key, text in sorted(entries.items())]
            parts.append(f"<h2>{title}</h2>" + _table([], rows, "nc"))
    if facts.problems:
        problems = "".join(_problem(problem) for problem in facts.problems)
        parts.append(f"<h2>Could not be read</h2>{problems}")
    return "".join(parts)


def _segments(index: IndexFacts) -> str:
    title = f"{index.name}: {counted(index.num_segments, 'segment')}"
    plots = [
        _partitions(segment.uuid, segment.partitions)
        for segment in index.segments[:_MAX_PLOTS]
        if segment.partitions is not None
    ]
    return _details(title, _table(SEGMENT_NAMES, segment_rows(index), "crrrrnt")) + "".join(plots)


def _partitions(uuid: str, partitions: PartitionFacts) -> str:
    """Return a plot of the rows of each partition, the largest first."""
    rows = sorted(partitions.rows, reverse=True)

    def title_of(first: int, stop: int) -> str:
        return f"partitions {first + 1} to {stop} by size"

    bars = [Bar(count, 0, f"{number(count)} rows") for count in rows]
    text = (
        f"segment {uuid[:8]}, {partitions.metric}: rows of {counted(len(rows), 'partition')}, "
        f"{number(sum(rows))} in all; {number(rows.count(0))} are empty"
    )
    if partitions.loss is not None:
        text += f"; loss {partitions.loss:.4g}"
    plot = columns_plot(shared(bars, title_of), _short_number, "rows of each partition")
    return f"<p>{escape(text)}</p>{plot}"


def _problem(text: str) -> str:
    return f'<p class="bad">{escape(clean(text))}</p>'


def _details(title: str, content: str) -> str:
    return f"<details><summary>{escape(clean(title))}</summary>{content}</details>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], classes: str) -> str:
    """Return a table; `classes` has the one-letter CSS class of each column."""
    head = "".join(
        f'<th class="{css_class}">{escape(name)}</th>'
        for name, css_class in zip(names, classes, strict=False)
    )
    lines = [
        "<tr>"
        + "".join(
            f'<td class="{css_class}">{_lines(cell)}</td>'
            for cell, css_class in zip(row, classes, strict=True)
        )
        + "</tr>"
        for row in rows
    ]
    head_row = f"<tr>{head}</tr>" if head else ""
    return f'<div class="wide"><table>{head_row}{"".join(lines)}</table></div>'


def _lines(text: str) -> str:
    return "<br>".join(escape(clean(line)) for line in text.split("\n"))
