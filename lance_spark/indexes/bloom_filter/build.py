"""How BLOOMFILTER indexes are built, merged and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.indexes import zones
from lance_spark.indexes.bloom_filter import files as bloom_filter
from lance_spark.indexes.builds import Builder
from lance_spark.indexes.checks import ColumnCheck, CoveredRows, Findings, flags
from lance_spark.indexes.files import IndexFiles, SegmentWriter, number_in
from lance_spark.indexes.merges import Merging, SegmentSource
from lance_spark.indexes.zone_segments import SegmentZoneRows, copy_zones
from lance_spark.indexes.zones import NULL_BITMAP, set_null_bitmap
from lance_spark.table.rows.u64_segments import UInt64Array


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    bloom_filter.write(
        segment, values, ids, parameters["number_of_items"], parameters["probability"]
    )


def _existing(files: IndexFiles) -> dict[str, Any]:
    """Return the rows of a filter, and the probability of an answer in vain."""
    with closing(files.open(bloom_filter.FILE)) as file:
        rows = number_in(file, "bloomfilter_item", zones.DEFAULT_ROWS)
        text = file.schema.metadata.get("bloomfilter_probability", b"")[:40]
    try:
        probability = float(text) if text else bloom_filter.DEFAULT_PROBABILITY
    except ValueError:
        raise CorruptFileError(
            f"{file.source.name}: bloomfilter_probability={text!r} must be a number; rebuild the "
            "index"
        ) from None
    return {"number_of_items": rows, "probability": probability}


def _can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    """Return whether zones have the size of the new segment, and known nulls; see `Merging`."""
    with closing(files.open(bloom_filter.FILE)) as file:
        rows = number_in(file, "bloomfilter_item", 0)
        return rows == parameters["number_of_items"] and NULL_BITMAP in file.schema.metadata


def _merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    """Write the file of a BLOOMFILTER segment; see `Merging`."""
    writer = segment.create(bloom_filter.FILE, bloom_filter.SCHEMA)
    nulls = copy_zones(sources, bloom_filter.FILE, bloom_filter.SCHEMA, writer.write)
    bloom_filter.set_parameters(writer, parameters["number_of_items"], parameters["probability"])
    set_null_bitmap(writer, nulls)


def _check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment of a BLOOMFILTER index with its rows.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    content = bloom_filter.read_file(files)
    if not bloom_filter.supports(rows.values.type):
        raise CorruptFileError(
            f"index {files.segment.name!r}: no Bloom filter has values of type "
            f"{rows.values.type}; drop the index"
        )
    zoned = SegmentZoneRows.of(content.zones, rows, findings)
    has_null = flags(content.zones[bloom_filter.HAS_NULL].combine_chunks())
    zoned.note(
        ~has_null & (zoned.counts(zoned.is_null) > 0),
        "has_null is false, but it has nulls",
        findings,
    )
    # No search looks for NaN in a filter.
    live = np.flatnonzero(~zoned.is_null & ~zoned.is_nan & zoned.is_inside)
    live = live[np.argsort(zoned.zone[live], kind="stable")]
    values = rows.values.take(pa.array(live))
    is_there = bloom_filter.has_each(files, content, zoned.zone[live], values)
    wrong = live[~is_there]
    findings.wrong += len(wrong)
    findings.add(
        rows.problem(number, f"the filter of zone {zoned.zone[number]} does not have the value")
        for number in wrong.tolist()
    )


BUILDER = Builder(
    "BLOOMFILTER",
    _write,
    bloom_filter.supports,
    with_addresses=True,
    defaults={
        "number_of_items": zones.DEFAULT_ROWS,
        "probability": bloom_filter.DEFAULT_PROBABILITY,
    },
    existing=_existing,
    merging=Merging(_can_merge, _merge),
)
CHECK = ColumnCheck(_check)
