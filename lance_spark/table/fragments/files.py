"""The parts of fragments: data files, deletion files, overlays, row ids and row versions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.storage.uri import check_relative
from lance_spark.table.fragments.file_versions import canonical

#: Id of a field before one is assigned.
_UNSET = -1


class DeletionFileType(Enum):
    """Type of a deletion file; the value is the suffix of the file."""

    ARROW = "arrow"
    BITMAP = "bin"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with some columns of a fragment.

    Attributes
    ----------
    path : str
        Path below data/, or below the base path.
    fields : tuple of int
        Field ids in the file: all fields in version 2.0, leaves from 2.1 on. Negative ids are not
        fields of the schema: -2 is a column that another file replaced, -3 to -5 are row ids and
        row versions.
    column_indices : tuple of int
        Column of each entry of `fields`, -1 without a column; empty in version 0.1.
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
        """File version; the numbers 0.0 to 0.2 mean 0.1, and 0.3 means 2.0."""
        return canonical((self.file_major_version, self.file_minor_version))

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
            The path leads outside of its folder, or the columns do not match the fields, or a field
            has the id -1, or two fields have one id or one column.
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
        _check_fields(proto.path, fields, columns)
        return cls(
            proto.path,
            fields,
            columns,
            proto.file_major_version,
            proto.file_minor_version,
            proto.file_size_bytes,
            proto.base_id if proto.HasField("base_id") else None,
        )


def _check_fields(path: str, fields: tuple[int, ...], columns: tuple[int, ...]) -> None:
    """Refuse invalid field ids and columns, which pylance refuses or misreads."""
    if _UNSET in fields:
        raise CorruptTableError(
            f"data file {path!r}: field id {_UNSET} stands for a field without an id, which must "
            "not be stored; "
            "go back to an older version"
        )
    for what, numbers in (("field id", fields), ("column", columns)):
        if len(set(numbers)) == len(numbers):
            continue
        seen: set[int] = set()
        for number in numbers:
            # Several fields may be replaced (-2), and several may have no column (-1).
            if number >= 0 and number in seen:
                raise CorruptTableError(
                    f"data file {path!r}: {what} {number} occurs twice; go back to an older version"
                )
            seen.add(number)


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The file with all deleted row offsets of a fragment.

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
        """Return the name of the file below _deletions/."""
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
    """A value of each row in tables with stable row ids: its id or one of its versions.

    The value of a member: name in the `DataFragment` message, field with a serialised sequence, and
    field id if the values are a column of a data file. A sequence can also be a range of another
    file.
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
        """Field with the range of a file that holds a serialised sequence."""
        return f"external_{self.value[1].removeprefix('inline_')}"


@dataclass(frozen=True, slots=True)
class ExternalRange:
    """Bytes in a file instead of the manifest.

    Attributes
    ----------
    path : str
        Path below the root of the table.
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
        File with the values.
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
            The file is not valid for an overlay, or the sets of rows do not match the fields.
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
