"""Names of the encodings of pages.

The names follow `tests/interop/files/test_forced.py`. For example, `mini(general:zstd(flat:64))` is
a mini-block page of flat values that were compressed by Zstandard.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from lance_spark.proto import (
    encodings_v2_0_pb2,
    encodings_v2_1_pb2,
    encodings_v2_3_pb2,
    file2_pb2,
    file_pb2,
    table_pb2,
)


def page_name(path: Path, version: str) -> str:
    """Return the name of the first page of a file, or of a table's first file."""
    if version == "0.1":
        return _name_0_1(path)
    if path.is_dir():
        path = next((path / "data").glob("*.lance"))
    file = path.read_bytes()
    table = struct.unpack_from("<QQQIIHH4s", file, len(file) - 40)[1]
    start, size = struct.unpack_from("<QQ", file, table)
    pages = file2_pb2.ColumnMetadata.FromString(file[start : start + size]).pages
    message = Any.FromString(pages[0].encoding.direct.encoding).value
    if version == "2.0":
        return _name_2_0(encodings_v2_0_pb2.ArrayEncoding.FromString(message))
    if version == "2.3":
        return _name_2_3(encodings_v2_3_pb2.PlanarLayout.FromString(message))
    from tests.interop.files.test_forced import page_encoding_name

    return page_encoding_name(encodings_v2_1_pb2.PageLayout.FromString(message))


def _name_0_1(path: Path) -> str:
    (manifest,) = (path / "_versions").glob("*.manifest")
    data = manifest.read_bytes()
    (start,) = struct.unpack_from("<Q", data, len(data) - 16)
    (size,) = struct.unpack_from("<I", data, start)
    fields = table_pb2.Manifest.FromString(data[start + 4 : start + 4 + size]).fields
    return ",".join(file_pb2.Encoding.Name(field.encoding).lower() for field in fields)


def _name_2_0(encoding: encodings_v2_0_pb2.ArrayEncoding) -> str:
    field = encoding.WhichOneof("array_encoding")
    message = getattr(encoding, field)
    name = str(field)
    if field == "flat":
        name += f":{message.bits_per_value}"
        if message.compression.scheme:
            name += f":{message.compression.scheme}"
    if field == "fixed_size_list":
        name += f":{message.dimension}"
    children = ",".join(_name_2_0(child) for child in _children_2_0(message))
    return f"{name}({children})" if children else name


def _children_2_0(message: Message) -> Iterator[encodings_v2_0_pb2.ArrayEncoding]:
    """Yield the encodings that a message names, without the encodings that they name."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for child in value if field.is_repeated else [value]:
            if isinstance(child, encodings_v2_0_pb2.ArrayEncoding):
                yield child
            else:
                yield from _children_2_0(child)


def _name_2_3(layout: encodings_v2_3_pb2.PlanarLayout) -> str:
    from tests.interop.files.test_forced import encoding_name

    codec = layout.values.WhichOneof("codec")
    name = f"{layout.structure.WhichOneof('codec')} {codec}"
    message = getattr(layout.values, codec)
    if "compression" in {field.name for field in message.DESCRIPTOR.fields}:
        name += f"({encoding_name(message.compression)})"
    return name
