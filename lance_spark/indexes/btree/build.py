"""How BTREE indexes are built: options, segments of new rows, and segments of other segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.file.open import DataFileReader
from lance_spark.indexes.address_map import WRITTEN, AddressMap, Remapping, rewritten
from lance_spark.indexes.btree.files import (
    DATA_COLUMNS,
    DATA_FILE,
    DEFAULT_BATCH_SIZE,
    IDS,
    LOOKUP_FILE,
    VALUES,
    BTreePages,
    BTreeWriter,
    ids_field,
    is_known_data,
    is_known_layout,
    open_data,
    read_pages,
    rows_of_page,
)
from lance_spark.indexes.builds import Builder, is_scalar
from lance_spark.indexes.checks import (
    ColumnCheck,
    CoveredRows,
    Findings,
    differ,
    flags,
    ordered,
    shown,
)
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.indexes.merges import KeptRows, Merging, SegmentSource, SortedRun, merged
from lance_spark.indexes.order import order_of
from lance_spark.indexes.registry import TYPES
from lance_spark.proto import table_pb2
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# BTREE segments merged: their pages are read in order, and written as pages of one segment.


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


# --------------------------------------------------------------------------------------------------
# How BTREE indexes are built: options, segments of new rows, and segments of other segments.

_BATCH_ROWS = 1 << 20


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    writer = BTreeWriter(segment, values.type, parameters["zone_size"])
    order = order_of(values)
    for start in range(0, len(order), _BATCH_ROWS):
        part = order[start : start + _BATCH_ROWS]
        writer.write(values.take(pa.array(part)), pa.array(ids[part]))
    writer.finish()


def _existing(files: IndexFiles) -> dict[str, Any]:
    with closing(files.open(LOOKUP_FILE)) as lookup:
        return {"zone_size": rows_of_page(lookup)}


BUILDER = Builder(
    "BTREE",
    _write,
    is_scalar,
    defaults={"zone_size": DEFAULT_BATCH_SIZE},
    existing=_existing,
    merging=Merging(can_merge, merge),
)


# --------------------------------------------------------------------------------------------------
# Checks a BTREE index: its rows, their order, and its pages.


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment with its rows.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
    """
    pages = read_pages(files)
    if pages is None:
        raise UnsupportedFeatureError(
            f"index {files.segment.name!r}: its files have a layout that cannot be checked"
        )
    with open_data(files, pages.files) as file:
        fields = [named(file, VALUES), named(file, IDS, pa.uint64())]
        values, row_keys = file.read(fields, range(pages.num_rows))
        name = file.source.name
    if values.type != rows.values.type:
        raise CorruptFileError(
            f"{name}: the values are {values.type}, the column is {rows.values.type}; rebuild the "
            "index"
        )
    if row_keys.null_count:
        raise CorruptFileError(f"{name}: {IDS} must not be null; rebuild the index")
    _check_rows(values, row_keys, rows, findings)
    _check_order(values, findings)
    _check_pages(values, pages, findings)


def _check_rows(
    values: pa.Array, row_keys: pa.Array, rows: CoveredRows, findings: Findings
) -> None:
    position, is_live = rows.find(row_keys.to_numpy())
    findings.stale += int(np.count_nonzero(~is_live))
    live = np.flatnonzero(is_live)
    position = position[live]
    count = np.bincount(position, minlength=len(rows))
    missing, repeated = np.flatnonzero(count == 0), np.flatnonzero(count > 1)
    indices = pa.array(live)
    different = np.flatnonzero(differ(values.take(indices), rows.values.take(pa.array(position))))
    findings.missing += len(missing)
    findings.wrong += len(np.union1d(repeated, position[different]))
    findings.add(
        rows.problem(number, "the index does not have the row") for number in missing.tolist()
    )
    findings.add(
        rows.problem(int(position[number]), f"the index has {shown(values[int(live[number])])}")
        for number in different.tolist()
    )
    findings.add(
        rows.problem(number, f"the index has the row {count[number]} times")
        for number in repeated.tolist()
    )


