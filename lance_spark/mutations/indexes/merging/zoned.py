"""ZONEMAP and BLOOMFILTER segments merged: the zones of the fragments that stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.mutations.indexes.merging.sources import KeptRows, Source
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter, buffer_in, named, number_in
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.scan.indexes.zoned import bloom_filter, zone_map
from lance_spark.scan.indexes.zoned.zones import (
    NULL_BITMAP,
    PLACE_COLUMNS,
    set_null_bitmap,
    with_integers,
)

#: Bytes of zones that are copied at once.
_BATCH_BYTES = 8 * 1024 * 1024


def can_merge_zone_maps(
    files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]
) -> bool:
    """Return whether zones have the size of the new segment, and known nulls; see `Merging`."""
    with closing(files.open(zone_map.FILE)) as file:
        rows = number_in(file, "rows_per_zone", 0)
        bounds = [named(file, name).arrow_field.type for name in zone_map.BOUND_COLUMNS]
        is_same = rows == parameters["rows_per_zone"] and bounds == [dtype, dtype]
        return is_same and NULL_BITMAP in file.schema.metadata


def can_merge_filters(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    """Return whether zones have the size of the new segment, and known nulls; see `Merging`."""
    with closing(files.open(bloom_filter.FILE)) as file:
        rows = number_in(file, "bloomfilter_item", 0)
        return rows == parameters["number_of_items"] and NULL_BITMAP in file.schema.metadata


def merge_zone_maps(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[Source],
    parameters: Mapping[str, Any],
) -> None:
    """Write the file of a ZONEMAP segment; see `Merging`."""
    schema = zone_map.schema_of(dtype)
    writer = segment.create(zone_map.FILE, schema)
    nulls = _copy(sources, zone_map.FILE, schema, writer.write)
    zone_map.set_parameters(writer, parameters["rows_per_zone"])
    set_null_bitmap(writer, nulls)


def merge_filters(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[Source],
    parameters: Mapping[str, Any],
) -> None:
    """Write the file of a BLOOMFILTER segment; see `Merging`."""
    writer = segment.create(bloom_filter.FILE, bloom_filter.SCHEMA)
    nulls = _copy(sources, bloom_filter.FILE, bloom_filter.SCHEMA, writer.write)
    bloom_filter.set_parameters(writer, parameters["number_of_items"], parameters["probability"])
    set_null_bitmap(writer, nulls)


def _copy(
    sources: Sequence[Source],
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
