"""The columns of a data file, with the sizes and encodings of their pages.

Everything is read from the end of the file: footer, schema and column metadata. No page is read.

The text of an encoding is the tree of the page's protobuf message, with the names that the format
uses. The chosen alternative of a oneof comes first, its content follows in brackets:

| version | example |
| --- | --- |
| 0.1 | ``var_binary``, as the schema has it |
| 2.0 | ``nullable(no_nulls(flat(64 bits)))`` |
| 2.1, 2.2 | ``mini_block(general(zstd, flat(32 bits)), def inline_bitpacking(16 bits))`` |
| 2.3 | ``dense + chunked(inline_bitpacking(64 bits))`` |

Specification: format/file, "Encodings"; `protos/encodings_v2_0.proto`, `encodings_v2_1.proto`,
`encodings_v2_3.proto`.
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
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.proto import encodings_v2_0_pb2, encodings_v2_1_pb2, encodings_v2_3_pb2

#: The encoding of a page whose message cannot be parsed.
UNREADABLE = "unreadable"
#: The text of a message with an alternative that this release does not know.
UNKNOWN = "unknown"

_LEGACY = {1: "plain", 2: "var_binary", 3: "dictionary", 4: "rle"}
_MESSAGES: dict[tuple[int, int], type[Message]] = {
    (2, 0): encodings_v2_0_pb2.ArrayEncoding,
    (2, 1): encodings_v2_1_pb2.PageLayout,
    (2, 2): encodings_v2_1_pb2.PageLayout,
    (2, 3): encodings_v2_3_pb2.PlanarLayout,
}
#: Fields that are the main content of their message, so that their names are left out.
_UNNAMED = frozenset(
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
#: Units of numeric fields. Other numbers are left out.
_UNITS = {
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
_COMPRESSIONS = frozenset({"BufferCompression", "Compression"})
_MAX_DEPTH = 24


@dataclass(frozen=True, slots=True)
class PageFacts:
    """A page of a column.

    Attributes
    ----------
    num_rows : int
        Number of values of the column: list items, for a column below a list in version 2.0.
    buffers : tuple of int
        Size of each buffer in bytes.
    encoding : str
        Its encoding; the docstring of the module describes the form.
    """

    num_rows: int
    buffers: tuple[int, ...]
    encoding: str

    @property
    def num_bytes(self) -> int:
        """Size of all buffers."""
        return sum(self.buffers)


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """A column of a data file.

    Attributes
    ----------
    path : str
        Dotted path of the field. If the table no longer has the field, it ends with ``(dropped)``
        or is ``(replaced)``.
    kind : str
        Logical type of the field; empty if unknown.
    field_id : int
        Negative if the table does not have the field.
    pages : tuple of PageFacts
        For a file of version 0.1, one entry that sums up all pages.
    own_bytes : int
        Size of the buffers that belong to the column as a whole.
    num_pages : int
        Number of pages.
    """

    path: str
    kind: str
    field_id: int
    pages: tuple[PageFacts, ...]
    own_bytes: int
    num_pages: int

    @property
    def num_bytes(self) -> int:
        """Size of all pages and of the column's own buffers."""
        return self.own_bytes + sum(page.num_bytes for page in self.pages)

    @property
    def page_names(self) -> list[str]:
        """The number of each page of `pages`, or the range of numbers that one entry sums up."""
        if self.num_pages != len(self.pages):
            return [f"0-{self.num_pages - 1}"] * len(self.pages)
        return [str(index) for index in range(self.num_pages)]


def columns_of(
    reader: DataFileReader, schema: Schema, column_of: Mapping[int, int]
) -> list[ColumnPages]:
    """Return the columns of an open data file, in the order of the file.

    - `schema`: The schema of the table.
    - `column_of`: Column index of each field id, from the manifest; empty for files of version 0.1.

    Raises CorruptFileError, UnsupportedEncodingError, StorageError.
    """
    if isinstance(reader, LegacyFileReader):
        return _legacy_columns(reader, schema)
    assert isinstance(reader, FileReader)
    table_fields = _fields_by_id(schema.fields)
    file_fields = _fields_by_id(reader.schema.fields)
    field_of = {column: field_id for field_id, column in column_of.items() if column >= 0}
    columns = []
    field_id = -1
    for index, meta in enumerate(reader.columns()):
        # Without an entry, the column belongs to the field before: strings in the first files of
        # version 2.0.
        field_id = field_of.get(index, field_id)
        columns.append(_column(meta, field_id, table_fields, file_fields, reader.version))
    return columns


