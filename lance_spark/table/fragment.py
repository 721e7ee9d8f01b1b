"""Fragments and the files they consist of, as manifests and transactions name them.

A `Fragment` stands on its protobuf message and parses what is asked for: a manifest of 100,000 fragments opens without
touching them, and what this release does not know about a fragment survives every commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.storage.uri import check_relative

#: Row offsets are 32-bit.
MAX_PHYSICAL_ROWS = 2**32
#: Row addresses have 32 bits for the fragment.
MAX_ID = 2**32 - 1
#: Bytes of sequences that it costs less to carry along than to leave out.
_SMALL_LINEAGE = 1024


class DeletionFileType(Enum):
    """How a deletion file is written; the value is the file's suffix."""

    ARROW = "arrow"
    BITMAP = "bin"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with some columns of a fragment.

    Attributes
    ----------
    path : str
        Below data/, or below the base path.
    fields : tuple of int
        Field ids in the file: every field in version 2.0, leaves from 2.1 on. Negative ids are no fields of the schema:
        -2 stands for a column that another file replaced, -3 to -5 for row ids and versions of rows.
    column_indices : tuple of int
        Column of each entry of `fields`, -1 for none; empty in version 0.1.
    file_major_version, file_minor_version : int
    file_size_bytes : int
        0 = unknown.
    base_id : int, optional
        The base path it lies below, if not in the table itself.
    """

    path: str
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]
    file_major_version: int
    file_minor_version: int
    file_size_bytes: int = 0
    base_id: int | None = None

    @property
    def version(self) -> tuple[int, int]:
        """Version of the file."""
        return self.file_major_version, self.file_minor_version

    def to_proto(self) -> table_pb2.DataFile:
        """Return the message."""
        return table_pb2.DataFile(
            path=self.path,
            fields=self.fields,
            column_indices=self.column_indices,
            file_major_version=self.file_major_version,
            file_minor_version=self.file_minor_version,
            file_size_bytes=self.file_size_bytes,
            base_id=self.base_id,
        )

    @classmethod
    def from_proto(cls, proto: table_pb2.DataFile) -> DataFile:
        """Parse the message.

        Raises
        ------
        CorruptTableError
            The path leads outside of its folder, or the columns do not match the fields.
        """
        try:
            check_relative(proto.path)
        except InvalidInputError as error:
            raise CorruptTableError(f"data file {proto.path!r}: {error}") from None
        fields, columns = tuple(proto.fields), tuple(proto.column_indices)
        if columns and len(columns) != len(fields):
            raise CorruptTableError(
                f"data file {proto.path!r}: {len(columns)} columns for {len(fields)} fields"
            )
        return cls(
            proto.path,
            fields,
            columns,
            proto.file_major_version,
            proto.file_minor_version,
            proto.file_size_bytes,
            proto.base_id if proto.HasField("base_id") else None,
        )


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The file with the deleted row offsets of a fragment, all of them.

    Attributes
    ----------
    file_type : DeletionFileType
    read_version : int
        Version that the deletion was planned on.
    id : int
        Random, to make the name unique.
    num_deleted_rows : int
        0 = unknown.
    base_id : int, optional
        The base path it lies below, if not in the table itself.
    """

    file_type: DeletionFileType
    read_version: int
    id: int
    num_deleted_rows: int
    base_id: int | None = None

    def name(self, fragment_id: int) -> str:
        """Return the file's name below _deletions/."""
        return f"{fragment_id}-{self.read_version}-{self.id}.{self.file_type.value}"

    def to_proto(self) -> table_pb2.DeletionFile:
        """Return the message."""
        message = table_pb2.DeletionFile
        return message(
            file_type=message.ARROW_ARRAY
            if self.file_type is DeletionFileType.ARROW
            else message.BITMAP,
            read_version=self.read_version,
            id=self.id,
            num_deleted_rows=self.num_deleted_rows,
            base_id=self.base_id,
        )

    @classmethod
    def from_proto(cls, proto: table_pb2.DeletionFile) -> DeletionFile:
        """Parse the message.

        Raises
        ------
        CorruptTableError
            The type of the file is unknown.
        """
        if proto.file_type not in (proto.ARROW_ARRAY, proto.BITMAP):
            raise CorruptTableError(f"deletion file of unknown type {proto.file_type}")
        return cls(
            DeletionFileType.ARROW
            if proto.file_type == proto.ARROW_ARRAY
            else DeletionFileType.BITMAP,
            proto.read_version,
            proto.id,
            proto.num_deleted_rows,
            proto.base_id if proto.HasField("base_id") else None,
        )


