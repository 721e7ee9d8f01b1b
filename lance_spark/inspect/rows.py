"""Column names and rows of the tables that the text report and the HTML report share."""

from __future__ import annotations

from collections.abc import Iterable

from lance_spark.inspect.formatting import moment, number, size
from lance_spark.inspect.report import BaseFacts, FragmentFacts, IndexFacts, PastVersion

FRAGMENT_NAMES = ["fragment", "rows", "deleted", "deletions", "data files", "size"]
BASE_NAMES = ["id", "name", "path", "layout", "fragments", "data files", "size"]
INDEX_NAMES = ["name", "type", "columns", "rows", "segments", "size"]
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
            number(index.num_rows),
            number(index.num_segments),
            "" if index.num_bytes is None else size(index.num_bytes),
        ]
        for index in indexes
    ]


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
