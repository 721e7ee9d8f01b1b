"""Sets of keys: those that hide older rows of the same keys.

A set has the keys of some SSTables and logs. Each task that needs one reads them itself, because
they can be larger than the task. Of an SSTable it reads those pages of the index of keys whose keys
are between the least and the greatest key of the rows that are looked up. If keys increase, a task
for old rows reads few of them. A process keeps what it read. The keys of a small log are in the
task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.errors import CorruptFileError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes.cache import CACHE
from lance_spark.mem_wal.entries import LogRows
from lance_spark.mem_wal.key_index import KeyPages, key_values
from lance_spark.predicates.comparison import values_at
from lance_spark.scan.task import ScanTask
from lance_spark.storage.parallel import read_all
from lance_spark.storage.uri import parse_uri
from lance_spark.table.paths import TablePaths

KeyPaths = tuple[tuple[Field, ...], ...]

#: Bytes of the keys of a log that are sent with a task.
_SENT_BYTES = 16 * 1024
#: Of an SSTable with fewer rows, the columns of the key take fewer requests than the index.
_FEW_ROWS = 8192
_ALL = range(1)


@dataclass(frozen=True)
class SsTableKeys:
    """The keys of an SSTable.

    - `task`: Reads all live rows: the last of each key, tombstones too.
    - `paths`: The columns of the key.
    - `has_index`: Whether these are the columns of the primary key, of which SSTables have an
      index.
    """

    task: ScanTask
    paths: KeyPaths
    has_index: bool = True

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("task", "paths", "has_index")}

    def pages(self, least: pa.Scalar, greatest: pa.Scalar) -> range:
        """Return the numbers of the pages that may have keys from one key to another."""
        return _ALL if self._index is None else self._index.between(least, greatest)

    def read(self, pages: range) -> list[pa.Array]:
        """Return the keys of some pages.

        Raises CorruptFileError, CorruptTableError, StorageError.
        """
        if self._index is not None:
            return self._index.read(pages)
        # The name of the folder of an SSTable has random digits.
        ids = ",".join(str(path[-1].id) for path in self.paths)
        return [CACHE.get((self.task.uri, f"keys {ids}", None), self._read_columns, _size)]

    @cached_property
    def _index(self) -> KeyPages | None:
        if not self.has_index or self.task.num_rows < _FEW_ROWS:
            return None
        dtype = pa.binary() if len(self.paths) > 1 else self.paths[0][-1].arrow_field.type
        paths = TablePaths.open(self.task.uri, self.task.storage_options)
        return KeyPages.open(paths, dtype, self.task.num_rows)

    def _read_columns(self) -> pa.Array:
        keys = replace(self.task, lance_schema=Schema.of_paths(self.paths))
        return _joined([keys_of(batch, self.paths) for batch in keys.batches()])


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of the rows of a log.

    - `paths`: The columns of the key.
    - `written`: When the version of the base table was written. Another MemWAL of the table, and a
      table that is created again, can have logs of the same names.
    - `values`: The keys, if they are few.
    """

    rows: LogRows
    paths: KeyPaths
    written: int
    values: pa.Array | None = None

    @classmethod
    def of(cls, rows: LogRows, paths: KeyPaths, written: int) -> LogKeys:
        """Return the keys of rows that were read."""
        values = pc.unique(_log_keys(rows, paths))
        return cls(rows, paths, written, values if values.nbytes <= _SENT_BYTES else None)

    def pages(self, least: pa.Scalar, greatest: pa.Scalar) -> range:
        """Return the number of the only page."""
        return _ALL

    def read(self, pages: range) -> list[pa.Array]:
        """Return the keys, in any order. Raises CorruptFileError, StorageError."""
        if self.values is not None:
            return [self.values]
        rows = self.rows
        name = f"keys of {rows.shard} {self.written} {rows.positions[0]} {rows.positions[-1]}"
        key = (rows.store.uri, name, len(rows.positions))
        return [CACHE.get(key, lambda: pc.unique(_log_keys(rows, self.paths)), _size)]


class _Loaded(NamedTuple):
    """The pages of each source that a set has read last, and their keys: integers in order."""

    pages: tuple[range, ...] = ()
    keys: pa.Array | npt.NDArray[np.generic] = pa.array([], pa.null())

    def has(self, pages: Sequence[range]) -> bool:
        """Return whether all of some pages are among these."""
        return len(pages) == len(self.pages) and all(map(_contains, self.pages, pages))


