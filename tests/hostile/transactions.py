"""Transactions of every kind, and their conflicts with all others."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pyroaring import BitMap

from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.commit.transaction import Transaction, decode
from lance_spark.table.manifest import codec as manifest_file
from tests.hostile import corpus
from tests.hostile.guard import worse_of
from tests.support.descriptors import is_repeated

_DEPTH = 6


def seeds() -> list[bytes]:
    """Return a transaction of each kind with all fields set, and the transactions of a table."""
    known = _parts()
    result = []
    for field in transaction_pb2.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields:
        message = transaction_pb2.Transaction(read_version=3, uuid="u")
        _fill(getattr(message, field.name), known, 0)
        result.append(message.SerializeToString())
    keys = transaction_pb2.Transaction(read_version=3, uuid="u")
    keys.update.inserted_rows.field_ids.append(1)
    keys.update.inserted_rows.exact.key_hashes.append(1)
    files = sorted((corpus.table("old") / "_transactions").iterdir())
    return [*result, keys.SerializeToString(), *(file.read_bytes() for file in files)]


@functools.cache
def _others() -> list[Transaction]:
    return [decode(item, "t") for item in seeds()]


def run(data: bytes) -> None:
    """Parse a transaction, and compute its conflicts with other transactions."""
    result = decode(data, "t").operation
    assert result.name == "" or repr(result)
    failed: Exception | None = None
    for item in _others():
        for mine, theirs in ((result, item.operation), (item.operation, result)):
            try:
                mine.conflict(theirs)
            except Exception as error:
                failed = worse_of(failed, error)
    if failed is not None:
        raise failed


def _parts() -> dict[str, Message]:
    """Return the messages of a sound table that occur in transactions."""
    path = corpus.newest(corpus.table("plain"))
    manifest = manifest_file.decode(path.read_bytes(), "m")
    proto = manifest.to_proto()
    section = table_pb2.IndexSection.FromString(manifest.index_section or b"")
    parts = (proto.fragments[0], proto.fragments[0].files[0], proto.fields[0], section.indices[0])
    return {part.DESCRIPTOR.full_name: part for part in parts}


def _fill(message: Any, known: dict[str, Message], depth: int) -> None:
    """Set all fields of a message."""
    part = known.get(message.DESCRIPTOR.full_name)
    if part is not None:
        message.CopyFrom(part)
        return
    for field in message.DESCRIPTOR.fields:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), inner.fields_by_name, known, depth)
        elif inner is not None:
            value = getattr(message, field.name)
            if depth < _DEPTH:
                _fill(value.add() if is_repeated(field) else value, known, depth + 1)
        elif is_repeated(field):
            getattr(message, field.name).append(_plain(field))
        else:
            setattr(message, field.name, _plain(field))


def _fill_map(held: Any, fields: Any, known: dict[str, Message], depth: int) -> None:
    key, value = fields["key"], fields["value"]
    if value.message_type is None:
        held[_plain(key)] = _plain(value)
    else:
        _fill(held[_plain(key)], known, depth + 1)


def _plain(field: FieldDescriptor) -> Any:
    if field.containing_type.name == "BloomFilter" and field.name == "bitmap":
        return bytes(range(64))
    if field.type == FieldDescriptor.TYPE_BYTES:
        # Ids have sixteen bytes; all other fields of bytes are bitmaps.
        return bytes(range(16)) if field.name == "uuid" else BitMap([1, 2]).serialize()
    if field.type == FieldDescriptor.TYPE_STRING:
        return "a"
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return 0.5
    return field.type == FieldDescriptor.TYPE_BOOL or 1
