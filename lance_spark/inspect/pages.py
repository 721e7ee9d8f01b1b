"""The columns of a data file: their pages, bytes, and how each page is encoded.

Everything is read from the end of the file: footer, schema and column metadata. No page is read.

An encoding is told as the tree that the page's message is, by the names that the format's messages have. Which of
several kinds a message is comes first, what it consists of follows in brackets:

=========================  ===========================================================================
version                    example
=========================  ===========================================================================
0.1                        ``var_binary``, as the schema has it
2.0                        ``nullable(no_nulls(flat(64 bits)))``
2.1, 2.2                   ``mini_block(general(zstd, flat(32 bits)), def inline_bitpacking(16 bits))``
2.3                        ``dense + chunked(inline_bitpacking(64 bits))``
=========================  ===========================================================================

Specification: format/file, "Encodings"; `protos/encodings_v2_0.proto`, `encodings_v2_1.proto`, `encodings_v2_3.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from lance_spark.encoding.meta import ColumnMeta
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.proto import encodings_v2_0_pb2, encodings_v2_1_pb2, encodings_v2_3_pb2

#: What a page says whose message cannot be read.
UNREADABLE = "unreadable"
#: What a message says that has none of the kinds that this release knows.
UNKNOWN = "unknown"

_LEGACY = {1: "plain", 2: "var_binary", 3: "dictionary", 4: "rle"}
_MESSAGES: dict[tuple[int, int], type[Message]] = {
    (2, 0): encodings_v2_0_pb2.ArrayEncoding,
    (2, 1): encodings_v2_1_pb2.PageLayout,
    (2, 2): encodings_v2_1_pb2.PageLayout,
    (2, 3): encodings_v2_3_pb2.PlanarLayout,
}
#: Fields that are what the message is about, so that their names say nothing more.
_PLAIN = frozenset(
    {
        "value_compression",
        "compression",
        "values",
        "inner_layout",
        "inner",
        "value",
        "fields",
        "binary",
        "levels",
    }
)
_SHORT_NAMES = {
    "rep_compression": "rep",
    "def_compression": "def",
    "repetition": "rep",
    "definition": "def",
    "num_dictionary_items": "items",
    "num_items": "values",
}
_BITS = {
    "bits_per_value": "bits",
    "uncompressed_bits_per_value": "bits",
    "compressed_bits_per_value": "bits stored",
    "bits_per_offset": "bits per offset",
    "bits_per_length": "bits per length",
    "bits_per_values": "bits",
    "bits_rep": "bits rep",
    "bits_def": "bits def",
    "bits_repetition": "bits rep",
    "bits_definition": "bits def",
    "items_per_value": "per value",
    "dimension": "per value",
    "byte_width": "bytes",
    "num_dictionary_items": "items",
    "start": "start",
    "step": "step",
    "base": "base",
}
_SCHEMES = frozenset({"BufferCompression", "Compression"})
_DEPTH = 24


@dataclass(frozen=True, slots=True)
class PageFacts:
    """One page.

    Attributes
    ----------
    num_rows : int
        In the column's own domain: items, for a column below a list in version 2.0.
    buffers : tuple of int
        Bytes of each of its buffers.
    encoding : str
    """

    num_rows: int
    buffers: tuple[int, ...]
    encoding: str

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(self.buffers)


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """One column of a file.

    Attributes
    ----------
    path : str
        Name of the field, dotted inside of structs and lists; what became of it, if the table does not have it any more.
    kind : str
        Logical type of the field; empty if it is not known.
    field_id : int
        Negative if the column is of no field of the table.
    pages : tuple of PageFacts
        Of a file of version 0.1, one that stands for all.
    own_bytes : int
        Bytes of buffers of the column itself.
    num_pages : int
    """

    path: str
    kind: str
    field_id: int
    pages: tuple[PageFacts, ...]
    own_bytes: int
    num_pages: int

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages and of the column's own buffers."""
        return self.own_bytes + sum(page.num_bytes for page in self.pages)


def columns_of(
    reader: DataFileReader, schema: Schema, column_of: Mapping[int, int]
) -> list[ColumnPages]:
    """Return the columns of an open file, in the file's order.

    Parameters
    ----------
    reader : DataFileReader
    schema : Schema
        Of the table.
    column_of : mapping of int to int
        Column of each field id, as the manifest has it; empty for files of version 0.1.

    Raises
    ------
    CorruptFileError, UnsupportedEncodingError, StorageError
    """
    if isinstance(reader, LegacyFileReader):
        return _legacy(reader, schema)
    assert isinstance(reader, FileReader)
    fields = dict(_named(schema.fields))
    stored = {field.id: (path, field) for path, field in _paths(reader.schema.fields)}
    owners = {column: field for field, column in column_of.items() if column >= 0}
    found = []
    owner = -1
    for index, meta in enumerate(reader.columns()):
        # Columns that no field names hold bytes of the one before: strings of the first files of version 2.0.
        owner = owners.get(index, owner)
        found.append(_column(meta, owner, fields, stored, reader.version))
    return found


