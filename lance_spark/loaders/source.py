"""A version of a table that processes of a loader open again, and the blocks of rows of one shard.

A forked process must not use open files, connections and locks of its parent, and a spawned one has
none. So a source keeps only what opens the version, and opens it once in each process.

A shard has some of the fragments, in an order that seed and epoch determine. Its rows are read in
blocks of whole batches, across fragments. A block is shuffled as a whole. A `ShardPosition` is the
place of the next batch, so that a loader continues without reading the rows before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.errors import InvalidInputError
from lance_spark.file.arrays import without_sliced_matrices


class TableSource:
    """One version of a table, opened once in each process. Can be pickled.

    - `options`: Arguments of `open_dataset`, if a path is given.
    """

    def __init__(
        self,
        dataset: Dataset | str | os.PathLike[str],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(dataset, Dataset):
            dataset = open_dataset(dataset, **(options or {}))
        elif options:
            raise InvalidInputError("give dataset_options with a path, not with a Dataset")
        self.uri = dataset.uri
        self.version = dataset.version
        self._storage_options = dict(dataset._storage_options)
        self._opened: tuple[int, Dataset] | None = (os.getpid(), dataset)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def dataset(self) -> Dataset:
        """The version, opened in this process."""
        if self._opened is None or self._opened[0] != os.getpid():
            dataset = open_dataset(
                self.uri, version=self.version, storage_options=self._storage_options
            )
            self._opened = os.getpid(), dataset
        return self._opened[1]


@dataclass(frozen=True, slots=True)
class Shard:
    """One of some processes that share the rows, and the order of the fragments.

    - `rank`, `world_size`: Number of the shard, and of all shards.
    - `granularity`: ``fragment``: a shard has every n-th fragment. ``batch``: a shard has every
      n-th batch.
    - `seed`, `epoch`: Determine the order of the fragments.
    """

    rank: int = 0
    world_size: int = 1
    granularity: str = "fragment"
    shuffle: bool = False
    seed: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        check_least("world_size", self.world_size, 1)
        if not 0 <= self.rank < self.world_size:
            raise InvalidInputError(
                f"rank must be from 0 to {self.world_size - 1}, not {self.rank}"
            )
        if self.granularity not in ("fragment", "batch"):
            raise InvalidInputError(
                f"shard_granularity must be one of 'fragment', 'batch', not {self.granularity!r}"
            )

    def fragments(self, ids: Sequence[int]) -> list[int]:
        """Return the fragments that the shard reads, in their order."""
        order = list(ids)
        if self.shuffle:
            places = np.random.default_rng([self.seed, self.epoch]).permutation(len(order))
            order = [order[place] for place in places]
        return order if self.granularity == "batch" else order[self.rank :: self.world_size]

    def permutation(self, block: int, num_rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the order of the rows of a block."""
        rank = self.rank if self.granularity == "fragment" else 0
        return np.random.default_rng([self.seed, self.epoch, rank, block]).permutation(num_rows)


@dataclass(frozen=True, slots=True)
class ShardPosition:
    """The place of the next batch of a shard.

    - `fragment`, `row`: Number of the fragment in the shard's order, and of the row in it that
      begins the block.
    - `block`, `batch`: Number of the block, and of the batch in it.
    """

    fragment: int = 0
    row: int = 0
    block: int = 0
    batch: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the numbers by their names."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of each row, and the sizes of batches and blocks.

    - `arguments`: Of `Dataset.scanner`.
    - `block_batches`: Batches of a block.
    - `drop_last`: Whether a last batch of fewer rows is left out.
    """

    arguments: Mapping[str, Any]
    batch_size: int
    block_batches: int = 1
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_least("batch_size", self.batch_size, 1)
        check_least("block_batches", self.block_batches, 1)


def batches(
    dataset: Dataset, shard: Shard, reading: Reading, start: ShardPosition
) -> Iterator[tuple[pa.RecordBatch, ShardPosition]]:
    """Yield the batches of a shard from a position on, each with the position after it."""
    order = shard.fragments([fragment.id for fragment in dataset.fragments])
    position = start
    for block, after in _blocks(dataset, order, reading, start):
        rows = block
        if shard.shuffle:
            permutation = pa.array(shard.permutation(position.block, block.num_rows))
            rows = without_sliced_matrices(block).take(permutation)
        count = -(-rows.num_rows // reading.batch_size)
        for number in range(position.batch, count):
            first = number * reading.batch_size
            batch = rows.slice(first, reading.batch_size)
            if reading.drop_last and batch.num_rows < reading.batch_size:
                continue
            last = number + 1 == count
            position = after if last else replace(position, batch=number + 1)
            if shard.granularity == "batch":
                index = (after.block - 1) * reading.block_batches + number
                if index % shard.world_size != shard.rank:
                    continue
            yield batch, position
        position = after


def _blocks(
    dataset: Dataset, order: Sequence[int], reading: Reading, start: ShardPosition
) -> Iterator[tuple[pa.RecordBatch, ShardPosition]]:
    """Yield blocks of rows, each with the position after it."""
    size = reading.batch_size * reading.block_batches
    parts: list[pa.RecordBatch] = []
    missing, number = size, start.block
    for place in range(start.fragment, len(order)):
        fragment = dataset.get_fragment(order[place])
        assert fragment is not None
        row = start.row if place == start.fragment else 0
        for batch in fragment.scanner(offset=row, **reading.arguments).to_batches():
            first = 0
            while first < batch.num_rows:
                part = batch.slice(first, missing)
                parts.append(part)
                first += part.num_rows
                row += part.num_rows
                missing -= part.num_rows
                if not missing:
                    number += 1
                    yield _joined(parts), ShardPosition(place, row, number)
                    parts, missing = [], size
    if parts:
        yield _joined(parts), ShardPosition(len(order), 0, number + 1)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(p.columns for p in parts), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)
