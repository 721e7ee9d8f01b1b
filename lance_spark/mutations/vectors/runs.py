"""Codes of vectors in the order of partitions, on the local disk if they are many.

Codes are collected until they have some bytes. Then they are sorted by their partitions, and become
a *run*: a file in a temporary folder, which has one row of bytes for each vector, its id and its
codes. The rows of a partition are in one place of each run, and are read without the rest of the
file. So the memory does not grow with the number of runs.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.mutations.indexes.segment_files import local_folder
from lance_spark.scan.vectors.assignment import Numbers
from lance_spark.storage.errors import translated
from lance_spark.storage.local import LocalSource
from lance_spark.storage.source import ByteRange
from lance_spark.table.rows.u64_segments import UInt64Array

#: Bytes of a run. The memory has it three times, while it is sorted.
_RUN_BYTES = 32 * 1024 * 1024
_ID = "_rowid"
#: Rows of bytes: ids and codes.
_Rows: TypeAlias = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class EncodedVectors:
    """Codes of vectors, with their partitions and row ids.

    Attributes
    ----------
    numbers : uint32 array
        Partition of each vector.
    ids : uint64 array
    codes : pa.RecordBatch
    loss : float
        Sum of the distances of the vectors from the centroids.
    """

    numbers: Numbers
    ids: UInt64Array
    codes: pa.RecordBatch
    loss: float


class CodeRuns:
    """Collects codes, and returns them partition after partition.

    Parameters
    ----------
    num_partitions : int
    schema : pa.Schema
        Of the codes: numbers, and lists of numbers of a fixed size, without nulls.
    """

    def __init__(self, num_partitions: int, schema: pa.Schema) -> None:
        self._num_partitions = num_partitions
        self._schema = schema
        self._parts: list[EncodedVectors] = []
        self._size = 0
        self._row = np.dtype([(_ID, np.uint64), *(_member(field) for field in schema)])
        self._runs: list[tuple[LocalSource | _Rows, npt.NDArray[np.int64]]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> CodeRuns:
        return self

    def __exit__(
        self,
        error: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for run, _ in self._runs:
            if isinstance(run, LocalSource):
                run.close()
        self._runs.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, part: EncodedVectors) -> None:
        """Add vectors."""
        if self._size and self._size + part.codes.nbytes > _RUN_BYTES:
            self._spill()
        self._parts.append(part)
        self._size += part.codes.nbytes + part.ids.nbytes + part.numbers.nbytes

    def finish(self) -> None:
        """Sort the last run: no more vectors are added."""
        if self._parts:
            self._runs.append(self._sorted())

    @property
    def num_rows(self) -> int:
        """Number of vectors, after `finish`."""
        return sum(int(bounds[-1]) for _, bounds in self._runs)

    def partition(self, number: int) -> list[tuple[UInt64Array, pa.RecordBatch]]:
        """Return the row ids and the codes of one partition, in pieces.

        Raises
        ------
        CorruptFileError, StorageError
            A file of the temporary folder cannot be read.
        """
        pieces = []
        for run, bounds in self._runs:
            start, stop = int(bounds[number]), int(bounds[number + 1])
            if start < stop:
                rows = self._rows(run, start, stop)
                pieces.append((np.ascontiguousarray(rows[_ID]), self._codes(rows)))
        return pieces

    def _rows(self, run: LocalSource | _Rows, start: int, stop: int) -> _Rows:
        if not isinstance(run, LocalSource):
            return run[start:stop]
        width = self._row.itemsize
        (data,) = run.read([ByteRange(start * width, (stop - start) * width)])
        return data.view(self._row)

    def _codes(self, rows: _Rows) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            values = pa.array(np.ascontiguousarray(rows[field.name]).reshape(-1))
            if pa.types.is_fixed_size_list(field.type):
                values = pa.FixedSizeListArray.from_arrays(values, type=field.type)
            columns.append(values)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _sorted(self) -> tuple[_Rows, npt.NDArray[np.int64]]:
        """Return the collected vectors sorted by partition, and the first row of each partition."""
        numbers = np.concatenate([part.numbers for part in self._parts])
        rows = np.empty(len(numbers), self._row)
        first = 0
        for part in self._parts:
            some = rows[first : first + len(part.ids)]
            some[_ID] = part.ids
            for field, column in zip(self._schema, part.codes.columns, strict=True):
                values = column.flatten() if pa.types.is_fixed_size_list(field.type) else column
                some[field.name] = values.to_numpy().reshape(some[field.name].shape)
            first += len(some)
        self._parts.clear()
        self._size = 0
        narrow = numbers.astype(np.uint16) if self._num_partitions <= 1 << 16 else numbers
        order = np.argsort(narrow, kind="stable")
        sizes = np.bincount(numbers, minlength=self._num_partitions)
        # The rows as bytes: numpy moves those of several columns by one column after the other.
        whole = rows.view(np.dtype((np.void, self._row.itemsize)))
        return whole[order].view(self._row), np.append(0, np.cumsum(sizes))

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="lance-index-", dir=local_folder())
        rows, bounds = self._sorted()
        path = os.path.join(self._folder.name, str(len(self._runs)))
        with translated(path):
            rows.tofile(path)
        self._runs.append((LocalSource(path, rows.nbytes), bounds))


def _member(field: pa.Field) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """Return the name, type and shape of a column in the rows of a run."""
    if pa.types.is_fixed_size_list(field.type):
        item = np.dtype(field.type.value_type.to_pandas_dtype())
        return field.name, item, (field.type.list_size,)
    return field.name, np.dtype(field.type.to_pandas_dtype()), ()
