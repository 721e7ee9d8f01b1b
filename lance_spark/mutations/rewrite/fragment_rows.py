"""Readers of the rows of several fragments in order, for mutations.

To open and decode many small fragments one by one is slow, so
`lance_spark.scan.fragment.small_fragments` reads them together. Each other fragment has a
`RowReader`: large fragments, and fragments with blobs or overlays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.rewrite.row_reader import BATCH_ROWS, RowReader
from lance_spark.scan.fragment.reader import FragmentReader, batches_of
from lance_spark.scan.fragment.row_meta import CREATED_AT, ROW_ADDRESS, ROW_ID
from lance_spark.scan.fragment.small_fragments import SmallFragmentScan, Whole
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.rows.deletions import bitmap_of
from lance_spark.table.rows.index import first_address, offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array


class AddressedRows(NamedTuple):
    """Some live rows of one or more fragments.

    Attributes
    ----------
    values : pa.RecordBatch
    addresses : uint64 array
        Row addresses. The addresses of one fragment are adjacent and increasing.
    row_ids, created : uint64 array
        Row ids, and the versions that created the rows; empty if they were not requested.
    """

    values: pa.RecordBatch
    addresses: UInt64Array
    row_ids: UInt64Array
    created: UInt64Array


def live_values(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    fields: Sequence[Field],
    version: tuple[int, int],
    base_paths: Mapping[int, BasePath],
) -> Iterator[pa.RecordBatch]:
    """Yield the values of the live rows of fragments, in order, in the types that a writer accepts.

    Parameters
    ----------
    paths : TablePaths
    fragments : iterable of Fragment
    fields : sequence of Field
        Top-level fields of the table.
    version : tuple of int
        Version of the table's data files.
    base_paths : mapping of int to BasePath
        Base paths of the table.
    """
    schema = handled(Schema(tuple(fields)), Handling.BINARY, version)
    for source in _sources(paths, fragments, schema, ()):
        if not isinstance(source, Fragment):
            yield source
            continue
        reader = RowReader(paths, source, fields, version, base_paths)
        try:
            yield from reader.live()
        finally:
            reader.close()


def matching_rows(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    fields: Sequence[Field],
    version: tuple[int, int],
    base_paths: Mapping[int, BasePath],
    filters: Sequence[Condition],
    *,
    with_lineage: bool,
) -> Iterator[AddressedRows]:
    """Yield the live rows of fragments that meet all filters, in order; see `live_values`.

    `with_lineage` requests the row ids and the versions that created the rows.
    """
    schema = handled(Schema(tuple(fields)), Handling.BINARY, version)
    meta_fields = (ROW_ADDRESS, ROW_ID, CREATED_AT) if with_lineage else (ROW_ADDRESS,)
    empty = np.empty(0, np.uint64)
    width = len(schema.fields)
    for source in _sources(paths, fragments, Schema(schema.fields + meta_fields), filters):
        if not isinstance(source, Fragment):
            for batch in batches_of(source, BATCH_ROWS):
                meta = [column.to_numpy() for column in batch.columns[width:]]
                row_ids, created = meta[1:] if with_lineage else (empty, empty)
                yield AddressedRows(batch.select(range(width)), meta[0], row_ids, created)
            continue
        reader = RowReader(paths, source, fields, version, base_paths, filters)
        first = np.uint64(first_address(source))
        try:
            for rows in reader.matching():
                addresses = rows.offsets.astype(np.uint64) + first
                yield AddressedRows(rows.values, addresses, rows.row_ids, rows.created)
        finally:
            reader.close()


def matching_offsets(
    paths: TablePaths, fragments: Iterable[Fragment], filters: Sequence[Condition]
) -> dict[int, BitMap]:
    """Return the offsets of the live rows that meet all filters, by fragment.

    A fragment without such rows is not in the result.
    """
    rows_by_fragment: dict[int, BitMap] = {}
    for source in _sources(paths, fragments, Schema((ROW_ADDRESS,)), filters):
        if not isinstance(source, Fragment):
            add_offsets(rows_by_fragment, source.column(0).to_numpy())
            continue
        reader = FragmentReader(paths, source, Schema(()), filters)
        rows = BitMap()
        try:
            for offsets in reader.matching_windows():
                rows |= bitmap_of(offsets)
        finally:
            reader.close()
        if rows:
            rows_by_fragment[source.id] = rows
    return rows_by_fragment


def add_offsets(rows_by_fragment: dict[int, BitMap], addresses: UInt64Array) -> None:
    """Add row addresses, increasing in a fragment, to the offsets by fragment."""
    for number, offsets in offsets_by_fragment(addresses):
        rows = bitmap_of(offsets)
        rows_by_fragment[number] = (
            rows_by_fragment[number] | rows if number in rows_by_fragment else rows
        )


def _sources(
    paths: TablePaths, fragments: Iterable[Fragment], schema: Schema, filters: Sequence[Condition]
) -> Iterator[pa.RecordBatch | Fragment]:
    """Yield the rows of small fragments, and the fragments that are read alone, in order."""
    small = SmallFragmentScan(paths, schema, filters, ScanMetrics())
    for fragment in fragments:
        if small.fits(fragment):
            yield from small.add(Whole(fragment, None))
            continue
        yield from small.flush()
        yield fragment
    yield from small.flush()
