"""Writes record batches as one file of version 0.1; `footer` has the parts of the file.

A batch has 1,024 rows, the default of pylance. Rows are collected until they have about
`page_bytes`. Then they are written batch by batch, with the pages of one column one after the
other; rows that do not fill a batch wait for more. If fewer than 1,024 rows have `page_bytes`, they
make a shorter batch, so that memory stays bounded: readers read the number of rows of a batch from
the file.

Values that the version cannot store are refused before they are written; see
`lance_spark.encoding.v0_1.lossless`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from lance_spark.encoding.v0_1.field import encode_field
from lance_spark.encoding.v0_1.lossless import first_change
from lance_spark.encoding.v0_1.pages import FieldPages, Numbers
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.errors import InvalidInputError
from lance_spark.file.page_buffer import BorrowedBatches, PageBuffer
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import paged_json, write_json
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.dictionaries import FileDictionaries, encode_dictionaries, write_buffers
from lance_spark.file.v0_1.statistics_write import StatisticsCollector
from lance_spark.file.writer import DEFAULT_PAGE_BYTES, WrittenFile, check_types, checked_columns
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.storage.write.output import OutputFile

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
