"""Rows of an Arrow table whose columns may hold more than 2 GiB.

Arrow makes one array of all chunks of a column before it takes rows out, and offsets of 32 bits do
not number more than 2 GiB. Here rows are taken out of each chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.file.schema.nested import Lengths
from lance_spark.scan.fragment.column_reader import cuts, halved

#: Bytes of rows that are taken together, and most rows.
_STEP_BYTES = 64 * 1024 * 1024
_STEP_ROWS = 65_536
Indexes = npt.NDArray[np.int64]


class ChunkedRows:
    """Takes rows of a table."""

    def __init__(self, table: pa.Table) -> None:
        self._schema = table.schema
        self._batches = [batch for batch in table.to_batches() if batch.num_rows]
        self._ends = np.cumsum([batch.num_rows for batch in self._batches], dtype=np.int64)
        row_bytes = [batch.nbytes / batch.num_rows for batch in self._batches]
        self._row_bytes: Lengths = np.ceil(row_bytes).astype(np.int64)

    def sizes(self, rows: Indexes) -> Lengths:
        """Return about how many bytes some rows have, by the average row of their chunk."""
        if not self._batches:
            return np.zeros(len(rows), np.int64)
        return self._row_bytes[self._chunks_of(rows)]

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
        for part in parts(self.sizes(rows)):
            for begin, table in halved(lambda piece: self.take(rows[piece]), part):
                yield begin, table.combine_chunks().to_batches()[0]

    def _chunks_of(self, rows: Indexes) -> Indexes:
        chunks: Indexes = np.searchsorted(self._ends, rows, side="right")
        return chunks


def parts(sizes: Lengths) -> Iterator[slice]:
    """Yield slices of rows that are taken together, by the bytes of each row."""
    return cuts(sizes, _STEP_BYTES, _STEP_ROWS)
