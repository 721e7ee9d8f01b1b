"""Readers of the rows of several fragments for mutations: in order, or by address in any order.

To open and decode many small fragments one by one is slow, so
`lance_spark.scan.fragment.small_fragments` reads them together. Each other fragment has a
`RowReader`: large fragments, and fragments with blobs or overlays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.encoding.rows import distinct
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import Handling, handled, input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.rewrite.row_reader import BATCH_ROWS, RowBatch, RowReader, splice
from lance_spark.scan.ahead import AT_ONCE, Admit, in_order
from lance_spark.scan.blob_sizes import cut_by_bytes
from lance_spark.scan.fragment.reader import FragmentReader, batches_of
from lance_spark.scan.fragment.row_meta import CREATED_AT, ROW_ADDRESS, ROW_ID
from lance_spark.scan.fragment.small_fragments import SmallFragmentScan, Whole
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.table.align import align
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.rows.deletions import Offsets, bitmap_of
from lance_spark.table.rows.index import OFFSET_BITS, first_address, offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array

#: Maximum number of fragments whose files stay open.
_OPEN = 8


_Rows = TypeVar("_Rows")


class AddressedRows(NamedTuple):
    """Some live rows of one or more fragments.

    - `addresses`: Row addresses. The addresses of one fragment are adjacent and increasing.
    - `row_ids`, `created`: Row ids, and the versions that created the rows; empty if they were not
      requested.
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

    - `fields`: Top-level fields of the table.
    """
    schema = handled(Schema(tuple(fields)), Handling.BINARY, version)

    def alone(fragment: Fragment, admit: Admit) -> Iterator[pa.RecordBatch]:
        with closing(RowReader(paths, fragment, fields, version, base_paths)) as reader:
            admit(reader.held_bytes())
            yield from reader.live()

    return _in_order(paths, fragments, schema, (), lambda batch: [batch], alone, _bytes_of_batch)


def matching_rows(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    fields: Sequence[Field],
    version: tuple[int, int],
    base_paths: Mapping[int, BasePath],
    filters: Sequence[Condition],
    candidates: Mapping[int, RowRanges] | None = None,
    *,
    with_lineage: bool,
) -> Iterator[AddressedRows]:
    """Yield the live rows of fragments that meet all filters, in order; see `live_values`.

    - `candidates`: By fragment, the rows for which the filters can hold. Small fragments are read
      whole.
    - `with_lineage`: Requests the row ids and the versions that created the rows.
    """
    schema = handled(Schema(tuple(fields)), Handling.BINARY, version)
    meta_fields = (ROW_ADDRESS, ROW_ID, CREATED_AT) if with_lineage else (ROW_ADDRESS,)
    empty = np.empty(0, np.uint64)
    width = len(schema.fields)

    def of_run(piece: pa.RecordBatch) -> Iterator[AddressedRows]:
        for batch in batches_of(piece, BATCH_ROWS):
            meta = [column.to_numpy() for column in batch.columns[width:]]
            row_ids, created = meta[1:] if with_lineage else (empty, empty)
            yield AddressedRows(batch.select(range(width)), meta[0], row_ids, created)

    def alone(fragment: Fragment, admit: Admit) -> Iterator[AddressedRows]:
        wanted = None if candidates is None else candidates[fragment.id]
        first = np.uint64(first_address(fragment))
        reader = RowReader(paths, fragment, fields, version, base_paths, filters)
        with closing(reader):
            admit(reader.held_bytes(wanted))
            for rows in reader.matching(wanted):
                addresses = rows.offsets.astype(np.uint64) + first
                yield AddressedRows(rows.values, addresses, rows.row_ids, rows.created)

    read = Schema(schema.fields + meta_fields)
    return _in_order(
        paths, fragments, read, filters, of_run, alone, lambda rows: _bytes_of_batch(rows.values)
    )


def matching_offsets(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    filters: Sequence[Condition],
    candidates: Mapping[int, RowRanges] | None = None,
) -> dict[int, BitMap]:
    """Return the offsets of the live rows that meet all filters, by fragment.

    A fragment without such rows is not in the result. See `matching_rows`.
    """
    rows_by_fragment: dict[int, BitMap] = {}

    def alone(fragment: Fragment, admit: Admit) -> Iterator[UInt64Array]:
        wanted = None if candidates is None else candidates[fragment.id]
        first = np.uint64(first_address(fragment))
        with closing(FragmentReader(paths, fragment, Schema(()), filters)) as reader:
            admit(reader.held_bytes(fragment.physical_rows))
            for offsets in reader.matching_windows(wanted):
                yield offsets.astype(np.uint64) + first

    addresses = _in_order(
        paths,
        fragments,
        Schema((ROW_ADDRESS,)),
        filters,
        lambda batch: [batch.column(0).to_numpy()],
        alone,
        lambda rows: int(rows.nbytes),
    )
    for some in addresses:
        add_offsets(rows_by_fragment, some)
    return rows_by_fragment


def add_offsets(rows_by_fragment: dict[int, BitMap], addresses: UInt64Array) -> None:
    """Add row addresses, increasing in a fragment, to the offsets by fragment."""
    for number, offsets in offsets_by_fragment(addresses):
        rows = bitmap_of(offsets)
        rows_by_fragment[number] = (
            rows_by_fragment[number] | rows if number in rows_by_fragment else rows
        )


def _in_order(
    paths: TablePaths,
    fragments: Iterable[Fragment],
    schema: Schema,
    filters: Sequence[Condition],
    of_run: Callable[[pa.RecordBatch], Iterable[_Rows]],
    alone: Callable[[Fragment, Admit], Iterator[_Rows]],
    nbytes: Callable[[_Rows], int],
) -> Iterator[_Rows]:
    """Yield the rows of fragments in order. On a remote store they are read at the same time.

    - `of_run`: Converts a batch of small fragments that are read together.
    - `alone`: Reads another fragment.
    - `nbytes`: Returns the bytes of some rows.
    """
    at_once = min(paths.store.reads_at_once, AT_ONCE)
    small = SmallFragmentScan(paths, schema, filters, ScanMetrics(), at_once=at_once > 1)

    def together(run: list[Whole], admit: Admit) -> Iterator[_Rows]:
        admit(small.run_bytes(run))
        # Its own counts, as several threads count.
        for batch in small.read(run, ScanMetrics()):
            yield from of_run(batch)

    def parts() -> Iterator[Callable[[Admit], Iterator[_Rows]]]:
        for fragment in fragments:
            fits = small.fits(fragment)
            if run := small.add(Whole(fragment, None)) if fits else small.rest():
                yield partial(together, run)
            if not fits:
                yield partial(alone, fragment)
        if run := small.rest():
            yield partial(together, run)

    return in_order(parts(), paths.store.ahead_bytes, at_once, nbytes)


def _bytes_of_batch(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)


def add_unique_addresses(table: OpenTable, rows: dict[int, BitMap], addresses: UInt64Array) -> None:
    """Add addresses, in any order, to bitmaps of offsets by fragment.

    Raises InvalidInputError: an address occurs twice, or is in a bitmap already.
    """
    unique = distinct(addresses)
    repeated = len(unique) < len(addresses)
    for number, offsets in offsets_by_fragment(unique):
        new = bitmap_of(offsets)
        existing = rows.setdefault(number, BitMap())
        repeated = repeated or not existing.isdisjoint(new)
        existing |= new
    if repeated:
        raise InvalidInputError(
            f"{table.store.display}: a row address occurs twice; give each row once"
        )


class AddressReader:
    """Reads rows by address. Use as a context: its end closes the files.

    - `fields`: Top-level fields of the table to read; can be empty.
    """

    def __init__(self, table: OpenTable, fields: Sequence[Field]) -> None:
        self._table = table
        self._fields = tuple(fields)
        self._arrow = input_schema(Schema(self._fields))
        self._fragments = {
            fragment.id: fragment for fragment in counted_fragments(table.paths, table.manifest)
        }
        self._open: OrderedDict[int, RowReader] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the data files."""
        while self._open:
            _, reader = self._open.popitem()
            reader.close()

    def window_rows(self, address: int) -> int:
        """Return the number of rows to read at once from the fragment of an address."""
        return max(self._reader(address >> OFFSET_BITS).window_rows(), 1)

    def parts(self, addresses: UInt64Array) -> Iterator[slice]:
        """Yield slices of addresses of live rows whose blobs fit into memory together."""
        schema = Schema(self._fields)
        has_blobs = any(field.has_blobs for field in schema.fields)
        # `read` raises the error of an address without a row.
        if not has_blobs or not all(map(self._has_row, addresses.tolist())):
            yield slice(0, len(addresses))
            return
        version = self._table.manifest.data_storage_version
        read = handled(schema, Handling.BINARY, version)
        fragments = list(self._fragments.values())
        yield from cut_by_bytes(self._table.paths, fragments, read, addresses, None)

    def read(self, addresses: UInt64Array) -> RowBatch:
        """Return rows in the order of their addresses.

        - `addresses`: Addresses of live rows; an address can occur more than once.

        Yields the rows with the offsets of the addresses, in the same order. Raises
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError. Raises
        InvalidInputError: an address is not that of a live row.
        """
        unique, inverse = np.unique(addresses, return_inverse=True)
        parts = [self._read(number, offsets) for number, offsets in offsets_by_fragment(unique)]
        if len(parts) == 1 and np.array_equal(inverse, np.arange(len(unique))):
            return parts[0]
        return RowBatch(
            self._values([part.values for part in parts], inverse),
            np.concatenate([part.offsets for part in parts])[inverse],
            np.concatenate([part.row_ids for part in parts])[inverse],
            np.concatenate([part.created for part in parts])[inverse],
            np.concatenate([part.updated for part in parts])[inverse],
        )

    def _has_row(self, address: int) -> bool:
        fragment = self._fragments.get(address >> OFFSET_BITS)
        return fragment is not None and address - first_address(fragment) < fragment.physical_rows

    def _read(self, number: int, offsets: Offsets) -> RowBatch:
        reader = self._reader(number)
        name = self._table.store.display
        fragment = self._fragments[number]
        if int(offsets[-1]) >= fragment.physical_rows:
            raise InvalidInputError(
                f"{name}: row {int(offsets[-1])} of fragment {number} is out of range: the "
                "fragment "
                f"has {fragment.physical_rows} rows"
            )
        deleted = offsets[np.isin(offsets, reader.deleted(), assume_unique=True)]
        if len(deleted):
            raise InvalidInputError(
                f"{name}: row {int(deleted[0])} of fragment {number} is deleted"
            )
        rows = reader.read(offsets)
        values = align(rows.values, self._arrow) if self._fields else rows.values
        return RowBatch(values, offsets, rows.row_ids, rows.created, rows.updated)

    def _reader(self, number: int) -> RowReader:
        reader = self._open.pop(number, None)
        if reader is None:
            fragment = self._fragments.get(number)
            if fragment is None:
                raise InvalidInputError(
                    f"{self._table.store.display}: version {self._table.version} has no fragment "
                    f"{number}, which a _rowaddr names"
                )
            manifest = self._table.manifest
            reader = RowReader(
                self._table.paths,
                fragment,
                self._fields,
                manifest.data_storage_version,
                manifest.base_paths,
            )
        self._open[number] = reader
        if len(self._open) > _OPEN:
            _, oldest = self._open.popitem(last=False)
            oldest.close()
        return reader

    def _values(
        self, parts: Sequence[pa.RecordBatch], order: npt.NDArray[np.intp]
    ) -> pa.RecordBatch:
        if not self._fields:
            return pa.RecordBatch.from_arrays([pa.nulls(len(order))], names=["_"]).select([])
        indices = pa.array(order)
        columns = []
        for index, field in enumerate(self._arrow):
            first, *following = (part.column(index) for part in parts)
            column = splice(first, pa.chunked_array(following, field.type), indices)
            columns.append(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)
