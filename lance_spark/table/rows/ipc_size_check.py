"""Checks of the decompressed size of Arrow IPC files and streams, before Arrow allocates it.

Arrow trusts the length that is stored before a compressed buffer: some kilobytes of compressed
zeros can become gigabytes. The check reads these lengths from the file:

| part | content |
| --- | --- |
| last 10 bytes | int32 length of the footer, ``ARROW1`` |
| footer | table; field 2: dictionary batches, field 3: record batches, each a vector of blocks |
| block | int64 position, int32 length of the message, padding, int64 length of the body |
| message | uint32 ``0xFFFFFFFF``, int32 length, table; field 0: version; field 2: header table |
| header | field 0: int64 rows; field 2: vector of buffers; field 3: compression, if any |
| buffer | int64 position in the body, int64 length |
| compressed buffer | int64 decompressed length, or -1 if not compressed; the bytes |

A stream (`check_decompressed_stream`) is the messages and bodies of the blocks, one after the
other: field 1 of a message is the type of its header, field 3 the int64 length of its body. The
header of a dictionary batch has the record batch in its field 1. A stream ends after its last
message, or with a message of length 0.

A table begins with the distance back to its vtable: uint16 length of the vtable, uint16 length of
the table, uint16 position in the table of each field.

Other content of a file that Arrow would decompress is rejected. No writer of deletion files
produces it: dictionaries, a second message in a block (Arrow reads the last one), and metadata
versions before V5, in which metadata can declare buffers as compressed
(``ARROW:experimental_compression`` of Arrow 0.17).

Specification: Arrow columnar format, "IPC File Format" and "Compression".
"""

from __future__ import annotations

import struct

from lance_spark.storage.source import Bytes

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
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3


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
            elif header_type not in (_SCHEMA, _RECORD_BATCH):
                raise ValueError(f"not an Arrow IPC stream: a message of type {header_type}")
            if header_type != _SCHEMA and header is not None:
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