class Lineage(Enum):
    """What is known of each row of a fragment in tables with stable row ids.

    The value: name in the `DataFragment` message, field that holds a serialised sequence, and id of the field that data files
    name if the values are a column of one of them. A third place is a range of another file.
    """

    ROW_IDS = ("row_id_sequence", "inline_row_ids", -3)
    CREATED = ("created_at_version_sequence", "inline_created_at_versions", -4)
    UPDATED = ("last_updated_at_version_sequence", "inline_last_updated_at_versions", -5)

    @property
    def field_id(self) -> int:
        """Id of the hidden column."""
        return self.value[2]

    @property
    def external(self) -> str:
        """Field that names the range of a file which holds a serialised sequence."""
        return f"external_{self.value[1].removeprefix('inline_')}"


@dataclass(frozen=True, slots=True)
class ExternalRange:
    """Bytes that stand in a file instead of the manifest.

    Attributes
    ----------
    path : str
        Below the table's root.
    offset, size : int
    """

    path: str
    offset: int
    size: int

    @classmethod
    def from_proto(cls, proto: table_pb2.ExternalFile) -> ExternalRange:
        """Parse the message.

        Raises
        ------
        CorruptTableError
            The path leads outside of the table.
        """
        try:
            check_relative(proto.path)
        except InvalidInputError as error:
            raise CorruptTableError(f"external file {proto.path!r}: {error}") from None
        return cls(proto.path, proto.offset, proto.size)


@dataclass(frozen=True, slots=True)
class Overlay:
    """New values for some cells of a fragment.

    Attributes
    ----------
    data_file : DataFile
        Holds the values.
    bitmaps : tuple of bytes
        Roaring bitmaps of the rows: one for all fields of the file, or one for each.
    """

    data_file: DataFile
    bitmaps: tuple[bytes, ...]

    @classmethod
    def from_proto(cls, proto: table_pb2.DataOverlayFile) -> Overlay:
        """Parse the message.

        Raises
        ------
        CorruptTableError
            Its file cannot be one, or the sets of rows do not match the fields.
        """
        file = DataFile.from_proto(proto.data_file)
        kind = proto.WhichOneof("coverage")
        if kind == "shared_offset_bitmap":
            return cls(file, (proto.shared_offset_bitmap,))
        bitmaps = tuple(proto.field_coverage.offset_bitmaps)
        if kind is None or len(bitmaps) != len(file.fields):
            raise CorruptTableError(
                f"overlay {file.path!r}: {len(bitmaps)} sets of rows for {len(file.fields)} fields"
            )
        return cls(file, bitmaps)


