"""The manifest of one version of a table, held in memory.

A `Manifest` wraps its protobuf message. Fields that this release does not know survive in the next
version: its message starts as a copy of this one, and the index section is copied as bytes.
`table.manifest.codec` documents the layout of the file.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Mapping
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
from lance_spark.table.fragments import file_versions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest import flags
from lance_spark.table.paths import BasePath

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Schema

_NANOS = 1_000_000_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LEGACY = file_versions.LEGACY
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
    - `tag`: The tag of the file (`storage.entity_tags`), if a listing had it.
    """

    __slots__ = (
        "_fragments",
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
            has_flag = (self.flags.reader | self.flags.writer) & flags.V2_FILES
            return max(versions, default=file_versions.DEFAULT if has_flag else _LEGACY)
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
        if file_format not in ("", file_versions.FILE_FORMAT):
            raise UnsupportedFeatureError(
                f"{table}: its data files have the format {file_format!r} "
                "(data_format.file_format), this release reads and writes "
                f"{file_versions.FILE_FORMAT!r} only; use the client that wrote the table"
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
        return {file_versions.canonical(version) for version in numbers}

    @property
    def flags(self) -> flags.Flags:
        """The feature flags."""
        return flags.Flags(self._proto.reader_feature_flags, self._proto.writer_feature_flags)

    def check_writable(self, table: str) -> None:
        """Refuse a commit on this version, or on a copy of it, that this release cannot make.

        - `table`: The name of the table in errors.

        Raises UnsupportedFeatureError: the table needs a feature that this release does not write.
        """
        flags.check_writable(self.flags, table)
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
        if not self.flags.writer & flags.STABLE_FIELD_IDS:
            return 0
        if not self._proto.HasField("max_allocated_field_id"):
            raise CorruptTableError(
                f"{self.name}: writer flag {flags.STABLE_FIELD_IDS} is set, "
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
