"""The progress of compactions, which operations record in the index `__lance_mem_wal`.

| proposed generation of a shard | outcome |
| --- | --- |
| greater than the recorded one, also by more than 1 | recorded |
| not greater | stale: the commit fails, and is not tried again |

A stale commit has rows of SSTables that another client has brought into the table before, or older
rows of the same keys.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.table.indexes.sections import MEM_WAL
from lance_spark.table.mem_wal.details import decode, find_index, generations_of, replace_details

if TYPE_CHECKING:
    from lance_spark.table.manifest.builder import ManifestBuilder


def record_compacted(
    builder: ManifestBuilder, tables: Iterable[table_pb2.CompactedSsTable]
) -> None:
    """Record the newest generations that the next version has.

    Raises CorruptTableError. Raises InvalidInputError: the table has no MemWAL, or a shard is given
    twice. Raises CommitConflictError: a generation is stale; not retryable.
    """
    name = builder.base.name if builder.base is not None else "the new table"
    index = find_index(builder.indices)
    if index is None:
        raise InvalidInputError(
            f"{name}: the table has no index {MEM_WAL}, so the progress of a compaction cannot be "
            "recorded; initialize a MemWAL first (Dataset.initialize_mem_wal, "
            "LanceTable.initialize_mem_wal)"
        )
    details = decode(index, name)
    tables = list(tables)
    if len({table.shard_id.uuid for table in tables}) < len(tables):
        raise InvalidInputError(f"{name}: an operation has two generations of one shard")
    proposed = generations_of(tables, "the transaction")
    for shard, generation in proposed.items():
        if is_stale(shard, generation, details.compacted):
            raise CommitConflictError(
                f"{name}: generation {generation} of shard {shard} is stale: the table has the "
                f"rows up to generation {details.compacted[shard]} already; nothing is left to do",
                retryable=False,
            )
    details = replace(details, compacted={**details.compacted, **proposed})
    replace_details(index, details, builder.version)


def is_stale(shard: uuid.UUID, generation: int, recorded: Mapping[uuid.UUID, int]) -> bool:
    """Return whether a generation of a shard is not greater than the recorded one."""
    return generation <= recorded.get(shard, 0)
