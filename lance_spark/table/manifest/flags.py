"""Feature flags: the features that a reader or a writer of a table must know.

A manifest has 64 reader flags and 64 writer flags. A client that does not know a flag refuses the
table.

| bit | meaning | supported | in the next manifest |
| --- | --- | --- | --- |
| 0 | deletion files | yes | set if there are any |
| 1 | stable row ids | yes | as the table was created |
| 2 | files of version 2 (old) | yes | left out: `data_format` states the file version |
| 3 | configuration | yes | writer flag, set if there is any |
| 4 | base paths | yes | set if there are any |
| 5 | no files in _transactions/ | yes | writer flag, kept and obeyed |
| 6 | data overlay files | yes | set if there are any |
| 7 | indexes with covering columns | yes | set if there are any |
| 8 | data files of several versions | yes | kept for ever; set if there are any |
| 10 | tagged fragment-reuse index | yes | kept for ever |
| 11 | row ids or versions in hidden columns | yes | set if there are any |
| 15 | field ids are never used again | yes | writer flag, kept for ever |
| 14, others | managed blobs, unknown | no | |

A flag is set as reader and as writer flag, unless the table says "writer flag". pylance computes
the flags from the content of the manifest in the same way, except for bit 5, which each writer of
it chooses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.file_versions import canonical

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

_KNOWN = (
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
_KNOWN_TO_WRITERS = _KNOWN | STABLE_FIELD_IDS
#: Reader and writer flags that stay set, even if the content does not need them any more.
FOR_EVER = MIXED_FILE_VERSIONS | TAGGED_FRAGMENT_REUSE
#: All writer flags that stay set.
WRITERS_FOR_EVER = FOR_EVER | NO_TRANSACTION_FILE | STABLE_FIELD_IDS
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Flags:
    """The reader and writer flags of a manifest."""

    reader: int
    writer: int

    @property
    def stable_row_ids(self) -> bool:
        """Whether the table has stable row ids."""
        return bool(self.reader & STABLE_ROW_IDS)

    @property
    def writes_transaction_files(self) -> bool:
        """Whether a commit also writes its transaction to a file in _transactions/."""
        return not self.writer & NO_TRANSACTION_FILE


def check_readable(flags: Flags, table: str) -> None:
    """Refuse to read a table with an unknown reader flag.

    Raises UnsupportedFeatureError: the message names the first unknown flag and its bit.
    """
    _refuse(flags.reader & ~_KNOWN, "reader", "read", table)


def check_writable(flags: Flags, table: str) -> None:
    """Refuse a commit to a table with an unknown reader or writer flag.

    - `table`: The name of the table in errors.

    Raises UnsupportedFeatureError: the message names the first unknown flag and its bit.
    """
    check_readable(flags, table)
    _refuse(flags.writer & ~_KNOWN_TO_WRITERS, "writer", "write to", table)


def next_flags(
    manifest: table_pb2.Manifest,
    base: Flags | None,
    *,
    stable_row_ids: bool,
    changed: Collection[table_pb2.DataFragment],
    covering_columns: bool,
) -> Flags:
    """Compute the flags of a new manifest from its content and from the previous flags.

    - `manifest`: The new manifest, complete except for its flags.
    - `base`: The flags of the previous version; None for a new table.
    - `changed`: The fragments of the manifest that differ from the previous version.
    - `covering_columns`: Whether an index has covering columns.
    """
    base = base or Flags(0, 0)
    common = 0
    for flag, needs_flag in _FRAGMENT_FLAGS.items():
        # If the previous version does not have the flag, only changed fragments can need it.
        candidates = manifest.fragments if base.reader & flag else changed
        if any(map(needs_flag, candidates)):
            common |= flag
    if _has_mixed_versions(changed, manifest):
        common |= MIXED_FILE_VERSIONS
    if stable_row_ids:
        common |= STABLE_ROW_IDS
    if manifest.base_paths:
        common |= BASE_PATHS
    if covering_columns:
        common |= COVERING_COLUMNS
    writer = common | (base.writer & WRITERS_FOR_EVER)
    if manifest.config:
        writer |= TABLE_CONFIG
    if manifest.HasField("max_allocated_field_id"):
        writer |= STABLE_FIELD_IDS
    return Flags(reader=common | (base.reader & FOR_EVER), writer=writer)


def _has_lineage_columns(fragment: table_pb2.DataFragment) -> bool:
    return bool(
        fragment.HasField("column_row_ids")
        or fragment.HasField("column_last_updated_at_versions")
        or fragment.HasField("column_created_at_versions")
    )


_FRAGMENT_FLAGS: dict[int, Callable[[table_pb2.DataFragment], bool]] = {
    DELETION_FILES: lambda fragment: fragment.HasField("deletion_file"),
    OVERLAYS: lambda fragment: bool(fragment.overlays),
    ROW_LINEAGE_COLUMNS: _has_lineage_columns,
}


def _has_mixed_versions(
    fragments: Iterable[table_pb2.DataFragment], manifest: table_pb2.Manifest
) -> bool:
    """Return whether the versions of data files differ, or differ from the version of the table."""
    numbers = {
        (file.file_major_version, file.file_minor_version)
        for fragment in fragments
        for file in fragment.files
    }
    versions = {canonical(version) for version in numbers}
    stated = _VERSION.fullmatch(manifest.data_format.version)
    if versions and stated is not None:
        versions.add(canonical((int(stated[1]), int(stated[2]))))
    return len(versions) > 1


def _refuse(unknown: int, side: str, verb: str, table: str) -> None:
    if not unknown:
        return
    value = unknown & -unknown
    meaning = _NAMES.get(value, "a feature that this release does not know")
    raise UnsupportedFeatureError(
        f"{table}: cannot {verb} it: {side} feature flag {value} (bit {value.bit_length() - 1}) "
        f"is set: {meaning}. Use a newer release or another client"
    )
