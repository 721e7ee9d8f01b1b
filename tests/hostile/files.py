"""Data files taken apart and put together again, so that the footer still refers to changed
parts.
"""

from __future__ import annotations

import contextlib
import random
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from lance_spark.proto import file2_pb2, file_pb2, table_pb2
from tests.hostile.mutate import NUMBERS, nodes, worse_bytes, worsen
from tests.support.descriptors import is_repeated

_FOOTER = struct.Struct("<QQQIIHH4s")
_PAIR = struct.Struct("<QQ")
_LEGACY = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
#: Numbers of rows. A file of a few kilobytes cannot list the large numbers.
_ROWS = (0, 1, 2**20, 2**31 - 1, 2**31, 2**40, 2**53, 2**62, 2**63 - 1, 2**64 - 1)


@dataclass
class File:
    """A file of version 2.0 or later: its pages, its schema, the metadata of its columns."""

    body: bytes
    descriptor: file_pb2.FileDescriptor
    columns: list[Any]
    others: list[bytes]
    version: tuple[int, int]

    @classmethod
    def parse(cls, data: bytes) -> File:
        """Take a sound file apart."""
        _, columns_at, buffers_at, num_buffers, num_columns, major, minor, _ = _FOOTER.unpack(
            data[-_FOOTER.size :]
        )
        buffers = [_PAIR.unpack_from(data, buffers_at + 16 * i) for i in range(num_buffers)]
        columns = [_PAIR.unpack_from(data, columns_at + 16 * i) for i in range(num_columns)]
        parts = [data[at : at + size] for at, size in buffers]
        return cls(
            data[: buffers[0][0]],
            file_pb2.FileDescriptor.FromString(parts[0]),
            [file2_pb2.ColumnMetadata.FromString(data[at : at + size]) for at, size in columns],
            parts[1:],
            (major, minor),
        )

    def build(self) -> bytes:
        """Put the file together."""
        out = bytearray(self.body)

        def put(data: bytes) -> tuple[int, int]:
            out.extend(data)
            return len(out) - len(data), len(data)

        buffers = [put(item) for item in (self.descriptor.SerializeToString(), *self.others)]
        columns = [put(column.SerializeToString()) for column in self.columns]
        start = columns[0][0] if columns else len(out)
        tables = [
            put(b"".join(_PAIR.pack(*pair) for pair in table))[0] for table in (columns, buffers)
        ]
        out += _FOOTER.pack(start, *tables, len(buffers), len(columns), *self.version, b"LANC")
        return bytes(out)

    def pages(self) -> list[Any]:
        """Return all pages of all columns."""
        return [page for column in self.columns for page in column.pages]


@cache
def bombs() -> tuple[bytes, ...]:
    """Return few bytes that expand to many, and frames that claim more bytes than they hold.

    What they hold may be a value, so that it is less than what the guard allows.
    """
    zeros = bytes(64 << 20)
    zstd = pa.Codec("zstd").compress(zeros, asbytes=True)
    lz4 = pa.Codec("lz4_raw").compress(zeros[: 64 << 20], asbytes=True)[:200_000]
    plain = pa.Codec("zstd").compress(b"x" * 4_096, asbytes=True)
    return (
        zstd,
        struct.pack("<Q", 64 << 20) + zstd,
        struct.pack("<Q", 2**62) + zstd,
        struct.pack("<Q", 4_096) + zstd,
        struct.pack("<I", 64 << 20) + lz4,
        struct.pack("<I", 2**31 - 1) + lz4,
        struct.pack("<I", 4_096) + lz4,
        struct.pack("<Q", 4_096) + plain,
        struct.pack("<Q", 2**63) + plain,
        b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**40) + b"\1\0\0",
        b"\xff" * 4_096,
        bytes(4_096),
    )


def worse_file(data: bytes, rng: random.Random) -> bytes:
    """Damage one part of a data file of version 2.0 or later."""
    if rng.random() < 0.08:
        return worse_bytes(data, rng)
    file = File.parse(data)
    for _ in range(rng.choice((1, 1, 1, 2))):
        rng.choice(_WAYS)(file, rng)
    return file.build()


def _message(file: File, rng: random.Random) -> None:
    if file.columns:
        worsen(rng.choice(file.columns), rng)


