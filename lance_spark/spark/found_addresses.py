"""Rows that Spark finds: addresses in, bitmaps by fragment out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.changes.rows_at import by_fragment
from lance_spark.table.deletion_writer import bitmap_of, encode_bitmap
from lance_spark.table.segments import Words


@dataclass(frozen=True, slots=True)
class FindRows:
    """Collects the addresses of a partition, whose first column they are: one mapping of fragments to bitmaps, if there are any."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[int, bytes]]:
        """Yield the offsets of the rows by fragment, as Roaring bitmaps."""
        found: dict[int, BitMap] = {}
        for batch in batches:
            for number, offsets in by_fragment(np.unique(addresses_of(batch))):
                rows = found.setdefault(number, BitMap())
                rows |= bitmap_of(offsets)
        if found:
            yield {number: encode_bitmap(rows) for number, rows in found.items()}


def addresses_of(batch: pa.RecordBatch) -> Words:
    """Return the first column of a batch, in which Spark has addresses as signed numbers."""
    numbers: Words = np.ascontiguousarray(batch.column(0).to_numpy()).view(np.uint64)
    return numbers
