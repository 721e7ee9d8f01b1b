"""Datasets of torch over a version of a table. Needs the package torch.

| class | rows |
| --- | --- |
| `LanceDataset` | batches, in the table's order or shuffled; shared by workers and ranks |
| `SafeLanceDataset` | any row by its position, for a sampler of torch |

Both can be used in forked and spawned workers of a `DataLoader`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
import torch
import torch.distributed as dist
import torch.utils.data as torch_data

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.loaders.source import Reading, Shard, ShardPosition, TableSource, batches

# --------------------------------------------------------------------------------------------------
# Record batches as tensors of torch.

_BFLOAT16 = "lance.bfloat16"


def to_tensors(batch: pa.RecordBatch, **_: Any) -> Any:
    """Return the columns of a batch as tensors by name; the tensor of a single column alone.

    | column | tensor |
    | --- | --- |
    | numbers, booleans | of one dimension; uint64 as int64 |
    | lists of numbers of a fixed size | of two dimensions, of lists of such lists of three |
    | tensors of a fixed shape | of their dimensions and one more |
    | bfloat16 | bfloat16 |

    A null among floats is NaN. Raises UnsupportedTypeError: a column has another type. Raises
    InvalidInputError: a column that cannot have NaN has a null.
    """
    tensors = {
        field.name: _tensor(field.name, column)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def _tensor(name: str, array: Any) -> torch.Tensor:
    dtype = array.type
    if isinstance(dtype, pa.FixedShapeTensorType):
        rows = _tensor(name, array.storage)
        return rows.reshape(len(array), *dtype.shape)
    if pat.is_fixed_size_list(dtype):
        if array.null_count:
            raise InvalidInputError(f"column {name!r} has nulls, which have no tensor; filter them")
        items = _tensor(name, array.flatten())
        return items.reshape(len(array), dtype.list_size, *items.shape[1:])
    if getattr(dtype, "extension_name", None) == _BFLOAT16:
        return _bfloat16(array)
    if not (pat.is_integer(dtype) or pat.is_floating(dtype) or pat.is_boolean(dtype)):
        raise UnsupportedTypeError(
            f"column {name!r} has type {dtype}, which has no tensor; leave it out, or give "
            "to_tensor_fn"
        )
    if array.null_count:
        if not pat.is_floating(dtype):
            raise InvalidInputError(
                f"column {name!r} of type {dtype} has nulls, which have no tensor; filter them, or "
                "give to_tensor_fn"
            )
        if pat.is_float16(dtype):
            values = array.to_numpy(zero_copy_only=False).astype(np.float16)
            return torch.from_numpy(values)
        array = array.fill_null(math.nan)
    # A copy: tensors are writable, and Arrow's memory is not.
    values = np.array(array.to_numpy(zero_copy_only=False))
    if values.dtype == np.uint64:
        values = values.astype(np.int64)
    return torch.from_numpy(values)


def _bfloat16(array: Any) -> torch.Tensor:
    storage = array.storage
    data = np.frombuffer(storage.buffers()[1], np.int16, len(storage), storage.offset * 2)
    tensor = torch.from_numpy(data.copy()).view(torch.bfloat16)
    if array.null_count:
        tensor[torch.from_numpy(array.is_null().to_numpy(zero_copy_only=False))] = math.nan
    return tensor


# --------------------------------------------------------------------------------------------------
# Datasets of torch over a version of a table. Needs the package torch.

#: Rows that are shuffled together by default.
_SHUFFLED_ROWS = 65_536


class LanceDataset(torch_data.IterableDataset):  # type: ignore[misc]
    """Batches of the rows of a table, as an `IterableDataset` of torch.

    Give a `DataLoader` ``batch_size=None``, because this dataset makes the batches. The ranks of
    `torch.distributed`, and the workers of a loader, share the fragments.

    Parameters
    ----------
    dataset : Dataset, str or path
        The version is the one that is opened here, in all workers.
    batch_size : int
        Rows of a batch. The last batch of a shard can have fewer.
    dataset_options : mapping, optional
        Arguments of `open_dataset`, if a path is given.
    columns, filter, with_row_id
        As in `Dataset.scanner`.
    rank, world_size : int, optional
        This process, and the number of processes; by default those of torch.
    shard_granularity : str, optional
        ``fragment`` (the default): each shard reads every n-th fragment. ``batch``: each shard
        reads all fragments, and returns every n-th batch; the numbers of batches differ by one at
        most.
    to_tensor_fn : callable, optional
        Makes of a record batch what is returned; by default `tensors.to_tensors`. None returns
        record batches.
    auto_detect_rank : bool
        Whether `rank` and `world_size` are those of torch by default.
    shuffle : bool
        Whether the order of the fragments, and of the rows in blocks, is random.
    seed : int
        With the epoch, determines the order.
    shuffle_rows : int, optional
        Rows of a block; by default 65,536.
    drop_last : bool
        Whether a last batch of fewer rows is left out.

    Examples
    --------
    >>> rows = LanceDataset("/data/t.lance", batch_size=256, columns=["x", "y"], shuffle=True)
    >>> loader = torch.utils.data.DataLoader(rows, batch_size=None, num_workers=4)
    >>> for epoch in range(3):
    ...     rows.set_epoch(epoch)
    ...     for batch in loader: ...
    """

    def __init__(
        self,
        dataset: Dataset | str | os.PathLike[str],
        batch_size: int,
        *,
        dataset_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: Any = None,
        with_row_id: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shard_granularity: str | None = None,
        to_tensor_fn: Callable[..., Any] | None = to_tensors,
        auto_detect_rank: bool = True,
        shuffle: bool = False,
        seed: int = 0,
        shuffle_rows: int | None = None,
        drop_last: bool = False,
    ) -> None:
        super().__init__()
        if (rank is None) != (world_size is None):
            raise InvalidInputError("give rank and world_size together")
        self._source = TableSource(dataset, dataset_options)
        self._shard = (rank, world_size, shard_granularity or "fragment", auto_detect_rank)
        self._order = (shuffle, seed)
        rows = _SHUFFLED_ROWS if shuffle_rows is None else shuffle_rows
        self._reading = Reading(
            {"columns": columns, "filter": filter, "with_row_id": with_row_id},
            batch_size,
            max(1, rows // max(batch_size, 1)) if shuffle else 1,
            drop_last,
        )
        self._to_tensor = to_tensor_fn
        # In shared memory: workers that live on see what `set_epoch` sets.
        self._epoch = torch.tensor(0).share_memory_()
        self._start, self._position = ShardPosition(), ShardPosition()
        # Arguments are checked now, not by the first worker.
        self._shard_of(0, 1)
        self._source.dataset.scanner(columns, filter, with_row_id=with_row_id)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if get_spawning_popen() is not None:
            # A spawned worker has no process group, but belongs to the rank of its parent.
            _, _, granularity, detect = self._shard
            state["_shard"] = (*self._rank(), granularity, detect)
        return state

    def __repr__(self) -> str:
        return f"LanceDataset({self._source.uri!r}, version={self._source.version})"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the record batches."""
        return self._source.dataset.scanner(**self._reading.arguments).projected_schema

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of another epoch, also in workers, and begin with its first row."""
        self._epoch.fill_(epoch)
        self._start, self._position = ShardPosition(), ShardPosition()

    def state_dict(self) -> dict[str, Any]:
        """Return where this process is, for `load_state_dict` of a dataset with equal arguments.

        In workers of a loader, each worker has a state of its own: a `StatefulDataLoader` of
        torchdata collects them.
        """
        return {
            "version": self._source.version,
            "epoch": int(self._epoch),
            **self._position.as_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the batch that was returned last when the state was made.

        The next iteration continues there. Each other iteration begins with the first row.

        Raises
        ------
        InvalidInputError
            The state is of another version.
        """
        values = dict(state)
        if values.pop("version", None) != self._source.version:
            raise InvalidInputError(
                f"the state is of version {state.get('version')} of the table, not of "
                f"{self._source.version}; open that version"
            )
        self._epoch.fill_(values.pop("epoch"))
        self._start = self._position = ShardPosition(**values)

    def __iter__(self) -> Iterator[Any]:
        info = torch_data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        shard = self._shard_of(worker, workers)
        self._position, self._start = self._start, ShardPosition()
        shard_batches = batches(self._source.dataset, shard, self._reading, self._position)
        for batch, position in shard_batches:
            self._position = position
            yield batch if self._to_tensor is None else self._to_tensor(batch)
        self._position = ShardPosition()

    def _shard_of(self, worker: int, workers: int) -> Shard:
        rank, world_size = self._rank()
        granularity = self._shard[2]
        shuffle, seed = self._order
        return Shard(
            rank * workers + worker,
            world_size * workers,
            granularity,
            shuffle,
            seed,
            int(self._epoch),
        )

    def _rank(self) -> tuple[int, int]:
        """Return the number of this process among those that share the rows, and of all."""
        rank, world_size, _, detect = self._shard
        if rank is not None and world_size is not None:
            return rank, world_size
        if detect and dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        return 0, 1