def _encoding(file: File, rng: random.Random) -> None:
    """Change an encoding, but not the places of its buffers."""
    pages = [page for page in file.pages() if page.encoding.WhichOneof("location") == "direct"]
    if not pages:
        return
    page = rng.choice(pages)
    # Below `Encoding`, `DirectEncoding` and `Any`.
    result = list(nodes(page.encoding))[3:]
    if result:
        node = rng.choice(result)
        worsen(node.message, rng)
        node.store()


def _schema(file: File, rng: random.Random) -> None:
    worse_fields(file.descriptor.schema.fields, rng)


def _descriptor(file: File, rng: random.Random) -> None:
    worsen(file.descriptor, rng)


def _rows(file: File, rng: random.Random) -> None:
    """Change every number of rows to the same number, so that nothing contradicts it."""
    rows = rng.choice((*_ROWS, file.descriptor.length * 2, file.descriptor.length + 1))
    file.descriptor.length = rows
    for column in file.columns:
        if len(column.pages) == 1:
            good = column.pages[0].length
            column.pages[0].length = rows
            for node in nodes(column.pages[0]):
                _counts(node.message, good, rows)
                node.store()


def _counts(message: Any, good: int, rows: int) -> None:
    if not good:
        return
    for field, value in message.ListFields():
        if not is_repeated(field) and type(value) is int and value == good:
            with contextlib.suppress(ValueError):
                setattr(message, field.name, rows)


def _buffer(file: File, rng: random.Random) -> None:
    """Damage a buffer of a page, mostly in the headers."""
    spans = _spans(file)
    if not spans:
        return
    body = bytearray(file.body)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, size = rng.choice(spans)
        length = min(size, rng.choice((16, 64, size)))
        place = at + rng.randrange(length)
        draw = rng.random()
        if draw < 0.4:
            body[place] ^= 1 << rng.randrange(8)
        elif draw < 0.7:
            body[place] = rng.choice((0, 1, 2, 127, 128, 254, 255))
        else:
            width = rng.choice((2, 4, 8))
            number = rng.choice(NUMBERS) % (1 << 8 * width)
            body[place : place + width] = number.to_bytes(width, "little")
    file.body = bytes(body[: len(file.body)])


def _new_buffer(file: File, rng: random.Random) -> None:
    """Give a page another buffer: a longer, a shorter, a buffer of another page, or a bomb."""
    pages = [page for page in file.pages() if len(page.buffer_offsets)]
    if not pages:
        return
    page = rng.choice(pages)
    number = rng.randrange(len(page.buffer_offsets))
    if number >= len(page.buffer_sizes):
        return
    at, size = page.buffer_offsets[number], page.buffer_sizes[number]
    held = file.body[at : at + size]
    draw = rng.random()
    if draw < 0.35:
        new = rng.choice(bombs())
    elif draw < 0.5:
        # The frames follow a header of this length.
        cut = rng.choice((1, 2, 4, 8, 12, 16))
        new = held[:cut] + rng.choice(bombs())
    elif draw < 0.65:
        new = held[: rng.randrange(size + 1)]
    elif draw < 0.75:
        new = held + bytes(rng.choice((1, 8, 4_096)))
    elif draw < 0.85:
        other_page = rng.choice(pages)
        buffer_number = rng.randrange(
            min(len(other_page.buffer_offsets), len(other_page.buffer_sizes) or 1)
        )
        page.buffer_offsets[number] = other_page.buffer_offsets[buffer_number]
        page.buffer_sizes[number] = (*other_page.buffer_sizes, 0)[buffer_number]
        return
    else:
        new = worse_bytes(held, rng)
    file.body += bytes(-len(file.body) % 64)
    page.buffer_offsets[number] = len(file.body)
    page.buffer_sizes[number] = len(new)
    file.body += new


def _swap_pages(file: File, rng: random.Random) -> None:
    """Give a page the encoding, or everything, of a page of another column."""
    pages = file.pages()
    if len(pages) < 2:
        return
    first, second = rng.sample(pages, 2)
    if rng.random() < 0.5:
        first.encoding.CopyFrom(second.encoding)
    else:
        rows = first.length
        first.CopyFrom(second)
        first.length = rows


