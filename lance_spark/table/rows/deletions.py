"""Deletion files: a deletion file holds the offsets of all deleted rows of one fragment.

| suffix | content |
| --- | --- |
| `.arrow` | Arrow IPC file: one batch, one column `row_id: uint32 not null`, offsets in any order |
|  | int32, as the specification has it, is read, too; no client writes it |
| `.bin` | 32-bit Roaring bitmap, portable serialisation |

A file always holds all deleted rows of its fragment. Files of fewer than 5,000 rows are Arrow
files, others are bitmaps, as in pylance. Readers accept both. The name of a file consists of the
fragment id, the version that the deletion was planned on, and a random number, and is never reused.
The upper 40 bits of the number may be a tag, which identifies the files of one job.
"""

from __future__ import annotations

import array
import re
import secrets
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import distinct
from lance_spark.errors import CorruptFileError, CorruptTableError, StorageError
from lance_spark.storage.source import Bytes
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments.files import DeletionFile, DeletionFileType, parse_bitmap
from lance_spark.table.fragments.fragment import MAX_PHYSICAL_ROWS, Fragment
from lance_spark.table.paths import TablePaths, deletion_path

# --------------------------------------------------------------------------------------------------
# Checks of the decompressed size of Arrow IPC files and streams, before Arrow allocates it.
#
# Arrow trusts the length that is stored before a compressed buffer: some kilobytes of compressed
# zeros can become gigabytes. The check reads these lengths from the file:
#
# | part | content |
# | --- | --- |
# | last 10 bytes | int32 length of the footer, ``ARROW1`` |
# | footer | table; field 2: dictionary batches, field 3: record batches, each a vector of blocks |
# | block | int64 position, int32 length of the message, padding, int64 length of the body |
# | message | uint32 ``0xFFFFFFFF``, int32 length, table; field 0: version; field 2: header table |
# | header | field 0: int64 rows; field 2: vector of buffers; field 3: compression, if any |
# | buffer | int64 position in the body, int64 length |
# | compressed buffer | int64 decompressed length, or -1 if not compressed; the bytes |
#
# A stream (`check_decompressed_stream`) is the messages and bodies of the blocks, one after the
# other: field 1 of a message is the type of its header, field 3 the int64 length of its body. The
# header of a dictionary batch has the record batch in its field 1. A stream ends after its last
# message, or with a message of length 0.
#
# A table begins with the distance back to its vtable: uint16 length of the vtable, uint16 length of
# the table, uint16 position in the table of each field.
#
# Other content of a file that Arrow would decompress is rejected. No writer of deletion files
# produces it: dictionaries, a second message in a block (Arrow reads the last one), and metadata
# versions before V5, in which metadata can declare buffers as compressed
# (``ARROW:experimental_compression`` of Arrow 0.17).
#
# Specification: Arrow columnar format, "IPC File Format" and "Compression".

_UINT16 = struct.Struct("<H")
_INT16 = struct.Struct("<h")
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_BLOCK = struct.Struct("<qi4xq")
_BUFFER = struct.Struct("<qq")
#: Bytes of the length of the footer and of the magic at the end of the file.
_END = 10
_CONTINUATION = b"\xff\xff\xff\xff"
#: `MetadataVersion.V5`, since Arrow 1.0.
_V5 = 4
#: Types of headers of messages.
_SCHEMA_HEADER, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3


def check_decompressed_size(data: Bytes, max_bytes: int) -> None:
    """Raise an error unless an IPC file is one batch of plain columns of limited size.

    Other damage of the file is left to Arrow.

    - `max_bytes`: Maximum decompressed size of all buffers together.

    Raises ValueError: the decompressed size is greater, or the data is not an IPC file with one
    record batch, no dictionaries and metadata version V5.
    """
    file = memoryview(data.tobytes())
    try:
        size = _decompressed_size(file)
    except (struct.error, IndexError) as error:
        raise ValueError(f"not an Arrow IPC file: {error}") from None
    if size > max_bytes:
        raise ValueError(f"its buffers decompress to {size} bytes, the maximum is {max_bytes}")