class Fragment:
    """Some rows of a table: data files with the same rows, minus the deleted ones. Immutable.

    Parameters
    ----------
    id : int
        0 for a new fragment; the commit assigns one.
    files : iterable of DataFile
    physical_rows : int
        Rows of the files, deleted ones included.
    deletion_file : DeletionFile, optional
    """

    __slots__ = ("_files", "_proto", "_source")

    _files: tuple[DataFile, ...] | None

    def __init__(
        self,
        id: int,  # noqa: A002 - the format's name
        files: Iterable[DataFile],
        physical_rows: int,
        deletion_file: DeletionFile | None = None,
    ) -> None:
        self._files = tuple(files)
        self._source = "new fragment"
        self._proto = table_pb2.DataFragment(
            id=id,
            files=[file.to_proto() for file in self._files],
            physical_rows=physical_rows,
            deletion_file=None if deletion_file is None else deletion_file.to_proto(),
        )

    @classmethod
    def from_proto(cls, proto: table_pb2.DataFragment, source: str) -> Fragment:
        """Stand on a message that nobody changes any more.

        Parameters
        ----------
        proto : table_pb2.DataFragment
        source : str
            What errors call the file that the message is from.

        Raises
        ------
        CorruptTableError
            The id has more than 32 bits.
        """
        return cls.from_protos((proto,), source)[0]

    @classmethod
    def from_protos(cls, protos: Iterable[table_pb2.DataFragment], source: str) -> list[Fragment]:
        """Stand on messages that nobody changes any more; see `from_proto`.

        Raises
        ------
        CorruptTableError
            An id has more than 32 bits.
        """
        new = cls.__new__
        fragments = []
        for proto in protos:
            if proto.id > MAX_ID:
                raise CorruptTableError(f"{source}: {proto.id} is no id of a fragment")
            one = new(cls)
            one._files = None
            one._proto = proto
            one._source = source
            fragments.append(one)
        return fragments

    @property
    def id(self) -> int:
        """Unique within the table, never used again."""
        return self._proto.id

    @property
    def physical_rows(self) -> int:
        """Rows of the files, deleted ones included; 0 if an early writer did not note them (see `row_counts`).

        Raises
        ------
        CorruptTableError
            More than a fragment can have.
        """
        rows = self._proto.physical_rows
        if rows > MAX_PHYSICAL_ROWS:
            raise self._corrupt(f"it cannot have {rows} rows, {MAX_PHYSICAL_ROWS} are the limit")
        return rows

    @property
    def num_deleted_rows(self) -> int:
        """Rows that are deleted.

        Raises
        ------
        CorruptTableError
            More than there are.
        """
        deleted = self._proto.deletion_file.num_deleted_rows
        if deleted > self.physical_rows:
            raise self._corrupt(f"{deleted} of its {self.physical_rows} rows are deleted")
        return deleted

    @property
    def num_rows(self) -> int:
        """Rows that are not deleted."""
        return self.physical_rows - self.num_deleted_rows

    def with_counts(self, physical_rows: int, num_deleted_rows: int) -> Fragment:
        """Return the fragment with other numbers of rows, and of rows that its deletion file deletes."""
        proto = self.to_proto()
        proto.physical_rows = physical_rows
        if proto.HasField("deletion_file"):
            proto.deletion_file.num_deleted_rows = num_deleted_rows
        return Fragment.from_proto(proto, self._source)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files.

        Raises
        ------
        CorruptTableError
            A path leads outside of the table, or columns do not match fields.
        """
        if self._files is None:
            try:
                self._files = tuple(DataFile.from_proto(file) for file in self._proto.files)
            except CorruptTableError as error:
                raise self._corrupt(str(error)) from None
        return self._files

    @property
    def deletion_file(self) -> DeletionFile | None:
        """The file with the deleted rows, if any are."""
        if not self._proto.HasField("deletion_file"):
            return None
        try:
            return DeletionFile.from_proto(self._proto.deletion_file)
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def has_lineage(self, kind: Lineage) -> bool:
        """Whether ids or versions of the rows are noted, wherever."""
        return self._proto.WhichOneof(kind.value[0]) is not None

    def has_lineage_column(self, kind: Lineage) -> bool:
        """Whether ids or versions of the rows are a column of a data file."""
        group, inline, _ = kind.value
        return self._proto.WhichOneof(group) not in (None, inline, kind.external)

    def inline_lineage(self, kind: Lineage) -> bytes | None:
        """Return a serialised sequence; None if there is none, or if it stands in a file."""
        group, inline, _ = kind.value
        return getattr(self._proto, inline) if self._proto.WhichOneof(group) == inline else None

    def external_lineage(self, kind: Lineage) -> ExternalRange | None:
        """Return where the serialised sequence stands in a file of its own; None if it does not.

        Raises
        ------
        CorruptTableError
            The file's path leads outside of the table.
        """
        if self._proto.WhichOneof(kind.value[0]) != kind.external:
            return None
        try:
            return ExternalRange.from_proto(getattr(self._proto, kind.external))
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    def without_lineage(self, kinds: Iterable[Lineage]) -> Fragment:
        """Return the fragment for readers that do not look at some of its sequences: itself, if they are small."""
        # One call for 100,000 fragments whose sequences are ranges.
        if self._proto.ByteSize() < _SMALL_LINEAGE:
            return self
        proto = self.to_proto()
        for kind in kinds:
            proto.ClearField(kind.value[1])
        return Fragment.from_proto(proto, self._source)

    @property
    def name(self) -> str:
        """What errors call the fragment."""
        return f"{self._source}: fragment {self.id}"

    @property
    def has_overlays(self) -> bool:
        """Whether some cells have new values."""
        return bool(self._proto.overlays)

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """New values for some cells, oldest first.

        Raises
        ------
        CorruptTableError
        """
        try:
            return tuple(Overlay.from_proto(one) for one in self._proto.overlays)
        except CorruptTableError as error:
            raise self._corrupt(str(error)) from None

    @property
    def size_bytes(self) -> int:
        """Bytes of the data files, as far as they are known."""
        files = self._proto.files
        if len(files) == 1:
            size: int = files[0].file_size_bytes
            return size
        return sum(file.file_size_bytes for file in files)

    @property
    def is_counted(self) -> bool:
        """Whether the message says how many rows there are, and how many of them are deleted."""
        proto = self._proto
        if not proto.physical_rows:
            return False
        return bool(not proto.HasField("deletion_file") or proto.deletion_file.num_deleted_rows)

    def to_proto(self) -> table_pb2.DataFragment:
        """Return a copy of the message, with all that this release does not know."""
        copy = table_pb2.DataFragment()
        copy.CopyFrom(self._proto)
        return copy

    def __eq__(self, other: object) -> bool:
        return self._proto == other._proto if isinstance(other, Fragment) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.id, self._proto.physical_rows))

    def __repr__(self) -> str:
        number = self._proto.deletion_file.num_deleted_rows
        deleted = f", num_deleted_rows={number}" if number else ""
        return f"Fragment(id={self.id}, files={self.files!r}, physical_rows={self.physical_rows}{deleted})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (self._proto.SerializeToString(), self._source)

    def _corrupt(self, what: str) -> CorruptTableError:
        return CorruptTableError(f"{self._source}: fragment {self.id}: {what}")


def _unpickle(data: bytes, source: str) -> Fragment:
    return Fragment.from_proto(table_pb2.DataFragment.FromString(data), source)
