"""Rows of the tables that are the same as text and as a page: names of the columns, and a row of texts for each thing."""

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
    """Return a row for each fragment, as `FRAGMENT_NAMES` says."""
    return [
        [
            str(one.id),
            number(one.num_rows),
            number(one.num_deleted_rows),
            one.deletion_file,
            number(one.num_files),
            size(one.num_bytes),
        ]
        for one in fragments
    ]


def base_rows(bases: Iterable[BaseFacts]) -> list[list[str]]:
    """Return a row for each place that data files lie in, as `BASE_NAMES` says."""
    return [
        [
            "" if one.id is None else str(one.id),
            "(the table)" if one.id is None else one.name or "",
            one.path,
            "table root" if one.is_dataset_root else "folder",
            number(one.num_fragments),
            number(one.num_files),
            size(one.num_bytes),
        ]
        for one in bases
    ]


def index_rows(indexes: Iterable[IndexFacts]) -> list[list[str]]:
    """Return a row for each index, as `INDEX_NAMES` says."""
    return [
        [
            one.name,
            one.kind,
            ", ".join(one.columns),
            number(one.num_rows),
            number(one.num_segments),
            "" if one.num_bytes is None else size(one.num_bytes),
        ]
        for one in indexes
    ]


def version_rows(versions: Iterable[PastVersion]) -> list[list[str]]:
    """Return a row for each version, as `VERSION_NAMES` says."""
    return [
        [
            str(one.version),
            moment(one.timestamp),
            one.operation or "?",
            number(one.num_rows),
            number(one.num_deleted_rows),
            number(one.num_fragments),
            size(one.num_bytes),
            one.message,
        ]
        for one in versions
    ]