def check_decompressed_stream(data: bytes, max_bytes: int) -> None:
    """Raise an error unless an IPC stream has plain messages, and batches of limited size.

    Other damage of the stream is left to Arrow.

    - `max_bytes`: Maximum decompressed size of all buffers together.

    Raises ValueError: the decompressed size is greater, or the data is not an IPC stream of
    metadata version V5.
    """
    stream = memoryview(data)
    size = position = 0
    try:
        while position < len(stream):
            if _part(stream, position, 4) != _CONTINUATION:
                raise ValueError(f"not an Arrow IPC stream: no message at byte {position}")
            (length,) = _INT32.unpack(_part(stream, position + 4, 4))
            if not length:
                break
            message = _part(stream, position + 8, length)
            position += 8 + length
            header_type, header, body_bytes = _parts_of(message)
            body = _part(stream, position, body_bytes)
            position += body_bytes
            if header_type == _DICTIONARY_BATCH and header is not None:
                batch = _field(message, header, 1)
                header = None if batch is None else _target(message, batch)
            elif header_type not in (_SCHEMA_HEADER, _RECORD_BATCH):
                raise ValueError(f"not an Arrow IPC stream: a message of type {header_type}")
            if header_type != _SCHEMA_HEADER and header is not None:
                size += _size_of_buffers(message, header, body)
    except (struct.error, IndexError) as error:
        raise ValueError(f"not an Arrow IPC stream: {error}") from None
    if size > max_bytes:
        raise ValueError(f"its buffers decompress to {size} bytes, the maximum is {max_bytes}")


def _parts_of(message: memoryview) -> tuple[int, int | None, int]:
    """Return the type of the header, the position of the header, and the length of the body."""
    root = _root(message)
    _check_version(message, root)
    type_field, header, length = (_field(message, root, number) for number in (1, 2, 3))
    return (
        0 if type_field is None else message[type_field],
        None if header is None else _target(message, header),
        0 if length is None else int(_INT64.unpack(_part(message, length, 8))[0]),
    )


def _decompressed_size(data: memoryview) -> int:
    (length,) = _INT32.unpack_from(data, len(data) - _END)
    footer = _part(data, len(data) - _END - length, length)
    dictionaries, batches = (_blocks(footer, number) for number in (2, 3))
    if len(dictionaries):
        raise ValueError(f"it has {len(dictionaries)} dictionary batches, 0 are expected")
    if len(batches) != 1:
        raise ValueError(f"it has {len(batches)} record batches, 1 is expected")
    position, message_bytes, body_bytes = _BLOCK.unpack_from(footer, batches[0])
    message = _message(_part(data, position, message_bytes))
    return _size_of_batch(message, _part(data, position + message_bytes, body_bytes))


def _blocks(footer: memoryview, number: int) -> range:
    field = _field(footer, _root(footer), number)
    return range(0) if field is None else _items(footer, field, _BLOCK.size)


def _message(block: memoryview) -> memoryview:
    """Return the flatbuffer of the only message of a block."""
    start = 8 if block[:4] == _CONTINUATION else 4
    (length,) = _INT32.unpack_from(block, start - 4)
    if start + length != len(block):
        raise ValueError(f"a message of {start + length} bytes in a block of {len(block)}")
    message = block[start:]
    _check_version(message, _root(message))
    return message


def _check_version(message: memoryview, root: int) -> None:
    field = _field(message, root, 0)
    version = 0 if field is None else _INT16.unpack(_part(message, field, 2))[0]
    if version != _V5:
        raise ValueError(f"its batch is of metadata version V{version + 1}, V5 is expected")


def _size_of_batch(message: memoryview, body: memoryview) -> int:
    """Return the decompressed size of all buffers of the record batch of a message."""
    header = _field(message, _root(message), 2)
    return 0 if header is None else _size_of_buffers(message, _target(message, header), body)


def _size_of_buffers(message: memoryview, batch: int, body: memoryview) -> int:
    """Return the decompressed size of all buffers of a record batch."""
    buffers, compression = (_field(message, batch, number) for number in (2, 3))
    if buffers is None or compression is None:
        return 0
    total = 0
    for item in _items(message, buffers, _BUFFER.size):
        position, length = _BUFFER.unpack_from(message, item)
        if length:
            (size,) = _INT64.unpack_from(_part(body, position, length))
            total += max(size, 0)
    return total


