"""Rows of WAL entries as rows of the base table.

Columns are matched by field id; the columns of a writer that recorded no ids by their names. A
column that an entry does not have is null, other columns of an entry are ignored. So an entry from
before a rename, a drop or a new column is read as the SSTable that it becomes.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.nulls import nulls
from lance_spark.errors import CorruptFileError, UnsupportedTypeError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import paged_json
from lance_spark.file.schema.logical_types import storage_type
from lance_spark.file.schema.nested import project
from lance_spark.mem_wal.entries import FIELD_ID, TOMBSTONE, Entry, read_entry
from lance_spark.storage.store import ObjectStore
from lance_spark.table.mem_wal.names import wal_path


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