class SafeLanceDataset(torch_data.Dataset):  # type: ignore[misc]
    """Rows of a table by position, as a map-style dataset of torch: dictionaries of values.

    Each worker opens the version for itself.

    Parameters
    ----------
    uri : Dataset, str or path
    dataset_options : mapping, optional
        Arguments of `open_dataset`, if a path is given.
    columns : sequence of str, optional
        By default all columns.
    """

    def __init__(
        self,
        uri: Dataset | str | os.PathLike[str],
        *,
        dataset_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._source = TableSource(uri, dataset_options)
        self._columns = columns
        self._num_rows = self._source.dataset.count_rows()

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several rows, which are read together."""
        rows: list[dict[str, Any]] = self._source.dataset.take(indices, self._columns).to_pylist()
        return rows


def get_safe_loader(
    dataset: torch_data.Dataset,
    batch_size: int | None = 32,
    num_workers: int = 4,
    **options: Any,
) -> torch_data.DataLoader:
    """Return a loader whose workers are spawned, and so share nothing with this process.

    Parameters
    ----------
    dataset : LanceDataset, SafeLanceDataset or another dataset
    batch_size : int, optional
        None for a `LanceDataset`, which makes the batches.
    num_workers : int
    options
        Other arguments of `torch.utils.data.DataLoader`.
    """
    if isinstance(dataset, LanceDataset):
        batch_size = None
    arguments: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers}
    if num_workers:
        arguments["persistent_workers"] = True
        arguments["multiprocessing_context"] = torch.multiprocessing.get_context("spawn")
    return torch_data.DataLoader(dataset, **{**arguments, **options})