def _part(data: memoryview, start: int, length: int) -> memoryview:
    if start < 0 or length < 0 or start + length > len(data):
        raise IndexError(f"{length} bytes at {start} of {len(data)}")
    return data[start : start + length]


def _root(data: memoryview) -> int:
    return _target(data, 0)


def _target(data: memoryview, position: int) -> int:
    """Follow the offset at a position."""
    return position + int.from_bytes(_part(data, position, 4), "little")


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Return the position of a field of a table; None if the field has its default value."""
    (distance,) = _INT32.unpack(_part(data, table, 4))
    vtable = table - distance
    (size,) = _UINT16.unpack(_part(data, vtable, 2))
    entry = 4 + 2 * number
    if entry + 2 > size:
        return None
    (offset,) = _UINT16.unpack(_part(data, vtable + entry, 2))
    return table + int(offset) if offset else None


def _items(data: memoryview, field: int, width: int) -> range:
    """Return the positions of the items of a vector."""
    start = _target(data, field)
    count = int.from_bytes(_part(data, start, 4), "little")
    _part(data, start + 4, count * width)
    return range(start + 4, start + 4 + count * width, width)


# --------------------------------------------------------------------------------------------------
# Deletion files: a deletion file holds the offsets of all deleted rows of one fragment.

#: Row offsets within a fragment, strictly increasing.
Offsets = npt.NDArray[np.int64]

#: Bytes of an offset and its validity in an Arrow file, rounded up, and of the padding of both
#: buffers.
_WIDTH = 5
_PADDING = 128
#: The smallest number of deleted rows for which a bitmap is written.
BITMAP_FROM = 5_000
#: Most bytes of a file whose content is kept with its offsets, and most such files.
_SHORT = 2 * 1024
_KEPT = 1024
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_ID_BITS = 64
#: Bytes of a tag in the number of a file, and the bits that stay random.
_TAG_BYTES = 5
_RANDOM_BITS = _ID_BITS - 8 * _TAG_BYTES
#: Most deletion files that are requested before they are read.
_MOST_EXPECTED = 1024
#: Names of deletion files, and of their unfinished files on local disks.
_NAME = re.compile(r"\.?\d+-\d+-(\d+)\.(?:arrow|bin)(?:\.\w+\.tmp)?")


def read_deletions(paths: TablePaths, fragment: Fragment) -> Offsets:
    """Return the offsets of the deleted rows of a fragment.

    Returns row offsets, strictly increasing; empty if the fragment has no deletion file. Read-only,
    since `paths` caches it. Raises MissingFileError, StorageError. Raises CorruptFileError: the
    file is corrupt, or contradicts the manifest.
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, dtype=np.int64)
    key = fragment.id, file
    offsets = paths.deletions.get(key)
    if offsets is None:
        try:
            offsets = _read(paths, fragment, file)
        except CorruptFileError:
            # Its size is not known, so a cut answer that another reader got may have been kept.
            paths.forget_deletion_file(file, fragment.id)
            offsets = _read(paths, fragment, file)
        paths.deletions.put(key, offsets)
    return offsets


def expect_deletions(paths: TablePaths, fragments: Iterable[Fragment]) -> None:
    """Begin to read the deletion files of fragments, if they are remote.

    Otherwise `read_deletions` of the next one would be requested after the answer to the one
    before.
    """
    if paths.store.is_local:
        return
    with_file = (fragment for fragment in fragments if fragment.deletion_file is not None)
    for fragment in islice(with_file, _MOST_EXPECTED):
        assert fragment.deletion_file is not None
        paths.expect_deletion_file(fragment.deletion_file, fragment.id)


