"""Reads rows of the columns of one file of version 0.1.

Opening reads the end of the file once; the entries of a field in the page table are read with its
first rows. The page table is an array over field ids, from the smallest id of the file on: in a
file that was added to a fragment later, for example, from 5 on.

Version 0.1 stores no validity. Nulls are read as in pylance:

=============================  ============================================================
stored as null                 read as
=============================  ============================================================
number, date, fixed-size list  the value in that slot of the writer's array: usually 0
or binary
bool                           false
string or bytes                the same, as a rule an empty string; and empty strings come back
                               as nulls, if the field may be null
list                           an empty list
struct                         a struct of its children
dictionary                     the first value, as a rule
=============================  ============================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.errors import CorruptFileError, UnsupportedTypeError
from lance_spark.file.checks import check_rows, named
from lance_spark.file.footer import Tail, open_tail
from lance_spark.file.json_columns import paged_json, read_json
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.fields import FieldNode, has_pages, open_field, stored_bytes
from lance_spark.file.v0_1.footer import (
    LegacyFooter,
    first_field_id,
    read_legacy_footer,
    read_pages,
)
from lance_spark.file.v0_1.pages import FieldPages, open_values
from lance_spark.file.v0_1.statistics import PageStatistics, read_statistics
from lance_spark.proto import file_pb2
from lance_spark.storage.source import ByteSource, ReadPlan, run_plans

VERSION = (0, 1)


class LegacyFileReader:
    """One open data file of version 0.1; make it with `open`."""

    def __init__(self, source: ByteSource, tail: Tail, footer: LegacyFooter, first_id: int) -> None:
        self._source = source
        self._tail = tail
        self._footer = footer
        self._first_id = first_id
        self._counts = np.diff(footer.bounds)
        self._pages: dict[int, FieldPages] = {}
        self._readers: dict[tuple[int, ...], FieldReader] = {}

    @classmethod
    def open(
        cls, source: ByteSource, field_ids: Sequence[int] = (), tail: Tail | None = None
    ) -> LegacyFileReader:
        """Read the end of a file.

        - `source`: The reader closes it.
        - `field_ids`: Ids of the fields in the file, from the manifest; see `first_field_id`.
        - `tail`: The end of the file, if it was read already.

        Raises CorruptFileError: the file is damaged.
        """
        tail = tail or open_tail(source)
        try:
            footer = read_legacy_footer(tail)
            first_id = first_field_id(tail, footer, field_ids)
        except BaseException:
            source.close()
            raise
        return cls(source, tail, footer, first_id)

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version: always (0, 1)."""
        return VERSION

    @property
    def schema(self) -> Schema:
        """The schema of the file when it was written; without fields if the file has none."""
        return self._footer.schema or Schema(())

    @property
    def source(self) -> ByteSource:
        """The file itself."""
        return self._source

    @property
    def num_rows(self) -> int:
        """Number of rows of the file."""
        return int(self._footer.bounds[-1])

    @property
    def num_batches(self) -> int:
        """Number of batches of the file, which is the number of pages of each column."""
        return self._footer.num_batches

    def read(
        self, fields: Sequence[Field], rows: Rows, column_of: Mapping[int, int] | None = None
    ) -> list[pa.Array]:
        """Read rows of some top-level fields.

        - `fields`: Fields by their ids, structs with any of their children.
        - `rows`: Inside the file.
        - `column_of`: Not used: fields are found by their ids.

        Returns for each field, one value per row, of the field's Arrow type. Raises
        InvalidInputError: rows lie outside the file, or are too many for one array. Raises
        CorruptFileError: the file does not have a field, or is damaged. Raises
        UnsupportedTypeError: Version 0.1 cannot store the type of a field.
        """
        check_rows(rows, self.num_rows, self._source.name)
        self._load(fields)
        plans = [
            named(self._plan(field, rows), self._source.name, field, len(rows)) for field in fields
        ]
        return [
            read_json(array, field, self._source.name)
            for array, field in zip(run_plans(self._source, plans), fields, strict=True)
        ]

    def check_columns(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> None:
        """Check that the file has the columns of some top-level fields, with a value for each row.
        Reads no values.

        Raises CorruptFileError, UnsupportedEncodingError, UnsupportedTypeError, StorageError.
        """
        self._load(fields)
        for field in fields:
            self._reader(field)

    def column_bytes(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> int:
        """Return the bytes of the pages of some fields in the file; for strings, an estimate."""
        if self.schema.fields:
            fields = [field for field in fields if self.schema.field_by_id(field.id)]
        self._load(fields)
        size = self._source.size
        return sum(
            run_plans(self._source, [stored_bytes(self._node(field), size) for field in fields])
        )

    def full_page_rows(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> int | None:
        """Return None: pages end with a batch of rows, of any size."""
        return None

    def statistics(self, field_id: int) -> PageStatistics | None:
        """Return the statistics of a field in each batch; None if the file has none.

        Raises CorruptFileError: the statistics are damaged.
        """
        file_field = self.schema.field_by_id(field_id)
        if file_field is not None and file_field.logical_type == "json":
            # Statistics of JSON compare the bytes of JSONB.
            return None
        return read_statistics(self._source, self._tail, self._footer, field_id)

    def dictionary(self, field: Field) -> pa.Array:
        """Return the values of the dictionary of a field in the file.

        Raises CorruptFileError: the file has no such dictionary, or it is damaged. Raises
        UnsupportedTypeError: Version 0.1 has no dictionaries of such values.
        """
        pages = self._dictionary(field)
        if pages is None:
            raise CorruptFileError(
                f"{self._source.name}: field {field.name!r} has no dictionary in the file"
            )
        reader = open_values(field.arrow_field.type.value_type, pages, self._source.size)
        (values,) = run_plans(self._source, [reader.read(range(int(pages.lengths[0])))])
        return values

    def forget_pages(self) -> None:
        """Drop cached page data: search structures, dictionaries, levels, decompressed bytes."""
        self._readers.clear()

    def close(self) -> None:
        """Close the source; arrays returned earlier stay valid."""
        self._readers.clear()
        self._source.close()

    def _load(self, fields: Sequence[Field]) -> None:
        """Read the entries of fields, and of all fields below them, in the page table."""
        missing = [
            node.id
            for field in fields
            for node in field.walk()
            if node.id not in self._pages and has_pages(node.arrow_field.type)
        ]
        if missing:
            footer = self._footer
            self._pages.update(
                read_pages(
                    self._tail, footer.page_table, self._first_id, footer.num_batches, missing
                )
            )

    def _plan(self, field: Field, rows: Rows) -> ReadPlan[pa.Array]:
        return (yield from self._reader(field).read(rows))

    def _reader(self, field: Field) -> FieldReader:
        key = tuple(node.id for node in field.walk())
        reader = self._readers.get(key)
        if reader is None:
            reader = open_field(self._node(field), self._counts, self._source.size)
            self._readers[key] = reader
        return reader

    def _node(self, field: Field) -> FieldNode:
        field = paged_json(field)
        dtype = field.arrow_field.type
        if field.children and not (
            pat.is_struct(dtype) or pat.is_list(dtype) or pat.is_large_list(dtype)
        ):
            raise UnsupportedTypeError(
                f"file version 0.1 cannot store {field.name!r} of type {dtype}"
            )
        dictionary = self._dictionary(field) if pat.is_dictionary(dtype) else None
        children = tuple(self._node(child) for child in field.children)
        return FieldNode(field.arrow_field, self._pages.get(field.id), children, dictionary)

    def _dictionary(self, field: Field) -> FieldPages | None:
        file_field = self.schema.field_by_id(field.id)
        if file_field is None:
            return None
        message = file_pb2.Field.FromString(file_field.carried)
        if not message.HasField("dictionary"):
            return None
        position = message.dictionary
        return FieldPages(
            np.array([position.offset], np.int64), np.array([position.length], np.int64)
        )
