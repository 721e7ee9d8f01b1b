"""Damages sound inputs: bytes, and protobuf messages with all messages inside them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from google.protobuf import any_pb2, symbol_database
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pyroaring import BitMap

# This import registers all messages.
from tests.proto.containers import NESTED
from tests.support.descriptors import is_repeated

Mutate = Callable[[bytes, random.Random], bytes]

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    63,
    64,
    65,
    127,
    128,
    255,
    1023,
    1024,
    65_535,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**45,
    2**60,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
#: Names and paths that lead elsewhere.
TEXTS = (
    "",
    ".",
    "..",
    "/etc/passwd",
    "../../../../../../etc/passwd",
    "a/../../../../../etc/passwd",
    "a//b",
    "..\\..\\etc\\passwd",
    "C:\\x",
    "file:///etc/passwd",
    "%2e%2e/%2e%2e/etc/passwd",
    "~/x",
    "x" * 10_000,
    "a\0b",
    "\n",
    "\ud7ff\U0010ffff",
    "list.struct",
    "fixed_size_list:double:2147483647",
    "fixed_size_list:fixed_size_list:int64:65536:65536",
    "fixed_size_list:" * 2_000 + "int8" + ":2" * 2_000,
    "fixed_size_binary:2147483647",
    "dict:string:int64:false",
    "dict:" * 2_000,
    "decimal:128:38:-38",
    "decimal:256:77:0",
    "timestamp:us:" + "Z" * 1_000,
    "timestamp:ns:Mars/Base",
    "struct",
    "map",
    "null",
    "json",
    "blob",
    "int64",
    "string",
    "99999999999999999999.0",
    "2.1",
    "²",
    "²._",
    "9" * 5_000,
    "lance.json",
    "arrow.json",
    "arrow.uuid",
    "lance.blob.v2",
    "lance.bfloat16",
    "true",
)
#: Metadata of schemas and fields that readers and writers use.
_KEYS = (
    "lance-encoding:blob",
    "lance-encoding:packed",
    "lance-encoding:structural-encoding",
    "lance-encoding:compression",
    "lance-encoding:dict-divisor",
    "lance-schema:unenforced-primary-key",
    "lance-schema:unenforced-primary-key:position",
    "ARROW:extension:name",
    "ARROW:extension:metadata",
    "batch_size",
    "range_partitioned",
    "",
)
_LEAST = {
    FieldDescriptor.CPPTYPE_INT32: -(2**31),
    FieldDescriptor.CPPTYPE_INT64: -(2**63),
    FieldDescriptor.CPPTYPE_UINT32: 0,
    FieldDescriptor.CPPTYPE_UINT64: 0,
}
_END = {
    FieldDescriptor.CPPTYPE_INT32: 2**31,
    FieldDescriptor.CPPTYPE_INT64: 2**63,
    FieldDescriptor.CPPTYPE_UINT32: 2**32,
    FieldDescriptor.CPPTYPE_UINT64: 2**64,
}
_WORDS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


def bitmap_bomb(count: int) -> bytes:
    """Return the first numbers as a Roaring bitmap: 13 bytes for each 65,536."""
    bomb = BitMap()
    bomb.add_range(0, count)
    bomb.run_optimize()
    data: bytes = bomb.serialize()
    return data


#: Bitmaps of rows and of fragments: the second bitmap has as many fragments as an index may cover.
_BITMAPS = (bitmap_bomb(70_000), bitmap_bomb(2**23), bitmap_bomb(2**26))


def worse_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, fill, cut, extend, repeat or overwrite some of the bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = len(changed)
        at = rng.randrange(size) if size else 0
        draw = rng.randrange(8)
        if draw <= 1 and size:
            changed[at] ^= 1 << rng.randrange(8)
        elif draw == 2 and size:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif draw == 3:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice((*NUMBERS, size, size + 1, max(size - 1, 0))) % (1 << 8 * width)
            changed[at : at + width] = struct.pack(_WORDS[width], number)
        elif draw == 4:
            length = rng.choice((1, 4, 16, 100, 1_000))
            if rng.random() < 0.5:
                del changed[at : at + length]
            else:
                changed[at:at] = rng.choice(
                    (b"\0" * length, b"\xff" * length, rng.randbytes(length))
                )
        elif draw == 5:
            del changed[at:]
        elif draw == 6 and size:
            start = rng.randrange(size)
            part = bytes(changed[start : start + rng.choice((8, 64, 4_096))])
            changed[at : at + (len(part) if rng.random() < 0.5 else 0)] = part
        else:
            length = min(rng.choice((1, 4, 8, 16)), size - at)
            changed[at : at + length] = rng.choice((b"\0", b"\xff")) * length
    return bytes(changed)


class Node(NamedTuple):
    """A message inside another message, and a function that stores it there after a change."""

    message: Message
    store: Callable[[], None]


def nodes(message: Message, store: Callable[[], None] = lambda: None) -> Iterator[Node]:
    """Yield a message and all messages inside it, also inside `Any` and inside bytes."""
    yield Node(message, store)
    if isinstance(message, any_pb2.Any):
        inner = _of_any(message)
        if inner is not None:
            yield from nodes(inner, _setter(message, "value", inner, store))
        return
    for field, value in message.ListFields():
        if _is_map(field):
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in value if is_repeated(field) else (value,):
                yield from nodes(item, store)
        elif field.type == FieldDescriptor.TYPE_BYTES and not is_repeated(field):
            inner = _of_bytes(message, field.name, value)
            if inner is not None:
                yield from nodes(inner, _setter(message, field.name, inner, store))


def _setter(
    owner: Message, name: str, inner: Message, store: Callable[[], None]
) -> Callable[[], None]:
    def put() -> None:
        setattr(owner, name, inner.SerializeToString())
        store()

    return put


def _of_any(message: any_pb2.Any) -> Message | None:
    try:
        message_class = symbol_database.Default().GetSymbol(message.type_url.rpartition("/")[2])
        inner: Message = message_class.FromString(message.value)
    except (KeyError, DecodeError):
        return None
    return inner


def _of_bytes(owner: Message, name: str, value: bytes) -> Message | None:
    message_class: type[Message] | None = NESTED.get(f"{owner.DESCRIPTOR.full_name}.{name}")
    if owner.DESCRIPTOR.full_name == "lance.file.v2.DirectEncoding":
        message_class = any_pb2.Any
    try:
        return message_class.FromString(value) if message_class is not None else None
    except DecodeError:
        return None


def worsen(message: Message, rng: random.Random, spared: tuple[str, ...] = ()) -> None:
    """Give one field, somewhere in a message, a forbidden value.

    Parameters
    ----------
    message : Message
    rng : Random
    spared : tuple of str
        Names of fields that keep their values.
    """
    result = [node for node in nodes(message) if node.message.DESCRIPTOR.fields]
    if not result:
        return
    # Messages of rare types are as likely as messages of frequent types.
    message_name = rng.choice(sorted({node.message.DESCRIPTOR.full_name for node in result}))
    node = rng.choice(
        [item for item in result if item.message.DESCRIPTOR.full_name == message_name]
    )
    _worsen(node.message, rng, spared)
    node.store()


def worse_message(message_class: Any) -> Mutate:
    """Return a function that damages messages of a type."""

    def mutate(data: bytes, rng: random.Random) -> bytes:
        if rng.random() < 0.15:
            return worse_bytes(data, rng)
        message = message_class.FromString(data)
        for _ in range(rng.choice((1, 1, 2))):
            worsen(message, rng)
        written: bytes = message.SerializeToString()
        return written

    return mutate


def _worsen(message: Message, rng: random.Random, spared: tuple[str, ...]) -> None:
    fields = [field for field in message.DESCRIPTOR.fields if field.name not in spared]
    present = [field for field, _ in message.ListFields() if field.name not in spared]
    if present and rng.random() < 0.75:
        fields = present
    if not fields:
        return
    field = rng.choice(fields)
    name = field.name
    if rng.random() < 0.12:
        message.ClearField(name)
        return
    if _is_map(field):
        _fill_map(message, field, rng)
    elif is_repeated(field):
        _repeat(getattr(message, name), field, rng)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        inner = getattr(message, name)
        inner.SetInParent()
        same_name = [field for field in inner.DESCRIPTOR.fields if field.name == name]
        if rng.random() < 0.3:
            _nest(inner, rng)
        elif same_name or rng.random() < 0.5:
            _worsen(inner, rng, spared)
    else:
        setattr(message, name, _value(field, getattr(message, name), rng))


def _nest(message: Message, rng: random.Random) -> None:
    """Put a message into itself, again and again."""
    message_name = message.DESCRIPTOR.full_name
    for field in message.DESCRIPTOR.fields:
        if field.type != FieldDescriptor.TYPE_MESSAGE or is_repeated(field):
            continue
        path = [field.name]
        inner = field.message_type
        if inner.full_name != message_name:
            again = [field.name for field in inner.fields if _holds(field, message_name)]
            if not again:
                continue
            path.append(again[0])
        for _ in range(rng.choice((1, 3, 20, 40))):
            copy = type(message)()
            copy.CopyFrom(message)
            place: Any = message
            for name in path:
                place = getattr(place, name)
            place.CopyFrom(copy)
        return


def _holds(field: FieldDescriptor, message_name: str) -> bool:
    inner = field.message_type
    return inner is not None and inner.full_name == message_name and not is_repeated(field)


def _repeat(values: Any, field: FieldDescriptor, rng: random.Random) -> None:
    count = rng.choice((1, 1, 2, 300))
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        draw = rng.random()
        if draw < 0.3 and len(values) > 1:
            target, source = rng.sample(range(len(values)), 2)
            values[target].CopyFrom(values[source])
        elif draw < 0.5 and len(values):
            del values[rng.randrange(len(values))]
        else:
            first = rng.choice(values) if len(values) else values.add()
            for _ in range(count):
                values.add().CopyFrom(first)
    elif len(values) and rng.random() < 0.6:
        at = rng.randrange(len(values))
        values[at] = _value(field, values[at], rng)
    elif len(values) and rng.random() < 0.3:
        del values[rng.randrange(len(values)) :]
    else:
        values.extend(_value(field, 0, rng) for _ in range(count))


def _fill_map(message: Message, field: FieldDescriptor, rng: random.Random) -> None:
    key, value = field.message_type.fields
    if value.message_type is not None:
        return
    held = getattr(message, field.name)
    if key.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        # Only ids that exist: nobody looks up other ids.
        if held:
            chosen = rng.choice(sorted(held))
            held[chosen] = _value(value, held[chosen], rng)
        return
    chosen = rng.choice([*held, *held, *_KEYS])
    if value.type == FieldDescriptor.TYPE_BYTES and rng.random() < 0.7:
        held[chosen] = rng.choice(TEXTS).encode()
    else:
        held[chosen] = _value(value, held.get(chosen, 0), rng)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _value(field: FieldDescriptor, good: Any, rng: random.Random) -> Any:
    cpp_type = field.cpp_type
    if cpp_type in _END:
        near = (good + 1, good - 1, good * 2, good // 2, good * 1_000) if good else (5, 1_000)
        every = (*NUMBERS, *near, *near, -1, -(2**31), -(2**63))
        return rng.choice([item for item in every if _LEAST[cpp_type] <= item < _END[cpp_type]])
    if cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice((0, 1, 2, 3, 4, 77))
    if cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return not good
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice(
            (b"", b"\xff" * 40, rng.randbytes(100), *_BITMAPS, worse_bytes(good or b"\0", rng))
        )
    if cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return rng.choice(TEXTS)
    return rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e300))
