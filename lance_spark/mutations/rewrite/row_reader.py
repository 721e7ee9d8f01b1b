"""Rows as they are read to be written again: nothing about them changes.

Blobs come as bytes. References to objects outside of the table stay references, to the same range
of the same object, and the object is not read: what a writer takes has bytes or a URI for each
value (`lance_spark.file.blobs.values`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import Rows
from lance_spark.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import FIRST_V2, Handling, handled, has_blobs
from lance_spark.file.blobs.mapping import replace_blobs
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blobs.loader import EXTERNAL, BlobDescriptors
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.fragment.row_meta import CREATED_AT, ROW_ADDRESS, ROW_ID, UPDATED_AT
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.table.fragments.files import DataFile, Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.schema_changes import loses_first
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.rows.addresses import split_addresses
from lance_spark.table.rows.deletion_writer import bitmap_of
from lance_spark.table.rows.deletions import Offsets
from lance_spark.table.rows.ids import store_lineage, updated_versions_of
from lance_spark.table.rows.u64_segments import UInt64Array

#: Rows that are handed on at once at most.
BATCH_ROWS = 65_536
_META = (ROW_ADDRESS, ROW_ID, CREATED_AT, UPDATED_AT)
#: Where fewer than one row in so many is wanted, these are read; elsewhere all are, and some taken
#: out.
_SPARSE = 4
#: Fields of data files that another file has now.
_TOMBSTONE = -2


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some live rows of a fragment.

    Attributes
    ----------
    values : pa.RecordBatch
    offsets : int64 array
        Where they are in the fragment, increasing.
    row_ids : uint64 array
        Their ids; their addresses in tables without stable row ids.
    created : uint64 array
        The versions that they were created in.
    updated : uint64 array
        The versions of their last changes.
    """

    values: pa.RecordBatch
    offsets: Offsets
    row_ids: UInt64Array
    created: UInt64Array
    updated: UInt64Array


