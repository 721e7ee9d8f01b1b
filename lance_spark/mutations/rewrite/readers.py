"""Readers of rows that a change writes again: in order, or by address in any order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self, TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import RowRanges, Rows, distinct
from lance_spark.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import FIRST_V2, Handling, handled, has_blobs, input_schema
from lance_spark.file.checks import CAST_ADVICE
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import replace_blobs
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.conditions import Condition
from lance_spark.scan.blobs import EXTERNAL, BlobDescriptors
from lance_spark.scan.fragment.reader import FragmentReader, batches_of
from lance_spark.scan.fragment.row_meta import CREATED_AT, ROW_ADDRESS, ROW_ID, UPDATED_AT
from lance_spark.scan.fragment.small_fragments import SmallFragmentScan, Whole
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.prefetch import AT_ONCE, Admit, in_order
from lance_spark.scan.take import cut_by_bytes
from lance_spark.table.align import align
from lance_spark.table.fragments.files import DataFile, Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.schema_changes import loses_first
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.rows.addresses import (
    OFFSET_BITS,
    first_address,
    offsets_by_fragment,
    split_addresses,
)
from lance_spark.table.rows.deletions import Offsets, bitmap_of
from lance_spark.table.rows.ids import store_lineage, updated_versions_of
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# A reader of rows that a task writes again without a change.
#
# Blobs are read as bytes. A reference to an object outside of the table stays a reference to the
# same range of the same object, and the object is not read: a writer accepts bytes or a URI for
# each value (`lance_spark.file.blobs.writer`).

#: Maximum number of rows of a batch.
BATCH_ROWS = 65_536
_META = (ROW_ADDRESS, ROW_ID, CREATED_AT, UPDATED_AT)
#: If at most one row in this number is requested, only the requested rows are read; otherwise the
#: whole range is read and filtered.
_SPARSE = 4
#: Id that replaces the field of a data file after its values moved to another file.
_TOMBSTONE = -2


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some live rows of a fragment.

    - `offsets`: Offsets of the rows in the fragment, increasing.
    - `row_ids`: Row ids; row addresses in tables without stable row ids.
    - `updated`: The versions that last updated the rows.
    """

    values: pa.RecordBatch
    offsets: Offsets
    row_ids: UInt64Array
    created: UInt64Array
    updated: UInt64Array


