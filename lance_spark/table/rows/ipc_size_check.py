"""What compressed buffers of an Arrow IPC file claim to hold, before Arrow allocates it.

Arrow takes the length that stands before a compressed buffer for granted: some kilobytes of zeros in Zstandard are gigabytes. The
file is looked at as the flatbuffers tell:

| part | content |
| --- | --- |
| last 10 bytes | int32 length of the footer, ``ARROW1`` |
| footer | table; field 2: dictionary batches, field 3: record batches, each a vector of blocks |
| block | int64 position, int32 length of the message, padding, int64 length of the body |
| message | uint32 ``0xFFFFFFFF``, int32 length, table; field 0: int16 version; field 2: the header, a table |
| header | field 0: int64 rows; field 2: buffers, a vector of (int64 position in the body, int64 length); field 3: compression, if any |
| compressed buffer | int64 length of what it holds, -1 if it is not compressed, and the bytes |

A table begins with the distance back to its vtable: uint16 length of the vtable, uint16 length of the table, uint16 place in the table
of each field.

What Arrow would inflate besides is refused, as no writer of deletion files has ever made it: dictionaries, a second message after the
first one in its block (Arrow goes by the last), and versions before V5, in which metadata can say that buffers are compressed
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
#: Length of the footer, and the magic.
_END = 10
_CONTINUED = b"\xff\xff\xff\xff"
#: `MetadataVersion.V5`, that of Arrow 1.0.
_V5 = 4


def check_claims(data: Bytes, most: int) -> None:
    """Refuse an IPC file that is more than a batch of plain columns, or whose compressed buffers claim to hold too much.

    What else is wrong with the file is left to Arrow.

    Parameters
    ----------
    data : uint8 array
    most : int
        Bytes that there is use for, of all buffers together.

    Raises
    ------
    ValueError
        They claim more, or the file has dictionaries, more than one batch or an old version, or is no IPC file.
    """
    whole = memoryview(data.tobytes())
    try:
        claimed = _claimed(whole)
    except (struct.error, IndexError) as error:
        raise ValueError(f"no Arrow IPC file: {error}") from None
    if claimed > most:
        raise ValueError(f"its compressed buffers claim to hold {claimed} bytes, {most} at most")


def _claimed(data: memoryview) -> int:
    (length,) = _INT32.unpack_from(data, len(data) - _END)
    footer = _part(data, len(data) - _END - length, length)
    dictionaries, batches = (_blocks(footer, number) for number in (2, 3))
    if len(dictionaries):
        raise ValueError(f"it has {len(dictionaries)} dictionary batches, 0 are expected")
    if len(batches) != 1:
        raise ValueError(f"it has {len(batches)} record batches, 1 is expected")
    position, in_message, in_body = _BLOCK.unpack_from(footer, batches[0])
    message = _message(_part(data, position, in_message))
    return _of_batch(message, _part(data, position + in_message, in_body))


def _blocks(footer: memoryview, number: int) -> range:
    field = _field(footer, _root(footer), number)
    return range(0) if field is None else _items(footer, field, _BLOCK.size)


def _message(block: memoryview) -> memoryview:
    """Return the flatbuffer of the one message of a block."""
    start = 8 if block[:4] == _CONTINUED else 4
    (length,) = _INT32.unpack_from(block, start - 4)
    if start + length != len(block):
        raise ValueError(f"a message of {start + length} bytes in a block of {len(block)}")
    message = block[start:]
    field = _field(message, _root(message), 0)
    version = 0 if field is None else _INT16.unpack(_part(message, field, 2))[0]
    if version != _V5:
        raise ValueError(f"its batch is of metadata version V{version + 1}, V5 is expected")
    return message


def _of_batch(message: memoryview, body: memoryview) -> int:
    header = _field(message, _root(message), 2)
    if header is None:
        return 0
    batch = _target(message, header)
    buffers, compression = (_field(message, batch, number) for number in (2, 3))
    if buffers is None or compression is None:
        return 0
    total = 0
    for at in _items(message, buffers, _BUFFER.size):
        position, length = _BUFFER.unpack_from(message, at)
        if length:
            (claimed,) = _INT64.unpack_from(_part(body, position, length))
            total += max(claimed, 0)
    return total


def _part(data: memoryview, start: int, length: int) -> memoryview:
    if start < 0 or length < 0 or start + length > len(data):
        raise IndexError(f"{length} bytes at {start} of {len(data)}")
    return data[start : start + length]


def _root(data: memoryview) -> int:
    return _target(data, 0)


def _target(data: memoryview, at: int) -> int:
    return at + int.from_bytes(_part(data, at, 4), "little")


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Return where a field of a table stands; None if it has its default."""
    (back,) = _INT32.unpack(_part(data, table, 4))
    vtable = table - back
    (size,) = _UINT16.unpack(_part(data, vtable, 2))
    place = 4 + 2 * number
    if place + 2 > size:
        return None
    (offset,) = _UINT16.unpack(_part(data, vtable + place, 2))
    return table + int(offset) if offset else None


def _items(data: memoryview, field: int, width: int) -> range:
    start = _target(data, field)
    count = int.from_bytes(_part(data, start, 4), "little")
    _part(data, start + 4, count * width)
    return range(start + 4, start + 4 + count * width, width)
