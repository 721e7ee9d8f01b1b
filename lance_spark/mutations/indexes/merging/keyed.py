"""BITMAP, LABEL_LIST and NGRAM segments merged: the rows of a key are those of all segments.

Keys are merged in order, so that only the sets of some keys are in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from lance_spark.errors import CorruptFileError
from lance_spark.file.writer import FileWriter
from lance_spark.mutations.indexes.checks.rows import flags, ordered
from lance_spark.mutations.indexes.merging.sorted_runs import SortedRun, merged, out_of_order
from lance_spark.mutations.indexes.merging.sources import KeptRows, Source
from lance_spark.scan.indexes import bitmap, label_list, ngram
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter, buffer_in, named
from lance_spark.scan.indexes.row_sets import RowSet

#: Returns the stored set of the rows that stay, of stored sets and what stays of each; None if no
#: row stays.
_Union = Callable[[Sequence[tuple[bytes, KeptRows | None]], str], "bytes | None"]


def can_merge_bitmaps(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    """Return whether a BITMAP segment can be merged; see `Merging`."""
    return _has_sorted_keys(files, dtype)


def can_merge_lists(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    """Return whether a LABEL_LIST segment can be merged; see `Merging`."""
    with closing(files.open(bitmap.FILE)) as file:
        has_nulls = label_list.NULLS in file.schema.metadata
    return has_nulls and _has_sorted_keys(files, dtype.value_type)


def can_merge_ngrams(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    """Return whether an NGRAM segment can be merged; see `Merging`."""
    return True


def merge_bitmaps(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[Source],
    parameters: Mapping[str, Any],
) -> None:
    """Write the file of a BITMAP segment; see `Merging`."""
    _merge_sets(segment, dtype, sources)


def merge_lists(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[Source],
    parameters: Mapping[str, Any],
) -> None:
    """Write the file of a LABEL_LIST segment; see `Merging`."""
    nulls = []
    for source in sources:
        with closing(source.files.open(bitmap.FILE)) as file:
            data = buffer_in(file, label_list.NULLS)
            rows = RowSet.decode(data, file.source.name)
        nulls.append(rows if source.kept is None else source.kept.of_set(rows))
    writer = _merge_sets(segment, dtype.value_type, sources)
    label_list.set_nulls(writer, RowSet.union(nulls))


def merge_ngrams(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[Source],
    parameters: Mapping[str, Any],
) -> None:
    """Write the file of an NGRAM segment; see `Merging`."""
    layout = _Layout(ngram.FILE, ngram.TOKENS, ngram.POSTINGS, pa.uint32(), _union_of_postings)
    _merge(ngram.create(segment), ngram.SCHEMA, sources, layout)


def _has_sorted_keys(files: IndexFiles, dtype: pa.DataType) -> bool:
    """Return whether the keys of a segment have a type, and ascend.

    Early releases of pylance write the keys in any order.
    """
    keys = bitmap.read_keys(files)
    return keys.type == dtype and not out_of_order(keys, unique=True).any()


def _merge_sets(
    segment: SegmentWriter, dtype: pa.DataType, sources: Sequence[Source]
) -> FileWriter:
    schema = bitmap.schema_of(dtype)
    writer = segment.create(bitmap.FILE, schema)
    layout = _Layout(bitmap.FILE, bitmap.KEYS, bitmap.BITMAPS, dtype, _union_of_sets)
    bitmap.set_statistics(writer, _merge(writer, schema, sources, layout))
    return writer


@dataclass(frozen=True, slots=True)
class _Layout:
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


def _merge(
    writer: FileWriter, schema: pa.Schema, sources: Sequence[Source], layout: _Layout
) -> int:
    """Write the keys of all sources; return their number."""
    count = 0
    with ExitStack() as stack:
        runs = []
        for number, source in enumerate(sources):
            file = stack.enter_context(closing(source.files.open(layout.file)))
            fields = [named(file, layout.key, layout.dtype), named(file, layout.value, pa.binary())]
            runs.append(SortedRun(file, fields, True, _Numbered(number, file.source.name)))
        for batch in merged(runs):
            keys, sets = _combined(batch, sources, layout)
            writer.write(pa.RecordBatch.from_arrays([keys, sets], schema=schema))
            count += len(keys)
    return count


@dataclass(frozen=True, slots=True)
class _Numbered:
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
    batch: pa.RecordBatch, sources: Sequence[Source], layout: _Layout
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


def _union_of_postings(parts: Sequence[tuple[bytes, KeptRows | None]], name: str) -> bytes | None:
    union = BitMap64()
    for data, kept in parts:
        rows = ngram.decode_posting(data, name)
        union |= rows if kept is None else kept.of_bitmap(rows)
    return union.serialize() if union else None
