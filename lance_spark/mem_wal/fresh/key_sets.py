"""Sets of keys: those that hide older rows of the same keys.

A set has the keys of some SSTables and logs. Each task that needs one reads them itself, because
they can be larger than the task; a process keeps those that it read last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.key_index import key_values
from lance_spark.mem_wal.log_rows import LogRows
from lance_spark.scan.predicates.comparison import values_at
from lance_spark.scan.task import ScanTask

KeyPaths = tuple[tuple[Field, ...], ...]

#: Bytes of keys of SSTables that a process keeps.
_KEPT_BYTES = 64 * 1024 * 1024
_lock = threading.Lock()
_kept: OrderedDict[Hashable, pa.Array] = OrderedDict()


@dataclass(frozen=True, slots=True)
class SsTableKeys:
    """The keys of an SSTable.

    Attributes
    ----------
    task : ScanTask
        Reads all live rows: the last of each key, tombstones too.
    paths : tuple of tuple of Field
        The columns of the key.
    """

    task: ScanTask
    paths: KeyPaths

    def read(self) -> pa.Array:
        """Return the keys, in any order."""
        # The name of the folder of an SSTable has random digits.
        name = (self.task.uri, tuple(path[-1].id for path in self.paths))
        with _lock:
            if name in _kept:
                _kept.move_to_end(name)
                return _kept[name]
        keys = replace(self.task, lance_schema=Schema.of_paths(self.paths))
        values = _joined([keys_of(batch, self.paths) for batch in keys.batches()])
        with _lock:
            _kept[name] = values
            while sum(array.nbytes for array in _kept.values()) > _KEPT_BYTES:
                _kept.popitem(last=False)
        return values


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of the rows of a log."""

    rows: LogRows
    paths: KeyPaths

    def read(self) -> pa.Array:
        """Return the keys, in order, with repetitions."""
        rows = self.rows.read(Schema.of_paths(self.paths).fields)
        return _joined([keys_of(batch, self.paths) for batch in rows.to_batches()])


@dataclass(frozen=True)
class KeySet:
    """Keys of several sources.

    Attributes
    ----------
    sources : tuple of SsTableKeys or LogKeys
    paths : tuple of tuple of Field
        The columns of the key.
    """

    sources: tuple[SsTableKeys | LogKeys, ...]
    paths: KeyPaths

    def __getstate__(self) -> dict[str, Any]:
        return {"sources": self.sources, "paths": self.paths}

    def has(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which rows of a batch have a key of the set."""
        keys = keys_of(batch, self.paths)
        if not len(keys) or not len(self._values):
            return np.zeros(len(keys), np.bool_)
        if self._numbers is None:
            found: npt.NDArray[np.bool_] = pc.is_in(keys, value_set=self._values).to_numpy(
                zero_copy_only=False
            )
            return found
        numbers = keys.to_numpy(zero_copy_only=False)
        # Keys of rows that are near one another are often near one another, too.
        first = np.searchsorted(self._numbers, numbers.min())
        stop = np.searchsorted(self._numbers, numbers.max(), side="right")
        candidates = self._numbers[first:stop]
        if not len(candidates):
            return np.zeros(len(keys), np.bool_)
        places = np.searchsorted(candidates, numbers)
        places[places == len(candidates)] = 0
        return np.asarray(candidates[places] == numbers)

    def has_any(self, columns: Sequence[pa.Array]) -> bool:
        """Return whether the set has one of some keys, given by the columns of the key."""
        keys = key_values(columns)
        if not len(keys) or not len(self._values):
            return False
        return bool(pc.any(pc.is_in(keys, value_set=self._values)).as_py())

    @cached_property
    def _values(self) -> pa.Array:
        return _joined([source.read() for source in self.sources])

    @cached_property
    def _numbers(self) -> npt.NDArray[Any] | None:
        """The keys in order, if they are integers: a search does not read all of them."""
        if not pat.is_integer(self._values.type):
            return None
        return np.unique(self._values.to_numpy(zero_copy_only=False))


def keys_of(batch: pa.RecordBatch, paths: KeyPaths) -> pa.Array:
    """Return the keys of rows: the values of the only column, or bytes of several columns."""
    columns = [values_at(batch, path) for path in paths]
    return key_values(
        [
            column.dictionary_decode() if pat.is_dictionary(column.type) else column
            for column in columns
        ]
    )


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    arrays = [array for array in arrays if len(array)]
    if not arrays:
        return pa.array([], pa.null())
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