@dataclass(frozen=True)
class KeySet:
    """Keys of several sources.

    - `paths`: The columns of the key.
    """

    sources: tuple[SsTableKeys | LogKeys, ...]
    paths: KeyPaths
    _loaded: list[_Loaded] = field(default_factory=lambda: [_Loaded()], repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeySet, (self.sources, self.paths)

    def has(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which rows of a batch have a key of the set."""
        return self._has(keys_of(batch, self.paths))

    def has_any(self, columns: Sequence[pa.Array]) -> bool:
        """Return whether the set has one of some keys, given by the columns of the key."""
        return bool(self._has(key_values(columns)).any())

    def _has(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        least, greatest = pc.min_max(keys).values() if len(keys) else (pa.scalar(None),) * 2
        if not least.is_valid:
            return np.zeros(len(keys), np.bool_)
        known = self._keys_between(least, greatest)
        if not len(known):
            return np.zeros(len(keys), np.bool_)
        if keys.null_count:
            # numpy would make inexact floats of integers.
            known = pa.array(known)
        if isinstance(known, pa.Array):
            is_known: npt.NDArray[np.bool_] = pc.is_in(keys, value_set=known).to_numpy(
                zero_copy_only=False
            )
            return is_known
        numbers = keys.to_numpy(zero_copy_only=False)
        # Keys of rows that are near one another are often near one another, too.
        first = np.searchsorted(known, numbers.min())
        stop = np.searchsorted(known, numbers.max(), side="right")
        candidates = known[first:stop]
        if not len(candidates):
            return np.zeros(len(keys), np.bool_)
        places = np.searchsorted(candidates, numbers)
        places[places == len(candidates)] = 0
        return np.asarray(candidates[places] == numbers)

    def _keys_between(
        self, least: pa.Scalar, greatest: pa.Scalar
    ) -> pa.Array | npt.NDArray[np.generic]:
        """Return at least the keys from one key to another; integers in order."""
        # Several threads can use the set: what is kept is replaced as a whole.
        (loaded,) = self._loaded
        pages = tuple(source.pages(least, greatest) for source in self.sources)
        if loaded.has(pages):
            return loaded.keys
        if len(loaded.pages) == len(pages) and any(map(_has_common, loaded.pages, pages)):
            pages = tuple(map(_hull, loaded.pages, pages))
        parts = read_all(
            lambda source_and_pages: source_and_pages[0].read(source_and_pages[1]),
            [pair for pair in zip(self.sources, pages, strict=True) if len(pair[1])],
            local=all(_is_local(source) for source in self.sources),
        )
        # A null is the key of no other row.
        keys = _joined([array for part in parts for array in part]).drop_null()
        if pat.is_integer(keys.type):
            # A search in order does not read all of them.
            keys = np.sort(keys.to_numpy(zero_copy_only=False))
        self._loaded[0] = _Loaded(pages, keys)
        return keys


def _contains(outer: range, inner: range) -> bool:
    return not inner or (outer.start <= inner.start and inner.stop <= outer.stop)


def _has_common(first: range, second: range) -> bool:
    """Return whether two ranges have more in common than their edges."""
    return min(first.stop, second.stop) - max(first.start, second.start) > 1


def _hull(first: range, second: range) -> range:
    if not first or not second:
        return first or second
    return range(min(first.start, second.start), max(first.stop, second.stop))


def _is_local(source: SsTableKeys | LogKeys) -> bool:
    if isinstance(source, LogKeys):
        return source.rows.store.is_local
    return parse_uri(source.task.uri).is_local


def _size(values: pa.Array) -> int:
    return int(values.nbytes)


def _log_keys(rows: LogRows, paths: KeyPaths) -> pa.Array:
    read = rows.read(Schema.of_paths(paths).fields)
    batches = read.to_batches()
    for path in paths:
        if any(values_at(batch, path).null_count for batch in batches):
            name = ".".join(node.name for node in path)
            raise CorruptFileError(
                f"{rows.store.display}: the log of shard {rows.shard} has rows without a value of "
                f"key column {name!r}, which its writer must not write; read without fresh rows"
            )
    return _joined([keys_of(batch, paths) for batch in batches])


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
