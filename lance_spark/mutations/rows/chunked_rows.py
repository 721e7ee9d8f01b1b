"""Rows of an Arrow table whose columns may hold more than 2 GiB.

Arrow makes one array of all chunks of a column before it takes rows out, and offsets of 32 bits do
not number more than 2 GiB. Here rows are taken out of each chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Bytes of rows that are taken together, and most rows.
_STEP_BYTES = 64 * 1024 * 1024
_STEP_ROWS = 65_536
Indexes = npt.NDArray[np.int64]


class ChunkedRows:
    """Takes rows of a table.

    Parameters
    ----------
    table : pa.Table
    """

    def __init__(self, table: pa.Table) -> None:
        self._schema = table.schema
        self._batches = [batch for batch in table.to_batches() if batch.num_rows]
        self._ends = np.cumsum([batch.num_rows for batch in self._batches], dtype=np.int64)
        self._row_bytes = np.array([batch.nbytes / batch.num_rows for batch in self._batches])

    def sizes(self, rows: Indexes) -> npt.NDArray[np.float64]:
        """Return about how many bytes some rows have, by the average row of their chunk."""
        if not self._batches:
            return np.zeros(len(rows))
        sizes: npt.NDArray[np.float64] = self._row_bytes[self._chunks_of(rows)]
        return sizes

    def take(self, rows: Indexes) -> pa.Table:
        """Return rows in the given order, in one chunk if they are fewer than 2 GiB."""
        if not self._batches or not len(rows):
            # A table without columns has no chunks.
            return pa.Table.from_batches([], self._schema)
        chunks = self._chunks_of(rows)
        order = np.argsort(chunks, kind="stable")
        numbers, starts = np.unique(chunks[order], return_index=True)
        parts = []
        for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            batch = self._batches[number]
            first = int(self._ends[number]) - batch.num_rows
            parts.append(batch.take(pa.array(rows[places] - first)))
        table = pa.Table.from_batches(parts, self._schema).combine_chunks()
        if np.array_equal(order, np.arange(len(order))):
            return table
        return table.take(pa.array(np.argsort(order)))

    def steps(self, rows: Indexes) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of some rows, each with the number of its first row among them."""
        for start, stop in steps_of(self.sizes(rows)):
            for begin, table in self._halved(rows, start, stop):
                yield begin, table.combine_chunks().to_batches()[0]

    def _halved(self, rows: Indexes, start: int, stop: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield rows at once, or in parts if they are more than an array of their type holds."""
        try:
            table = self.take(rows[start:stop])
        except pa.ArrowInvalid:
            # The sizes are those of average rows.
            if stop - start < 2:
                raise
        else:
            yield start, table
            return
        middle = (start + stop) // 2
        yield from self._halved(rows, start, middle)
        yield from self._halved(rows, middle, stop)

    def _chunks_of(self, rows: Indexes) -> Indexes:
        chunks: Indexes = np.searchsorted(self._ends, rows, side="right")
        return chunks


def steps_of(sizes: npt.NDArray[np.float64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with about 64 MiB each, given the bytes of each row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = float(ends[start - 1]) if start else 0.0
        stop = int(np.searchsorted(ends, before + _STEP_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _STEP_ROWS)
        yield start, stop
        start = stop
