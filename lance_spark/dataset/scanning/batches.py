"""Streams of record batches: a part of their rows, and other sizes of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def sliced(
    batches: Iterable[pa.RecordBatch], offset: int, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the first `offset` rows, at most `limit` of them."""
    if limit == 0:
        return
    for batch in batches:
        start = min(offset, batch.num_rows)
        offset -= start
        part = batch.slice(start, limit)
        if not part.num_rows:
            continue
        yield part
        if limit is not None:
            limit -= part.num_rows
            if limit <= 0:
                return


def of_bytes(batches: Iterable[pa.RecordBatch], num_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about that many bytes, by the average row of a batch."""
    for batch in batches:
        rows = max(1, num_bytes * batch.num_rows // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def of_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, num_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of exactly that many rows; the last one may have fewer."""
    waiting: list[pa.RecordBatch] = []
    missing = num_rows
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, missing)
            waiting.append(part)
            start += part.num_rows
            missing -= part.num_rows
            if not missing:
                yield _joined(waiting, schema)
                waiting, missing = [], num_rows
    if waiting:
        yield _joined(waiting, schema)


def _joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    if not len(schema):
        rows = sum(part.num_rows for part in parts)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    columns = [
        pa.concat_arrays([part.column(number) for part in parts]) for number in range(len(schema))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
