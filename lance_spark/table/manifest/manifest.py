"""One version of a table, as its manifest says.

A `Manifest` stands on its protobuf message. What this release does not know survives in the next version: the next
message starts as a copy, and the index section is carried as bytes. `manifest_file` has the layout of the file.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Mapping
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
#: What a user can do with a table whose blobs are in a second table; see `table.blob_dataset`.
BLOB_DATASET_ADVICE = (
    "The second table can be opened by itself, at that version, and joined by _rowid: "
    "see docs/blobs.md"
)
_VERSION_NAMES = {"legacy": (0, 1), "0.1": (0, 1), "0.3": (2, 0), "": (2, 0)}


class Manifest:
    """One version of a table. Immutable; parses what is asked for.

    Parameters
    ----------
    proto : table_pb2.Manifest
        Nobody changes it any more.
    name : str
        What errors call the file.
    index_section : bytes, optional
        `IndexSection`, not parsed.
    transaction_section : bytes, optional
        `Transaction`, not parsed.
    dictionaries : bytes
        What stands before the sections, if fields refer to dictionary values there.
    size_bytes : int
        Length of the file.
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
        #: When it was the version that is there, by `time.monotonic`.
        self.read_at = time.monotonic()

    @property
    def version(self) -> int:
        """The version of the table, from 1 on."""
        return self._proto.version

    @property
    def schema(self) -> Schema:
        """The columns, with field ids.

        Raises
        ------
        CorruptTableError
            The fields are no tree.
        """
        if self._schema is None:
            # The file room takes Arrow along, which listing versions does without.
            from lance_spark.file.schema.schema import Schema

            try:
                self._schema = Schema.from_protos(self._proto.fields, self._proto.schema_metadata)
            except CorruptFileError as error:
                raise CorruptTableError(f"{self.name}: {error}") from None
            if self.dictionaries:
                # Few tables have them.
                from lance_spark.file.v0_1.dictionaries import with_dictionaries

                self._schema = with_dictionaries(self._schema, self.dictionaries)
        return self._schema

    @property
    def schema_metadata(self) -> dict[str, bytes]:
        """Metadata of the schema."""
        return dict(self._proto.schema_metadata)

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments, in the order of their rows."""
        if self._fragments is None:
            self._fragments = tuple(Fragment.from_protos(self._proto.fragments, self.name))
        return self._fragments

    @property
    def num_rows(self) -> int:
        """Rows that are not deleted."""
        return sum(fragment.num_rows for fragment in self.fragments)

    @property
    def timestamp_ns(self) -> int:
        """When the version was committed: nanoseconds since 1970 in UTC, by the clock of the writer."""
        stamp = self._proto.timestamp
        return int(stamp.seconds * _NANOS + stamp.nanos)

    @property
    def identity(self) -> tuple[int, str | None]:
        """What tells the version from one of the same number, of a table that is made anew in the same place."""
        return self.timestamp_ns, self.transaction_file

    @property
    def timestamp(self) -> datetime.datetime:
        """When the version was committed, in UTC, cut to microseconds.

        Raises
        ------
        CorruptTableError
            No time that a calendar has.
        """
        try:
            return _EPOCH + datetime.timedelta(microseconds=self.timestamp_ns // 1000)
        except OverflowError:
            raise CorruptTableError(
                f"{self.name}: timestamp {self._proto.timestamp.seconds} s is out of range"
            ) from None

    @property
    def timestamp_us(self) -> int:
        """When the version was committed: microseconds since 1970 in UTC.

        Raises
        ------
        CorruptTableError
            No time that a calendar has.
        """
        return (self.timestamp - _EPOCH) // datetime.timedelta(microseconds=1)

    @property
    def data_storage_version(self) -> tuple[int, int]:
        """Version of the data files that writers have to write, for example ``(2, 2)``.

        =======================  ====================================================================
        `data_format`            the version
        =======================  ====================================================================
        2.0 or later             as it says
        0.1                      0.1; but that of the data files, if none of them is of version 0.1:
                                 pylance 0.16 did not correct the field when it wrote them
        missing                  that of the data files, the latest one if there are several
        missing, without files   what pylance creates a table with, if the old flag for files of
                                 version 2 is set; else 0.1
        =======================  ====================================================================

        Raises
        ------
        CorruptTableError
            It cannot be read.
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
        """Refuse a table whose data files are not Lance files; pylance does not look at the field.

        Parameters
        ----------
        table : str
            What errors call the table.

        Raises
        ------
        UnsupportedFeatureError
        """
        file_format = self._proto.data_format.file_format
        if file_format not in ("", file_versions.FILE_FORMAT):
            raise UnsupportedFeatureError(
                f"{table}: its data files are of the format {file_format!r} (data_format.file_format), this release reads and writes "
                f"{file_versions.FILE_FORMAT!r} only; use the client that wrote the table"
            )

    @property
    def states_file_version(self) -> bool:
        """Whether `data_format` says of which version data files are, and is right."""
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
            raise CorruptTableError(f"{self.name}: {text!r} is no version of data files")
        return int(major), int(minor)

    def _versions_of_files(self) -> set[tuple[int, int]]:
        numbers = {
            (file.file_major_version, file.file_minor_version)
            for fragment in self._proto.fragments
            for file in fragment.files
        }
        return {file_versions.canonical(one) for one in numbers}

    @property
    def flags(self) -> flags.Flags:
        """What a client has to understand."""
        return flags.Flags(self._proto.reader_feature_flags, self._proto.writer_feature_flags)

    def check_writable(self, table: str) -> None:
        """Refuse a commit on top of this version, or of a copy of it, that this release cannot make.

        Parameters
        ----------
        table : str
            What errors call the table.

        Raises
        ------
        UnsupportedFeatureError
            The table needs more than this release does.
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
        """Configuration of the table."""
        return dict(self._proto.config)

    @property
    def table_metadata(self) -> dict[str, str]:
        """Metadata of the table."""
        return dict(self._proto.table_metadata)

    @property
    def max_fragment_id(self) -> int | None:
        """Greatest fragment id ever given; None before the first."""
        if self._proto.HasField("max_fragment_id"):
            return self._proto.max_fragment_id
        return max((fragment.id for fragment in self._proto.fragments), default=None)

    @property
    def first_new_field_id(self) -> int:
        """The field id that the columns of an overwrite start with: 0, but in tables that never use one again.

        Raises
        ------
        CorruptTableError
            The table is such a one, but does not note which ids there were.
        """
        if not self.flags.writer & flags.STABLE_FIELD_IDS:
            return 0
        if not self._proto.HasField("max_allocated_field_id"):
            raise CorruptTableError(
                f"{self.name}: writer flag {flags.STABLE_FIELD_IDS} is set, but max_allocated_field_id is missing"
            )
        return self._proto.max_allocated_field_id + 1

    @property
    def next_row_id(self) -> int:
        """The stable row id that the next new row gets; 0 without stable row ids."""
        return self._proto.next_row_id

    @property
    def branch(self) -> str | None:
        """The branch that the version is on; None for the main one.

        Raises
        ------
        CorruptTableError
            The name leads out of the table.
        """
        if not self._proto.HasField("branch"):
            return None
        try:
            return check_relative(self._proto.branch)
        except InvalidInputError as error:
            raise CorruptTableError(f"{self.name}: branch: {error}") from None

    @property
    def base_paths(self) -> Mapping[int, BasePath]:
        """Other roots that files of the table lie below, by id.

        Raises
        ------
        CorruptTableError
            One has no path, or two have one id.
        """
        found: dict[int, BasePath] = {}
        for base in self._proto.base_paths:
            if base.id in found:
                raise CorruptTableError(f"{self.name}: two base paths have the id {base.id}")
            try:
                found[base.id] = BasePath.from_proto(base)
            except InvalidInputError as error:
                raise CorruptTableError(f"{self.name}: base paths: {error}") from None
        return found

    @property
    def has_writer_version(self) -> bool:
        """Whether the writer says what it is; the earliest releases do not."""
        return bool(self._proto.HasField("writer_version"))

    @property
    def transaction_file(self) -> str | None:
        """Name of the transaction's file below _transactions/, if one was written."""
        return self._proto.transaction_file or None

    @property
    def message(self) -> table_pb2.Manifest:
        """The message itself, for those who look at every fragment. Nobody changes it."""
        return self._proto

    def to_proto(self) -> table_pb2.Manifest:
        """Return a copy of the message, with all that this release does not know."""
        copy = table_pb2.Manifest()
        copy.CopyFrom(self._proto)
        return copy

    def __repr__(self) -> str:
        return f"Manifest({self.name!r}, version={self.version}, fragments={len(self._proto.fragments)})"

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
    # Another process has read it, some time ago.
    manifest.read_at = -math.inf
    return manifest
