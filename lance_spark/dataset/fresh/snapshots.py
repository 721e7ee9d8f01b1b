"""SSTables that a caller names, and their rows together with those of a version."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_spark.arguments import check_least
from lance_spark.dataset.fresh.rows import FreshRows
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.mem_wal.inherited import check_generations
from lance_spark.mem_wal.snapshot import FreshState
from lance_spark.table.mem_wal.details import details_of
from lance_spark.table.mem_wal.names import is_sstable_folder
from lance_spark.table.mem_wal.shard_manifest import ShardManifest, SsTable

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset


@dataclass
class ShardSnapshot:
    """SSTables of a shard that a scan reads.

    Parameters
    ----------
    shard_id : str
        A UUID.

    Examples
    --------
    >>> snapshot = ShardSnapshot(shard_id).with_sstable(1, "0123abcd_gen_1")
    """

    shard_id: str
    spec_id: int = 0
    current_generation: int = 1
    sstables: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.shard_id = str(uuid.UUID(self.shard_id))
        except (ValueError, AttributeError, TypeError):
            raise InvalidInputError(f"shard_id must be a UUID, not {self.shard_id!r}") from None

    def with_spec_id(self, spec_id: int) -> ShardSnapshot:
        """Set the id of the sharding."""
        check_least("spec_id", spec_id, 0)
        self.spec_id = spec_id
        return self

    def with_current_generation(self, generation: int) -> ShardSnapshot:
        """Set the generation that the next SSTable will have."""
        check_least("generation", generation, 1)
        self.current_generation = generation
        return self

    def with_sstable(self, generation: int, path: str) -> ShardSnapshot:
        """Add an SSTable.

        Parameters
        ----------
        generation : int
        path : str
            Name of its folder below that of the shard.
        """
        check_least("generation", generation, 1)
        if not isinstance(path, str) or not is_sstable_folder(path):
            raise InvalidInputError(f"path must be the name of a folder of the shard, not {path!r}")
        self.sstables.append((generation, path))
        return self


def rows_of(
    dataset: Dataset,
    snapshots: Sequence[ShardSnapshot],
    pk_columns: Sequence[str] | None = None,
) -> FreshRows:
    """Return the rows of a version and of SSTables.

    Raises
    ------
    InvalidInputError
        A generation of a shard is given twice, or a column of the key does not exist.
    UnsupportedFeatureError
        The table has no primary key, and `pk_columns` is not given.
    CorruptTableError, StorageError
    """
    table = dataset._table
    manifests = []
    for snapshot in snapshots:
        shard = uuid.UUID(snapshot.shard_id)
        generations = [generation for generation, _ in snapshot.sstables]
        if len(set(generations)) < len(generations):
            raise InvalidInputError(f"shard {shard}: a generation is given twice: {generations}")
        manifests.append(
            ShardManifest(
                shard,
                current_generation=max(
                    [snapshot.current_generation, *(g + 1 for g in generations)]
                ),
                sstables=tuple(SsTable(*pair) for pair in sorted(snapshot.sstables)),
                spec_id=snapshot.spec_id,
            )
        )
    details = details_of(table.manifest)
    if details is not None:
        check_generations(table.store, manifests, details.compacted)
    state = FreshState(table, details, tuple(manifests), has_logs=False)
    rows = FreshRows(dataset, state, pk_columns)
    if not rows.key_columns:
        raise UnsupportedFeatureError(f"{table.store.display}: the table has no primary key")
    return rows
