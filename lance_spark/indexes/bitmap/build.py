"""How BITMAP indexes are built, merged, checked, and rewritten after a compaction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.address_map import AddressMap, of_one_file
from lance_spark.indexes.bitmap import files as bitmap
from lance_spark.indexes.builds import Builder, is_scalar
from lance_spark.indexes.checks import (
    MAX_PROBLEMS,
    ColumnCheck,
    CoveredRows,
    Findings,
    Flags,
    comparable,
    flags,
    ordered,
    original,
    shown,
)
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.indexes.merges import (
    KeptRows,
    Merging,
    SegmentSource,
    SortedRun,
    merged,
    out_of_order,
)
from lance_spark.indexes.row_sets import RowSet
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# BITMAP, LABEL_LIST and NGRAM segments merged: the rows of a key are those of all segments.
#
# Keys are merged in order, so that only the sets of some keys are in memory.

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

    - `file`, `key`, `value`: Names of the file, and of its columns.
    - `dtype`: Type of the keys.
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


# --------------------------------------------------------------------------------------------------
# Checks BITMAP and LABEL_LIST indexes: a set of rows for each value.
#
# The rows of an index are pairs of a value and a row. They are compared with the pairs of the
# column. Values are numbered, so that a pair is an integer.

#: Sets that are read at once.
_BATCH_SETS = 4096
#: Pairs that are looked up at once, unless one set has more.
_BATCH_PAIRS = 1 << 20


class Pairs:
    """The pairs of a value and a row that an index must have.

    - `items`: The values of all rows.
    - `positions` (int64 array): The position of the row of each.
    - `of_lists`: Whether a row may have several values.
    """

    def __init__(
        self,
        files: IndexFiles,
        rows: CoveredRows,
        items: pa.Array,
        positions: RowNumbers,
        *,
        of_lists: bool = False,
    ) -> None:
        keys = bitmap.read_keys(files)
        if keys.type != items.type:
            raise CorruptFileError(
                f"index {files.segment.name!r}: the values of {bitmap.FILE} are {keys.type}, those "
                f"of the column {items.type}; rebuild the index"
            )
        self._rows, self._dtype = rows, items.type
        self._count = max(len(rows), 1)
        values = pa.chunked_array([comparable(keys), comparable(items)]).combine_chunks()
        encoded = values.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        self._values = encoded.dictionary
        #: Number of NaN. In an index, NaNs of different bits are several values, and a list can
        #: have them all.
        self._nan = _code_of_nan(self._values, self._dtype) if of_lists else None
        #: Number of the value of each set.
        self._codes = codes[: len(keys)]
        self._expected = distinct(codes[len(keys) :] * self._count + positions)
        self._is_found = np.zeros(len(self._expected), np.bool_)
        self._is_wrong: Flags = np.zeros(len(rows), np.bool_)

    def check(self, files: IndexFiles, findings: Findings) -> None:
        """Compare the sets of the index with the pairs."""
        waiting: list[RowNumbers] = []
        for start in range(0, len(self._codes), _BATCH_SETS):
            codes = self._codes[start : start + _BATCH_SETS]
            numbers = np.arange(start, start + len(codes))
            for code, rows in zip(codes.tolist(), bitmap.read_sets(files, numbers), strict=True):
                positions, num_stale = self._rows.find_set(rows)
                findings.stale += num_stale
                waiting.append(code * self._count + positions)
                if sum(map(len, waiting)) > _BATCH_PAIRS:
                    self._note(np.concatenate(waiting), findings)
                    waiting = []
            self._note(np.concatenate([np.empty(0, np.int64), *waiting]), findings)
            waiting = []
        missing = self._expected[~self._is_found]
        # A row at another value is wrong, and not missing.
        missing = missing[~self._is_wrong[missing % self._count]]
        findings.wrong += int(np.count_nonzero(self._is_wrong))
        findings.missing += len(np.unique(missing % self._count))
        self._describe(missing, "the index does not have the row with", findings)

    def _note(self, pairs: RowNumbers, findings: Findings) -> None:
        """Note pairs that the index has."""
        pairs, counts = np.unique(pairs, return_counts=True)
        nearest = np.searchsorted(self._expected, pairs)
        nearest = np.minimum(nearest, max(len(self._expected) - 1, 0))
        is_right = np.zeros(len(pairs), np.bool_)
        if len(self._expected):
            is_right = self._expected[nearest] == pairs
        places = nearest[is_right]
        is_repeated = (counts[is_right] > 1) | self._is_found[places]
        if self._nan is not None:
            is_repeated &= pairs[is_right] // self._count != self._nan
        self._is_found[places] = True
        wrong, repeated = pairs[~is_right], pairs[is_right][is_repeated]
        for part in (wrong, repeated):
            self._is_wrong[part % self._count] = True
        self._describe(wrong, "the index has the row with", findings)
        self._describe(repeated, "the index has the row more than once with", findings)

    def _describe(self, pairs: RowNumbers, text: str, findings: Findings) -> None:
        findings.add(
            self._rows.problem(pair % self._count, f"{text} {self._shown(pair // self._count)}")
            for pair in pairs[:MAX_PROBLEMS].tolist()
        )

    def _shown(self, code: int) -> str:
        return shown(original(self._values[code : code + 1], self._dtype)[0])


def _code_of_nan(values: pa.Array, dtype: pa.DataType) -> int | None:
    """Return the number of NaN among distinct `comparable` values; None if there is none."""
    if not pat.is_floating(dtype):
        return None
    import pyarrow.compute as pc

    nan = comparable(pa.array(np.array([np.nan]).astype(dtype.to_pandas_dtype())))
    place: int = pc.index(values, nan[0]).as_py()
    return None if place < 0 else place


# --------------------------------------------------------------------------------------------------
# BITMAP and LABEL_LIST segments rewritten with the row addresses after a compaction.

#: Values whose sets are read at once.
_WINDOW_ROWS = 256


def remap_sets(segment: SegmentWriter, file: DataFileReader, address_map: AddressMap) -> FileWriter:
    """Write the values and sets of a segment with new row addresses; return the writer of the file.

    Raises CorruptFileError, UnsupportedError, StorageError.
    """
    schema = bitmap.schema_of(named(file, bitmap.KEYS).arrow_field.type)
    writer = segment.create(bitmap.FILE, schema)
    count = 0
    for keys, sets in _remapped(file, address_map):
        writer.write(pa.RecordBatch.from_arrays([keys, sets], schema=schema))
        count += len(keys)
    bitmap.set_statistics(writer, count)
    return writer


def _remapped(file: DataFileReader, address_map: AddressMap) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the values of live rows, and the new addresses of these rows."""
    fields = [named(file, bitmap.KEYS), named(file, bitmap.BITMAPS, pa.binary())]
    for start in range(0, file.num_rows, _WINDOW_ROWS):
        rows = range(start, min(start + _WINDOW_ROWS, file.num_rows))
        keys, sets = file.read(fields, rows)
        moved = [
            address_map.of_set(RowSet.decode(data, file.source.name))
            for data in sets.fill_null(b"").to_pylist()
        ]
        live = pa.array([any(part.bitmaps.values()) for part in moved], pa.bool_())
        encoded = pa.array([part.encode() for part in moved], pa.binary())
        yield keys.filter(live), encoded.filter(live)


# --------------------------------------------------------------------------------------------------
# How BITMAP indexes are built, merged, checked, and rewritten.


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    bitmap.write(segment, values, ids)


def _can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    return has_sorted_keys(files, dtype)


def _merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    merge_sets(segment, dtype, sources)


def _check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    Pairs(files, rows, rows.values, np.arange(len(rows))).check(files, findings)


def _remap(segment: SegmentWriter, file: DataFileReader, address_map: AddressMap) -> None:
    remap_sets(segment, file, address_map)


BUILDER = Builder("BITMAP", _write, is_scalar, merging=Merging(_can_merge, _merge))
CHECK = ColumnCheck(_check)
REMAPPING = of_one_file(bitmap.FILE, _remap)