def _many_pages(file: File, rng: random.Random) -> None:
    """Repeat a page, so that few bytes stand for many rows."""
    columns = [column for column in file.columns if len(column.pages)]
    if not columns:
        return
    count = rng.choice((2, 50, 1_000))
    for column in columns:
        page = column.pages[0]
        for number in range(count):
            added = column.pages.add()
            added.CopyFrom(page)
            added.priority = page.length * (number + 1) % 2**64
    file.descriptor.length = file.descriptor.length * (count + 1) % 2**64


def _spans(file: File) -> list[tuple[int, int]]:
    return [
        (at, size)
        for page in file.pages()
        for at, size in zip(page.buffer_offsets, page.buffer_sizes, strict=False)
        if size and at + size <= len(file.body)
    ]


_WAYS = (
    _message,
    _encoding,
    _encoding,
    _encoding,
    _encoding,
    _schema,
    _descriptor,
    _rows,
    _buffer,
    _buffer,
    _buffer,
    _new_buffer,
    _new_buffer,
    _new_buffer,
    _swap_pages,
    _many_pages,
)


def worse_fields(fields: Any, rng: random.Random) -> None:
    """Change fields of a schema: cycles of parents, duplicate ids, nesting without end."""
    if not len(fields):
        return
    draw = rng.randrange(6)
    ids = [field.id for field in fields]
    chosen = rng.choice(fields)
    if draw == 0:
        chosen.parent_id = rng.choice((*ids, chosen.id, -2, 2**31 - 1))
    elif draw == 1:
        chosen.id = rng.choice((*ids, -1, -(2**31), 2**31 - 1))
    elif draw == 2:
        # Each field is a child of the field before.
        parent = chosen.id
        chosen.logical_type = rng.choice(("struct", "list", chosen.logical_type))
        for number in range(rng.choice((50, 500, 10_000))):
            added = fields.add()
            added.CopyFrom(chosen)
            added.id = max(ids) + 1 + number
            added.parent_id = parent
            parent = added.id
    elif draw == 3:
        for _ in range(rng.choice((1, 3_000))):
            fields.add().CopyFrom(chosen)
    elif draw == 4 and len(fields) > 1:
        second = rng.choice(fields)
        chosen.parent_id, second.parent_id = second.id, chosen.id
    else:
        worsen(chosen, rng)


def worse_legacy(data: bytes, rng: random.Random) -> bytes:
    """Damage one part of a data file of version 0.1."""
    if rng.random() < 0.3:
        return worse_bytes(data, rng)
    position, *numbers, magic = _LEGACY.unpack(data[-_LEGACY.size :])
    body = bytearray(data[: -_LEGACY.size])
    (length,) = _LENGTH.unpack_from(body, position)
    start = position + _LENGTH.size
    metadata = file_pb2.Metadata.FromString(bytes(body[start : start + length]))
    draw = rng.random()
    if draw < 0.3 and metadata.manifest_position:
        at = metadata.manifest_position
        (length,) = _LENGTH.unpack_from(body, at)
        raw = bytes(body[at + _LENGTH.size : at + _LENGTH.size + length])
        manifest = table_pb2.Manifest.FromString(raw)
        worse_fields(manifest.fields, rng)
        metadata.manifest_position = _append(body, manifest.SerializeToString())
    elif draw < 0.75 and metadata.page_table_position < len(body) - 16:
        # An entry of a page table, position or length: of the columns, or of the statistics, which
        # stand after it.
        table = metadata.page_table_position
        if draw >= 0.6 and metadata.statistics.page_table_position:
            table = metadata.statistics.page_table_position
        places = (min(position, len(body)) - table) // 8
        place = table + 8 * rng.randrange(max(places, 1))
        place = min(place, len(body) - 8)
        (good,) = struct.unpack_from("<q", body, place)
        number = rng.choice((*NUMBERS, good + 1, good * 2, 0)) % 2**64
        struct.pack_into("<Q", body, place, number)
    else:
        worsen(metadata, rng)
    at = _append(body, metadata.SerializeToString())
    return bytes(body) + _LEGACY.pack(at, *numbers, magic)


def _append(body: bytearray, data: bytes) -> int:
    at = len(body)
    body += _LENGTH.pack(len(data)) + data
    return at
