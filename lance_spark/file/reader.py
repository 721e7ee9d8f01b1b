"""Reads rows of the columns of one file.

Opening reads the end of the file once: footer, offset tables and schema. The metadata of a column
is parsed when its field is first read, and only the read fields of the schema are built. The
columns of a field depend on the version: in 2.0 every field has a column, in 2.1 to 2.3 only leaves
do, depth-first in both. A packed struct, a fixed-size list of plain values and a blob are leaves in
both. All fields of one call are read in step, so the store gets few requests.

Specification: format/file, "Columns"; DataFile.fields and .column_indices of `protos/table.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lance_spark.encoding.meta import ColumnMeta, FieldReader, total_rows
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.encoding.v2_1.leaf_columns import leaf_fields
from lance_spark.errors import CorruptFileError, LanceError, UnsupportedEncodingError
from lance_spark.file.blobs.fields import described
from lance_spark.file.checks import check_rows, named
from lance_spark.file.footer import (
    MAX_ROWS,
    Footer,
    Sections,
    Tail,
    parse_descriptor,
    read_columns,
    read_footer,
    sections,
)
from lance_spark.file.json_columns import paged_json, read_json
from lance_spark.file.schema.field import Field, column_fields
from lance_spark.file.schema.nested import project, unpruned
from lance_spark.file.schema.schema import FieldTree, Schema
from lance_spark.proto import file_pb2
from lance_spark.storage.local import LocalSource
from lance_spark.storage.remote import RemoteSource
from lance_spark.storage.source import ByteSource, Ranges, ReadPlan, gather_plans, run_plans

if TYPE_CHECKING:
    from lance_spark.encoding.v2_1.field_read import StructuralField
    from lance_spark.storage.remote import AheadSource

#: Number of parsed descriptors and schemas that are cached: the files of a table have few.
_KEPT = 32
#: Most rows that are read by one loop over pages.
_FEW_ROWS = 256
#: Most bytes of the open pages that a file keeps for the next read.
_KEPT_BYTES = 256 * 1024
#: Bytes of values of a page, as writers make them.
PAGE_BYTES = 8 * 1024 * 1024
#: Minimum bytes of an item of a dictionary, so that it determines the size of decoded values.
_LONG_ITEM = 256


class _Described(NamedTuple):
    """The parsed descriptor of a file, which equal descriptors share."""

    tree: FieldTree
    metadata: Mapping[str, bytes]
    num_rows: int


@lru_cache(maxsize=_KEPT)
def _described(descriptor: bytes) -> _Described:
    """Parse global buffer 0; errors do not name the file."""
    message = parse_descriptor(descriptor)
    if message.length > MAX_ROWS:
        raise CorruptFileError(f"{message.length} rows are more than a file can have")
    tree, metadata = _schema(message.schema.SerializeToString(deterministic=True))
    return _Described(tree, metadata, message.length)


@lru_cache(maxsize=_KEPT)
def _schema(data: bytes) -> tuple[FieldTree, Mapping[str, bytes]]:
    message = file_pb2.Schema.FromString(data)
    return FieldTree(list(message.fields)), dict(message.metadata)


class _Request:
    """The fields of a call of `FileReader.read`, and what follows from them alone.

    A scan reads the same fields again for each of its windows.

    - `fields`, `column_of`: Arguments of the call.
    - `stored`, `columns`: The stored form of each field, and its columns.
    - `together`: Groups of fields that are read together for a range of rows; None if unknown.
    """

    __slots__ = ("column_of", "columns", "fields", "stored", "together")

    def __init__(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int] | None,
        stored: Sequence[Field],
        columns: Sequence[tuple[int, ...]],
    ) -> None:
        self.fields, self.column_of = tuple(fields), column_of
        self.stored, self.columns = stored, columns
        self.together: list[list[int]] | None = None

    def is_of(self, fields: Sequence[Field], column_of: Mapping[int, int] | None) -> bool:
        """Return whether a call has the same arguments."""
        return (
            self.column_of is column_of
            and len(self.fields) == len(fields)
            and all(map(is_, self.fields, fields))
        )


class FileReader:
    """One open data file; make it with `open`."""

    def __init__(
        self,
        source: ByteSource,
        tail: Tail,
        footer: Footer,
        tree: FieldTree,
        metadata: Mapping[str, bytes],
        num_rows: int,
    ) -> None:
        self._source = source
        self._tail = tail
        self._footer = footer
        self._tree = tree
        self._metadata = metadata
        self._num_rows = num_rows
        # A small file is in memory as a whole.
        self._ranges: Ranges = source if tail.all_bytes is None else tail
        self._prefetched: AheadSource | None = None
        self._columns: dict[int, ColumnMeta] = {}
        self._readers: dict[tuple[tuple[int, ...], tuple[int, ...]], FieldReader] = {}
        self._request: _Request | None = None

    @classmethod
    def open(cls, source: ByteSource, tail: Tail | None = None) -> FileReader:
        """Read the end of a file.

        - `source`: The reader closes it.
        - `tail`: The end of the file, if it was already read.

        Raises CorruptFileError: the file is not a Lance file, or it is damaged. Raises
        UnsupportedFeatureError: the file's version is not 2.0, 2.1, 2.2 or 2.3.
        """
        try:
            tail = tail or Tail(source)
            footer = read_footer(tail)
            try:
                described = _described(footer.descriptor)
            except CorruptFileError as error:
                raise CorruptFileError(f"{source.name}: {error}") from None
        except BaseException:
            source.close()
            raise
        return cls(source, tail, footer, described.tree, described.metadata, described.num_rows)

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version; (2, 0) if the footer has 0.3."""
        return self._footer.version

    @property
    def footer(self) -> Footer:
        """The offset tables of the file."""
        return self._footer

    @property
    def sections(self) -> Sections:
        """The sections at the end of the file."""
        return sections(self._tail)

    @property
    def source(self) -> ByteSource:
        """The file itself."""
        return self._source

    @property
    def ranges(self) -> Ranges:
        """What pages are read from: the file, its bytes in memory, or prefetched bytes of it."""
        return self._ranges

    @cached_property
    def schema(self) -> Schema:
        """The schema of the file when it was written."""
        return Schema(self._tree.fields(), dict(self._metadata))

    @property
    def num_rows(self) -> int:
        """The number of rows, as the file records it."""
        return self._num_rows

    def global_buffer(self, number: int) -> bytes:
        """Return a global buffer of the file.

        Raises CorruptFileError: the file has no such buffer.
        """
        buffers = self._footer.global_buffers
        if not 0 < number < len(buffers):
            raise CorruptFileError(
                f"{self._source.name}: global buffer {number} is missing; the file has "
                f"{len(buffers)}"
            )
        (data,) = self._ranges.read([buffers[number]])
        return data.tobytes()

    def read(
        self, fields: Sequence[Field], rows: Rows, column_of: Mapping[int, int] | None = None
    ) -> list[pa.Array]:
        """Read rows of some top-level fields.

        - `fields`: Fields, found by their ids; structs with any of their children.
        - `rows`: Row numbers of the file.
        - `column_of`: Column of each field id, from the manifest; by default from the schema of the
          file.

        Returns one array for each field, of its Arrow type; for blobs, descriptors with the
        positions of the values. Raises InvalidInputError: rows lie outside the file. Raises
        CorruptFileError: the file lacks a column of a field, or is damaged. Raises
        UnsupportedEncodingError: this release cannot read the encoding of a page.
        """
        check_rows(rows, self._num_rows, self._source.name)
        if (
            not isinstance(rows, range)
            and 0 < len(rows) <= _FEW_ROWS
            and self.version in ((2, 1), (2, 2))
        ):
            from lance_spark.file.few_rows import read_few_rows

            few = read_few_rows(self._parts_of(rows), fields, column_of)
            if few is not None:
                return few
        request = self._request
        if request is None or not request.is_of(fields, column_of):
            stored = [self.stored(field) for field in fields]
            columns = [self._columns_of(field, column_of) for field in stored]
            request = self._request = _Request(fields, column_of, stored, columns)
        try:
            arrays = self._arrays(request, rows)
        except CorruptFileError:
            if isinstance(self._source, RemoteSource):
                self._source.forget()
            raise
        texts = [
            read_json(array, stored_field, self._source.name)
            for array, stored_field in zip(arrays, request.stored, strict=True)
        ]
        return [
            array if field is stored_field else project(array, stored_field, field)
            for array, field, stored_field in zip(texts, fields, request.stored, strict=True)
        ]

    def check_columns(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> None:
        """Check that the file has the columns of some fields with a value for each row.

        Values are not read. Raises CorruptFileError, UnsupportedEncodingError,
        UnsupportedTypeError, StorageError.
        """
        stored = [self.stored(field) for field in fields]
        columns = [self._columns_of(field, column_of) for field in stored]
        self._load([column for field_columns in columns for column in field_columns])
        for field, field_columns in zip(stored, columns, strict=True):
            self._reader(field, field_columns)

    def column_bytes(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> int:
        """Return the stored bytes of the pages of some fields; missing fields count 0."""
        return sum(
            buffer.length
            for column in self.column_metas(fields, column_of)
            for page in column.pages
            for buffer in page.buffers
        )

    def full_page_rows(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> int | None:
        """Return the number of rows that filled a page of some fields; None if unknown.

        Writers end a page after about 8 MiB of decoded values, but may keep a larger batch
        together. For dictionary columns, the size of the items is a better estimate. The result is
        the minimum over all columns.
        """
        columns = self.column_metas(fields, column_of)
        longest = [
            max(page.num_rows for page in column.pages)
            for column in columns
            if len(column.pages) > 1
        ]
        if self.version in ((2, 1), (2, 2)):
            from lance_spark.encoding.v2_1.page import dictionary_item_bytes

            items = [dictionary_item_bytes(page) for column in columns for page in column.pages]
            # Items are assumed to be compressed to a half.
            row_bytes = 2 * max(items, default=0.0)
            if row_bytes > _LONG_ITEM:
                longest.append(max(1, int(PAGE_BYTES / row_bytes)))
        return min(longest, default=None)

    def column_metas(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> list[ColumnMeta]:
        """Return the metadata of the columns of some fields; missing fields are skipped."""
        column_by_id = self.own_columns if column_of is None else column_of
        columns = [
            column_by_id.get(node.id, -1)
            for field in fields
            for node in column_fields(self.stored(field), self.version)
        ]
        columns = [column for column in columns if column >= 0]
        self._load(columns)
        return [self._columns[column] for column in columns]

    def columns(self) -> list[ColumnMeta]:
        """Return the metadata of all columns of the file, in order.

        Raises CorruptFileError, UnsupportedEncodingError, StorageError.
        """
        every = range(len(self._footer.column_metadata))
        self._load(every)
        return [self._columns[column] for column in every]

    @cached_property
    def own_columns(self) -> dict[int, int]:
        """The column of each field that has one, by the ids of `schema`."""
        fields = self.schema.fields
        nodes = [node for field in fields for node in column_fields(field, self.version)]
        return {node.id: column for column, node in enumerate(nodes)}

    def shared(self) -> FileReader | None:
        """Return another reader of the same local file, for another thread; None if it is closed.

        The readers share the open file and the metadata of its columns.
        """
        source = self._source.shared() if isinstance(self._source, LocalSource) else None
        if source is None:
            return None
        tail = self._tail.of_source(source)
        reader = FileReader(source, tail, self._footer, self._tree, self._metadata, self._num_rows)
        # Threads may parse the same metadata at the same time, with equal results.
        reader._columns = self._columns
        return reader

    def forget_pages(self) -> None:
        """Drop cached page data: search structures, dictionaries, levels, decompressed bytes.

        What pages of few kept bytes have is left for the next read. Prefetched bytes are dropped.
        """
        kept = 0
        for reader in self._readers.values():
            size: int | None = getattr(reader, "kept_bytes", None)
            kept += _KEPT_BYTES + 1 if size is None else size
            if kept > _KEPT_BYTES:
                self._readers.clear()
                break
        if self._prefetched is not None:
            self._prefetched.close()
            self._prefetched = None
            self._ranges = self._source

    def expect(
        self, fields: Sequence[Field], rows: range, column_of: Mapping[int, int] | None = None
    ) -> int:
        """Begin to prefetch the bytes of a later `read`, if the file is remote and not in memory.

        Reads must follow in the order of these calls, each followed by a `finish`. Returns bytes
        that this call fetches.
        """
        if self._ranges is self._tail or not isinstance(self._source, RemoteSource):
            return 0
        from lance_spark.file.footer import parts_of
        from lance_spark.storage.remote import AheadSource

        if self._prefetched is None:
            self._ranges = self._prefetched = AheadSource(self._source)
        columns = self.column_metas(fields, column_of)
        return self._prefetched.expect(
            [part for column in columns for part in parts_of(column, rows, self._num_rows)]
        )

    def finish(self) -> None:
        """Release the bytes prefetched for the oldest announced rows: they have been read."""
        if self._prefetched is not None:
            self._prefetched.finish()

    def close(self) -> None:
        """Close the source; arrays returned earlier stay valid."""
        self._readers.clear()
        if self._prefetched is not None:
            self._prefetched.close()
        self._source.close()

    @property
    def is_local(self) -> bool:
        """Whether a read costs no request."""
        return self._ranges is self._tail or isinstance(self._source, LocalSource)

    def field_reader(self, field: Field, column_of: Mapping[int, int] | None) -> FieldReader:
        """Return the reader of a field.

        Raises CorruptFileError, UnsupportedEncodingError, UnsupportedTypeError, StorageError.
        """
        stored = self.stored(field)
        columns = self._columns_of(stored, column_of)
        self._load(columns)
        return self._reader(stored, columns)

    def _parts_of(self, rows: RowNumbers) -> list[tuple[FileReader, RowNumbers]]:
        """Return the files with some rows, and the rows of each."""
        return [(self, rows)]

    def _arrays(self, request: _Request, rows: Rows) -> list[pa.Array]:
        """Read some rows of fields in their stored form."""
        fields, columns = request.stored, request.columns
        together = request.together if isinstance(rows, range) else None
        if together is None:
            self._load([column for field_columns in columns for column in field_columns])
            together = [[position] for position in range(len(fields))]
            if self.version in ((2, 1), (2, 2)):
                from lance_spark.file.few_rows import groups

                metas = [
                    [self._columns[column] for column in field_columns] for field_columns in columns
                ]
                together = groups(fields, metas, rows, self._num_rows)
            if isinstance(rows, range):
                request.together = together
        steps = [together]
        if self.is_local:
            # A group reuses the memory of the group before it, and new memory costs more than a
            # read.
            alone = [group for group in together if len(group) == 1]
            steps = [alone, *([group] for group in together if len(group) > 1)]
        by_place: dict[int, pa.Array] = {}
        for step in steps:
            plans = [
                self._group(
                    [fields[position] for position in group],
                    [columns[position] for position in group],
                    rows,
                )
                for group in step
            ]
            for group, arrays in zip(step, run_plans(self._ranges, plans), strict=True):
                by_place.update(zip(group, arrays, strict=True))
        return [by_place[position] for position in range(len(fields))]

    def _group(
        self, fields: Sequence[Field], columns: Sequence[tuple[int, ...]], rows: Rows
    ) -> ReadPlan[list[pa.Array]]:
        """Plan the read of a group of fields."""
        name = self._source.name
        if len(fields) > 1:
            from lance_spark.file.few_rows import read_together

            try:
                reader = self._joint_reader(fields, columns)
                return (yield from read_together(reader, rows, self._num_rows, len(fields)))
            except (LanceError, pa.ArrowException, ValueError):
                # Read one by one, so that the error names the column.
                pass
        plans = [
            named(self._plan(field, field_columns, rows), name, field, len(rows))
            for field, field_columns in zip(fields, columns, strict=True)
        ]
        return (yield from gather_plans(plans))

    def _joint_reader(
        self, fields: Sequence[Field], columns: Sequence[tuple[int, ...]]
    ) -> StructuralField:
        """Return a reader of several fields of one type as one, one field after the other."""
        from lance_spark.encoding.v2_1.field_read import StructuralField

        first = fields[0]
        key = tuple(node.id for node in first.walk()), tuple(chain.from_iterable(columns))
        reader = self._readers.get(key)
        if reader is None:
            metas = [
                [self._columns[column] for column in field_columns] for field_columns in columns
            ]
            leaves = leaf_fields(first.arrow_field)
            for field, field_columns in zip(fields, metas, strict=True):
                for leaf, meta in zip(leaves, field_columns, strict=True):
                    self._check_length(field, meta, leaf.slots_per_row)
            joint = [
                ColumnMeta(tuple([page for meta in of_leaf for page in meta.pages]))
                for of_leaf in zip(*metas, strict=True)
            ]
            reader = StructuralField(first.arrow_field, joint, self._source.name)
            self._readers[key] = reader
        assert isinstance(reader, StructuralField)
        return reader

    def _plan(self, field: Field, columns: tuple[int, ...], rows: Rows) -> ReadPlan[pa.Array]:
        return (yield from self._reader(field, columns).read(rows))

    def _reader(self, field: Field, columns: tuple[int, ...]) -> FieldReader:
        key = (tuple(node.id for node in field.walk()), columns)
        reader = self._readers.get(key)
        if reader is None:
            metas = [self._columns[column] for column in columns]
            reader = self._open(field, metas, columns)
            self._readers[key] = reader
        return reader

    def _open(
        self, field: Field, columns: Sequence[ColumnMeta], indices: Sequence[int]
    ) -> FieldReader:
        arrow = paged_json(field).arrow_field
        name = self._source.name
        if self.version == (2, 0):
            from lance_spark.encoding.v2_0 import field as v2_0

            self._check_length(field, columns[0], 1)
            return v2_0.open_field(arrow, columns, name, self._byte_columns(field, indices))
        leaves = leaf_fields(arrow)
        if len(leaves) != len(columns):
            raise UnsupportedEncodingError(
                f"{name}, column {field.name!r}: {len(columns)} columns for {len(leaves)} leaves "
                f"of {arrow.type}"
            )
        for leaf, column in zip(leaves, columns, strict=True):
            self._check_length(field, column, leaf.slots_per_row)
        if self.version == (2, 3):
            from lance_spark.encoding.v2_3 import field as v2_3

            return v2_3.open_field(arrow, columns, name)
        from lance_spark.encoding.v2_1.field_read import StructuralField

        return StructuralField(arrow, columns, name)

    def _byte_columns(self, field: Field, indices: Sequence[int]) -> dict[int, ColumnMeta]:
        from lance_spark.encoding.v2_0.field import has_byte_lists

        nodes = column_fields(field, self.version)
        after = {
            position: index + 1
            for position, (node, index) in enumerate(zip(nodes, indices, strict=True))
            if not node.is_blob and has_byte_lists(node.arrow_field.type, self._columns[index])
        }
        self._load(list(after.values()))
        return {position: self._columns[index] for position, index in after.items()}

    def _check_length(self, field: Field, column: ColumnMeta, per_row: int) -> None:
        num_values = total_rows(column.pages)
        if num_values != self._num_rows * per_row:
            raise CorruptFileError(
                f"{self._source.name}, column {field.name!r}: its pages have {num_values} values, "
                f"but the file's {self._num_rows} rows need {self._num_rows * per_row}"
            )

    def stored(self, field: Field) -> Field:
        """Return the field in its stored form.

        Blobs have another stored form than the schema of the table, and a packed struct cannot be
        read in part.
        """
        file_field = self._tree.field_by_id(field.id)
        if file_field is None:
            return described(field) if field.is_blob else field
        return unpruned(field, file_field, self.version)

    def _columns_of(self, field: Field, column_of: Mapping[int, int] | None) -> tuple[int, ...]:
        column_by_id = self.own_columns if column_of is None else column_of
        columns = []
        for node in column_fields(field, self.version):
            column = column_by_id.get(node.id, -1)
            if column < 0:
                raise CorruptFileError(
                    f"{self._source.name}: the file has no column for field {node.name!r} (id "
                    f"{node.id}) of column {field.name!r}"
                )
            columns.append(column)
        return tuple(columns)

    def _load(self, columns: Sequence[int]) -> None:
        # A difference with the keys would look at all of them, for each field of a file.
        missing = sorted({column for column in columns if column not in self._columns})
        if missing:
            parsed = read_columns(self._tail, self._footer, missing)
            self._columns.update(zip(missing, parsed, strict=True))
