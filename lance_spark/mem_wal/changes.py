"""Checks of changes of tables with a MemWAL, before a change is planned.

`lance_spark.table.mem_wal.guard` says which changes are refused, and checks each commit again.
"""

from __future__ import annotations

from collections.abc import Collection

from lance_spark.table.mem_wal.details import details_of
from lance_spark.table.mem_wal.fresh_rows import shards_with_fresh_rows
from lance_spark.table.mem_wal.guard import (
    check_no_fresh_rows,
    dropped_refusal,
    schema_refusal,
    used_fields,
)
from lance_spark.table.open import OpenTable, read_latest


def check_rows(table: OpenTable) -> None:
    """Raise an error for a change of rows while rows of the MemWAL are not in the base table.

    Raises
    ------
    UnsupportedFeatureError
    CorruptTableError, CorruptFileError, StorageError
    """
    details = details_of(table.manifest)
    if details is None or not any(shards_with_fresh_rows(table.store, details.compacted)):
        return
    # A compaction since the table was opened would make these rows old.
    newest = details_of(read_latest(table.store))
    if newest is not None:
        check_no_fresh_rows(table.store, newest, "rows cannot be changed")


def check_schema(table: OpenTable, change: str) -> None:
    """Raise an error for a change of columns, such as "column 'a' cannot be cast".

    Raises
    ------
    UnsupportedFeatureError
    CorruptTableError
        The indexes cannot be read.
    """
    if details_of(table.manifest) is not None:
        raise schema_refusal(table.store, change)


def check_droppable(table: OpenTable, fields: Collection[int]) -> None:
    """Raise an error if the MemWAL needs one of the fields with some ids.

    Raises
    ------
    UnsupportedFeatureError
    CorruptTableError
        The indexes cannot be read.
    """
    details = details_of(table.manifest)
    if details is None:
        return
    used = used_fields([field.to_proto() for field in table.schema.walk()], details)
    dropped = [field for field in table.schema.walk() if field.id in used.intersection(fields)]
    if dropped:
        raise dropped_refusal(table.store, dropped[0].name)
