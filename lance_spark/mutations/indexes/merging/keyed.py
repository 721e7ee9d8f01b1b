"""BITMAP, LABEL_LIST and NGRAM segments merged: the rows of a key are those of all segments.

Keys are merged in order, so that only the sets of some keys are in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.file.writer import FileWriter
from lance_spark.mutations.indexes.checks.rows import flags, ordered
from lance_spark.mutations.indexes.merging.sorted_runs import SortedRun, merged, out_of_order
from lance_spark.mutations.indexes.merging.sources import KeptRows, SegmentSource
from lance_spark.scan.indexes import bitmap
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.scan.indexes.row_sets import RowSet

#: Returns the stored set of the rows that stay, of stored sets and what stays of each; None if no
#: row stays.
_Union = Callable[[Sequence[tuple[bytes, KeptRows | None]], str], "bytes | None"]


def has_sorted_keys(files: IndexFiles, dtype: pa.DataType) -> bool:
    """Return whether the keys of a segment have a type, and ascend.

    Early releases of pylance write the keys in any order.
    """
    keys = bitmap.read_keys(files)
    return keys.type == dtype and not out_of_order(keys, unique=True).any()


def merge_sets(
    segment: SegmentWriter, dtype: pa.DataType, sources: Sequence[SegmentSource]
) -> FileWriter:
    """Write the file of sets of rows by value, without finishing it."""
    schema = bitmap.schema_of(dtype)
    writer = segment.create(bitmap.FILE, schema)
    layout = KeyedFile(bitmap.FILE, bitmap.KEYS, bitmap.BITMAPS, dtype, _union_of_sets)
    bitmap.set_statistics(writer, merge_keys(writer, schema, sources, layout))
    return writer


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """A file with a row for each key, sorted by the keys.

    Attributes
    ----------
    file, key, value : str
        Names of the file, and of its columns.
    dtype : pa.DataType
        Type of the keys.
    union : callable
    """

    file: str
    key: str
    value: str
    dtype: pa.DataType
    union: _Union


def merge_keys(
    writer: FileWriter, schema: pa.Schema, sources: Sequence[SegmentSource], layout: KeyedFile
) -> int:
    """Write the keys of all sources; return their number."""
    count = 0
    with ExitStack() as stack:
        runs = []
        for number, source in enumerate(sources):
            file = stack.enter_context(closing(source.files.open(layout.file)))
            fields = [named(file, layout.key, layout.dtype), named(file, layout.value, pa.binary())]
            runs.append(SortedRun(file, fields, True, _SourceNumber(number, file.source.name)))
        for batch in merged(runs):
            keys, sets = _combined(batch, sources, layout)
            writer.write(pa.RecordBatch.from_arrays([keys, sets], schema=schema))
            count += len(keys)
    return count


@dataclass(frozen=True, slots=True)
class _SourceNumber:
    """Adds the number of the source to the rows of a window."""

    number: int
    name: str

    def __call__(self, window: pa.RecordBatch) -> pa.RecordBatch:
        keys, sets = window.columns
        if sets.null_count:
            raise CorruptFileError(
                f"{self.name}: {window.schema.names[1]} must not be null; create the index again"
            )
        numbers = pa.array(np.full(len(keys), self.number))
        return pa.RecordBatch.from_arrays([keys, sets, numbers], ["key", "set", "source"])


def _combined(
    batch: pa.RecordBatch, sources: Sequence[SegmentSource], layout: KeyedFile
) -> tuple[pa.Array, pa.Array]:
    """Return the keys of which rows stay, and their sets."""
    import pyarrow.compute as pc

    keys, sets, numbers = batch.columns
    sortable, is_null = ordered(keys), flags(keys.is_null())
    is_same = flags(pc.equal(sortable[1:], sortable[:-1])) | (is_null[1:] & is_null[:-1])
    starts = np.flatnonzero(np.concatenate([[True], ~is_same]))
    bounds = [*starts.tolist(), len(keys)]
    kept = [sources[number].kept for number in numbers.to_pylist()]
    if len(starts) == len(keys) and not any(kept):
        return keys, sets
    items = sets.to_pylist()
    name = sources[0].files.segment.name or layout.file
    united = [
        layout.union(list(zip(items[start:stop], kept[start:stop], strict=True)), name)
        for start, stop in itertools.pairwise(bounds)
    ]
    stays = np.flatnonzero([data is not None for data in united])
    remaining = [united[place] for place in stays.tolist()]
    return keys.take(pa.array(starts[stays])), pa.array(remaining, pa.binary())


def _union_of_sets(parts: Sequence[tuple[bytes, KeptRows | None]], name: str) -> bytes | None:
    rows = [(RowSet.decode(data, name), kept) for data, kept in parts]
    union = RowSet.union(part if kept is None else kept.of_set(part) for part, kept in rows)
    return union.encode() if union.num_rows else None
