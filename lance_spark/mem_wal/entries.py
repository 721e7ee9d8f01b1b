"""WAL entries: one durable append to the log of a shard, as an Arrow IPC stream.

| metadata of the schema | content |
| --- | --- |
| `writer_epoch` | decimal; the claim by which the entry was written |
| `generation` | decimal; the generation that the rows will be flushed as; may be missing |
| `fence_sentinel` | "true": the entry has no rows, and only takes its position |

Each field, below the top level too, has its id in the metadata `lance:field_id`. The columns are
those of the table, and then `_tombstone`. Columns outside of the primary key are nullable, so that
a tombstone has nulls there. JSON is binary, as in pages; blobs are their bytes.

An entry has a position, from 1 on. It is created whole, if the position is free: a truncated entry
would keep the shard closed. The log ends before the first position without an entry.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding import meta
from lance_spark.encoding.blocks import nulls
from lance_spark.encoding.meta import BLOB_V2
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    MissingFileError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from lance_spark.file.json_columns import paged_json, write_json
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import project
from lance_spark.file.schema.schema import Schema, kept
from lance_spark.file.schema.types import EXTENSION_NAME, storage_type
from lance_spark.mem_wal.table import shard_manifest
from lance_spark.mem_wal.table.shard_manifest import wal_path
from lance_spark.storage.parallel import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.table.align import align
from lance_spark.table.primary_key import primary_key
from lance_spark.table.rows.deletions import check_decompressed_stream

TOMBSTONE = shard_manifest.TOMBSTONE
FIELD_ID = meta.FIELD_ID.encode()
_TOMBSTONE_FIELD = pa.field(TOMBSTONE, pa.bool_(), nullable=False)
_EPOCH, _GENERATION, _SENTINEL = b"writer_epoch", b"generation", b"fence_sentinel"
_NUMBER = re.compile(rb"[0-9]{1,20}")
_MAX_NUMBER = 2**64 - 1
#: Compressed buffers of an entry can claim any size, and columns without buffers any number of
#: rows. No client is known to compress; others have at most eight rows a byte.
_LEAST_BYTES, _MOST_TIMES = 64 * 1024 * 1024, 20
_LEAST_ROWS, _ROWS_A_BYTE = 1_000_000, 8
#: Entries that are requested at the same time at the end of a log.
_MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log of a shard.

    - `generation`: The generation that the rows will be flushed as; None if the writer did not
      record it.
    - `rows`: The rows in the order of the writer, `_tombstone` last; None for a sentinel.
    - `properties`: Metadata of the messages with the batches. pylance refuses further metadata of
      the schema.
    """

    position: int
    writer_epoch: int
    generation: int | None = None
    is_sentinel: bool = False
    rows: pa.Table | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@kept