class RowReader:
    """Reads rows of one fragment in the types that a writer of the table accepts.

    - `fields`: Top-level fields of the table.
    - `filters`: `matching` omits the rows that do not meet all of them.
    """

    def __init__(
        self,
        paths: TablePaths,
        fragment: Fragment,
        fields: Sequence[Field],
        version: tuple[int, int],
        base_paths: Mapping[int, BasePath],
        filters: Sequence[Condition] = (),
    ) -> None:
        self._bases = base_paths
        self._rows = range(fragment.physical_rows)
        schema = handled(Schema(tuple(fields)), Handling.BINARY, version)
        self._width = len(schema.fields)
        self._values_reader = FragmentReader(paths, fragment, schema, filters, load_external=False)
        self._reader = FragmentReader(
            paths,
            fragment,
            replace(schema, fields=schema.fields + _META),
            filters,
            load_external=False,
        )
        blobs = tuple(f for f in schema.fields if has_blobs(f)) if version >= FIRST_V2 else ()
        self._blobs = {field.name: field for field in blobs}
        self._has_blobs = any(has_blobs(field) for field in fields)
        blob_schema = Schema(tuple(f for f in fields if f.name in self._blobs))
        described = handled(blob_schema, Handling.DESCRIPTIONS, version)
        self._descriptors = FragmentReader(paths, fragment, described)

    def close(self) -> None:
        """Close the data files."""
        for reader in (self._values_reader, self._reader, self._descriptors):
            reader.close()

    def deleted(self) -> Offsets:
        """Return the offsets of the deleted rows, increasing."""
        return self._reader.deleted()

    def held_bytes(self, rows: RowRanges | None = None) -> int:
        """Return about how many bytes a read of some physical rows holds; all by default."""
        count = len(self._rows) if rows is None else rows.num_rows
        return self._values_reader.held_bytes(count)

    def window_rows(self) -> int:
        """Return the number of rows to read at once."""
        return self._values_reader.window_rows()

    def matching_offsets(self, rows: RowRanges | None = None) -> BitMap:
        """Return the offsets of the live rows that meet the filters.

        - `rows`: Physical rows to read; all by default.
        """
        matching = BitMap()
        for offsets in self._reader.matching_windows(rows):
            matching |= bitmap_of(offsets)
        return matching

    def matching(self, rows: range | RowRanges | None = None) -> Iterator[RowBatch]:
        """Yield the live rows that meet the filters, in order.

        - `rows`: Physical rows to read; all by default.
        """
        for batch in self._reader.scan(self._rows if rows is None else rows, BATCH_ROWS):
            yield self._row_batch(batch)

    def read(self, offsets: Offsets) -> RowBatch:
        """Return physical rows, whether they meet the filters or not.

        - `offsets`: Offsets of live rows, strictly increasing; not empty. Blobs of deleted rows may
          be gone.
        """
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        if stop - first == len(offsets):
            return self._row_batch(self._reader.read(range(first, stop)))
        # The blobs of the rows between can be deleted, or large.
        if self._has_blobs or stop - first > _SPARSE * len(offsets):
            return self._row_batch(self._reader.read(offsets))
        batch = self._reader.read(range(first, stop))
        return self._row_batch(batch.take(pa.array(offsets - first)))

    def live(self) -> Iterator[pa.RecordBatch]:
        """Yield the values of the live rows that meet the filters, in order."""
        if self._blobs:
            yield from (batch.values for batch in self.matching())
        else:
            yield from self._values_reader.scan(self._rows, BATCH_ROWS)

    def pieces(self, rows: range) -> Iterator[tuple[range, pa.RecordBatch]]:
        """Yield ranges of physical rows and their values, in order, with deleted rows."""
        start = rows.start
        for batch in self._values_reader.pieces(rows):
            piece = range(start, start + batch.num_rows)
            yield piece, self._with_references(batch, piece)
            start = piece.stop

    def _row_batch(self, batch: pa.RecordBatch) -> RowBatch:
        address, row_id, created, updated = (
            column.to_numpy() for column in batch.columns[-len(_META) :]
        )
        _, offsets = split_addresses(address)
        values = self._with_references(batch.select(range(self._width)), offsets)
        return RowBatch(values, offsets, row_id, created, updated)

    def _with_references(self, values: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
        if not self._blobs or not values.num_rows:
            return values
        described = self._descriptors.read(rows)
        for name, field in self._blobs.items():
            descriptors = [
                BlobDescriptors.of(leaf, name) for leaf in _leaves(described.column(name), field)
            ]
            if any((blobs.storage_modes[blobs.live] == EXTERNAL).any() for blobs in descriptors):
                column = self._with_uris(values.column(name), field, descriptors)
                values = values.set_column(values.schema.get_field_index(name), name, column)
        return values

    def _with_uris(
        self, array: pa.Array, field: Field, descriptors: Sequence[BlobDescriptors]
    ) -> pa.Array:
        following = iter(descriptors)

        def convert(data: pa.Array, _: Field) -> pa.Array:
            return self._input(data, next(following))

        return replace_blobs(array, field, convert)

    def _input(self, data: pa.Array, blobs: BlobDescriptors) -> pa.Array:
        """Return blobs as bytes, and references to external objects as URIs and ranges."""
        external = blobs.live & (blobs.storage_modes == EXTERNAL)
        ranged = external & (blobs.sizes != 0)
        keep = pa.array(
            np.where(blobs.live & ~external, np.arange(len(data)), 0), mask=~blobs.live | external
        )
        uris = [self._uri(blobs, index) if external[index] else None for index in range(len(data))]
        children = [
            data.take(keep),
            pa.array(uris, pa.string()),
            pa.array(blobs.positions.astype(np.uint64), mask=~ranged),
            pa.array(blobs.sizes.astype(np.uint64), mask=~ranged),
        ]
        mask = None if blobs.live.all() else pa.array(~blobs.live)
        return pa.StructArray.from_arrays(
            children, names=["data", "uri", "position", "size"], mask=mask
        )

    def _uri(self, blobs: BlobDescriptors, index: int) -> str:
        uri, number = blobs.uri(index), int(blobs.blob_ids[index])
        if not number:
            return uri
        base = self._bases.get(number)
        if base is None:
            raise CorruptTableError(
                f"{blobs.name}: a blob lies below base path {number}, which the manifest does not "
                "have"
            )
        root = base.path if ":/" in base.path else f"file://{base.path}"
        return f"{root.rstrip('/')}/{quote(uri)}"


def hides_first_field(fragments: Iterable[Fragment], ids: Collection[int]) -> bool:
    """Return whether new values remove the first field of a file of version 0.1 that keeps others.

    See `loses_first` for how pylance reads such a file.

    - `ids`: Ids of the fields that get new values.
    """
    return any(
        file.version == (0, 1) and loses_first(file.fields, ids)
        for fragment in fragments
        for file in fragment.files
    )


def check_first_field(table: OpenTable, ids: Collection[int]) -> None:
    """Raise UnsupportedFeatureError if `hides_first_field` is true of a table."""
    if table.manifest.data_storage_version == (0, 1) and hides_first_field(
        table.manifest.fragments, ids
    ):
        raise UnsupportedFeatureError(
            f'{table.store.display}: mode "columns" cannot change the first column of data files '
            'of version 0.1, which pylance misreads without it; use mode "rows", or overwrite the '
            "table with data storage version 2.2"
        )


def replace_data_file(
    paths: TablePaths, fragment: Fragment, new: DataFile, superseded: Collection[int]
) -> Fragment:
    """Return a fragment with a new file that replaces columns of its other files.

    - `superseded`: Ids of the fields of the new file, and of all fields above and below them.
    """
    proto = fragment.to_proto()
    proto.ClearField("files")
    for file in fragment.to_proto().files:
        # The message is edited: another client may have set fields that this release ignores.
        file.fields[:] = [_TOMBSTONE if field in superseded else field for field in file.fields]
        if any(field != _TOMBSTONE for field in file.fields):
            proto.files.append(file)
    proto.files.append(new.to_proto())
    if fragment.has_lineage(Lineage.UPDATED) and not fragment.inline_lineage(Lineage.UPDATED):
        # The commit changes versions in the manifest, and cannot change them in a file.
        store_lineage(proto, updated=updated_versions_of(fragment, paths))
    return Fragment.from_proto(proto, "fragment with new columns")


def splice(old: pa.Array, new: pa.ChunkedArray, order: pa.Array) -> pa.ChunkedArray:
    """Return the values at some indices of two concatenated arrays.

    Raises InvalidInputError: the values have too many distinct values for the dictionary type.
    """
    dtype = old.type
    if not pat.is_dictionary(dtype):
        return pa.chunked_array([old, *new.chunks], dtype).take(order)
    # Arrow cannot unify all dictionaries that files can have.
    plain_chunks = [array.cast(dtype.value_type) for array in (old, *new.chunks)]
    plain = pa.chunked_array(plain_chunks, dtype.value_type).take(order).combine_chunks()
    try:
        return pa.chunked_array([plain.dictionary_encode().cast(dtype)])
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"the new values are too many distinct values for {dtype}: {error}; {CAST_ADVICE}"
        ) from None