class RowReader:
    """Reads rows of one fragment in the shape that a writer of the table takes.

    Parameters
    ----------
    paths : TablePaths
    fragment : Fragment
    fields : sequence of Field
        Top-level fields of the table.
    version : tuple of int
        Of the table's data files.
    base_paths : mapping of int to BasePath
        Of the table.
    filters : sequence of Condition
        `matching` leaves out the rows that do not meet all of them.
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
        self._plain = FragmentReader(paths, fragment, schema, filters, load_external=False)
        self._reader = FragmentReader(
            paths,
            fragment,
            replace(schema, fields=schema.fields + _META),
            filters,
            load_external=False,
        )
        blobs = tuple(f for f in schema.fields if has_blobs(f)) if version >= FIRST_V2 else ()
        self._blobs = {field.name: field for field in blobs}
        self._has_blobs = any(has_blobs(item) for item in fields)
        wanted = Schema(tuple(f for f in fields if f.name in self._blobs))
        described = handled(wanted, Handling.DESCRIPTIONS, version)
        self._places = FragmentReader(paths, fragment, described)

    def close(self) -> None:
        """Close the data files."""
        for reader in (self._plain, self._reader, self._places):
            reader.close()

    def deleted(self) -> Offsets:
        """Return the offsets of the deleted rows, increasing."""
        return self._reader.deleted()

    def window_rows(self) -> int:
        """Return how many rows should be read at once."""
        return self._plain.window_rows()

    def matching_offsets(self) -> BitMap:
        """Return where the live rows that meet the filters are."""
        result = BitMap()
        for offsets in self._reader.matching_windows():
            result |= bitmap_of(offsets)
        return result

    def matching(self, rows: range | None = None) -> Iterator[RowBatch]:
        """Yield the live rows that meet the filters, in order; those among some physical rows, if
        any are given.
        """
        for batch in self._reader.scan(self._rows if rows is None else rows, BATCH_ROWS):
            yield self._moved(batch)

    def at(self, offsets: Offsets) -> RowBatch:
        """Return some physical rows at once, whether they meet the filters or not.

        Parameters
        ----------
        offsets : int64 array
            Strictly increasing; one at least. Blobs of deleted rows may be gone.
        """
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        if stop - first == len(offsets):
            return self._moved(self._reader.read(range(first, stop)))
        # Blobs of rows between may be gone, and may be large.
        if self._has_blobs or stop - first > _SPARSE * len(offsets):
            return self._moved(self._reader.read(offsets))
        batch = self._reader.read(range(first, stop))
        return self._moved(batch.take(pa.array(offsets - first)))

    def live(self) -> Iterator[pa.RecordBatch]:
        """Yield the values of the live rows that meet the filters, in order."""
        if self._blobs:
            yield from (moved.values for moved in self.matching())
        else:
            yield from self._plain.scan(self._rows, BATCH_ROWS)

    def pieces(self, rows: range) -> Iterator[tuple[range, pa.RecordBatch]]:
        """Yield physical rows, deleted ones too, in order: which they are, and their values."""
        start = rows.start
        for batch in self._plain.pieces(rows):
            piece = range(start, start + batch.num_rows)
            yield piece, self._with_references(batch, piece)
            start = piece.stop

    def _moved(self, batch: pa.RecordBatch) -> RowBatch:
        address, row_id, created, updated = (
            column.to_numpy() for column in batch.columns[-len(_META) :]
        )
        _, offsets = split_addresses(address)
        values = self._with_references(batch.select(range(self._width)), offsets)
        return RowBatch(values, offsets, row_id, created, updated)

    def _with_references(self, values: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
        if not self._blobs or not values.num_rows:
            return values
        places = self._places.read(rows)
        for name, field in self._blobs.items():
            parsed = [
                BlobDescriptors.of(leaf, name) for leaf in _leaves(places.column(name), field)
            ]
            if any((item.storage_modes[item.live] == EXTERNAL).any() for item in parsed):
                column = self._replaced(values.column(name), field, parsed)
                values = values.set_column(values.schema.get_field_index(name), name, column)
        return values

    def _replaced(
        self, array: pa.Array, field: Field, parsed: Sequence[BlobDescriptors]
    ) -> pa.Array:
        following = iter(parsed)

        def convert(data: pa.Array, _: Field) -> pa.Array:
            return self._input(data, next(following))

        return replace_blobs(array, field, convert)

    def _input(self, data: pa.Array, places: BlobDescriptors) -> pa.Array:
        """Return bytes, and URIs in the place of those that are read from elsewhere."""
        external = places.live & (places.storage_modes == EXTERNAL)
        ranged = external & (places.sizes != 0)
        keep = pa.array(
            np.where(places.live & ~external, np.arange(len(data)), 0), mask=~places.live | external
        )
        uris = [self._uri(places, index) if external[index] else None for index in range(len(data))]
        children = [
            data.take(keep),
            pa.array(uris, pa.string()),
            pa.array(places.positions.astype(np.uint64), mask=~ranged),
            pa.array(places.sizes.astype(np.uint64), mask=~ranged),
        ]
        mask = None if places.live.all() else pa.array(~places.live)
        return pa.StructArray.from_arrays(
            children, names=["data", "uri", "position", "size"], mask=mask
        )

    def _uri(self, places: BlobDescriptors, at: int) -> str:
        uri, number = places.uri(at), int(places.blob_ids[at])
        if not number:
            return uri
        base = self._bases.get(number)
        if base is None:
            raise CorruptTableError(
                f"{places.name}: a blob lies below base path {number}, which the manifest does not "
                "have"
            )
        root = base.path if ":/" in base.path else f"file://{base.path}"
        return f"{root.rstrip('/')}/{quote(uri)}"


def hides_first_field(fragments: Iterable[Fragment], ids: Collection[int]) -> bool:
    """Whether a file of fields that get new values takes the first field from a file of version 0.1
    that keeps others.

    See `loses_first` for what pylance makes of such a file.

    Parameters
    ----------
    fragments : iterable of Fragment
    ids : collection of int
        Of the fields that get new values.
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
    """Return a fragment with a new file in the place of what others have of its columns.

    Parameters
    ----------
    paths : TablePaths
    fragment : Fragment
    new : DataFile
    superseded : collection of int
        Ids of the fields that the new file has, and of those above and below them.
    """
    proto = fragment.to_proto()
    proto.ClearField("files")
    for file in fragment.to_proto().files:
        # The message itself: other clients may have more in it than is known here.
        file.fields[:] = [_TOMBSTONE if field in superseded else field for field in file.fields]
        if any(field != _TOMBSTONE for field in file.fields):
            proto.files.append(file)
    proto.files.append(new.to_proto())
    if fragment.has_lineage(Lineage.UPDATED) and not fragment.inline_lineage(Lineage.UPDATED):
        # Files cannot be changed; what the manifest says comes in its place.
        store_lineage(proto, updated=updated_versions_of(fragment, paths))
    return Fragment.from_proto(proto, "fragment with new columns")


def splice(old: pa.Array, new: pa.ChunkedArray, order: pa.Array) -> pa.ChunkedArray:
    """Return values that are chosen from two arrays put together.

    Raises
    ------
    InvalidInputError
        They are too many for a dictionary.
    """
    dtype = old.type
    if not pat.is_dictionary(dtype):
        return pa.chunked_array([old, *new.chunks], dtype).take(order)
    # Arrow does not unify all dictionaries that files can have.
    plain = [item.cast(dtype.value_type) for item in (old, *new.chunks)]
    both = pa.chunked_array(plain, dtype.value_type).take(order).combine_chunks()
    try:
        return pa.chunked_array([both.dictionary_encode().cast(dtype)])
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"new values make too many for {dtype}: {error}") from None


def spliced_rows(
    rows: range, old: pa.RecordBatch, offsets: Offsets, new: pa.Table
) -> list[pa.RecordBatch]:
    """Return physical rows with new values at some offsets, and their old values elsewhere.

    Parameters
    ----------
    rows : range
        Offsets of the rows in their fragment.
    old : pa.RecordBatch
        Values of all of these rows.
    offsets : int64 array
        Offsets of the rows that get new values, increasing.
    new : pa.Table
        Their values, with the schema of `old`.
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
    """Return the arrays of the blobs inside of an array."""
    leaves: list[pa.Array] = []

    def note(leaf: pa.Array, _: Field) -> pa.Array:
        leaves.append(leaf)
        return leaf

    replace_blobs(array, field, note)
    return leaves
