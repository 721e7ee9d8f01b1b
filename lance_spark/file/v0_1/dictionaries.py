"""Dictionaries of tables of version 0.1: each column has one dictionary, which is equal in the
manifest and all data files.

pylance reads the values from the manifest and the positions from the files, so it would read other
values from a file with another dictionary. A writer therefore encodes all rows with the dictionary
of the table. The dictionary of a new table has the values of its first rows; the commit copies it
from the data files into the manifest, in front of its sections.

=====================  ==========================================================================
place                  content
=====================  ==========================================================================
manifest, data file    a page of values for each field, see `lance_spark.file.v0_1.pages`
`Field.dictionary`     position of that page in the manifest's or the data file, number of values
=====================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.pages import FieldPages, encode_values, open_values
from lance_spark.proto import file_pb2
from lance_spark.storage.output import OutputFile
from lance_spark.storage.source import ByteRange, Bytes, run_plans


def has_dictionaries(schema: Schema) -> bool:
    """Return whether a schema has a column of a dictionary type, at any depth."""
    return any(_is_dictionary(node) for node in schema.walk())


def with_dictionaries(schema: Schema, data: bytes) -> Schema:
    """Return the schema of a manifest with the bytes that hold its dictionaries.

    - `schema`: Parsed from the manifest.
    - `data`: The beginning of the file of the manifest.
    """
    if not data:
        return schema
    return replace(schema, fields=tuple(_with_pages(field, data) for field in schema.fields))


def encode_dictionaries(
    protos: Iterable[file_pb2.Field], values: dict[int, pa.Array], start: int
) -> list[Bytes]:
    """Return the pages of some dictionaries, and record their positions in the messages of their
    fields.

    - `values`: By the ids of the fields.
    - `start`: Position of the first page.
    """
    buffers: list[Bytes] = []
    for proto in protos:
        if proto.id not in values:
            continue
        encoded = encode_values(values[proto.id], start)
        proto.dictionary.offset = int(encoded.pages.positions[0])
        proto.dictionary.length = int(encoded.pages.lengths[0])
        buffers += encoded.buffers
        start += encoded.size
    return buffers


def read_dictionary(field: Field) -> pa.Array | None:
    """Return the values of a field's dictionary in the table; None if the table has none.

    Raises CorruptFileError: the values lie outside the manifest, or are damaged. Raises
    UnsupportedTypeError: Version 0.1 has no dictionaries of such values.
    """
    message = file_pb2.Field.FromString(field.carried)
    if not field.dictionary_pages or not message.HasField("dictionary"):
        return None
    position, data = message.dictionary, field.dictionary_pages
    pages = FieldPages(np.array([position.offset], np.int64), np.array([position.length], np.int64))
    reader = open_values(field.arrow_field.type.value_type, pages, len(data))
    (values,) = run_plans(_Memory(data), [reader.read(range(position.length))])
    return values


@dataclass(slots=True)
class FileDictionaries:
    """The dictionaries of a file that is being written.

    - `values`: By the ids of the fields.
    - `name`: Name of the file in errors.
    """

    values: dict[int, pa.Array]
    name: str

    @classmethod
    def of(cls, schema: Schema, name: str) -> FileDictionaries:
        """Return the dictionaries that the table has."""
        dictionaries = {
            node.id: read_dictionary(node) for node in schema.walk() if _is_dictionary(node)
        }
        return cls(
            {number: item for number, item in dictionaries.items() if item is not None}, name
        )

    def fit(self, array: pa.Array, field: Field, first_row: int) -> pa.Array:
        """Return rows of a field, with the dictionary of the file in place of their own.

        - `array`: Array without nulls in structs and lists.
        - `first_row`: Number of the first row in the file, for errors.

        Raises InvalidInputError: a value is not in the dictionary.
        """
        dtype = array.type
        if not any(_is_dictionary(node) for node in field.walk()):
            return array
        if pat.is_dictionary(dtype):
            return self._mapped(array, field, first_row)
        if pat.is_struct(dtype):
            children = [
                self.fit(array.field(index), child, first_row)
                for index, child in enumerate(field.children)
            ]
            return pa.Array.from_buffers(dtype, len(array), [None], children=children)
        offsets = array.offsets.to_numpy()
        start, stop = int(offsets[0]), int(offsets[-1])
        items = self.fit(array.values.slice(start, stop - start), field.children[0], first_row)
        buffers = [None, pa.py_buffer(offsets - offsets.dtype.type(start))]
        return pa.Array.from_buffers(dtype, len(array), buffers, children=[items])

    def _mapped(self, array: pa.DictionaryArray, field: Field, first_row: int) -> pa.Array:
        values = self.values.setdefault(field.id, array.dictionary)
        if array.dictionary.equals(values):
            return pa.DictionaryArray.from_arrays(
                array.indices, values, ordered=array.type.ordered, safe=False
            )
        positions = pc.index_in(array.dictionary, value_set=values)
        indices = positions.take(array.indices)
        if indices.null_count:
            row = int(np.argmax(indices.is_null().to_numpy(zero_copy_only=False)))
            raise InvalidInputError(
                f"{self.name}: column {field.name!r}, rows from {first_row} on: "
                f"{_shown(array[row])} is not in the dictionary of {len(values)} values that all "
                "data files of version 0.1 of a table share; give rows of these values, or write "
                "the table with data storage version 2.2"
            )
        return pa.DictionaryArray.from_arrays(
            indices.cast(array.type.index_type), values, ordered=array.type.ordered, safe=False
        )


def _shown(scalar: pa.DictionaryScalar) -> str:
    try:
        return repr(scalar.as_py())
    except UnicodeDecodeError:
        # A damaged file can have any bytes in a dictionary of strings.
        return repr(scalar.value.as_buffer().to_pybytes())


class _Memory:
    """Bytes in memory, as the source of read plans."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, np.uint8)

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        return [self._data[offset : offset + length] for offset, length in ranges]


def write_buffers(output: OutputFile, buffers: Iterable[Bytes]) -> None:
    """Write buffers back to back; skip empty buffers."""
    for buffer in buffers:
        if len(buffer):
            output.write(buffer)


def _is_dictionary(field: Field) -> bool:
    return field.logical_type.startswith("dict:")


def _with_pages(field: Field, data: bytes) -> Field:
    if not any(_is_dictionary(node) for node in field.walk()):
        return field
    children = tuple(_with_pages(child, data) for child in field.children)
    pages = data if _is_dictionary(field) else b""
    return replace(field, children=children, dictionary_pages=pages)
