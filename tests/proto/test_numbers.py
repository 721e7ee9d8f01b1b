"""Field numbers of all messages, compared with the decoder of pylance.

The protobuf decoder of pylance refuses a known field with a wrong wire type, and its error names
the message, the field and the expected wire type. It skips an unknown field. So each test adds one
wrong field to a message that pylance wrote, and lets pylance open the result.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from google.protobuf import any_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from lance.file import LanceFileReader

from lance_spark.proto import (
    encodings_v2_0_pb2,
    encodings_v2_1_pb2,
    encodings_v2_3_pb2,
    file2_pb2,
    file_pb2,
    index_old_pb2,
    index_pb2,
    table_pb2,
    transaction_pb2,
)
from tests.proto.containers import ManifestFile
from tests.support.descriptors import is_repeated

Ask = Callable[[bytes], str]

VARINT, FIXED64, LENGTH = 0, 1, 2
BEYOND = 20

WIRE = {
    FieldDescriptor.TYPE_DOUBLE: "SixtyFourBit",
    FieldDescriptor.TYPE_FLOAT: "ThirtyTwoBit",
    FieldDescriptor.TYPE_STRING: "LengthDelimited",
    FieldDescriptor.TYPE_BYTES: "LengthDelimited",
    FieldDescriptor.TYPE_MESSAGE: "LengthDelimited",
}
ONLY_IN_2_3 = re.compile(
    r"lance\.encodings21\.(CompressiveEncoding\.(range|delta) |(Range|Delta)\.)"
)
#: Fields of the public format that pylance does not know any more: it skips them.
NOT_IN_PYLANCE = {
    "lance.table.DataFragment.external_row_ids",
    "lance.table.DataFragment.external_last_updated_at_versions",
    "lance.table.DataFragment.external_created_at_versions",
    "lance.table.Manifest.blob_dataset_version",
}
RUST_NAMES = {"UUID": "Uuid", "IVF": "Ivf", "PQ": "Pq"}


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def delimited(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | LENGTH) + varint(len(payload)) + payload


def misfit(number: int, expected: str) -> bytes:
    """Return a field with a wire type that is not the expected one."""
    if expected == "SixtyFourBit":
        return varint(number << 3 | VARINT) + b"\0"
    return varint(number << 3 | FIXED64) + bytes(8)


def wire(field: FieldDescriptor) -> str:
    return WIRE.get(field.type, "Varint")


def reported(field: FieldDescriptor) -> str:
    """Return the name under which pylance reports a field: its oneof's, if it has a real one."""
    message = field.containing_type.name
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field.name).lower() if field.name != "L" else "l"
    oneof = field.containing_oneof
    if oneof is not None and not oneof.name.startswith("_"):
        name = oneof.name
    return f"{RUST_NAMES.get(message, message)}.{name}"


def check_bytes_or_string(
    field: FieldDescriptor, wrap: Callable[[bytes], bytes], ask: Ask
) -> str | None:
    is_string = "UTF-8" in ask(wrap(delimited(field.number, b"\xff")))
    if is_string != (field.type == FieldDescriptor.TYPE_STRING):
        return f"{field.full_name}: pylance reads a {'string' if is_string else 'bytes'} field"
    return None


