"""Values of new columns in deleted rows: null, or the value of a live row nearby."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lance_spark.file.schema.schema import Schema
from lance_spark.table.rows.deletions import Offsets

#: Maximum number of deleted rows in a batch.
_FILL_ROWS = 65_536


class DeletedRowPadding:
    """Adds rows to new columns in the place of deleted rows.

    Parameters
    ----------
    schema : Schema
        The new columns. If all are nullable, deleted rows get nulls; else they repeat a live row.
    file_version : tuple of int
        Version of the data files.
    """

    def __init__(self, schema: Schema, file_version: tuple[int, int]) -> None:
        # Files of version 2.0 cannot store null structs.
        self._with_nulls = file_version > (2, 0) and all(field.nullable for field in schema.fields)
        self._row: pa.RecordBatch | None = None
        self._pending_rows = 0

    def fill(
        self, live: Sequence[pa.RecordBatch], deleted: Offsets, num_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield `num_rows` rows: the rows of `live`, and padding at the offsets `deleted`.

        If no live row is known yet, the padding is yielded by the call that has the first one.
        """
        if not len(deleted):
            for batch in live:
                yield from self._pending(batch)
                self._row = batch.slice(batch.num_rows - 1)
                yield batch
            return
        if not live:
            if self._row is None:
                self._pending_rows += num_rows
            else:
                yield from self._repeat(self._row, num_rows)
            return
        table = pa.Table.from_batches(live)
        is_live = np.ones(num_rows, dtype=bool)
        is_live[deleted] = False
        live_index = np.cumsum(is_live) - 1
        indices = pa.array(np.maximum(live_index, 0), mask=~is_live if self._with_nulls else None)
        for batch in table.slice(0, 1).combine_chunks().to_batches():
            yield from self._pending(batch)
        filled = table.take(indices).combine_chunks()
        self._row = table.slice(table.num_rows - 1).combine_chunks().to_batches()[0]
        yield from filled.to_batches()

    def _pending(self, row: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        count, self._pending_rows = self._pending_rows, 0
        if count:
            yield from self._repeat(row.slice(0, 1), count)

    def _repeat(self, row: pa.RecordBatch, num_rows: int) -> Iterator[pa.RecordBatch]:
        for position in range(0, num_rows, _FILL_ROWS):
            count = min(_FILL_ROWS, num_rows - position)
            indices = np.zeros(count, np.int64)
            mask = np.ones(count, dtype=bool) if self._with_nulls else None
            yield row.take(pa.array(indices, mask=mask))
