"""Codes of vectors in the order of partitions, on the local disk if they are many.

Codes are collected until they have some bytes. Then they are sorted by their partitions, and become
a *run*: a file of Arrow in a temporary folder. The rows of a partition are in one place of each
run, and are read without the rest of the file. The memory does not grow with the number of runs:
pages of their files that have been read are released.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.mutations.indexes.segment_files import local_folder
from lance_spark.scan.vectors.assignment import Numbers
from lance_spark.table.rows.u64_segments import UInt64Array

#: Bytes of a run. The memory has it three times, while it is sorted.
_RUN_BYTES = 32 * 1024 * 1024
#: Bytes of all runs that are read before pages of their files are released.
_READ_BYTES = 32 * 1024 * 1024
#: Releases the pages of a map, where the system has that.
_DONT_NEED = getattr(mmap, "MADV_DONTNEED", None)
_ID = "_rowid"


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
        Of the codes.
    """

    def __init__(self, num_partitions: int, schema: pa.Schema) -> None:
        self._num_partitions = num_partitions
        self._schema = schema
        self._parts: list[EncodedVectors] = []
        self._size = 0
        self._runs: list[tuple[pa.RecordBatch, npt.NDArray[np.int64]]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._maps: list[mmap.mmap] = []
        self._num_read = 0

    def __enter__(self) -> CodeRuns:
        return self

    def __exit__(
        self,
        error: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runs.clear()
        # The system removes a map with the last array of its bytes.
        self._maps.clear()
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
        return sum(run.num_rows for run, _ in self._runs)

    def partition(self, number: int) -> list[tuple[UInt64Array, pa.RecordBatch]]:
        """Return the row ids and the codes of one partition, in pieces."""
        pieces = []
        for run, bounds in self._runs:
            start, stop = int(bounds[number]), int(bounds[number + 1])
            if start < stop:
                rows = run.slice(start, stop - start)
                self._num_read += rows.nbytes
                codes = pa.RecordBatch.from_arrays(rows.columns[1:], schema=self._schema)
                pieces.append((rows.column(0).to_numpy(), codes))
        if self._num_read > _READ_BYTES:
            # The pieces stay valid.
            for file in self._maps:
                if _DONT_NEED is not None:
                    file.madvise(_DONT_NEED)
            self._num_read = 0
        return pieces

    def _sorted(self) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Return the collected vectors sorted by partition, and the first row of each partition."""
        numbers = np.concatenate([part.numbers for part in self._parts])
        ids = np.concatenate([part.ids for part in self._parts])
        codes = pa.concat_batches([part.codes for part in self._parts])
        self._parts.clear()
        self._size = 0
        narrow = numbers.astype(np.uint16) if self._num_partitions <= 1 << 16 else numbers
        order = np.argsort(narrow, kind="stable")
        sizes = np.bincount(numbers, minlength=self._num_partitions)
        columns = [pa.array(ids[order]), *codes.take(pa.array(order)).columns]
        names = [_ID, *self._schema.names]
        return pa.RecordBatch.from_arrays(columns, names), np.append(0, np.cumsum(sizes))

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="lance-index-", dir=local_folder())
        rows, bounds = self._sorted()
        path = os.path.join(self._folder.name, f"{len(self._runs)}.arrow")
        with pa.OSFile(path, "wb") as output, pa.ipc.new_file(output, rows.schema) as writer:
            writer.write_batch(rows)
        del rows
        # Nobody else writes to the file, so it can be mapped.
        with open(path, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._maps.append(content)
        self._runs.append((pa.ipc.open_file(pa.py_buffer(content)).get_batch(0), bounds))