def _read(paths: TablePaths, fragment: Fragment, file: DeletionFile) -> Offsets:
    content, name = paths.read_deletion_file(file, fragment.id)
    data = np.frombuffer(content, np.uint8)
    # Manifests of early releases do not record the number of rows.
    max_rows = fragment.physical_rows or file.num_deleted_rows or MAX_PHYSICAL_ROWS
    if file.file_type is DeletionFileType.ARROW:
        try:
            offsets = _decoded(content, max_rows) if len(content) <= _SHORT else None
        except CorruptFileError:
            # Decoded again, so that the error names the file.
            offsets = None
        if offsets is None:
            offsets = decode_arrow(data, name, max_rows)
    else:
        offsets = decode_bitmap(data, name, fragment.physical_rows, max_rows)
    if file.num_deleted_rows and len(offsets) != file.num_deleted_rows:
        raise CorruptFileError(
            f"{name}: the file deletes {len(offsets)} rows, but the manifest says "
            f"{file.num_deleted_rows}"
        )
    if len(offsets) and fragment.physical_rows and offsets[-1] >= fragment.physical_rows:
        raise _out_of_range(name, int(offsets[-1]), fragment.physical_rows)
    return offsets


@lru_cache(maxsize=_KEPT)
def _decoded(content: bytes, max_rows: int) -> Offsets:
    """Return the offsets in a short `.arrow` file; errors do not name it.

    Many small changes read the same files, each time by a new handle.
    """
    offsets = decode_arrow(np.frombuffer(content, np.uint8), "", max_rows)
    offsets.flags.writeable = False
    return offsets


def decode_arrow(data: Bytes, name: str, max_rows: int = MAX_PHYSICAL_ROWS) -> Offsets:
    """Decode an `.arrow` deletion file.

    - `name`: Name of the file, for errors.
    - `max_rows`: Maximum number of deleted rows. Bounds allocations: few bytes can decompress to
      very many rows.

    Raises CorruptFileError.
    """
    try:
        check_decompressed_size(data, max_rows * _WIDTH + _PADDING)
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            # Before any buffer is decoded.
            _check_types(reader.schema.types, name)
            batch = reader.get_batch(0)
        batch.validate(full=True)
        # By position: looking up a name that is not UTF-8 would fail.
        (column,) = batch.columns
    except (ValueError, pa.ArrowException, MemoryError, OSError) as error:
        raise CorruptFileError(f"{name}: the deletion file cannot be read: {error}") from error
    if column.null_count:
        raise CorruptFileError(f"{name}: column row_id has {column.null_count} nulls, not 0")
    if len(column) > max_rows:
        raise CorruptFileError(f"{name}: the file deletes {len(column)} rows of {max_rows}")
    offsets = distinct(column.to_numpy()).astype(np.int64)
    if len(offsets) and offsets[0] < 0:
        raise CorruptFileError(f"{name}: the file deletes row {offsets[0]}, which does not exist")
    return offsets


def _check_types(types: Sequence[pa.DataType], name: str) -> None:
    if list(types) not in ([pa.uint32()], [pa.int32()]):
        raise CorruptFileError(
            f"{name}: a deletion file must have one column of type uint32, this one has "
            f"{[str(dtype) for dtype in types]}"
        )


def decode_bitmap(
    data: Bytes, name: str, num_rows: int = 0, max_rows: int = MAX_PHYSICAL_ROWS
) -> Offsets:
    """Decode a `.bin` deletion file.

    - `name`: Name of the file, for errors.
    - `num_rows`: Physical rows of the fragment; 0 if unknown.
    - `max_rows`: Maximum number of deleted rows.

    Raises CorruptFileError.
    """
    try:
        bitmap = BitMap.deserialize(data.tobytes())
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptFileError(f"{name}: the Roaring bitmap cannot be read: {error}") from error
    # Checked before the conversion to an array: few bytes can stand for billions of rows.
    if num_rows and bitmap and bitmap.max() >= num_rows:
        raise _out_of_range(name, bitmap.max(), num_rows)
    if len(bitmap) > max_rows:
        raise CorruptFileError(f"{name}: the file deletes {len(bitmap)} rows of {max_rows}")
    return offsets_of(bitmap)