def _column(
    meta: ColumnMeta,
    owner: int,
    fields: Mapping[int, tuple[str, Field]],
    stored: Mapping[int, tuple[str, Field]],
    version: tuple[int, int],
) -> ColumnPages:
    if owner in fields:
        path, field = fields[owner]
        kind = field.logical_type
    elif owner in stored:
        path, field = stored[owner]
        path, kind, owner = f"{path} (dropped)", field.logical_type, -1
    else:
        path, kind, owner = "(replaced)", "", -1
    pages = tuple(
        PageFacts(
            page.num_rows,
            tuple([buffer.length for buffer in page.buffers]),
            encoding_of(page.encoding, version),
        )
        for page in meta.pages
    )
    own = sum(buffer.length for buffer in meta.buffers)
    return ColumnPages(path, kind, owner, pages, own, len(pages))


def _legacy(reader: LegacyFileReader, schema: Schema) -> list[ColumnPages]:
    """Return the top-level columns of a file of version 0.1, each with its children."""
    held = {field.id for field in reader.schema.walk()}
    found = []
    for field in schema.fields:
        if held and field.id not in held:
            continue
        size = reader.column_bytes([field])
        encoding = field.logical_type if field.children else _LEGACY.get(field.encoding, UNKNOWN)
        page = PageFacts(reader.num_rows, (size,), encoding)
        found.append(
            ColumnPages(field.name, field.logical_type, field.id, (page,), 0, reader.num_batches)
        )
    return found


def _paths(fields: tuple[Field, ...], above: str = "") -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{above}.{field.name}" if above else field.name
        yield path, field
        yield from _paths(field.children, path)


def _named(fields: tuple[Field, ...]) -> Iterator[tuple[int, tuple[str, Field]]]:
    for path, field in _paths(fields):
        yield field.id, (path, field)


@lru_cache(maxsize=1024)
def encoding_of(encoding: bytes, version: tuple[int, int]) -> str:
    """Tell the encoding of a page in a line.

    Parameters
    ----------
    encoding : bytes
        The page's message.
    version : tuple of int
        Of the file: 2.0 to 2.3.
    """
    try:
        message = _MESSAGES[version].FromString(encoding)
    except (DecodeError, KeyError):
        return UNREADABLE
    if version == (2, 3):
        assert isinstance(message, encodings_v2_3_pb2.PlanarLayout)
        return f"{_chosen(message.structure, 0)} + {_chosen(message.values, 0)}"
    return _chosen(message, 0)


def _chosen(message: Message, depth: int) -> str:
    """Tell a message that is one of several others: which, and what that consists of."""
    if depth > _DEPTH:
        return "..."
    (choice,) = message.DESCRIPTOR.oneofs
    name = message.WhichOneof(choice.name)
    if name is None:
        return UNKNOWN
    parts = _parts(getattr(message, name), depth + 1)
    shown = name.removesuffix("_layout")
    return f"{shown}({', '.join(parts)})" if parts else shown


def _parts(message: Message, depth: int) -> list[str]:
    """Tell what a message consists of: numbers, how its buffer is compressed, and the messages below."""
    parts = []
    for field, value in message.ListFields():
        if field.message_type is None:
            parts += _numbers(field, value)
            continue
        for one in value if _repeated(value) else [value]:
            parts += _below(field, one, depth)
    return parts


def _below(field: FieldDescriptor, message: Message, depth: int) -> list[str]:
    """Tell a message inside of another."""
    if message.DESCRIPTOR.name in _SCHEMES:
        scheme = _scheme(message)
        return [scheme] if scheme else []
    if _is_choice(message):
        told = _chosen(message, depth)
    else:
        parts = _parts(message, depth)
        if not parts or depth > _DEPTH:
            # A reference to a buffer says nothing of how it is encoded.
            return []
        if field.name in _PLAIN:
            return parts
        return [f"{_SHORT_NAMES.get(field.name, field.name)}({', '.join(parts)})"]
    return [told if field.name in _PLAIN else f"{_SHORT_NAMES.get(field.name, field.name)} {told}"]


def _is_choice(message: Message) -> bool:
    oneofs = message.DESCRIPTOR.oneofs
    return len(oneofs) == 1 and len(oneofs[0].fields) == len(message.DESCRIPTOR.fields)


def _repeated(value: object) -> bool:
    return not isinstance(value, Message)


def _numbers(field: FieldDescriptor, value: object) -> list[str]:
    unit = _BITS.get(field.name)
    if unit is None:
        return []
    if isinstance(value, int):
        return [f"{value} {unit}"]
    return [f"{'+'.join(str(one) for one in value)} {unit}"] if isinstance(value, list) else []


def _scheme(message: Message) -> str:
    """Name how a buffer is compressed: with a general codec, and perhaps at which level."""
    scheme = getattr(message, "scheme", "")
    if isinstance(scheme, int):
        names = encodings_v2_1_pb2.CompressionScheme.DESCRIPTOR.values_by_number
        name = names[scheme].name if scheme in names else UNKNOWN
        scheme = name.removeprefix("COMPRESSION_ALGORITHM_")
    level = f" level {message.level}" if message.HasField("level") else ""  # type: ignore[attr-defined]
    return f"{str(scheme).lower()}{level}"
