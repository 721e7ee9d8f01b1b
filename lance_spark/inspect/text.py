"""The facts of a table as text for a terminal: one table for each kind of thing, below one another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lance_spark.inspect.features import feature_names
from lance_spark.inspect.formatting import clean, counted, moment, number, share, shortened, size
from lance_spark.inspect.pages import ColumnPages
from lance_spark.inspect.report import FileFacts, TableFacts, VersionFacts
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

#: Fragments that are told one by one.
_FRAGMENTS = 20
_MESSAGE = 60
_INDENT = "  "


def as_text(facts: TableFacts, *, pages: bool = False) -> str:
    """Return the facts of a table as text, with a line end.

    Parameters
    ----------
    facts : TableFacts
    pages : bool
        Whether every page of the files that were read is told, too.
    """
    parts = [_heading(facts.version)]
    parts += list(_sections(facts, {one.fragment_id for one in facts.files} if pages else None))
    if pages:
        parts += [_file(one) for one in facts.files]
    if facts.problems:
        parts.append(
            "\n".join(["could not be read", *[_INDENT + clean(p) for p in facts.problems]])
        )
    return "\n\n".join(parts) + "\n"


def heading_lines(about: VersionFacts) -> list[str]:
    """Return what there is to say of a version in a few lines."""
    where = f", branch {about.branch}" if about.branch else ""
    deleted = about.num_deleted_rows
    rows = f"{counted(about.num_rows, 'row')} in {counted(len(about.fragments), 'fragment')}"
    if deleted:
        rows += f"; {number(deleted)} more are deleted ({share(deleted, about.physical_rows)})"
    kinds = ", ".join(about.file_versions) or "none"
    ids = "stable row ids" if about.stable_row_ids else "row ids are addresses"
    return [
        f"version {about.version}{clean(where)}, {moment(about.timestamp)} UTC",
        rows,
        f"{counted(about.num_files, 'data file')}, {size(about.num_bytes)}; file versions: {kinds}; new files: "
        f"{about.data_storage_version}",
        f"{ids}; reader flags {_flags(about.reader_flags)}, writer flags {_flags(about.writer_flags)}",
    ]


def _flags(bits: int) -> str:
    names = feature_names(bits)
    return f"{bits} ({', '.join(names)})" if names else str(bits)


def _heading(about: VersionFacts) -> str:
    return "\n".join([clean(about.name), *[_INDENT + line for line in heading_lines(about)]])


def _sections(facts: TableFacts, chosen: Collection[int] | None) -> Iterator[str]:
    if facts.versions:
        more = facts.num_versions - len(facts.versions)
        title = "versions, newest first" + (f" ({number(more)} older ones)" if more > 0 else "")
        yield _versions(title, facts)
    yield _fragments(facts.version, chosen)
    if len(facts.version.bases) > 1:
        yield _table("base paths", BASE_NAMES, base_rows(facts.version.bases), "rlllrrr")
    yield _columns(facts)
    if facts.indexes:
        yield _table("indexes", INDEX_NAMES, index_rows(facts.indexes), "lllrrr")
    named = [("tag", facts.tags), ("branch", facts.branches)]
    named += [("config", facts.version.config), ("metadata", facts.version.metadata)]
    for title, entries in named:
        if entries:
            rows = [[key, shortened(text, 200)] for key, text in sorted(entries.items())]
            yield _table(title, [], rows, "ll")


def _versions(title: str, facts: TableFacts) -> str:
    rows = version_rows(facts.versions)
    for row in rows:
        row[-1] = shortened(row[-1], _MESSAGE)
    return _table(title, VERSION_NAMES, rows, "rllrrrrl")


def _fragments(about: VersionFacts, chosen: Collection[int] | None) -> str:
    told = [one for one in about.fragments if chosen is None or one.id in chosen]
    shown = told[:_FRAGMENTS] if chosen is None else told
    lines = _table("fragments", FRAGMENT_NAMES, fragment_rows(shown), "rrrlrr")
    more = len(about.fragments) - len(shown)
    return lines + (f"\n{_INDENT}and {number(more)} more" if more else "")


def _columns(facts: TableFacts) -> str:
    if not facts.files:
        plain = [
            [one.name, one.kind, "" if one.nullable else "not null"]
            for one in facts.version.columns
        ]
        return _table("columns", [], plain, "lll")
    whole = sum(one.num_bytes for one in facts.columns)
    rows: list[list[str]] = []
    for one in facts.columns:
        per_row = f"{one.num_bytes / one.num_rows:,.1f}" if one.num_rows else ""
        first = [
            one.path,
            one.kind,
            size(one.num_bytes),
            share(one.num_bytes, whole),
            per_row,
            number(one.num_pages),
        ]
        for place, (encoding, pages, _) in enumerate(one.encodings or (("", 0, 0),)):
            only = len(one.encodings) < 2
            told = encoding if only else f"{number(pages)} x {encoding}"
            rows.append([*(first if not place else [""] * len(first)), told])
    read, all_files = len(facts.files), facts.version.num_files
    of = "" if read == all_files else f", in {number(read)} of {counted(all_files, 'data file')}"
    names = ["column", "type", "size", "share", "bytes/row", "pages", "encoding"]
    return _table(f"columns{of}", names, rows, "llrrrrl")


def _file(file: FileFacts) -> str:
    base = "" if file.base_id is None else f", base path {file.base_id}"
    title = (
        f"fragment {file.fragment_id}, {clean(file.path)}{base}: version {file.version}, "
        f"{counted(file.num_rows, 'row')}, {size(file.num_bytes)}"
    )
    rows = [row for column in file.columns for row in _pages(column)]
    names = ["column", "page", "rows", "size", "buffers", "encoding"]
    return _table(title, names, rows, "lrrrll")


def _pages(column: ColumnPages) -> Iterator[list[str]]:
    name = column.path
    if column.own_bytes:
        yield [name, "-", "", size(column.own_bytes), "of the column", ""]
    together = column.num_pages != len(column.pages)
    for place, page in enumerate(column.pages):
        yield [
            name,
            f"0-{column.num_pages - 1}" if together else str(place),
            number(page.num_rows),
            size(page.num_bytes),
            " + ".join(number(one) for one in page.buffers),
            page.encoding,
        ]


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], sides: str) -> str:
    """Return lines with their columns below one another; `sides` has l or r for each column."""
    every = [names] if names else []
    every = [*every, *([clean(cell) for cell in row] for row in rows)]
    widths = [max((len(row[place]) for row in every), default=0) for place in range(len(sides))]
    lines = [title]
    for row in every:
        cells = [
            text.rjust(width) if side == "r" else text.ljust(width)
            for text, width, side in zip(row, widths, sides, strict=True)
        ]
        lines.append((_INDENT + "  ".join(cells)).rstrip())
    return "\n".join(lines)
