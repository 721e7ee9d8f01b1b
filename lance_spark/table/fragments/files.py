"""Parts of a fragment: data files, deletion file, overlays, and row lineage (ids and versions).

And a cache of the rows that deletion files delete, so that repeated reads of a table read each file
once. Deletion files are immutable and their names are never reused, so entries cannot become stale.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyroaring import BitMap

from lance_spark._forks import ForkLock
from lance_spark.errors import CorruptTableError, InvalidInputError, InvalidOptionError
from lance_spark.proto import table_pb2
from lance_spark.storage.uri import check_relative

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# --------------------------------------------------------------------------------------------------
# Sets of row offsets and fragment ids in manifests and transactions: Roaring bitmaps.


def parse_bitmap(data: bytes, name: str) -> BitMap:
    """Parse a Roaring bitmap of a manifest or transaction; errors call it `name`.

    Raises CorruptTableError.
    """
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTableError(f"{name}: the Roaring bitmap cannot be read: {error}") from error


# --------------------------------------------------------------------------------------------------
# Names and numbers of the versions of data files.

#: The name of the file format in manifests.
FILE_FORMAT = "lance"
#: The last one is not stable: pylance 14 writes and reads it with a warning.
WRITABLE = ((0, 1), (2, 0), (2, 1), (2, 2), (2, 3))
DEFAULT = (2, 2)
LEGACY = (0, 1)
#: The version number in early files of version 2.0.
_FIRST_VERSION_2 = (0, 3)
_VERSIONS = {
    "stable": DEFAULT,
    "legacy": (0, 1),
    "0.1": (0, 1),
    "0.3": (2, 0),
    "2.0": (2, 0),
    "2.1": (2, 1),
    "2.2": (2, 2),
    "2.3": (2, 3),
    "next": (2, 3),
}


def parse_version(name: str) -> tuple[int, int]:
    """Return the file version that an option names.

    Raises InvalidOptionError: the version is unknown.
    """
    version = _VERSIONS.get(name.strip().lower())
    if version is None:
        raise InvalidOptionError(
            f"data storage version {name!r} is not a version of data files; choose {writable()}"
        )
    return version


def canonical(version: tuple[int, int]) -> tuple[int, int]:
    """Return the version of a data file, from the numbers in its message.

    Files of version 0.1 are marked 0.0, 0.1 or 0.2, and early files of version 2.0 are marked 0.3.
    """
    if version == _FIRST_VERSION_2:
        return 2, 0
    return LEGACY if version < _FIRST_VERSION_2 else version


def text(version: tuple[int, int]) -> str:
    """Return a file version as text, for example ``2.2``."""
    return f"{version[0]}.{version[1]}"


def writable() -> str:
    """List the file versions that this release writes, for errors."""
    *all_but_last, last = (text(version) for version in WRITABLE)
    return f"{', '.join(all_but_last)} or {last}"


# --------------------------------------------------------------------------------------------------
# Parts of a fragment: data files, deletion file, overlays, and row lineage (ids and versions).

#: The id of a field that does not have an id yet.
_UNSET = -1
#: Default size of a cache of deleted rows.
CACHE_BYTES = 32 * 1024 * 1024


class DeletionFileType(Enum):
    """The format of a deletion file; the value is the suffix of the file."""

    ARROW = "arrow"
    BITMAP = "bin"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with some columns of all rows of a fragment.

    Attributes
    ----------
    path : str
        The path below data/, or below the base path.
    fields : tuple of int
        Field ids in the file: all fields in version 2.0, leaves from 2.1 on. Negative ids are not
        fields of the schema: -2 marks a column that another file replaced, -3 to -5 are row ids and
        versions of rows.
    column_indices : tuple of int
        The column of each entry of `fields`, -1 without a column; empty in version 0.1.
    file_size_bytes : int
        0 = unknown.
    base_id : int, optional
        The base path that contains the file; None for the table itself.
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
        """The file version; see `file_versions.canonical`."""
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
            The path leads out of its folder, or the columns do not match the fields, or a field has
            the id -1, or two fields have the same id or the same column.
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
    """Refuse field ids and columns that a writer must not store.

    pylance reads nulls for a field without an id, and refuses or misreads repeated numbers.
    """
    if _UNSET in fields:
        raise CorruptTableError(
            f"data file {path!r}: field id {_UNSET} means a field without an id, which must not be "
            "stored; go back to an older version"
        )
    for label, numbers in (("field id", fields), ("column", columns)):
        if len(set(numbers)) == len(numbers):
            continue
        seen: set[int] = set()
        for number in numbers:
            # Several fields may be replaced (-2), and several fields may lack a column (-1).
            if number >= 0 and number in seen:
                raise CorruptTableError(
                    f"data file {path!r}: {label} {number} occurs twice; "
                    "go back to an older version"
                )
            seen.add(number)


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The file with all deleted row offsets of a fragment.

    Attributes
    ----------
    read_version : int
        The version that the deletion was planned on.
    id : int
        A random number that makes the name unique.
    num_deleted_rows : int
        0 = unknown.
    base_id : int, optional
        The base path that contains the file; None for the table itself.
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
    """A per-row attribute of fragments of tables with stable row ids: row id or version.

    A value consists of the oneof in the `DataFragment` message, the field of it that holds the
    serialised sequence, and the field id in data files if the attribute is a hidden column of one.
    Otherwise the sequence is a range of an external file.
    """

    ROW_IDS = ("row_id_sequence", "inline_row_ids", -3)
    CREATED = ("created_at_version_sequence", "inline_created_at_versions", -4)
    UPDATED = ("last_updated_at_version_sequence", "inline_last_updated_at_versions", -5)

    @property
    def field_id(self) -> int:
        """The field id of the hidden column."""
        return self.value[2]

    @property
    def external(self) -> str:
        """The message field with the range of an external file."""
        return f"external_{self.value[1].removeprefix('inline_')}"


@dataclass(frozen=True, slots=True)
class ExternalRange:
    """A range of a file that holds a sequence outside of the manifest.

    - `path`: The path below the table's root.
    - `offset`, `size`: In bytes.
    """

    path: str
    offset: int
    size: int

    @classmethod
    def from_proto(cls, proto: table_pb2.ExternalFile) -> ExternalRange:
        """Parse the message. Raises CorruptTableError: the path leads out of the table."""
        try:
            check_relative(proto.path)
        except InvalidInputError as error:
            raise CorruptTableError(f"external file {proto.path!r}: {error}") from None
        return cls(proto.path, proto.offset, proto.size)


@dataclass(frozen=True, slots=True)
class Overlay:
    """New values for some columns and rows of a fragment.

    - `data_file`: The file with the values.
    - `bitmaps`: Roaring bitmaps of row offsets: one bitmap for all fields of the file, or one per
      field.
    - `committed_version`: The version that added the overlay; 0 if it is not recorded.
    """

    data_file: DataFile
    bitmaps: tuple[bytes, ...]
    committed_version: int = 0

    @property
    def offsets(self) -> BitMap | list[BitMap]:
        """The rows with new values: one set for all fields, or one for each field.

        Raises CorruptTableError: a bitmap cannot be decoded.
        """
        rows = [parse_bitmap(data, f"overlay {self.data_file.path!r}") for data in self.bitmaps]
        return rows[0] if len(rows) == 1 else rows

    def to_proto(self) -> table_pb2.DataOverlayFile:
        """Return the message."""
        proto = table_pb2.DataOverlayFile(
            data_file=self.data_file.to_proto(), committed_version=self.committed_version
        )
        if len(self.bitmaps) == 1:
            proto.shared_offset_bitmap = self.bitmaps[0]
        else:
            proto.field_coverage.offset_bitmaps.extend(self.bitmaps)
        return proto

    @classmethod
    def from_proto(cls, proto: table_pb2.DataOverlayFile) -> Overlay:
        """Parse the message.

        Raises CorruptTableError: the data file is not valid, or the bitmaps do not match the
        fields.
        """
        file = DataFile.from_proto(proto.data_file)
        coverage = proto.WhichOneof("coverage")
        if coverage == "shared_offset_bitmap":
            return cls(file, (proto.shared_offset_bitmap,), proto.committed_version)
        bitmaps = tuple(proto.field_coverage.offset_bitmaps)
        if coverage is None or len(bitmaps) != len(file.fields):
            raise CorruptTableError(
                f"overlay {file.path!r}: {len(bitmaps)} row bitmaps for {len(file.fields)} fields"
            )
        return cls(file, bitmaps, proto.committed_version)


class DeletionCache:
    """A least-recently-used cache of the offsets of deleted rows.

    Threads can share a cache. A pickled cache is empty when it is unpickled.

    - `max_bytes`: Bytes of offsets that are kept.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = ForkLock()
        self._entries: OrderedDict[tuple[int, DeletionFile], npt.NDArray[np.int64]] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[int, DeletionFile]) -> npt.NDArray[np.int64] | None:
        """Return the offsets of a file, or None if they are not cached."""
        with self._lock:
            offsets = self._entries.get(key)
            if offsets is not None:
                self._entries.move_to_end(key)
            return offsets

    def put(self, key: tuple[int, DeletionFile], offsets: npt.NDArray[np.int64]) -> None:
        """Cache the offsets of a file and make them read-only; ignore very large arrays."""
        offsets.flags.writeable = False
        if offsets.nbytes > self._max_bytes:
            return
        with self._lock:
            if key in self._entries:
                return
            self._entries[key] = offsets
            self._bytes += offsets.nbytes
            while self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped.nbytes

    def __reduce__(self) -> tuple[type[DeletionCache], tuple[int]]:
        return DeletionCache, (self._max_bytes,)
