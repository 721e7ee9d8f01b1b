"""The bytes of blobs: as files, whole, or in ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.meta import BLOB_V2
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import Handling
from lance_spark.scan.blob_files import BlobFile, blob_addresses, blob_schema, take_blobs
from lance_spark.scan.take import take_addresses

if TYPE_CHECKING:
    from lance_spark.dataset.reader import VersionReader


# --------------------------------------------------------------------------------------------------
# Values of blob columns for `write_dataset`, by pylance's names: `blob_field`, `blob_array`.

_STORAGE = pa.struct(
    [
        pa.field("data", pa.large_binary()),
        pa.field("uri", pa.string()),
        pa.field("position", pa.uint64()),
        pa.field("size", pa.uint64()),
    ]
)
_THRESHOLDS = {
    "inline_size_threshold": ("lance-encoding:blob-inline-size-threshold", 0),
    "dedicated_size_threshold": ("lance-encoding:blob-dedicated-size-threshold", 1),
    "pack_file_size_threshold": ("lance-encoding:blob-pack-file-size-threshold", 1),
}


class BlobType(pa.ExtensionType):  # type: ignore[misc]
    """The Arrow type of blobs that are written: bytes, or a URI and a range of it.

    Arrow does not know it by its name, so that pylance can be imported beside this package.
    """

    def __init__(self) -> None:
        super().__init__(_STORAGE, BLOB_V2.decode())

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, data: bytes) -> BlobType:
        return cls()


@dataclass(frozen=True, slots=True)
class Blob:
    """A value of a blob column.

    Attributes
    ----------
    data : bytes, optional
    uri : str, optional
        A file that has the bytes.
    position, size : int, optional
        The part of the file.

    Raises
    ------
    InvalidInputError
        Not exactly one of `data` and `uri` is given, or a range is not complete.
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.data is None) is (self.uri is None):
            raise InvalidInputError("a blob needs either data or uri; None is a null blob")
        if self.uri == "":
            raise InvalidInputError("the uri of a blob must not be empty")
        if (self.position is None) is not (self.size is None):
            raise InvalidInputError("a blob needs both position and size, or neither")
        if self.position is None or self.size is None:
            return
        if self.uri is None:
            raise InvalidInputError("position and size are of blobs with a uri")
        if self.position < 0 or self.size < 1:
            raise InvalidInputError("position of a blob must be at least 0, and size at least 1")

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Blob:
        """Return a blob of bytes."""
        return Blob(data=bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """Return a blob that is a file, or a part of one."""
        return Blob(uri=uri, position=position, size=size)

    @staticmethod
    def empty() -> Blob:
        """Return a blob without bytes."""
        return Blob(data=b"")


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field:
    """Return the Arrow field of a blob column.

    Parameters
    ----------
    name : str
    nullable : bool
    inline_size_threshold : int, optional
        Most bytes of a value that is stored in the data file.
    dedicated_size_threshold : int, optional
        Most bytes of a value that shares a file with others.
    pack_file_size_threshold : int, optional
        Bytes at which such a file is closed.

    Raises
    ------
    InvalidInputError
        A number is out of range.
    """
    thresholds = {
        "inline_size_threshold": inline_size_threshold,
        "dedicated_size_threshold": dedicated_size_threshold,
        "pack_file_size_threshold": pack_file_size_threshold,
    }
    metadata = {}
    for parameter, value in thresholds.items():
        key, least = _THRESHOLDS[parameter]
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidInputError(f"{parameter} must be a number from {least} on, not {value!r}")
        metadata[key] = str(value)
    return pa.field(name, BlobType(), nullable, metadata or None)


def blob_array(values: Iterable[Any]) -> pa.ExtensionArray:
    """Return blobs for a column of `blob_field`.

    Parameters
    ----------
    values : iterable of bytes, str, Blob or None
        A text is the URI of a file.

    Raises
    ------
    InvalidInputError
        A value has another type.
    """
    items = [_item(value) for value in values]
    return pa.ExtensionArray.from_storage(BlobType(), pa.array(items, _STORAGE))


def _item(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        value = Blob.from_bytes(value)
    elif isinstance(value, str):
        value = Blob.from_uri(value)
    if not isinstance(value, Blob):
        raise InvalidInputError(
            f"a blob must be bytes, a URI or a Blob, not {type(value).__name__}"
        )
    return {name: getattr(value, name) for name in ("data", "uri", "position", "size")}


# --------------------------------------------------------------------------------------------------
# The bytes of blobs: as files, whole, or in ranges.

_SELECTORS = ("ids", "addresses", "indices")


def open_blobs(
    reader: VersionReader, column: str, rows: Mapping[str, Any], buffer_size: int
) -> list[BlobFile | None]:
    """Return blobs as file objects; see `Dataset.take_blobs`.

    - `rows`: ``ids``, ``addresses`` and ``indices`` of rows; exactly one is given, and not None.
    """
    finder = reader.row_finder()
    return take_blobs(reader.table, reader.fragments, column, rows, buffer_size, finder)


def read_blobs(
    reader: VersionReader, column: str, rows: Mapping[str, Any]
) -> list[tuple[int, bytes | None]]:
    """Return the addresses of rows and the bytes of their blobs; see `Dataset.read_blobs`."""
    table = reader.table
    schema = blob_schema(table, column, Handling.BINARY)
    row_addresses = blob_addresses(table, reader.fragments, rows, reader.row_finder())
    taken = take_addresses(
        table.paths,
        reader.fragments,
        schema,
        row_addresses.astype(np.uint64),
        reader.open_files,
    )
    values: Any = taken.column(0).combine_chunks()
    for field in table.schema.path(column)[1:]:
        values = pc.struct_field(values, field.name)
    return list(zip(row_addresses.tolist(), values.to_pylist(), strict=True))


def read_ranges(
    reader: VersionReader,
    column: str,
    requests: Sequence[tuple[int, int, int]],
    selector: str,
) -> list[tuple[int, int, bytes | None]]:
    """Return ranges of the bytes of blobs; see `Dataset.read_blob_ranges`.

    Raises InvalidInputError: the selector is unknown, or a range lies outside its blob.
    """
    if selector not in _SELECTORS:
        raise InvalidInputError(
            f"selector must be one of {', '.join(_SELECTORS)}, not {selector!r}"
        )
    parsed = [(int(row), int(offset), int(length)) for row, offset, length in requests]
    rows: dict[str, Any] = {selector: [row for row, _, _ in parsed]}
    row_addresses = blob_addresses(reader.table, reader.fragments, rows, reader.row_finder())
    by_row: dict[int, list[int]] = {}
    for number, address in enumerate(row_addresses.tolist()):
        by_row.setdefault(address, []).append(number)
    parts: list[bytes | None] = [None] * len(parsed)
    files = open_blobs(reader, column, {"addresses": list(by_row)}, 0)
    for file, numbers in zip(files, by_row.values(), strict=True):
        if file is None:
            continue
        with file:
            read = file.read_ranges([parsed[number][1:] for number in numbers])
        for number, data in zip(numbers, read, strict=True):
            parts[number] = data
    return list(zip(range(len(parsed)), row_addresses.tolist(), parts, strict=True))
