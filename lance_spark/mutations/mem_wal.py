"""Checks of changes of columns in tables with a MemWAL.

Rows in the logs and SSTables of a MemWAL have the fields that the table had when they were written,
and are matched by field id. These rows would have no values in a column with a new id after a cast,
in a column that was made not nullable, and in a new computed column. pylance refuses these three
changes. A shard becomes unreadable if a column of its key or of its sharding is dropped.
"""

from __future__ import annotations

from collections.abc import Collection

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.mutations.rows.update import primary_key
from lance_spark.table.indexes.sections import MEM_WAL
from lance_spark.table.mem_wal.details import details_of
from lance_spark.table.open import OpenTable


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
