"""The manifest of one version of a table, held in memory.

A `Manifest` wraps its protobuf message. Fields that this release does not know survive in the next
version: its message starts as a copy of this one, and the index section is copied as bytes.
`table.manifest.codec` documents the layout of the file.
"""

from __future__ import annotations

import datetime
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from lance_spark.errors import (
    CorruptFileError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.uri import check_relative
from lance_spark.table.fragments import files
from lance_spark.table.fragments.files import canonical
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import BasePath

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Schema


# --------------------------------------------------------------------------------------------------
# Feature flags: the features that a reader or a writer of a table must know.
#
# A manifest has 64 reader flags and 64 writer flags. A client that does not know a flag refuses the
# table.
#
# | bit | meaning | supported | in the next manifest |
# | --- | --- | --- | --- |
# | 0 | deletion files | yes | set if there are any |
# | 1 | stable row ids | yes | as the table was created |
# | 2 | files of version 2 (old) | yes | left out: `data_format` states the file version |
# | 3 | configuration | yes | writer flag, set if there is any |
# | 4 | base paths | yes | set if there are any |
# | 5 | no files in _transactions/ | yes | writer flag, kept and obeyed |
# | 6 | data overlay files | yes | set if there are any |
# | 7 | indexes with covering columns | yes | set if there are any |
# | 8 | data files of several versions | yes | kept for ever; set if there are any |
# | 10 | tagged fragment-reuse index | yes | kept for ever |
# | 11 | row ids or versions in hidden columns | yes | set if there are any |
# | 15 | field ids are never used again | yes | writer flag, kept for ever |
# | 14, others | managed blobs, unknown | no | |
#
# A flag is set as reader and as writer flag, unless the table says "writer flag". pylance computes
# the flags from the content of the manifest in the same way, except for bit 5, which each writer of
# it chooses.

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


# --------------------------------------------------------------------------------------------------
# The manifest of one version of a table, held in memory.

_NANOS = 1_000_000_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LEGACY = files.LEGACY
#: What a user can do with a table whose blobs are in a second table; see `repairs`.
BLOB_DATASET_ADVICE = (
    "The second table can be opened by itself, at that version, and joined by _rowid: "
    "see docs/howto/blobs.md"
)
_VERSION_NAMES = {"legacy": (0, 1), "0.1": (0, 1), "0.3": (2, 0), "": (2, 0)}


class Manifest:
    """One version of a table. Immutable; its properties are parsed at the first use.

    - `proto`: The message. The caller must not change it afterwards.
    - `name`: The name of the file in errors.
    - `index_section`: The serialised `IndexSection`.
    - `transaction_section`: The serialised `Transaction`.
    - `dictionaries`: The bytes before the sections, if fields refer to dictionary values there.
    - `size_bytes`: Length of the file.
    - `read_at`: The time (`time.monotonic`) at which the store was last known to have this
      manifest.
    - `tag`: The tag of the file (`storage.kept_ranges`), if a listing had it.
    """

    __slots__ = (
        "_fragments",
        "_has_row_counts",
        "_proto",
        "_schema",
        "dictionaries",
        "index_section",
        "name",
        "read_at",
        "size_bytes",
        "tag",
        "transaction_section",
    )

    _fragments: tuple[Fragment, ...] | None
    _has_row_counts: bool | None
    _schema: Schema | None

    def __init__(
        self,
        proto: table_pb2.Manifest,
        name: str,
        *,
        index_section: bytes | None = None,
        transaction_section: bytes | None = None,
        dictionaries: bytes = b"",
        size_bytes: int = 0,
    ) -> None:
        self._proto = proto
        self._fragments = None
        self._has_row_counts = None
        self._schema = None
        self.name = name
        self.index_section = index_section
        self.transaction_section = transaction_section
        self.dictionaries = dictionaries
        self.size_bytes = size_bytes
        self.read_at = time.monotonic()
        self.tag: str | None = None

    @property
    def version(self) -> int:
        """The number of the version, from 1 on."""
        return self._proto.version

    @property
    def schema(self) -> Schema:
        """The columns, with field ids. Raises CorruptTableError: the fields do not form a tree."""
        if self._schema is None:
            # Imported here because it imports Arrow, which a listing of versions does not need.
            from lance_spark.file.schema.schema import Schema

            try:
                self._schema = Schema.from_protos(self._proto.fields, self._proto.schema_metadata)
            except CorruptFileError as error:
                raise CorruptTableError(f"{self.name}: {error}") from None
            if self.dictionaries:
                # Only tables with files of version 0.1 have them.
                from lance_spark.file.v0_1.dictionaries import with_dictionaries

                self._schema = with_dictionaries(self._schema, self.dictionaries)
        return self._schema

    @property
    def schema_metadata(self) -> dict[str, bytes]:
        """The metadata of the schema."""
        return dict(self._proto.schema_metadata)

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments, in the order of their rows."""
        if self._fragments is None:
            self._fragments = tuple(Fragment.from_protos(self._proto.fragments, self.name))
        return self._fragments

    @property
    def has_row_counts(self) -> bool:
        """Whether all fragments record their numbers of rows and of deleted rows."""
        if self._has_row_counts is None:
            self._has_row_counts = all(fragment.is_counted for fragment in self.fragments)
        return self._has_row_counts

    @property
    def num_rows(self) -> int:
        """The number of rows that are not deleted."""
        return sum(fragment.num_rows for fragment in self.fragments)

    def has_rows(self, count: int) -> bool:
        """Return whether there are at least so many rows that are not deleted."""
        return any(total >= count for total in accumulate(f.num_rows for f in self.fragments))

    @property
    def timestamp_ns(self) -> int:
        """The commit time by the clock of the writer: nanoseconds since 1970 in UTC."""
        stamp = self._proto.timestamp
        return int(stamp.seconds * _NANOS + stamp.nanos)

    @property
    def identity(self) -> tuple[int, str | None]:
        """A value that differs between two versions with the same number.

        Two versions have the same number if the table was deleted and created again.
        """
        return self.timestamp_ns, self.transaction_file

    @property
    def timestamp(self) -> datetime.datetime:
        """The commit time in UTC, truncated to microseconds.

        Raises CorruptTableError: the time is out of the range of `datetime`.
        """
        try:
            return _EPOCH + datetime.timedelta(microseconds=self.timestamp_ns // 1000)
        except OverflowError:
            raise CorruptTableError(
                f"{self.name}: timestamp {self._proto.timestamp.seconds} s is out of range"
            ) from None

    @property
    def timestamp_us(self) -> int:
        """The commit time: microseconds since 1970 in UTC.

        Raises CorruptTableError: the time is out of the range of `datetime`.
        """
        return (self.timestamp - _EPOCH) // datetime.timedelta(microseconds=1)

    @property
    def data_storage_version(self) -> tuple[int, int]:
        """The file version of new data files, for example ``(2, 2)``.

        =======================  ==================================================================
        `data_format`            result
        =======================  ==================================================================
        2.0 or later             the stated version
        0.1                      0.1; but the version of the data files if none has version 0.1:
                                 pylance 0.16 did not correct the field when it wrote them
        missing                  the greatest version of the data files
        missing, without files   the version with which pylance creates a table, if the old flag
                                 for files of version 2 is set; else 0.1
        =======================  ==================================================================

        Raises CorruptTableError: the stated version is not valid.
        """
        if not self._proto.HasField("data_format"):
            versions = self._versions_of_files()
            has_flag = (self.flags.reader | self.flags.writer) & V2_FILES
            return max(versions, default=files.DEFAULT if has_flag else _LEGACY)
        version = self._stated_version()
        if version == _LEGACY:
            versions = self._versions_of_files()
            return version if _LEGACY in versions else max(versions, default=version)
        return version

    def check_file_format(self, table: str) -> None:
        """Refuse a table whose data files are not Lance files. pylance does not check this field.

        - `table`: The name of the table in errors.

        Raises UnsupportedFeatureError.
        """
        file_format = self._proto.data_format.file_format
        if file_format not in ("", files.FILE_FORMAT):
            raise UnsupportedFeatureError(
                f"{table}: its data files have the format {file_format!r} "
                "(data_format.file_format), this release reads and writes "
                f"{files.FILE_FORMAT!r} only; use the client that wrote the table"
            )

    @property
    def states_file_version(self) -> bool:
        """Whether `data_format` states the version of the data files correctly."""
        if not self._proto.HasField("data_format"):
            return False
        stated = self._stated_version()
        return stated != _LEGACY or stated == self.data_storage_version

    def _stated_version(self) -> tuple[int, int]:
        text = self._proto.data_format.version
        if text.lower() in _VERSION_NAMES:
            return _VERSION_NAMES[text.lower()]
        major, dot, minor = text.partition(".")
        if not (dot and len(text) < 12 and _is_number(major) and _is_number(minor)):
            raise CorruptTableError(f"{self.name}: {text!r} is not a version of data files")
        return int(major), int(minor)

    def _versions_of_files(self) -> set[tuple[int, int]]:
        numbers = {
            (file.file_major_version, file.file_minor_version)
            for fragment in self._proto.fragments
            for file in fragment.files
        }
        return {files.canonical(version) for version in numbers}

    @property
    def flags(self) -> Flags:
        """The feature flags."""
        return Flags(self._proto.reader_feature_flags, self._proto.writer_feature_flags)

    def check_writable(self, table: str) -> None:
        """Refuse a commit on this version, or on a copy of it, that this release cannot make.

        - `table`: The name of the table in errors.

        Raises UnsupportedFeatureError: the table needs a feature that this release does not write.
        """
        check_writable(self.flags, table)
        version = self._proto.blob_dataset_version
        if version:
            raise UnsupportedFeatureError(
                f"{table}: cannot write to it: its blobs are in a second table below _blobs/ "
                f"(blob_dataset_version {version}), which the change would have to change too. "
                f"Write its rows to a new table. {BLOB_DATASET_ADVICE}"
            )

    @property
    def config(self) -> dict[str, str]:
        """The configuration of the table."""
        return dict(self._proto.config)

    @property
    def table_metadata(self) -> dict[str, str]:
        """The metadata of the table."""
        return dict(self._proto.table_metadata)

    @property
    def max_fragment_id(self) -> int | None:
        """The greatest fragment id that the table ever used; None before the first fragment."""
        if self._proto.HasField("max_fragment_id"):
            return self._proto.max_fragment_id
        return max((fragment.id for fragment in self._proto.fragments), default=None)

    @property
    def first_new_field_id(self) -> int:
        """The first field id of the columns of an overwrite.

        It is 0, unless the table has the flag for field ids that are never used again. Raises
        CorruptTableError: the table has the flag, but does not record the greatest field id.
        """
        if not self.flags.writer & STABLE_FIELD_IDS:
            return 0
        if not self._proto.HasField("max_allocated_field_id"):
            raise CorruptTableError(
                f"{self.name}: writer flag {STABLE_FIELD_IDS} is set, "
                "but max_allocated_field_id is missing"
            )
        return self._proto.max_allocated_field_id + 1

    @property
    def next_row_id(self) -> int:
        """The stable row id of the next new row; 0 without stable row ids."""
        return self._proto.next_row_id

    @property
    def branch(self) -> str | None:
        """The branch of the version; None for the main branch.

        Raises CorruptTableError: the name leads out of the table.
        """
        if not self._proto.HasField("branch"):
            return None
        try:
            return check_relative(self._proto.branch)
        except InvalidInputError as error:
            raise CorruptTableError(f"{self.name}: branch: {error}") from None

    @property
    def base_paths(self) -> Mapping[int, BasePath]:
        """The base paths, by id.

        Raises CorruptTableError: a base path has no path, or two base paths have the same id.
        """
        bases: dict[int, BasePath] = {}
        for base in self._proto.base_paths:
            if base.id in bases:
                raise CorruptTableError(f"{self.name}: two base paths have the id {base.id}")
            try:
                bases[base.id] = BasePath.from_proto(base)
            except InvalidInputError as error:
                raise CorruptTableError(f"{self.name}: base paths: {error}") from None
        return bases

    @property
    def has_writer_version(self) -> bool:
        """Whether the manifest names its writer. The earliest releases did not write this field."""
        return bool(self._proto.HasField("writer_version"))

    @property
    def transaction_file(self) -> str | None:
        """The name of the transaction's file below _transactions/, if it was written."""
        return self._proto.transaction_file or None

    @property
    def message(self) -> table_pb2.Manifest:
        """The message itself, for loops over all fragments. It must not be changed."""
        return self._proto

    def to_proto(self) -> table_pb2.Manifest:
        """Return a copy of the message, with the fields that this release does not know."""
        copy = table_pb2.Manifest()
        copy.CopyFrom(self._proto)
        return copy

    def __repr__(self) -> str:
        count = len(self._proto.fragments)
        return f"Manifest({self.name!r}, version={self.version}, fragments={count})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (
            self._proto.SerializeToString(),
            self.name,
            self.index_section,
            self.transaction_section,
            self.dictionaries,
            self.size_bytes,
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _unpickle(
    data: bytes,
    name: str,
    index: bytes | None,
    transaction: bytes | None,
    dictionaries: bytes,
    size: int,
) -> Manifest:
    manifest = Manifest(
        table_pb2.Manifest.FromString(data),
        name,
        index_section=index,
        transaction_section=transaction,
        dictionaries=dictionaries,
        size_bytes=size,
    )
    # Another process read it; how long ago is not known.
    manifest.read_at = -math.inf
    return manifest


# --------------------------------------------------------------------------------------------------
# The greatest field id of a manifest: new fields get ids above it.


def max_field_id(manifest: table_pb2.Manifest) -> int:
    """Return the greatest field id that a manifest has or records; -1 without fields."""
    greatest = max((field.id for field in manifest.fields), default=-1)
    for fragment in manifest.fragments:
        for file in fragment.files:
            greatest = max(greatest, max(file.fields, default=-1))
        for overlay in fragment.overlays:
            greatest = max(greatest, max(overlay.data_file.fields, default=-1))
    if manifest.HasField("max_allocated_field_id"):
        greatest = max(greatest, manifest.max_allocated_field_id)
    return greatest
