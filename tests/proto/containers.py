"""Minimal parsers of the Lance containers that return their protobuf messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from google.protobuf import any_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lance_spark.proto import (
    encodings_v2_0_pb2,
    encodings_v2_1_pb2,
    encodings_v2_3_pb2,
    file2_pb2,
    file_pb2,
    index_old_pb2,
    index_pb2,
    rowids_pb2,
    table_pb2,
    transaction_pb2,
)

MODULES = (
    encodings_v2_0_pb2,
    encodings_v2_1_pb2,
    encodings_v2_3_pb2,
    file2_pb2,
    file_pb2,
    index_old_pb2,
    index_pb2,
    rowids_pb2,
    table_pb2,
    transaction_pb2,
)

M = TypeVar("M", bound=Message)

# Bytes fields that hold a serialised message.
NESTED = {
    "lance.table.DataFragment.inline_row_ids": rowids_pb2.RowIdSequence,
    "lance.table.DataFragment.inline_last_updated_at_versions": rowids_pb2.RowDatasetVersionSequence,
    "lance.table.DataFragment.inline_created_at_versions": rowids_pb2.RowDatasetVersionSequence,
}


@dataclass(frozen=True)
class ManifestFile:
    """The messages of one manifest file, and the bytes they were parsed from."""

    data: bytes
    manifest: table_pb2.Manifest
    indices: table_pb2.IndexSection | None
    transaction: transaction_pb2.Transaction | None
    transaction_bytes: bytes | None

    @classmethod
    def read(cls, path: Path) -> ManifestFile:
        data = path.read_bytes()
        position, minor_zero, minor, magic = struct.unpack("<QHH4s", data[-16:])
        assert (minor_zero, minor, magic) == (0, 2, b"LANC")
        manifest = parse(table_pb2.Manifest, section(data, position))
        indices = transaction = transaction_bytes = None
        if manifest.HasField("index_section"):
            indices = parse(table_pb2.IndexSection, section(data, manifest.index_section))
        if manifest.HasField("transaction_section"):
            transaction_bytes = section(data, manifest.transaction_section)
            transaction = parse(transaction_pb2.Transaction, transaction_bytes)
        return cls(data, manifest, indices, transaction, transaction_bytes)


@dataclass(frozen=True)
class DataFile:
    """The messages of one version 2 file."""

    version: tuple[int, int]
    descriptor: file_pb2.FileDescriptor
    columns: list[file2_pb2.ColumnMetadata]
    buffers: list[bytes]

    @classmethod
    def read(cls, path: Path) -> DataFile:
        data = path.read_bytes()
        _, columns, buffers, num_buffers, num_columns, major, minor, magic = struct.unpack(
            "<QQQIIHH4s", data[-40:]
        )
        assert magic == b"LANC"

        def entries(table: int, count: int) -> list[bytes]:
            places = struct.iter_unpack("<QQ", data[table : table + 16 * count])
            return [data[at : at + size] for at, size in places]

        schema, *more = entries(buffers, num_buffers)
        messages = [parse(file2_pb2.ColumnMetadata, x) for x in entries(columns, num_columns)]
        return cls((major, minor), parse(file_pb2.FileDescriptor, schema), messages, more)

    def page_encodings(self) -> Iterator[Message]:
        for column in self.columns:
            for page in column.pages:
                yield unpack(page.encoding)


def parse(message: type[M], data: bytes) -> M:
    """Parse a message, and check that nothing is lost, such as a field with its default value."""
    parsed = message.FromString(data)
    assert parsed.ByteSize() == len(data), f"{message.DESCRIPTOR.full_name}: {parsed}"
    return parsed


def section(data: bytes, position: int) -> bytes:
    """Return the bytes of a message that follows its 32-bit length."""
    (size,) = struct.unpack_from("<I", data, position)
    assert position + 4 + size <= len(data)
    return data[position + 4 : position + 4 + size]


def unpack_any(packed: any_pb2.Any) -> Message:
    """Return the message inside, of the class that the type URL names."""
    name = packed.type_url.rpartition("/")[2]
    descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    return parse(message_factory.GetMessageClass(descriptor), packed.value)


def unpack(encoding: file2_pb2.Encoding) -> Message:
    """Return the description of a page's or column's encoding."""
    assert encoding.WhichOneof("location") == "direct"
    return unpack_any(parse(any_pb2.Any, encoding.direct.encoding))


def legacy_messages(path: Path) -> tuple[file_pb2.Metadata, table_pb2.Manifest]:
    """Return the messages of a version 0.1 file."""
    data = path.read_bytes()
    position, major, minor, magic = struct.unpack("<QHH4s", data[-16:])
    assert (major, minor, magic) == (0, 2, b"LANC")
    metadata = parse(file_pb2.Metadata, section(data, position))
    return metadata, parse(table_pb2.Manifest, section(data, metadata.manifest_position))


def walk(message: Message) -> Iterator[Message]:
    """Yield a message and all messages inside, those in Any and in bytes fields included."""
    yield message
    if isinstance(message, any_pb2.Any) and message.type_url:
        yield from walk(unpack_any(message))
    if isinstance(message, file2_pb2.Encoding) and message.HasField("direct"):
        yield from walk(unpack(message))
    for field, value in message.ListFields():
        nested = NESTED.get(field.full_name)
        if nested is not None:
            yield from walk(parse(nested, value))
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for entry in value.values():
                    yield from walk(entry)
        elif isinstance(value, Message):
            yield from walk(value)
        else:
            for entry in value:
                yield from walk(entry)


def strangers(message: Message) -> list[str]:
    """Return the fields and enum values of a message that the protos do not know."""
    unknown = []
    for inner in walk(message):
        name = inner.DESCRIPTOR.full_name
        unknown += [f"{name}: field {item.field_number}" for item in UnknownFieldSet(inner)]
        for field, value in inner.ListFields():
            if field.enum_type is None:
                continue
            for number in [value] if isinstance(value, int) else value:
                if number not in field.enum_type.values_by_number:
                    unknown.append(f"{name}.{field.name}: value {number}")
    return unknown
