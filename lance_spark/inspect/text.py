"""The text report about a table, for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lance_spark.inspect.formatting import (
    BASE_NAMES,
    FRAGMENT_NAMES,
    INDEX_NAMES,
    VERSION_NAMES,
    base_rows,
    bytes_per_row,
    clean,
    counted,
    encoding_texts,
    feature_names,
    fragment_rows,
    index_rows,
    moment,
    number,
    schema_rows,
    share,
    shortened,
    size,
    version_rows,
)
from lance_spark.inspect.pages import ColumnPages
from lance_spark.inspect.report import FileFacts, TableFacts, VersionFacts

#: Fragments that the report lists.
_MAX_FRAGMENTS = 20
_MAX_MESSAGE_CHARS = 60
_INDENT = "  "


def as_text(facts: TableFacts, *, pages: bool = False) -> str:
    """Return the text report, which ends with a newline.

    Parameters
    ----------
    facts : TableFacts
    pages : bool
        Whether to list all pages of the data files that were read.
    """
    heading = [_INDENT + line for line in heading_lines(facts.version)]
    parts = ["\n".join([clean(facts.version.name), *heading])]
    parts += list(_sections(facts, {file.fragment_id for file in facts.files} if pages else None))
    if pages:
        parts += [_file(file) for file in facts.files]
    if facts.problems:
        problems = [_INDENT + clean(problem) for problem in facts.problems]
        parts.append("\n".join(["could not be read", *problems]))
    return "\n\n".join(parts) + "\n"


def heading_lines(version: VersionFacts) -> list[str]:
    """Return a summary of a version in a few lines."""
    branch = f", branch {version.branch}" if version.branch else ""
    deleted = version.num_deleted_rows
    rows = f"{counted(version.num_rows, 'row')} in {counted(len(version.fragments), 'fragment')}"
    if deleted:
        rows += f"; {number(deleted)} more are deleted ({share(deleted, version.physical_rows)})"
    file_versions = ", ".join(version.file_versions) or "none"
    ids = "stable row ids" if version.stable_row_ids else "row ids are addresses"
    return [
        f"version {version.version}{clean(branch)}, {moment(version.timestamp)} UTC",
        rows,
        f"{counted(version.num_files, 'data file')}, {size(version.num_bytes)}; "
        f"file versions: {file_versions}; new files: {version.data_storage_version}",
        f"{ids}; reader flags {_flags(version.reader_flags)}, "
        f"writer flags {_flags(version.writer_flags)}",
    ]


def _flags(bits: int) -> str:
    names = feature_names(bits)
    return f"{bits} ({', '.join(names)})" if names else str(bits)


def _sections(facts: TableFacts, fragment_ids: Collection[int] | None) -> Iterator[str]:
    if facts.versions:
        num_older = facts.num_versions - len(facts.versions)
        title = "versions, newest first" + (
            f" ({number(num_older)} older ones)" if num_older > 0 else ""
        )
        yield _versions(title, facts)
    yield _fragments(facts.version, fragment_ids)
    if len(facts.version.bases) > 1:
        yield _table("base paths", BASE_NAMES, base_rows(facts.version.bases), "rlllrrr")
    yield _columns(facts)
    if facts.indexes:
        yield _table("indexes", INDEX_NAMES, index_rows(facts.indexes), "lllrrrrrlll")
    mappings = [("tag", facts.tags), ("branch", facts.branches)]
    mappings += [("config", facts.version.config), ("metadata", facts.version.metadata)]
    for title, entries in mappings:
        if entries:
            rows = [[key, shortened(text, 200)] for key, text in sorted(entries.items())]
            yield _table(title, [], rows, "ll")


def _versions(title: str, facts: TableFacts) -> str:
    rows = version_rows(facts.versions)
    for row in rows:
        row[-1] = shortened(row[-1], _MAX_MESSAGE_CHARS)
    return _table(title, VERSION_NAMES, rows, "rllrrrrl")


def _fragments(version: VersionFacts, fragment_ids: Collection[int] | None) -> str:
    if fragment_ids is None:
        shown = version.fragments[:_MAX_FRAGMENTS]
    else:
        shown = tuple(fragment for fragment in version.fragments if fragment.id in fragment_ids)
    lines = _table("fragments", FRAGMENT_NAMES, fragment_rows(shown), "rrrlrr")
    num_hidden = len(version.fragments) - len(shown)
    return lines + (f"\n{_INDENT}and {number(num_hidden)} more" if num_hidden else "")


def _columns(facts: TableFacts) -> str:
    if not facts.files:
        return _table("columns", [], schema_rows(facts.version), "lll")
    total_bytes = sum(column.num_bytes for column in facts.columns)
    rows: list[list[str]] = []
    for column in facts.columns:
        cells = [
            column.path,
            column.kind,
            size(column.num_bytes),
            share(column.num_bytes, total_bytes),
            bytes_per_row(column),
            number(column.num_pages),
        ]
        for encoding in encoding_texts(column) or [""]:
            rows.append([*cells, encoding])
            # Further encodings of the column go below the first.
            cells = [""] * len(cells)
    read, all_files = len(facts.files), facts.version.num_files
    location = (
        "" if read == all_files else f", in {number(read)} of {counted(all_files, 'data file')}"
    )
    names = ["column", "type", "size", "share", "bytes/row", "pages", "encoding"]
    return _table(f"columns{location}", names, rows, "llrrrrl")


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
    for page_name, page in zip(column.page_names, column.pages, strict=True):
        yield [
            name,
            page_name,
            number(page.num_rows),
            size(page.num_bytes),
            " + ".join(number(length) for length in page.buffers),
            page.encoding,
        ]


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], alignment: str) -> str:
    """Return a table with aligned columns; `alignment` has l or r for each column."""
    head = [names] if names else []
    lines_of_cells = [*head, *([clean(cell) for cell in row] for row in rows)]
    widths = [
        max((len(row[column]) for row in lines_of_cells), default=0)
        for column in range(len(alignment))
    ]
    lines = [title]
    for row in lines_of_cells:
        cells = [
            text.rjust(width) if side == "r" else text.ljust(width)
            for text, width, side in zip(row, widths, alignment, strict=True)
        ]
        lines.append((_INDENT + "  ".join(cells)).rstrip())
    return "\n".join(lines)
