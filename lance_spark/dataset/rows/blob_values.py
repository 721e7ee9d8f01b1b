"""Values of blob columns for `write_dataset`, by pylance's names: `blob_field`, `blob_array`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_spark.encoding.field_metadata import BLOB_V2
from lance_spark.errors import InvalidInputError

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
