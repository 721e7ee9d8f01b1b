"""Checks of changes of tables that can have a MemWAL, before a change is planned."""

from __future__ import annotations

from collections.abc import Collection

from lance_spark.mutations.commits import check_rows_writable
from lance_spark.subjects import MEM_WAL_DROP_CHECK, MEM_WAL_ROWS_CHECK, MEM_WAL_SCHEMA_CHECK, load
from lance_spark.table.constraints import CheckedConstraints, check_enforced
from lance_spark.table.indexes.sections import has_mem_wal, section_of
from lance_spark.table.open import OpenTable


def check_rows_changeable(
    table: OpenTable,
    *,
    data_files: bool,
    written: Collection[int] | None = None,
    checked: CheckedConstraints | None = None,
) -> None:
    """Raise an error for a change of rows that the commit, or a MemWAL, would refuse.

    - `data_files`: Whether the change writes data files, and not only deletion files.
    - `written`: Ids of the fields that get values in place, as of `check_enforced`.
    - `checked`: The conditions that Spark checks the new rows against, by the names of the
      constraints.

    Raises CorruptTableError, CorruptFileError, StorageError. Raises UnsupportedFeatureError: rows
    of a MemWAL are not in the base table yet, or `check_rows_writable` refuses, or the new rows are
    not checked against a constraint of the table.
    """
    check_rows_writable(table, data_files=data_files)
    if data_files:
        message = table.manifest.message
        display = table.store.display
        check_enforced(message.config, message.fields, written, checked or {}, display)
    if has_mem_wal(section_of(table.manifest)):
        load(MEM_WAL_ROWS_CHECK)(table)


def check_no_mem_wal(table: OpenTable, change: str) -> None:
    """Raise an error for a change of columns if the table has a MemWAL.

    - `change`: The refused change, for example "column 'a' cannot be cast".

    Raises UnsupportedFeatureError. Raises CorruptTableError: the indexes cannot be read.
    """
    if has_mem_wal(section_of(table.manifest)):
        load(MEM_WAL_SCHEMA_CHECK)(table, change)


def check_droppable(table: OpenTable, fields: Collection[int]) -> None:
    """Raise an error if a MemWAL needs one of the columns to drop.

    - `fields`: Ids of the fields to drop.

    Raises UnsupportedFeatureError. Raises CorruptTableError: the indexes cannot be read.
    """
    if has_mem_wal(section_of(table.manifest)):
        load(MEM_WAL_DROP_CHECK)(table, fields)
