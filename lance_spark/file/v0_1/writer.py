"""Writes record batches as one file of version 0.1; `footer` has the parts of the file.

A batch has 1,024 rows, the default of pylance. Rows are collected until they have about
`page_bytes`. Then they are written batch by batch, with the pages of one column one after the
other; rows that do not fill a batch wait for more. If fewer than 1,024 rows have `page_bytes`, they
make a shorter batch, so that memory stays bounded: readers read the number of rows of a batch from
the file.

Values that the version cannot store are refused before they are written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_text, is_variable, vector_items
from lance_spark.encoding.v2_1.codec import bounds
from lance_spark.errors import InvalidInputError
from lance_spark.file.json_columns import paged_json, write_json
from lance_spark.file.page_buffer import BorrowedBatches, PageBuffer
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.dictionaries import FileDictionaries, encode_dictionaries, write_buffers
from lance_spark.file.v0_1.fields import encode_field
from lance_spark.file.v0_1.pages import FieldPages, Numbers
from lance_spark.file.v0_1.statistics import StatisticsCollector
from lance_spark.file.writer import DEFAULT_PAGE_BYTES, WrittenFile, check_types, checked_columns
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.storage.output import OutputFile

# --------------------------------------------------------------------------------------------------
# Values that readers of version 0.1 would get changed.
#
# The version stores no validity, so these values are read changed:
#
# ======================================  =====================================================
# value                                   is read as
# ======================================  =====================================================
# null number, bool, date, time, decimal  0, false, or the like
# null fixed-size binary or list          zeros
# null list                               an empty list
# null struct                             a struct of such values
# null of a dictionary column             the first value of the dictionary
# empty string or bytes, where the field  null
# may be null
# ======================================  =====================================================
#
# Nulls of strings and bytes are stored as empty values, and nulls of type null are stored. Every
# other null is refused. So the values that are read from a file of the version can always be
# written to another file.


@dataclass(frozen=True, slots=True)
class Change:
    """A value that would be read as another value.

    - `row`: The first such row of the array.
    - `path`: The field, with the fields above it.
    - `value`, `becomes`: The value, and the value that would be read instead.
    """

    row: int
    path: str
    value: str
    becomes: str


def first_change(array: pa.Array, field: pa.Field, path: str = "") -> Change | None:
    """Return the first value of a field, or of a field below it, that version 0.1 would change;
    None if no value would change.

    - `array`: Of the field's type.
    - `path`: Path of the fields above.
    """
    dtype = array.type
    path = f"{path}.{field.name}" if path else field.name
    if pat.is_null(dtype):
        return None
    if is_variable(dtype):
        return _first_empty(array, path) if field.nullable else _first_null(array, path)
    result = _first_null(array, path)
    if result is not None or not len(array):
        return result
    if pat.is_struct(dtype):
        changes = [
            first_change(array.field(index), dtype.field(index), path)
            for index in range(dtype.num_fields)
        ]
        return min(filter(None, changes), key=attrgetter("row"), default=None)
    if pat.is_dictionary(dtype):
        return _first_of_dictionary(array, path)
    if pat.is_fixed_size_list(dtype):
        result = first_change(vector_items(array), dtype.value_field, path)
        row_items = max(dtype.list_size, 1)
        return None if result is None else replace(result, row=result.row // row_items)
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        offsets = array.offsets.to_numpy()
        start, stop = int(offsets[0]), int(offsets[-1])
        result = first_change(array.values.slice(start, stop - start), dtype.value_field, path)
        if result is not None:
            row = int(np.searchsorted(offsets, result.row + start, side="right")) - 1
            return replace(result, row=row)
    return None


def _first_null(array: pa.Array, path: str) -> Change | None:
    if not array.null_count:
        return None
    row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
    return Change(row, path, "null", _becomes(array.type))


def _first_empty(array: pa.Array, path: str) -> Change | None:
    empty = pc.equal(pc.binary_length(array), 0).fill_null(False)
    if not empty.true_count:
        return None
    row = int(np.argmax(empty.to_numpy(zero_copy_only=False)))
    value = "an empty string" if is_text(array.type) else "an empty value"
    return Change(row, path, value, "null")


def _first_of_dictionary(array: pa.DictionaryArray, path: str) -> Change | None:
    values = array.dictionary
    if is_variable(values.type):
        changed = pc.equal(pc.binary_length(values), 0).fill_null(False)
        value, becomes = "an empty value of its dictionary", "null"
    else:
        changed = values.is_null()
        value, becomes = "a null of its dictionary", _becomes(values.type)
    if not changed.true_count:
        return None
    used = changed.take(array.indices).to_numpy(zero_copy_only=False)
    return Change(int(np.argmax(used)), path, value, becomes) if used.any() else None


def _becomes(dtype: pa.DataType) -> str:
    if pat.is_boolean(dtype):
        return "false"
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        return "an empty list"
    if pat.is_struct(dtype):
        return "a struct of zeros"
    if pat.is_dictionary(dtype):
        return "the first value of the dictionary"
    if is_variable(dtype):
        return "an empty value"
    return "zeros" if pat.is_nested(dtype) or pat.is_fixed_size_binary(dtype) else "0"


# --------------------------------------------------------------------------------------------------
# Writes record batches as one file of version 0.1; `footer` has the parts of the file.

#: Rows of a batch.
BATCH_ROWS = 1024
#: The file version in the footer, and in the manifest of a table.
FOOTER_VERSION = (0, 2)
_VERSION = (0, 1)
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")


class LegacyFileWriter:
    """Writes one file of version 0.1; `finish` completes it, but does not close the output.

    - `output`: A new output, without any bytes.
    - `schema`: The file's columns with their field ids.
    - `page_bytes`: Arrow bytes of rows that are collected before their batches are written.

    Raises UnsupportedTypeError: the version cannot store a field.
    """

    def __init__(
        self, output: OutputFile, schema: Schema, page_bytes: int = DEFAULT_PAGE_BYTES
    ) -> None:
        check_types(schema, _VERSION)
        self._output = output
        self._schema = schema
        self._page_bytes = page_bytes
        self._input_types = [field.arrow_field.type for field in schema.fields]
        self._paged = [paged_json(field) for field in schema.fields]
        self._pending = PageBuffer(page_bytes)
        self._loans = BorrowedBatches([self._pending], page_bytes)
        self._statistics = StatisticsCollector(schema.fields)
        self._dictionaries = FileDictionaries.of(schema, output.name)
        self._num_rows = 0
        self._batch_rows: list[Numbers] = []
        self._pages: dict[int, list[FieldPages]] = {field.id: [] for field in schema.walk()}

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch.

        - `batch`: The columns of the schema in order, with exactly their Arrow types.

        Raises SchemaMismatchError: names or types differ from the schema. Raises InvalidInputError:
        a value would be read as another value, or is not in the dictionary of the table.
        """
        columns = checked_columns(batch, self._schema, self._input_types, self._output.name)
        if not batch.num_rows:
            return
        arrays = []
        for array, field in zip(columns, self._schema.fields, strict=True):
            self._check_values(array, field)
            fitted = self._dictionaries.fit(array, field, self._num_rows)
            arrays.append(write_json(fitted, field, self._output.name, self._num_rows))
        fields = [field.arrow_field for field in self._paged]
        loan = self._loans.open(columns)
        rows = pa.StructArray.from_arrays(arrays, fields=fields)
        self._num_rows += len(rows)
        if self._pending.add(rows, loan):
            self._flush()
        self._loans.settle()

    def tell(self) -> int:
        """Return the bytes written so far, without the buffered rows."""
        return self._output.tell()

    def finish(self) -> WrittenFile:
        """Write the buffered rows and the end of the file."""
        self._flush(everything=True)
        metadata = file_pb2.Metadata()
        counts = np.concatenate([np.zeros(0, np.int64), *self._batch_rows])
        metadata.batch_offsets.extend(bounds(counts).tolist())
        ids = [field.id for field in self._schema.walk()]
        metadata.page_table_position = self._output.tell()
        self._write_page_table(self._pages, range(min(ids), max(ids) + 1))
        self._write_statistics(metadata)
        protos = self._schema.to_protos()
        values, start = self._dictionaries.values, self._output.tell()
        write_buffers(self._output, encode_dictionaries(protos, values, start))
        metadata.manifest_position = self._output.tell()
        manifest = table_pb2.Manifest(version=1, fields=protos)
        for key, value in self._schema.metadata.items():
            manifest.schema_metadata[key] = value
        manifest.data_format.file_format = "lance"
        manifest.data_format.version = "0.1"
        self._write_message(manifest.SerializeToString())
        position = self._output.tell()
        self._write_message(metadata.SerializeToString())
        self._output.write(_FOOTER.pack(position, *FOOTER_VERSION, b"LANC"))
        # pylance takes the first id of a file in the manifest for the first of the page table. A
        # cast or another order of columns puts a larger id first in the schema.
        return WrittenFile(self._num_rows, self._output.tell(), tuple(sorted(ids)), ())

    def _check_values(self, array: pa.Array, field: Field) -> None:
        change = first_change(array, field.arrow_field)
        if change is not None:
            raise InvalidInputError(
                f"{self._output.name}: column {change.path!r}, row {self._num_rows + change.row} "
                f"of the file: {change.value} would be read as {change.becomes} from a data file "
                "of version 0.1; replace the value, or write the table with data storage version "
                "2.2"
            )

    def _flush(self, *, everything: bool = False) -> None:
        """Write the full batches; the remaining rows wait."""
        remaining: pa.StructArray | None = None
        for part in self._pending.take():
            rows = (
                pa.concat_arrays([remaining, part])
                if remaining is not None and len(remaining)
                else part
            )
            full = len(rows) - len(rows) % BATCH_ROWS
            if full:
                self._write_batches(rows.slice(0, full))
            elif rows.nbytes >= self._page_bytes:
                full = len(rows)
                self._write_batches(rows)
            remaining = rows.slice(full)
        if remaining is not None and len(remaining):
            if everything:
                self._write_batches(remaining)
            else:
                self._pending.add(remaining)

    def _write_batches(self, rows: pa.StructArray) -> None:
        cuts = np.append(np.arange(0, len(rows), BATCH_ROWS), len(rows)).astype(np.int64)
        self._batch_rows.append(np.diff(cuts))
        for column, field in enumerate(self._schema.fields):
            array = rows.field(column)
            self._statistics.add(column, array, cuts)
            self._write_pages(array, field, cuts, self._pages)

    def _write_pages(
        self, array: pa.Array, field: Field, cuts: Numbers, table: dict[int, list[FieldPages]]
    ) -> None:
        fields = encode_field(array, cuts, self._output.tell())
        for node, encoded in zip(field.walk(), fields, strict=True):
            write_buffers(self._output, encoded.buffers)
            table.setdefault(node.id, []).append(encoded.pages)

    def _write_page_table(self, pages: dict[int, list[FieldPages]], ids: Iterable[int]) -> None:
        counts = (sum(len(part.lengths) for part in parts) for parts in pages.values())
        batches = max(counts, default=0)
        none = np.zeros((batches, 2), "<i8")
        for field_id in ids:
            entries = none
            if pages.get(field_id):
                parts = pages[field_id]
                entries = np.empty((batches, 2), "<i8")
                entries[:, 0] = np.concatenate([part.positions for part in parts])
                entries[:, 1] = np.concatenate([part.lengths for part in parts])
            self._output.write(entries)

    def _write_statistics(self, metadata: file_pb2.Metadata) -> None:
        statistics = self._statistics.to_arrow()
        if statistics is None:
            return
        schema = Schema.from_arrow(statistics[0])
        pages: dict[int, list[FieldPages]] = {}
        for field, column in zip(schema.fields, statistics[1], strict=True):
            cuts = np.array([0, len(column)], np.int64)
            self._write_pages(column, field, cuts, pages)
        ids = [field.id for field in schema.walk()]
        metadata.statistics.schema.extend(schema.to_protos())
        metadata.statistics.fields.extend(ids)
        metadata.statistics.page_table_position = self._output.tell()
        self._write_page_table(pages, ids)

    def _write_message(self, message: bytes) -> None:
        self._output.write(_LENGTH.pack(len(message)))
        self._output.write(message)
