"""Feature flags: what a client has to understand before it reads, or writes, a table.

A manifest has 64 reader flags and 64 writer flags. An unknown one forbids to go on. What each means here:

| bit | meaning | read | append | overwrite | next manifest |
| --- | --- | --- | --- | --- | --- |
| 0 | deletion files | yes | yes | yes | set if there are any |
| 1 | stable row ids | yes | yes | yes | as the table was created |
| 2 | files of version 2 (old) | yes | yes | yes | kept |
| 3 | configuration | yes | yes | yes | writer flag, set if there is any |
| 4 | base paths | yes | yes | yes | set if there are any |
| 5 | no files in _transactions/ | yes | yes | yes | kept; obeyed |
| 6 | data overlay files | yes | yes | yes | set if there are any |
| 7 | indexes with covering columns | yes | yes | yes | kept, dropped with the indexes |
| 8 | data files of several versions | yes | yes | yes | kept |
| 10 | tagged fragment-reuse index | yes | yes | yes | kept |
| 11 | row ids in hidden columns | yes | yes | yes | kept, dropped with the fragments |
| 15 | field ids are never used again | yes | yes | no | kept |
| 14, others | managed blobs, unknown | no | no | no | |
"""

from __future__ import annotations

from dataclasses import dataclass

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.proto import table_pb2

DELETION_FILES = 1 << 0
STABLE_ROW_IDS = 1 << 1
V2_FILES = 1 << 2
TABLE_CONFIG = 1 << 3
BASE_PATHS = 1 << 4
NO_TRANSACTION_FILE = 1 << 5
OVERLAYS = 1 << 6
COVERING_COLUMNS = 1 << 7
MIXED_FILE_VERSIONS = 1 << 8
TAGGED_FRAGMENT_REUSE = 1 << 10
ROW_LINEAGE_COLUMNS = 1 << 11
MANAGED_BLOBS = 1 << 14
STABLE_FIELD_IDS = 1 << 15

_NAMES = {
    1 << 9: "fragment reuse with stable row ids",
    MANAGED_BLOBS: "managed blobs",
    STABLE_FIELD_IDS: "field ids that are never used again",
    1 << 16: "zone write seeds",
}

_READABLE = (
    DELETION_FILES
    | STABLE_ROW_IDS
    | V2_FILES
    | TABLE_CONFIG
    | BASE_PATHS
    | NO_TRANSACTION_FILE
    | OVERLAYS
    | COVERING_COLUMNS
    | MIXED_FILE_VERSIONS
    | TAGGED_FRAGMENT_REUSE
    | ROW_LINEAGE_COLUMNS
)
_WRITABLE = _READABLE | STABLE_FIELD_IDS
_COMPUTED = DELETION_FILES | STABLE_ROW_IDS | TABLE_CONFIG | BASE_PATHS | OVERLAYS
_OF_CONTENT = COVERING_COLUMNS | ROW_LINEAGE_COLUMNS


@dataclass(frozen=True, slots=True)
class Flags:
    """The reader and writer flags of a manifest."""

    reader: int
    writer: int

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows keep their id when they move."""
        return bool(self.reader & STABLE_ROW_IDS)

    @property
    def writes_transaction_files(self) -> bool:
        """Whether a commit leaves a file in _transactions/ beside the copy in its manifest."""
        return not self.writer & NO_TRANSACTION_FILE


def check_readable(flags: Flags, table: str) -> None:
    """Refuse a table that needs more than this release reads.

    Raises
    ------
    UnsupportedFeatureError
        Names the first such flag and its number.
    """
    _refuse(flags.reader & ~_READABLE, "reader", "read", table)


def check_writable(flags: Flags, table: str, *, replaces_schema: bool) -> None:
    """Refuse a commit to a table that needs more than this release does.

    Parameters
    ----------
    flags : Flags
    table : str
        What errors call the table.
    replaces_schema : bool
        Whether the commit gives the table a new schema, whose field ids start from 0.

    Raises
    ------
    UnsupportedFeatureError
        Names the first such flag and its number.
    """
    check_readable(flags, table)
    allowed = _READABLE if replaces_schema else _WRITABLE
    _refuse(flags.writer & ~allowed, "writer", "write to", table)


def next_flags(
    manifest: table_pb2.Manifest, base: Flags | None, *, stable_row_ids: bool, keeps_content: bool
) -> Flags:
    """Compute the flags of a new manifest from what it holds and from those of the version before.

    Parameters
    ----------
    manifest : table_pb2.Manifest
        The new manifest, complete but for its flags.
    base : Flags, optional
        Those of the version before; none for a new table.
    stable_row_ids : bool
    keeps_content : bool
        Whether fragments and indexes of the version before live on.
    """
    kept = ~_COMPUTED if keeps_content else ~(_COMPUTED | _OF_CONTENT)
    both = 0
    if any(fragment.HasField("deletion_file") for fragment in manifest.fragments):
        both |= DELETION_FILES
    if any(fragment.overlays for fragment in manifest.fragments):
        both |= OVERLAYS
    if stable_row_ids:
        both |= STABLE_ROW_IDS
    if manifest.base_paths:
        both |= BASE_PATHS
    return Flags(
        reader=both | ((base.reader if base else 0) & kept),
        writer=both
        | ((base.writer if base else 0) & kept)
        | (TABLE_CONFIG if manifest.config else 0),
    )


def _refuse(unknown: int, side: str, verb: str, table: str) -> None:
    if not unknown:
        return
    value = unknown & -unknown
    meaning = _NAMES.get(value, "a feature that this release does not know")
    raise UnsupportedFeatureError(
        f"{table}: cannot {verb} it: {side} feature flag {value} (bit {value.bit_length() - 1}) is set: {meaning}. "
        "Use a newer release or another client"
    )