def check_field(
    field: FieldDescriptor, wrap: Callable[[bytes], bytes], ask: Ask
) -> Iterator[str | None]:
    """Yield the differences between a field of this package and the field of pylance."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for part in field.message_type.fields:
            answer = ask(wrap(delimited(field.number, misfit(part.number, wire(part)))))
            if f"{reported(field)}: " not in answer or f"(expected {wire(part)})" not in answer:
                yield f"{field.full_name}: {part.name} is {wire(part)}; pylance says {answer!r}"
            if part.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
                yield check_bytes_or_string(
                    part, lambda body: wrap(delimited(field.number, body)), ask
                )
        return
    answer = ask(wrap(misfit(field.number, wire(field)))).replace("r#", "")
    if not re.search(rf"message: {reported(field)}: .*\(expected {wire(field)}\)", answer):
        yield f"{field.full_name} = {field.number} is {wire(field)}; pylance says {answer!r}"
    elif wire(field) == "Varint":
        packed = "invalid wire type" not in ask(wrap(delimited(field.number, b"\1")))
        if packed != is_repeated(field):
            yield f"{field.full_name}: pylance has it {'repeated' if packed else 'once'}"
    elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        yield check_bytes_or_string(field, wrap, ask)


def differences(
    message: Descriptor, wrap: Callable[[bytes], bytes], ask: Ask, seen: set[str]
) -> Iterator[str | None]:
    """Yield the differences between messages of pylance and of this package, from one message
    downwards.
    """
    seen.add(message.full_name)
    last = max(message.fields_by_number, default=0)
    for number in range(1, last + BEYOND):
        field = message.fields_by_number.get(number)
        if field is None or field.full_name in NOT_IN_PYLANCE:
            answer = ask(wrap(misfit(number, "any")))
            if "invalid wire type" in answer:
                yield f"{message.full_name}: pylance knows field {number}: {answer!r}"
            continue
        yield from check_field(field, wrap, ask)
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or inner.full_name in seen:
            continue
        if inner.full_name.startswith("lance."):
            yield from differences(
                inner, lambda body, number=number: wrap(delimited(number, body)), ask, seen
            )


def complaint(action: Callable[[], object]) -> str:
    """Return the text of pylance's error; "" without an error. A panic is no Exception."""
    try:
        action()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return str(error)
    return ""