def log_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the rows of a table in a log, with `_tombstone`.

    Raises UnsupportedFeatureError: the table has a column that a log cannot hold.
    """
    keys = {path[0].id for path in primary_key(schema)}
    columns = []
    for column in schema.fields:
        if column.name == TOMBSTONE:
            raise UnsupportedFeatureError(
                f"column {TOMBSTONE!r} has the name by which a MemWAL marks deleted rows; rename "
                "the column"
            )
        if any(node.metadata.get(EXTENSION_NAME) == BLOB_V2 for node in column.walk()):
            raise UnsupportedFeatureError(
                f"column {column.name!r} has blobs of version 2.2, which a MemWAL cannot hold; use "
                "a column of the type large_binary"
            )
        paged = paged_json(column)
        logged = _with_ids(paged.arrow_field, paged)
        columns.append(logged if column.id in keys else logged.with_nullable(True))
    return pa.schema([*columns, _TOMBSTONE_FIELD], dict(schema.metadata))


def put_rows(schema: Schema, rows: pa.Table) -> pa.Table:
    """Return rows to insert or update, in the shape of a log.

    - `schema`: Of the table.
    - `rows`: All columns of the table, in any order.

    Raises UnsupportedFeatureError. Raises SchemaMismatchError: a column is missing, unknown, or of
    another type. Raises InvalidInputError: a column that must not be null has nulls.
    """
    arrow = schema.to_arrow()
    target = log_schema(schema)
    batches = []
    for batch in rows.to_batches():
        columns = [
            write_json(column, top, "rows of a MemWAL", 0)
            for column, top in zip(align(batch, arrow).columns, schema.fields, strict=True)
        ]
        columns.append(pa.repeat(False, batch.num_rows))
        batches.append(pa.RecordBatch.from_arrays(columns, schema=target))
    return pa.Table.from_batches(batches, target)


def delete_rows(schema: Schema, keys: pa.Table) -> pa.Table:
    """Return tombstones of keys, in the shape of a log.

    - `schema`: Of the table.
    - `keys`: The columns of the primary key, in any order; other columns are ignored.

    Raises SchemaMismatchError: a column of the key is missing, or of another type. Raises
    InvalidInputError: a key is null. Raises UnsupportedFeatureError: the table has no primary key.
    """
    key_names = [path[0].name for path in primary_key(schema)]
    if not key_names:
        raise UnsupportedFeatureError(
            "the table has no primary key, so no row can be deleted; set the metadata "
            "lance-schema:unenforced-primary-key of its key columns before it has a MemWAL"
        )
    missing = [name for name in key_names if name not in keys.column_names]
    if missing:
        raise SchemaMismatchError(f"keys to delete do not have the column {missing[0]!r}")
    target = log_schema(schema)
    arrow = pa.schema([schema.to_arrow().field(name) for name in key_names])
    batches = []
    for batch in keys.select(key_names).to_batches():
        values = dict(zip(key_names, align(batch, arrow).columns, strict=True))
        values[TOMBSTONE] = pa.repeat(True, batch.num_rows)
        columns = [
            values[node.name] if node.name in values else nulls(batch.num_rows, node)
            for node in target
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=target))
    return pa.Table.from_batches(batches, target)


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    metadata = {_EPOCH: str(entry.writer_epoch).encode()}
    if entry.generation is not None:
        metadata[_GENERATION] = str(entry.generation).encode()
    if entry.is_sentinel:
        metadata[_SENTINEL] = b"true"
    rows = pa.table({}) if entry.is_sentinel or entry.rows is None else entry.rows
    schema = rows.schema.with_metadata({**(rows.schema.metadata or {}), **metadata})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        properties = dict(entry.properties) or None
        for batch in rows.to_batches() if rows.num_columns else ():
            copy = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            writer.write_batch(copy, custom_metadata=properties)
    return bytes(sink.getvalue())


def decode_entry(data: bytes, name: str, position: int) -> Entry:
    """Decode an entry.

    - `name`: Name of the file, for errors.
    - `position`: The position in its name.

    Raises CorruptFileError.
    """
    try:
        check_decompressed_stream(data, _LEAST_BYTES + _MOST_TIMES * len(data))
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            metadata = dict(reader.schema.metadata or {})
            is_sentinel = metadata.get(_SENTINEL) == b"true"
            epoch = _number(metadata.get(_EPOCH), "writer_epoch")
            recorded = metadata.get(_GENERATION)
            generation = None if recorded is None else _number(recorded, "generation")
            rows, properties = None, {}
            if not is_sentinel:
                batches = []
                for batch, custom in _batches(reader):
                    batches.append(batch)
                    properties.update(custom)
                rows = pa.Table.from_batches(batches, reader.schema)
        if rows is not None:
            most = _LEAST_ROWS + _ROWS_A_BYTE * len(data)
            if rows.num_rows > most:
                raise ValueError(f"it has {rows.num_rows} rows in {len(data)} bytes")
            rows.validate(full=True)
            rows = _with_tombstones(rows).replace_schema_metadata(None)
    except (ValueError, pa.ArrowException, MemoryError, OSError) as error:
        raise CorruptFileError(f"{name}: the WAL entry cannot be read: {error}") from error
    return Entry(position, epoch, generation, is_sentinel, rows, properties)


def read_entry(store: ObjectStore, shard: uuid.UUID, position: int) -> Entry | None:
    """Read the entry at a position; None if the position has none.

    - `store`: The root of the branch.
    """
    path = shard_manifest.wal_path(shard, position)
    try:
        data = store.read_bytes(path)
    except MissingFileError:
        return None
    return decode_entry(data, store.name(path), position)


def write_entry(store: ObjectStore, shard: uuid.UUID, entry: Entry) -> bool:
    """Create an entry at its position; return False and change nothing if the position has one.

    Raises StorageError: the store failed, and the entry may exist or not.
    """
    if not 0 < entry.position <= _MAX_NUMBER:
        raise InvalidInputError(f"a WAL position must be from 1 to 2^64 - 1, not {entry.position}")
    return store.put_if_absent(shard_manifest.wal_path(shard, entry.position), encode_entry(entry))


def read_tail(store: ObjectStore, shard: uuid.UUID, after: int) -> Iterator[Entry]:
    """Yield the entries behind a position, up to the first position without an entry.

    On other stores than local disks, some entries are requested at the same time.

    - `store`: The root of the branch.
    - `after`: The last position that SSTables cover.
    """
    position, at_once = after + 1, 1
    while True:
        positions = range(position, position + at_once)
        entries = read_all(
            lambda number: read_entry(store, shard, number), positions, local=store.is_local
        )
        for entry in entries:
            if entry is None:
                return
            yield entry
        position = positions.stop
        if not store.is_local:
            at_once = min(2 * at_once, _MOST_AT_ONCE)


def _batches(
    reader: pa.RecordBatchStreamReader,
) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
    """Yield the batches of a stream, and the metadata of their messages."""
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        yield batch, {key.decode(): value.decode() for key, value in dict(metadata or {}).items()}


def _number(text: bytes | None, key: str) -> int:
    if text is None or not _NUMBER.fullmatch(text) or int(text) > _MAX_NUMBER:
        raise ValueError(f"its metadata {key} must be a number below 2^64, not {text!r}")
    return int(text)


def _with_tombstones(rows: pa.Table) -> pa.Table:
    """Return the rows with `_tombstone` as the last column; false if they lack it."""
    if len(set(rows.column_names)) != rows.num_columns:
        raise ValueError(f"two of its columns have one name: {rows.column_names[:20]}")
    if TOMBSTONE not in rows.column_names:
        return rows.append_column(_TOMBSTONE_FIELD, pa.repeat(False, rows.num_rows))
    flags = rows.column(TOMBSTONE)
    if not pat.is_boolean(flags.type) or flags.null_count:
        raise ValueError(
            f"its column {TOMBSTONE} must be bool without nulls, but is {flags.type} with "
            f"{flags.null_count} nulls"
        )
    return rows.drop_columns([TOMBSTONE]).append_column(_TOMBSTONE_FIELD, flags)


def _with_ids(arrow: pa.Field, node: Field) -> pa.Field:
    """Return an Arrow field whose metadata, at each depth, has the ids of fields."""
    dtype = arrow.type
    if pat.is_struct(dtype):
        dtype = pa.struct(
            [_with_ids(dtype.field(i), child) for i, child in enumerate(node.children)]
        )
    elif pat.is_map(dtype) and node.children:
        key, item = node.children[0].children
        dtype = pa.map_(_with_ids(dtype.key_field, key), _with_ids(dtype.item_field, item))
    elif pat.is_list(dtype) and node.children:
        dtype = pa.list_(_with_ids(dtype.value_field, node.children[0]))
    elif pat.is_large_list(dtype) and node.children:
        dtype = pa.large_list(_with_ids(dtype.value_field, node.children[0]))
    elif pat.is_fixed_size_list(dtype) and node.children:
        dtype = pa.list_(_with_ids(dtype.value_field, node.children[0]), dtype.list_size)
    metadata = {**(arrow.metadata or {}), FIELD_ID: str(node.id).encode()}
    return pa.field(arrow.name, dtype, arrow.nullable, metadata)


# --------------------------------------------------------------------------------------------------
# Rows of WAL entries as rows of the base table.
#
# Columns are matched by field id; the columns of a writer that recorded no ids by their names. A
# column that an entry does not have is null, other columns of an entry are ignored. So an entry
# from before a rename, a drop or a new column is read as the SSTable that it becomes.


@dataclass(frozen=True, slots=True)
class LogRows:
    """The rows of some entries of the log of a shard, in order.

    A pickle has no rows: another process reads the entries again.

    - `store`: The root of the branch.
    - `positions`: Of the entries.
    - `entries`: The entries, if they were read.
    """

    store: ObjectStore
    shard: uuid.UUID
    positions: tuple[int, ...]
    num_rows: int
    entries: tuple[Entry, ...] | None = None

    @classmethod
    def of(cls, store: ObjectStore, shard: uuid.UUID, entries: Sequence[Entry]) -> LogRows:
        """Return the rows of entries that were read."""
        num_rows = sum(entry.rows.num_rows for entry in entries if entry.rows is not None)
        return cls(
            store, shard, tuple(entry.position for entry in entries), num_rows, tuple(entries)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return LogRows, (self.store, self.shard, self.positions, self.num_rows)

    def read(self, fields: Sequence[Field]) -> pa.Table:
        """Return columns of the rows, and `_tombstone` as the last column; JSON is binary.

        - `fields`: Top-level fields of the base table, or parts of them.

        Raises StorageError. Raises CorruptFileError: an entry cannot be read, does not exist any
        more, or has another type of a column.
        """
        entries = self.entries
        if entries is None:
            entries = tuple(self._entry(position) for position in self.positions)
        paged = [paged_json(field) for field in fields]
        schema = pa.schema(
            [field.arrow_field.with_nullable(True) for field in paged]
            + [pa.field(TOMBSTONE, pa.bool_())]
        )
        tables = []
        for entry in entries:
            if entry.rows is None:
                continue
            try:
                columns = [_column(entry.rows, field) for field in paged]
            except (pa.ArrowException, UnsupportedTypeError) as error:
                name = self.store.name(wal_path(self.shard, entry.position))
                raise CorruptFileError(f"{name}: {error}") from error
            columns.append(entry.rows.column(TOMBSTONE).combine_chunks())
            tables.append(pa.Table.from_arrays(columns, schema=schema))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def _entry(self, position: int) -> Entry:
        entry = read_entry(self.store, self.shard, position)
        if entry is None:
            name = self.store.name(wal_path(self.shard, position))
            raise CorruptFileError(
                f"{name}: the WAL entry existed when the read began, and does not exist any more; "
                "read again, and clean up with a longer retention"
            )
        return entry


def _column(rows: pa.Table, field: Field) -> pa.Array:
    """Return a column of an entry as an array of the type of a field."""
    dtype = field.arrow_field.type
    index = _index_of(list(rows.schema), field)
    if index is None:
        return nulls(rows.num_rows, field.arrow_field)
    array = rows.column(index).combine_chunks()
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    array = project(array, _stored(rows.schema.field(index), field), field)
    if not array.type.equals(dtype):
        raise UnsupportedTypeError(
            f"column {field.name!r} has type {array.type}, but the table has {dtype}; compact the "
            "rows of the MemWAL before the type of a column is changed"
        )
    return array


def _stored(arrow: pa.Field, field: Field) -> Field:
    """Return the field of a column of an entry, with the ids of the base table."""
    dtype = storage_type(arrow.type)
    if dtype.id != storage_type(field.arrow_field.type).id:
        # The caller finds that the types differ.
        return field
    if pat.is_struct(dtype):
        children = []
        by_index = {_index_of(list(dtype), child): child for child in field.children}
        for index, child in enumerate(dtype):
            known = by_index.get(index)
            children.append(_other(child) if known is None else _stored(child, known))
        stored = replace(field, children=tuple(children))
    elif field.children and pat.is_nested(dtype) and not pat.is_map(dtype):
        stored = replace(field, children=(_stored(dtype.value_field, field.children[0]),))
    else:
        return field
    is_same = dtype.equals(field.arrow_field.type) and stored.children == field.children
    return field if is_same else stored


def _other(arrow: pa.Field) -> Field:
    """Return a field that stands for a child that the base table does not have any more."""
    return Field(arrow.name, -2, "null")


def _index_of(columns: Sequence[pa.Field], field: Field) -> int | None:
    """Return the index of the column with the id of a field, or with its name and without an id."""
    number = str(field.id).encode()
    for index, column in enumerate(columns):
        recorded = (column.metadata or {}).get(FIELD_ID)
        if recorded == number or (recorded is None and column.name == field.name):
            return index
    return None
