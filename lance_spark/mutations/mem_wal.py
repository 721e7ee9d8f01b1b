"""Checks of changes of tables with a MemWAL.

Rows in the logs and SSTables of a MemWAL have the fields that the table had when they were written,
and are matched by field id. These rows would have no values in a column with a new id after a cast,
in a column that was made not nullable, and in a new computed column. pylance refuses these three
changes. A shard becomes unreadable if a column of its key or of its sharding is dropped.

A change of a row in the base table is not visible, and lost at the next compaction, if a shard has
a newer row of the same key. A deleted row comes back. So changes of rows are refused while shards
have rows that are not in the base table.
"""

from __future__ import annotations

from collections.abc import Collection

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.mutations.commits import check_rows_writable
from lance_spark.table.indexes.sections import MEM_WAL
from lance_spark.table.mem_wal.details import details_of
from lance_spark.table.mem_wal.fresh_rows import shards_with_fresh_rows
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.primary_key import primary_key


def check_rows_changeable(table: OpenTable, *, data_files: bool) -> None:
    """Raise an error for a change of rows that the commit, or a MemWAL, would refuse.

    Parameters
    ----------
    data_files : bool
        Whether the change writes data files, and not only deletion files.

    Raises
    ------
    UnsupportedFeatureError
        Rows of a MemWAL are not in the base table yet, or `check_rows_writable` refuses.
    CorruptTableError, CorruptFileError, StorageError
    """
    check_rows_writable(table, data_files=data_files)
    details = details_of(table.manifest)
    if details is None or not any(shards_with_fresh_rows(table.store, details.compacted)):
        return
    # A compaction since the table was opened would make these rows old.
    newest = details_of(read_latest(table.store))
    if newest is None:
        return
    fresh = next(shards_with_fresh_rows(table.store, newest.compacted), None)
    if fresh is not None:
        raise UnsupportedFeatureError(
            f"{table.store.display}: rows cannot be changed: shard {fresh} of the MemWAL (index "
            f"{MEM_WAL}) has rows that are not in the base table, which would hide or undo the "
            "change; change rows through the MemWAL, or compact it before "
            "(Dataset.compact_mem_wal, LanceTable.compactMemWal)"
        )


def check_no_mem_wal(table: OpenTable, change: str) -> None:
    """Raise an error for a change of columns if the table has a MemWAL.

    Parameters
    ----------
    change : str
        The refused change, for example "column 'a' cannot be cast".

    Raises
    ------
    UnsupportedFeatureError
    CorruptTableError
        The indexes cannot be read.
    """
    if details_of(table.manifest) is not None:
        raise _refusal(table, change)


def check_droppable(table: OpenTable, fields: Collection[int]) -> None:
    """Raise an error if a MemWAL needs one of the columns to drop.

    Parameters
    ----------
    fields : collection of int
        Ids of the fields to drop.

    Raises
    ------
    UnsupportedFeatureError
    CorruptTableError
        The indexes cannot be read.
    """
    details = details_of(table.manifest)
    if details is None:
        return
    used = {field.id for path in primary_key(table.schema) for field in path}
    for spec in details.sharding_specs:
        for field in spec.fields:
            used.update(field.source_ids)
    dropped = [field for field in table.schema.walk() if field.id in used.intersection(fields)]
    if dropped:
        raise _refusal(
            table, f"column {dropped[0].name!r} of its key or sharding cannot be dropped"
        )


def _refusal(table: OpenTable, change: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{table.store.display}: {change}: the table has a MemWAL (index {MEM_WAL}), whose rows "
        "this change would not reach; compact its rows into the table and drop the index first"
    )
