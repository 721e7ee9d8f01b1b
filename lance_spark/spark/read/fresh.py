"""What a read has, or leaves out, of the rows of the MemWAL of its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lance_spark.errors import LanceError
from lance_spark.table.indexes.sections import MEM_WAL

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.options.read import ReadOptions
    from lance_spark.spark.read.planning import LancePartition


def fresh_sources(partitions: Sequence[LancePartition]) -> tuple[int, int]:
    """Return how many SSTables and WAL entries a fresh read reads."""
    from lance_spark.mem_wal.fresh.tasks import count_sources

    return count_sources([part.task for part in partitions if part.task is not None])


def unread_rows(dataset: Dataset, options: ReadOptions) -> str | None:
    """Return a warning if a read of the newest version leaves out rows of a MemWAL.

    No warning is returned if the option `fresh` is given, or a version is named.
    """
    is_newest = not any((options.version, options.tag, options.timestamp))
    if options.fresh is not None or not is_newest:
        return None
    manifest = dataset._table.manifest
    # The section of a table with many indexes takes long to parse.
    if manifest.index_section is None or MEM_WAL.encode() not in manifest.index_section:
        return None
    from lance_spark.table.mem_wal.details import details_of
    from lance_spark.table.mem_wal.fresh_rows import shards_with_fresh_rows

    try:
        details = details_of(manifest)
        if details is None:
            return None
        shards = shards_with_fresh_rows(dataset._table.store, details.compacted)
        if next(shards, None) is None:
            return None
    except LanceError:
        # The read does not need the MemWAL.
        return None
    return (
        f"{dataset._table.store.display}: the MemWAL of the table has rows that are not in the "
        "table yet, and a read does not return them: set the option fresh to true to read them, "
        "or to false to read without this warning; compaction brings them into the table"
    )
