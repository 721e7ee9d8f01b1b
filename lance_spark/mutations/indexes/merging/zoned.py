"""ZONEMAP and BLOOMFILTER segments merged: the zones of the fragments that stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.mutations.indexes.merging.sources import KeptRows, SegmentSource
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.files import buffer_in, named
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.scan.indexes.zoned.zones import (
    NULL_BITMAP,
    PLACE_COLUMNS,
    with_integers,
)

#: Bytes of zones that are copied at once.
_BATCH_BYTES = 8 * 1024 * 1024


def copy_zones(
    sources: Sequence[SegmentSource],
    name: str,
    schema: pa.Schema,
    write: Callable[[pa.RecordBatch], object],
) -> RowSet:
    """Write the zones that stay; return the rows of them that are null.

    The zones of a fragment are in one source, or in consecutive sources.
    """
    nulls = []
    for source in sources:
        with closing(source.files.open(name)) as file:
            for batch in _zones(file, schema, source.kept):
                write(batch)
            rows = RowSet.decode(buffer_in(file, NULL_BITMAP), file.source.name)
        fragments = rows.bitmaps if source.kept is None else source.kept.fragments
        nulls.append(
            RowSet({high: rows.bitmaps[high] for high in rows.bitmaps if high in fragments})
        )
    return RowSet.union(nulls)


def _zones(
    file: DataFileReader, schema: pa.Schema, kept: KeptRows | None
) -> Iterator[pa.RecordBatch]:
    """Yield the zones of a file that stay."""
    fields = [named(file, name) for name in schema.names]
    name = PLACE_COLUMNS[0]
    (fragment_ids,) = file.read([named(file, name)], all_rows(file))
    rows = np.arange(file.num_rows)
    if kept is not None:
        (ids,) = with_integers(pa.table([fragment_ids], [name]), [name], file.source.name).columns
        rows = rows[np.isin(ids.to_numpy(), np.frombuffer(kept.fragments.to_array(), np.uint32))]
    count = max(_BATCH_BYTES * file.num_rows // max(file.source.size, 1), 1)
    for start in range(0, len(rows), count):
        columns = file.read(fields, rows[start : start + count])
        try:
            columns = [
                column.cast(field.type) for column, field in zip(columns, schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            batch.validate()
        except pa.ArrowException as error:
            raise CorruptFileError(f"{file.source.name}: {error}; create the index again") from None
        if any(
            column.null_count and not field.nullable
            for column, field in zip(columns, schema, strict=True)
        ):
            raise CorruptFileError(f"{file.source.name}: a column is null; create the index again")
        yield batch
