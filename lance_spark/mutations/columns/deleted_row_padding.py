"""What stands in new columns where rows are deleted: null, or the value of a row nearby."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lance_spark.table.rows.deletions import Offsets

#: Deleted rows that are written at once.
_FILL_ROWS = 65_536


class DeletedRowPadding:
    """Puts rows where deleted ones are.

    Parameters
    ----------
    with_nulls : bool
        Otherwise they get the value of a live row.
    """

    def __init__(self, with_nulls: bool) -> None:
        self._with_nulls = with_nulls
        self._row: pa.RecordBatch | None = None
        self._waiting = 0

    def fill(
        self, live: Sequence[pa.RecordBatch], deleted: Offsets, num_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield `num_rows` rows, with those of `live` where none is deleted.

        Rows that wait for the first live one come with it.
        """
        if not len(deleted):
            for batch in live:
                yield from self._late(batch)
                self._row = batch.slice(batch.num_rows - 1)
                yield batch
            return
        if not live:
            if self._row is None:
                self._waiting += num_rows
            else:
                yield from self._repeat(self._row, num_rows)
            return
        table = pa.Table.from_batches(live)
        keep = np.ones(num_rows, dtype=bool)
        keep[deleted] = False
        before = np.cumsum(keep) - 1
        indices = pa.array(np.maximum(before, 0), mask=~keep if self._with_nulls else None)
        for batch in table.slice(0, 1).combine_chunks().to_batches():
            yield from self._late(batch)
        filled = table.take(indices).combine_chunks()
        self._row = table.slice(table.num_rows - 1).combine_chunks().to_batches()[0]
        yield from filled.to_batches()

    def _late(self, row: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        waiting, self._waiting = self._waiting, 0
        if waiting:
            yield from self._repeat(row.slice(0, 1), waiting)

    def _repeat(self, row: pa.RecordBatch, num_rows: int) -> Iterator[pa.RecordBatch]:
        for position in range(0, num_rows, _FILL_ROWS):
            count = min(_FILL_ROWS, num_rows - position)
            indices = np.zeros(count, np.int64)
            mask = np.ones(count, dtype=bool) if self._with_nulls else None
            yield row.take(pa.array(indices, mask=mask))
