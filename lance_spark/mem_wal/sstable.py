"""SSTables: rows that a writer of a shard flushed, as small Lance tables.

| path below `_mem_wal/{shard}/{8 hex digits}_gen_{generation}/` | content |
| --- | --- |
| `_versions/`, `data/`, ... | a Lance table with one version and one fragment |
| `_deletions/` | hides the rows that a later row of the same key follows |
| `bloom_filter.bin` | the keys (`bloom_filter`); empty in tables without a key |
| `_pk_index/` | the keys in order (`key_index`); only in tables with a key |

The table has all rows in the order of their arrival. Its columns are those of the base table, with
the same field ids, and `_tombstone` with the next id. That id may later belong to another column of
the base table. So `_tombstone` is found by its name, the other columns by their ids. Columns that
are not part of the key are nullable, because a tombstone has only a key. A table does not have
stable row ids here, even if the base table has.

No manifest of a shard lists the SSTable yet when it is complete: `shard_manifest.publish` does
this. Specification: table/mem_wal.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from lance_spark.encoding.blocks import nulls
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    LanceError,
    StorageError,
    error_context,
)
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.json_columns import paged_json, read_json
from lance_spark.file.schema.field import Field, check_unique
from lance_spark.file.schema.schema import Schema, kept
from lance_spark.mem_wal.entries import TOMBSTONE
from lance_spark.mem_wal.key_index import SortedKeys, write_key_index
from lance_spark.mem_wal.keys import FILE, check_key_type, encode_filter
from lance_spark.mem_wal.table.shard_manifest import SsTable, new_sstable_folder, sstable_path
from lance_spark.mutations.rewrite.readers import live_values
from lance_spark.storage.store import ObjectStore
from lance_spark.table.align import align
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.append import Overwrite
from lance_spark.table.operations.update import with_deletion_file
from lance_spark.table.paths import TablePaths
from lance_spark.table.primary_key import primary_key
from lance_spark.table.removal import delete_files
from lance_spark.table.rows.deletions import Offsets, write_deletions

#: The only version of an SSTable.
_VERSION = 1
#: Files of earlier versions have no null structs, which tombstones need.
_LEAST_FILE_VERSION = (2, 1)
_NO_LIMIT = 1 << 62


def write_sstable(
    table: OpenTable,
    shard: uuid.UUID,
    generation: int,
    rows: pa.Table,
    properties: Mapping[str, str] | None = None,
) -> SsTable:
    """Write rows as an SSTable, which no manifest of the shard lists yet.

    - `table`: The base table.
    - `generation`: 1 or more.
    - `rows`: One row or more in the order of their arrival, with columns of the base table by name,
      and `_tombstone`. Nullable columns of the base table may be missing.
    - `properties`: Properties of the transaction.

    Raises InvalidInputError: there are no rows, or a key is null. Raises SchemaMismatchError,
    UnsupportedTypeError: a column does not fit the base table. Raises StorageError: the files of
    the SSTable are deleted as far as possible.
    """
    if not rows.num_rows:
        raise InvalidInputError(f"{table.store.display}: an SSTable needs one row or more")
    folder = new_sstable_folder(generation)
    path = sstable_path(shard, folder)
    with error_context(table.store.display):
        keys = key_columns(table.schema, rows)
        try:
            _write(table, TablePaths(table.store.below(path)), rows, keys, properties or {})
        except LanceError:
            with suppress(StorageError):
                delete_sstable(table.store, path)
            raise
    return SsTable(
        generation=generation,
        folder=folder,
        in_memory_bytes=rows.nbytes,
        physical_rows=rows.num_rows,
        primary_key_bytes=sum(column.nbytes for column in keys) if keys else None,
    )


def open_sstable(table: OpenTable, shard: uuid.UUID, folder: str) -> OpenTable:
    """Open an SSTable of a table as the table that it is.

    Raises TableNotFoundError, VersionNotFoundError, CorruptTableError, StorageError.
    """
    store = table.store.below(sstable_path(shard, folder))
    return OpenTable(TablePaths(store), read_version(store, _VERSION))


def live_rows(table: OpenTable, sstable: OpenTable) -> pa.Table:
    """Return the newest row of each key in an SSTable, in the shape of its base table.

    - `table`: The base table, whose columns may have changed since.
    - `sstable`: See `open_sstable`.

    Returns the columns of the base table, found by field id, and `_tombstone`. Columns that the
    SSTable does not have are null. Raises CorruptFileError, UnsupportedEncodingError, StorageError.
    Raises CorruptTableError: a column of the key, or `_tombstone`, is missing or of another type.
    """
    manifest = sstable.manifest
    tombstone = next((f for f in sstable.schema.fields if f.name == TOMBSTONE), None)
    stored = {
        field.id for field in sstable.schema.fields if tombstone is None or field.id != tombstone.id
    }
    fields, missing = [], []
    for field in sstable_schema(table.schema).fields[:-1]:
        if field.id in stored:
            fields.append(field)
        elif field.nullable:
            missing.append(field)
        else:
            raise CorruptTableError(f"{manifest.name}: the SSTable has no column {field.name!r}")
    read = [*fields, *([] if tombstone is None else [tombstone])]
    batches = live_values(
        sstable.paths,
        manifest.fragments,
        read,
        manifest.data_storage_version,
        manifest.base_paths,
    )
    arrow = input_schema(Schema(tuple(read)))
    rows = pa.Table.from_batches([align(batch, arrow) for batch in batches], arrow)
    if tombstone is None:
        rows = rows.append_column(TOMBSTONE, pa.repeat(False, rows.num_rows))
    for field in missing:
        column = input_schema(Schema((field,))).field(0)
        rows = rows.append_column(field.name, nulls(rows.num_rows, column))
    return rows.select([*table.schema.names, TOMBSTONE])


def delete_sstable(store: ObjectStore, path: str) -> None:
    """Delete the files of an SSTable.

    - `store`: The root of the base table.
    - `path`: Its path below that root.

    Raises StorageError.
    """
    paths = [info.path for info in store.list_tree(path)]
    delete_files(store, path, paths, (), manifests_first=True)


def sstable_schema(schema: Schema) -> Schema:
    """Return the schema of an SSTable by that of its base table."""
    keys = {path[0].id for path in primary_key(schema)}
    fields = tuple(
        field if field.id in keys else replace(field, nullable=True) for field in schema.fields
    )
    tombstone = pa.schema([pa.field(TOMBSTONE, pa.bool_(), nullable=False)])
    return Schema((*fields, *Schema.from_arrow(tombstone, schema.max_field_id + 1).fields))


@kept
def _key_paths(schema: Schema) -> list[tuple[Field, ...]]:
    """Return the paths of the key of a schema whose columns can be taken by name."""
    check_unique(schema.names, "the table")
    return list(primary_key(schema))


def key_columns(schema: Schema, rows: pa.Table) -> list[pa.Array]:
    """Return the columns of the key of rows, in its order; none in a table without a key.

    Raises InvalidInputError: a key is null, or two columns have one name. Raises
    UnsupportedTypeError: a MemWAL does not support a type of the key.
    """
    columns = []
    for top, *children in _key_paths(schema):
        column = rows.column(top.name).combine_chunks()
        for child in children:
            column = column.field(child.name)
        name = ".".join(field.name for field in (top, *children))
        check_key_type(name, column.type)
        if column.null_count:
            raise InvalidInputError(
                f"key column {name!r}: {column.null_count} of {len(column)} values are null, but a "
                "key must not be null"
            )
        columns.append(column)
    return columns


def _write(
    table: OpenTable,
    paths: TablePaths,
    rows: pa.Table,
    keys: list[pa.Array],
    properties: Mapping[str, str],
) -> None:
    names = set(rows.column_names)
    full = sstable_schema(table.schema)
    # A column that the rows do not have is null, as in a fragment without it.
    stored = replace(full, fields=tuple(field for field in full.fields if field.name in names))
    version = max(table.manifest.data_storage_version, _LEAST_FILE_VERSION)
    writer = FragmentWriter(
        paths, stored, version, max_rows_per_file=_NO_LIMIT, max_bytes_per_file=_NO_LIMIT
    )
    (fragment,) = writer.write_all(_with_texts(rows, stored).to_batches())
    if keys:
        in_order = SortedKeys.of(keys)
        fragment = _without(paths.store, fragment, in_order.superseded())
        write_key_index(paths, in_order)
    paths.store.write_bytes(FILE, encode_filter(keys))
    operation = Overwrite(
        fragments=(fragment,), schema=tuple(full.to_protos()), data_storage_version=version
    )
    commit(paths.store, Transaction.new(0, operation, properties), None)


def _with_texts(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return rows with JSON as text, which a log has in the form of pages."""
    for field in schema.fields:
        if field.has_json and rows.column(field.name).type == paged_json(field).arrow_field.type:
            column = rows.column(field.name).combine_chunks()
            text = read_json(column, field, "rows of a MemWAL")
            position = rows.column_names.index(field.name)
            rows = rows.set_column(position, field.arrow_field, text)
    return rows.combine_chunks()


def _without(store: ObjectStore, fragment: Fragment, offsets: Offsets) -> Fragment:
    """Return a fragment without some rows."""
    if not len(offsets):
        return fragment
    # pylance writes bitmaps, and the number of the version here.
    file = write_deletions(store, 0, _VERSION, offsets, bitmap=True)
    return with_deletion_file(fragment, file)