def _column(
    meta: ColumnMeta,
    field_id: int,
    table_fields: Mapping[int, tuple[str, Field]],
    file_fields: Mapping[int, tuple[str, Field]],
    version: tuple[int, int],
) -> ColumnPages:
    if field_id in table_fields:
        path, field = table_fields[field_id]
        logical_type = field.logical_type
    elif field_id in file_fields:
        path, field = file_fields[field_id]
        path, logical_type, field_id = f"{path} (dropped)", field.logical_type, -1
    else:
        path, logical_type, field_id = "(replaced)", "", -1
    pages = tuple(
        PageFacts(
            page.num_rows,
            tuple([buffer.length for buffer in page.buffers]),
            encoding_of(page.encoding, version),
        )
        for page in meta.pages
    )
    own_bytes = sum(buffer.length for buffer in meta.buffers)
    return ColumnPages(path, logical_type, field_id, pages, own_bytes, len(pages))


def _legacy_columns(reader: LegacyFileReader, schema: Schema) -> list[ColumnPages]:
    """Return the top-level columns of a file of version 0.1, each including its children."""
    ids_in_file = {field.id for field in reader.schema.walk()}
    columns = []
    for field in schema.fields:
        if ids_in_file and field.id not in ids_in_file:
            continue
        size = reader.column_bytes([field])
        encoding = field.logical_type if field.children else _LEGACY.get(field.encoding, UNKNOWN)
        page = PageFacts(reader.num_rows, (size,), encoding)
        columns.append(
            ColumnPages(field.name, field.logical_type, field.id, (page,), 0, reader.num_batches)
        )
    return columns


def _fields_by_id(fields: tuple[Field, ...]) -> dict[int, tuple[str, Field]]:
    """Return the dotted path and the field of each field id."""
    return {field.id: (path, field) for path, field in _paths(fields)}


def _paths(fields: tuple[Field, ...], parent: str = "") -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{parent}.{field.name}" if parent else field.name
        yield path, field
        yield from _paths(field.children, path)


@lru_cache(maxsize=1024)
def encoding_of(encoding: bytes, version: tuple[int, int]) -> str:
    """Return the text of the encoding of a page, in one line.

    - `encoding`: The page's protobuf message.
    - `version`: File version, 2.0 to 2.3.
    """
    try:
        message = _MESSAGES[version].FromString(encoding)
    except (DecodeError, KeyError):
        return UNREADABLE
    if version == (2, 3):
        assert isinstance(message, encodings_v2_3_pb2.PlanarLayout)
        return f"{_oneof_text(message.structure, 0)} + {_oneof_text(message.values, 0)}"
    return _oneof_text(message, 0)


def _oneof_text(message: Message, depth: int) -> str:
    """Return the text of a message that is one oneof: the chosen alternative and its content."""
    if depth > _MAX_DEPTH:
        return "..."
    (choice,) = message.DESCRIPTOR.oneofs
    name = message.WhichOneof(choice.name)
    if name is None:
        return UNKNOWN
    parts = _content_texts(getattr(message, name), depth + 1)
    shown = name.removesuffix("_layout")
    return f"{shown}({', '.join(parts)})" if parts else shown


def _content_texts(message: Message, depth: int) -> list[str]:
    """Return the texts of the fields of a message: numbers, compressions and nested messages."""
    parts = []
    for field, value in message.ListFields():
        if field.message_type is None:
            parts += _number_texts(field, value)
            continue
        for item in [value] if isinstance(value, Message) else value:
            parts += _nested_texts(field, item, depth)
    return parts


def _nested_texts(field: FieldDescriptor, message: Message, depth: int) -> list[str]:
    """Return the texts of a message inside another message."""
    name = _SHORT_NAMES.get(field.name, field.name)
    if message.DESCRIPTOR.name in _COMPRESSIONS:
        compression = _compression_text(message)
        return [compression] if compression else []
    if _is_oneof(message):
        text = _oneof_text(message, depth)
        return [text if field.name in _UNNAMED else f"{name} {text}"]
    parts = _content_texts(message, depth)
    if not parts or depth > _MAX_DEPTH:
        # For example a reference to a buffer, which does not concern the encoding.
        return []
    return parts if field.name in _UNNAMED else [f"{name}({', '.join(parts)})"]


def _is_oneof(message: Message) -> bool:
    """Return whether all fields of a message belong to one oneof."""
    oneofs = message.DESCRIPTOR.oneofs
    return len(oneofs) == 1 and len(oneofs[0].fields) == len(message.DESCRIPTOR.fields)


def _number_texts(field: FieldDescriptor, value: object) -> list[str]:
    unit = _UNITS.get(field.name)
    if unit is None:
        return []
    if isinstance(value, int):
        return [f"{value} {unit}"]
    return [f"{'+'.join(str(n) for n in value)} {unit}"] if isinstance(value, list) else []


def _compression_text(message: Message) -> str:
    """Return the general codec of a buffer, with its level if it has one."""
    scheme = getattr(message, "scheme", "")
    if isinstance(scheme, int):
        names = encodings_v2_1_pb2.CompressionScheme.DESCRIPTOR.values_by_number
        name = names[scheme].name if scheme in names else UNKNOWN
        scheme = name.removeprefix("COMPRESSION_ALGORITHM_")
    level = f" level {message.level}" if message.HasField("level") else ""  # type: ignore[attr-defined]
    return f"{str(scheme).lower()}{level}"