class ManifestOracle:
    """Lets pylance open a table after something was added to a message of its manifest file."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "table")
        data = pa.table({"a": pa.array(range(10), pa.int32())})
        lance.write_dataset(data, self.uri).create_scalar_index("a", "BTREE")
        self.path = min((folder / "table" / "_versions").glob("*.manifest"))
        self.file = ManifestFile.read(self.path)

    def write(
        self, manifest: bytes = b"", indices: bytes | None = None, transaction: bytes = b""
    ) -> None:
        assert self.file.indices is not None
        assert self.file.transaction_bytes is not None
        if indices is None:
            indices = self.file.indices.SerializeToString()
        head = struct.pack("<I", len(indices)) + indices
        changed = table_pb2.Manifest()
        changed.CopyFrom(self.file.manifest)
        changed.index_section = 0
        changed.transaction_section = len(head)
        transaction = self.file.transaction_bytes + transaction
        head += struct.pack("<I", len(transaction)) + transaction
        manifest = changed.SerializeToString() + manifest
        body = struct.pack("<I", len(manifest)) + manifest
        self.path.write_bytes(head + body + struct.pack("<QHH4s", len(head), 0, 2, b"LANC"))

    def manifest(self, payload: bytes) -> str:
        self.write(manifest=payload)
        return complaint(lambda: lance.dataset(self.uri))

    def index_section(self, payload: bytes) -> str:
        assert self.file.indices is not None
        self.write(indices=self.file.indices.SerializeToString() + payload)
        return complaint(lambda: lance.dataset(self.uri).describe_indices())

    def transaction(self, payload: bytes) -> str:
        self.write(transaction=payload)
        return complaint(lambda: lance.dataset(self.uri).get_transactions(1))

    def details(self, message: type[Message], name: str, payload: bytes) -> str:
        """Ask about the details of an index that has the given name."""
        assert self.file.indices is not None
        entry = table_pb2.IndexMetadata()
        entry.CopyFrom(self.file.indices.indices[0])
        entry.name = name
        entry.uuid.uuid = bytes(16)
        entry.index_details.type_url = f"/{message.DESCRIPTOR.full_name}"
        entry.index_details.value = payload
        if name.startswith("__"):
            del entry.fields[:]
        self.write(indices=table_pb2.IndexSection(indices=[entry]).SerializeToString())
        dataset = lance.dataset(self.uri)
        answers = [
            complaint(dataset.describe_indices),
            complaint(lambda: dataset.stats.index_stats(name)),
            complaint(lambda: dataset.to_table(filter="a = 3")),
        ]
        return next((text for text in answers if "failed to decode" in text), answers[0])


class FileOracle:
    """Lets pylance open a version 2 file after something was added to one of its messages."""

    def __init__(self, folder: Path, version: str) -> None:
        data = pa.table({"a": pa.array(range(2000), pa.int32())})
        lance.write_dataset(data, str(folder / "table"), data_storage_version=version)
        (self.path,) = (folder / "table" / "data").iterdir()
        self.data = self.path.read_bytes()
        _, columns, buffers, _, _, *self.version, _ = struct.unpack("<QQQIIHH4s", self.data[-40:])
        at, size = struct.unpack_from("<QQ", self.data, columns)
        self.column = file2_pb2.ColumnMetadata.FromString(self.data[at : at + size])
        at, size = struct.unpack_from("<QQ", self.data, buffers)
        self.pages, self.schema = self.data[:at], self.data[at : at + size]

    def open(self, column: bytes, schema: bytes) -> str:
        schema = self.schema + schema
        at = len(self.pages)
        column_at = at + len(schema)
        table_at = column_at + len(column)
        tail = struct.pack("<QQ", column_at, len(column)) + struct.pack("<QQ", at, len(schema))
        footer = (column_at, table_at, table_at + 16, 1, 1, *self.version, b"LANC")
        tail += struct.pack("<QQQIIHH4s", *footer)
        self.path.write_bytes(self.pages + schema + column + tail)
        return complaint(lambda: LanceFileReader(str(self.path)))

    def file_descriptor(self, payload: bytes) -> str:
        return self.open(self.column.SerializeToString(), payload)

    def column_metadata(self, payload: bytes) -> str:
        return self.open(self.column.SerializeToString() + payload, b"")

    def column_encoding(self, payload: bytes) -> str:
        changed = file2_pb2.ColumnMetadata()
        changed.CopyFrom(self.column)
        self.replace(changed.encoding, payload)
        return self.open(changed.SerializeToString(), b"")

    def page_encoding(self, payload: bytes) -> str:
        changed = file2_pb2.ColumnMetadata()
        changed.CopyFrom(self.column)
        self.replace(changed.pages[0].encoding, payload)
        return self.open(changed.SerializeToString(), b"")

    @staticmethod
    def replace(encoding: file2_pb2.Encoding, payload: bytes) -> None:
        packed = any_pb2.Any.FromString(encoding.direct.encoding)
        packed.value = payload
        encoding.direct.encoding = packed.SerializeToString()


def all_differences(message: type[Message], ask: Ask) -> list[str]:
    assert "failed to decode" not in ask(b"")
    all_found = differences(message.DESCRIPTOR, lambda body: body, ask, set())
    return [difference for difference in all_found if difference]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (table_pb2.Manifest, "manifest"),
        (table_pb2.IndexSection, "index_section"),
        (transaction_pb2.Transaction, "transaction"),
    ],
)
def test_messages_of_a_manifest_file(tmp_path: Path, message: type[Message], place: str) -> None:
    assert all_differences(message, getattr(ManifestOracle(tmp_path), place)) == []


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (table_pb2.FragmentReuseIndexDetails, "__lance_frag_reuse"),
        (table_pb2.MemWalIndexDetails, "__lance_mem_wal"),
        (index_old_pb2.InvertedIndexDetails, "a_idx"),
        (index_pb2.JsonIndexDetails, "a_idx"),
        (index_pb2.MinHashLshIndexDetails, "a_idx"),
    ],
)
def test_index_details(tmp_path: Path, message: type[Message], name: str) -> None:
    oracle = ManifestOracle(tmp_path)
    assert all_differences(message, lambda payload: oracle.details(message, name, payload)) == []


@pytest.mark.parametrize(
    ("version", "message", "place"),
    [
        ("2.0", encodings_v2_0_pb2.ArrayEncoding, "page_encoding"),
        ("2.1", encodings_v2_1_pb2.PageLayout, "page_encoding"),
        ("2.2", encodings_v2_1_pb2.PageLayout, "page_encoding"),
        ("2.3", encodings_v2_3_pb2.PlanarLayout, "page_encoding"),
        ("2.2", encodings_v2_0_pb2.ColumnEncoding, "column_encoding"),
        ("2.2", file2_pb2.ColumnMetadata, "column_metadata"),
        ("2.2", file_pb2.FileDescriptor, "file_descriptor"),
    ],
)
def test_messages_of_a_data_file(
    tmp_path: Path, version: str, message: type[Message], place: str
) -> None:
    differing = all_differences(message, getattr(FileOracle(tmp_path, version), place))
    if message is encodings_v2_1_pb2.PageLayout:
        # Versions 2.1 to 2.3 share their compressive encodings here; only version 2.3 has two of
        # them.
        differing = [difference for difference in differing if not ONLY_IN_2_3.match(difference)]
    assert differing == []