def decode_offsets(data: bytes, num_rows: int, name: str) -> Offsets:
    """Decode a Roaring bitmap of row offsets in a manifest to an array; see `decode_rows`."""
    return offsets_of(decode_rows(data, num_rows, name))


def decode_rows(data: bytes, num_rows: int, name: str) -> BitMap:
    """Decode a Roaring bitmap of row offsets in a manifest.

    - `data`: Portable serialisation.
    - `num_rows`: Physical rows of the fragment.
    - `name`: Name of the fragment, for errors.

    Raises CorruptTableError: the bitmap cannot be parsed, or has an offset out of range.
    """
    bitmap = parse_bitmap(data, name)
    check_rows(bitmap, num_rows, name)
    return bitmap


def check_rows(bitmap: BitMap, num_rows: int, name: str) -> None:
    """Raise an error if a bitmap has a row offset that is out of range.

    To be called before the bitmap becomes an array: few bytes can stand for billions of rows.
    Raises CorruptTableError.
    """
    if bitmap and bitmap.max() >= num_rows:
        raise CorruptTableError(
            f"{name}: row {bitmap.max()} is out of range, the fragment has {num_rows} rows"
        )


def offsets_of(bitmap: BitMap) -> Offsets:
    """Return the numbers in a bitmap as an increasing int64 array."""
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)


def _out_of_range(name: str, row: int, num_rows: int) -> CorruptFileError:
    return CorruptFileError(
        f"{name}: the file deletes row {row}, but the fragment has {num_rows} rows"
    )


def write_deletions(
    store: ObjectStore,
    fragment_id: int,
    read_version: int,
    offsets: Offsets | BitMap,
    *,
    bitmap: bool | None = None,
    tag: bytes = b"",
) -> DeletionFile:
    """Write the deletion file of a fragment.

    - `read_version`: The version that the deletion was planned on.
    - `offsets`: Offsets of all deleted rows, increasing; at least one.
    - `bitmap`: Whether to write a bitmap; by default, the number of rows decides.
    - `tag`: Tag of the job; its first five bytes become part of the name. See `has_tag`.

    Raises StorageError.
    """
    if bitmap is None:
        bitmap = len(offsets) >= BITMAP_FROM
    file = DeletionFile(
        DeletionFileType.BITMAP if bitmap else DeletionFileType.ARROW,
        read_version,
        _number(tag),
        len(offsets),
    )
    if bitmap:
        data = encode_bitmap(offsets)
    else:
        data = encode_arrow(offsets_of(offsets) if isinstance(offsets, BitMap) else offsets)
    path = deletion_path(file, fragment_id)
    try:
        store.write_bytes(path, data)
    except StorageError:
        # The file may exist: possibly only the answer was lost.
        with suppress(StorageError):
            store.delete([path])
        raise
    return file


def has_tag(name: str, tag: bytes) -> bool:
    """Return whether a deletion file was written with this tag, by its name."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match[1]) >> _RANDOM_BITS == _tag_bits(tag)


def _number(tag: bytes) -> int:
    if not tag:
        return secrets.randbits(_ID_BITS)
    return _tag_bits(tag) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def _tag_bits(tag: bytes) -> int:
    return int.from_bytes(tag[:_TAG_BYTES], "big")


def encode_arrow(offsets: Offsets) -> bytes:
    """Return the bytes of an `.arrow` deletion file."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        column = pa.array(offsets.astype(np.uint32))
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))
    return bytes(sink.getvalue())


def encode_bitmap(offsets: Offsets | BitMap) -> bytes:
    """Return the bytes of a `.bin` deletion file."""
    bitmap = offsets if isinstance(offsets, BitMap) else bitmap_of(offsets)
    data: bytes = bitmap.serialize()
    return data


def bitmap_of(offsets: Offsets) -> BitMap:
    """Return the bitmap of increasing row offsets."""
    if len(offsets) and int(offsets[-1]) - int(offsets[0]) + 1 == len(offsets):
        return BitMap(range(int(offsets[0]), int(offsets[-1]) + 1))
    # BitMap takes a whole `array.array` at once, but a numpy array number by number.
    return BitMap(array.array("I", offsets.astype(np.uint32).tobytes()))