def _check_order(values: pa.Array, findings: Findings) -> None:
    import pyarrow.compute as pc

    keys = ordered(values)
    is_null = flags(values.is_null())
    descends = flags(pc.less(keys[1:], keys[:-1])) | (is_null[1:] & ~is_null[:-1])
    places = np.flatnonzero(descends) + 1
    findings.wrong += len(places)
    findings.add(
        f"{DATA_FILE}: row {place} has {shown(values[place])}, which is less than "
        f"{shown(values[place - 1])} before it"
        for place in places.tolist()
    )


def _check_pages(values: pa.Array, pages: BTreePages, findings: Findings) -> None:
    first, last = pages.bounds[:-1], pages.bounds[1:] - 1
    for name, column, places in (("min", pages.low, first), ("max", pages.high, last)):
        expected = values.take(pa.array(places))
        wrong = np.flatnonzero(differ(column, expected))
        findings.wrong += len(wrong)
        findings.add(
            f"page {page}: {name} is {shown(column[page])}, but its values have "
            f"{shown(expected[page])}"
            for page in wrong.tolist()
        )
    nulls = _nulls(values, pages)
    wrong = np.flatnonzero(pages.nulls != nulls)
    findings.wrong += len(wrong)
    findings.add(
        f"page {page}: null_count is {pages.nulls[page]}, but it has {nulls[page]} nulls"
        for page in wrong.tolist()
    )


def _nulls(values: pa.Array, pages: BTreePages) -> RowNumbers:
    totals = np.append(0, np.cumsum(flags(values.is_null()), dtype=np.int64))
    counts: RowNumbers = np.diff(totals[pages.bounds])
    return counts


CHECK = ColumnCheck(check, versions=TYPES["BTREE"].versions)


# --------------------------------------------------------------------------------------------------
# BTREE indexes rewritten with the row addresses after a compaction.
#
# `lance_spark.indexes.btree.files` has the layout of the files. Deleted rows are left out, so all
# pages from the first one of them on change. Memory is bounded by a window of rows.
#
# Specification: table/index/scalar/btree.md.

#: Number of rows that are read at once.
_WINDOW_ROWS = 1 << 18


def remap_btree(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[object],
) -> RewrittenIndex | None:
    """Write the files of a segment with new row addresses.

    - `index`: A segment of type BTREE.

    Returns None if this release does not know the layout of the segment. Raises CorruptFileError,
    CorruptTableError, UnsupportedEncodingError, StorageError.
    """
    files = IndexFiles(paths, index)
    with closing(files.open(LOOKUP_FILE)) as lookup:
        if not is_known_layout(lookup):
            return None
        batch_size = rows_of_page(lookup)
    with closing(files.open(DATA_FILE)) as data:
        if data.schema.names != DATA_COLUMNS or data.version not in WRITTEN:
            return None
        with SegmentWriter(paths, data.version) as segment:
            dtype = data.schema.fields[0].arrow_field.type
            writer = BTreeWriter(segment, dtype, batch_size)
            for values, ids in _remapped(data, address_map, batch_size):
                writer.write(values, ids)
            writer.finish()
            written = segment.finish()
    return rewritten(index, segment, written)


def _remapped(
    data: DataFileReader, address_map: AddressMap, batch_size: int
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the values and new addresses of the live rows."""
    window = batch_size * max(_WINDOW_ROWS // batch_size, 1)
    for start in range(0, data.num_rows, window):
        rows = range(start, min(start + window, data.num_rows))
        values, ids = data.read(data.schema.fields, rows)
        if ids.type != pa.uint64() or ids.null_count:
            raise CorruptFileError(
                f"{data.source.name}: ids must be uint64 without nulls, not {ids.type} with "
                f"{ids.null_count} nulls"
            )
        addresses, is_live = address_map.new_addresses(ids.to_numpy())
        mask = pa.array(is_live)
        yield values.filter(mask), pa.array(addresses).filter(mask)


REMAPPING = Remapping(remap_btree)
