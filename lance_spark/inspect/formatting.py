"""Formatting of sizes, numbers, times, names and feature flags for text and HTML reports.

Names come from files, so `clean` escapes control characters: no name can send a command to a
terminal. The column names and rows of tables that both reports share are here, too.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from lance_spark.inspect.report import (
    BaseFacts,
    ColumnTotal,
    FragmentFacts,
    IndexFacts,
    PastVersion,
    SegmentFacts,
    VersionFacts,
)
from lance_spark.table.manifest import manifest

_FLAG_NAMES = {
    manifest.DELETION_FILES: "deletion files",
    manifest.STABLE_ROW_IDS: "stable row ids",
    manifest.V2_FILES: "files of version 2",
    manifest.TABLE_CONFIG: "configuration",
    manifest.BASE_PATHS: "base paths",
    manifest.NO_TRANSACTION_FILE: "no transaction files",
    manifest.OVERLAYS: "data overlay files",
    manifest.COVERING_COLUMNS: "covering columns of indexes",
    manifest.MIXED_FILE_VERSIONS: "files of several versions",
    manifest.TAGGED_FRAGMENT_REUSE: "tagged fragment reuse index",
    manifest.ROW_LINEAGE_COLUMNS: "row lineage columns",
    manifest.MANAGED_BLOBS: "managed blobs",
    manifest.STABLE_FIELD_IDS: "field ids that are never used again",
}
_BITS = 64
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
FRAGMENT_NAMES = ["fragment", "rows", "deleted", "deletions", "data files", "size"]
BASE_NAMES = ["id", "name", "path", "layout", "fragments", "data files", "size"]
INDEX_NAMES = [
    "name",
    "type",
    "columns",
    "segments",
    "fragments",
    "rows",
    "not covered",
    "size",
    "built on",
    "age",
    "stale",
]
#: The first part of the uuid of a segment stands for its name.
SEGMENT_NAMES = ["segment", "fragments", "rows", "size", "built on", "created (UTC)", "stale"]
VERSION_NAMES = [
    "version",
    "time (UTC)",
    "operation",
    "rows",
    "deleted",
    "fragments",
    "size",
    "message",
]


def size(num_bytes: int) -> str:
    """Return a number of bytes with three significant digits, for example ``1.25 MiB``."""
    value = float(num_bytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1024
    if unit == _UNITS[0]:
        return f"{num_bytes} {unit}"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def number(value: int) -> str:
    """Return a number with thousands separators."""
    return f"{value:,}"


def share(part: int, total: int) -> str:
    """Return a part of a whole in percent; ``-`` if the whole is 0."""
    if not total:
        return "-"
    percent = 100 * part / total
    if part and percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if part and percent < 9.95 else f"{percent:.0f}%"


def counted(value: int, singular: str) -> str:
    """Return a number with the noun that it counts, in the singular or the regular plural."""
    return f"{number(value)} {singular if value == 1 else singular + 's'}"


def moment(time: datetime.datetime) -> str:
    """Return a time in UTC to the second."""
    return f"{time.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}"


def clean(text: str) -> str:
    """Return a text on one line, with escapes in place of characters that are not printable."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shortened(text: str, limit: int) -> str:
    """Return a text, truncated to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def feature_names(bits: int) -> list[str]:
    """Return the names of feature flags; an unknown flag by the number of its bit."""
    bits_set = [bit for bit in range(_BITS) if bits >> bit & 1]
    return [_FLAG_NAMES.get(1 << bit, f"unknown ({bit})") for bit in bits_set]


def fragment_rows(fragments: Iterable[FragmentFacts]) -> list[list[str]]:
    """Return a row with the columns `FRAGMENT_NAMES` for each fragment."""
    return [
        [
            str(fragment.id),
            number(fragment.num_rows),
            number(fragment.num_deleted_rows),
            fragment.deletion_file,
            number(fragment.num_files),
            size(fragment.num_bytes),
        ]
        for fragment in fragments
    ]


def base_rows(bases: Iterable[BaseFacts]) -> list[list[str]]:
    """Return a row with the columns `BASE_NAMES` for each location of data files."""
    return [
        [
            "" if base.id is None else str(base.id),
            "(the table)" if base.id is None else base.name or "",
            base.path,
            "table root" if base.is_dataset_root else "folder",
            number(base.num_fragments),
            number(base.num_files),
            size(base.num_bytes),
        ]
        for base in bases
    ]


def index_rows(indexes: Iterable[IndexFacts]) -> list[list[str]]:
    """Return a row with the columns `INDEX_NAMES` for each index."""
    return [
        [
            index.name,
            index.kind,
            ", ".join(index.columns),
            number(index.num_segments),
            f"{number(index.num_fragments)} of "
            f"{number(index.num_fragments + index.num_uncovered_fragments)}"
            if index.columns
            else number(index.num_fragments),
            number(index.num_rows),
            number(index.num_uncovered_rows) if index.columns else "",
            _stored(index.num_bytes),
            _range([segment.dataset_version for segment in index.segments]),
            _ages(index),
            _stale(index.num_deleted_rows, index),
        ]
        for index in indexes
    ]


def segment_rows(index: IndexFacts) -> list[list[str]]:
    """Return a row with the columns `SEGMENT_NAMES` for each segment of an index."""
    return [
        [
            segment.uuid,
            number(segment.num_fragments),
            number(segment.num_rows),
            _stored(segment.num_bytes),
            str(segment.dataset_version),
            "" if segment.created_at is None else moment(segment.created_at),
            _stale(0, segment),
        ]
        for segment in index.segments
    ]


def duration(time: datetime.timedelta) -> str:
    """Return a duration in its largest whole unit, for example ``3 days``."""
    seconds = int(time.total_seconds())
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit:
            return counted(seconds // unit, name)
    return counted(seconds, "second")


def _ages(index: IndexFacts) -> str:
    """Return the age of the newest and of the oldest segment."""
    ages = [segment.age for segment in index.segments if segment.age is not None]
    texts = [duration(age) for age in (min(ages), max(ages))] if ages else []
    return " to ".join(dict.fromkeys(texts))


def _range(numbers: list[int]) -> str:
    ends = [str(end) for end in (min(numbers), max(numbers))] if numbers else []
    return " to ".join(dict.fromkeys(ends))


def _stored(num_bytes: int | None) -> str:
    return "" if num_bytes is None else size(num_bytes)


def _stale(num_deleted_rows: int, facts: IndexFacts | SegmentFacts) -> str:
    """Return what the files of an index still have."""
    counts = [
        (num_deleted_rows, "deleted row"),
        (facts.num_removed_fragments, "removed fragment"),
        (facts.num_moved_fragments, "moved fragment"),
    ]
    return ", ".join(counted(count, noun) for count, noun in counts if count)


def version_rows(versions: Iterable[PastVersion]) -> list[list[str]]:
    """Return a row with the columns `VERSION_NAMES` for each version."""
    return [
        [
            str(version.version),
            moment(version.timestamp),
            version.operation or "?",
            number(version.num_rows),
            number(version.num_deleted_rows),
            number(version.num_fragments),
            size(version.num_bytes),
            version.message,
        ]
        for version in versions
    ]


def schema_rows(version: VersionFacts) -> list[list[str]]:
    """Return name, type and nullability of each top-level column."""
    return [
        [column.name, column.kind, "" if column.nullable else "not null"]
        for column in version.columns
    ]


def bytes_per_row(column: ColumnTotal) -> str:
    """Return the bytes of a row of a column; empty if there are no rows."""
    return f"{column.num_bytes / column.num_rows:,.1f}" if column.num_rows else ""


def encoding_texts(column: ColumnTotal) -> list[str]:
    """Return the encodings of a column, with the pages of each if there are several."""
    if len(column.encodings) < 2:
        return [encoding for encoding, _, _ in column.encodings]
    return [f"{number(pages)} x {encoding}" for encoding, pages, _ in column.encodings]