def spliced_rows(
    rows: range, old: pa.RecordBatch, offsets: Offsets, new: pa.Table
) -> list[pa.RecordBatch]:
    """Return physical rows with new values at some offsets, and old values elsewhere.

    - `rows`: Offsets of the rows in their fragment.
    - `offsets`: Offsets of the rows that get new values, increasing.
    - `new`: New values of these rows, with the schema of `old`.
    """
    order = np.arange(len(rows))
    order[offsets - rows.start] = len(rows) + np.arange(len(new))
    indices = pa.array(order)
    columns = [
        splice(before, after, indices)
        for before, after in zip(old.columns, new.columns, strict=True)
    ]
    batches: list[pa.RecordBatch] = (
        pa.Table.from_arrays(columns, schema=old.schema).combine_chunks().to_batches()
    )
    return batches


def _leaves(array: pa.Array, field: Field) -> list[pa.Array]:
    """Return the arrays of the blob fields of an array."""
    leaves: list[pa.Array] = []

    def collect(leaf: pa.Array, _: Field) -> pa.Array:
        leaves.append(leaf)
        return leaf

    replace_blobs(array, field, collect)
    return leaves


# --------------------------------------------------------------------------------------------------
# Readers of the rows of several fragments for mutations: in order, or by address in any order.
#
# To open and decode many small fragments one by one is slow, so
# `lance_spark.scan.fragment.small_fragments` reads them together. Each other fragment has a
# `RowReader`: large fragments, and fragments with blobs or overlays.

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
