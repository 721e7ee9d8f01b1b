"""BTREE segments merged: their pages are read in order, and written as pages of one segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.mutations.indexes.merging.sorted_runs import SortedRun, merged
from lance_spark.mutations.indexes.merging.sources import KeptRows, SegmentSource
from lance_spark.scan.indexes.btree import (
    DATA_COLUMNS,
    DATA_FILE,
    LOOKUP_FILE,
    VALUES,
    BTreeWriter,
    ids_field,
    is_known_data,
    is_known_layout,
)
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter, named


def can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    """Return whether the layout of a segment is known; see `Merging`."""
    with closing(files.open(LOOKUP_FILE)) as lookup, closing(files.open(DATA_FILE)) as data:
        return (
            is_known_layout(lookup)
            and is_known_data(data)
            and named(data, VALUES).arrow_field.type == dtype
        )


def merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    """Write the files of a segment; see `Merging`. The memory does not depend on their size."""
    writer = BTreeWriter(segment, dtype, parameters["zone_size"])
    with ExitStack() as stack:
        runs = []
        for source in sources:
            data = stack.enter_context(closing(source.files.open(DATA_FILE)))
            fields = [named(data, VALUES, dtype), ids_field(data)]
            runs.append(SortedRun(data, fields, False, _Keep(source.kept, data.source.name)))
        for batch in merged(runs):
            writer.write(*batch.columns)
    writer.finish()


class _Keep:
    """Returns the rows of a window that stay, with their ids or newest addresses."""

    def __init__(self, kept: KeptRows | None, name: str) -> None:
        self._kept, self._name = kept, name

    def __call__(self, window: pa.RecordBatch) -> pa.RecordBatch:
        values, ids = window.columns
        if ids.null_count:
            raise CorruptFileError(f"{self._name}: ids must not be null; create the index again")
        if self._kept is not None:
            row_keys, stays = self._kept.rows(ids.to_numpy())
            ids = pa.array(row_keys)
            if not stays.all():
                places = pa.array(np.flatnonzero(stays))
                values, ids = values.take(places), ids.take(places)
        return pa.RecordBatch.from_arrays([values, ids], DATA_COLUMNS)
