"""New data files for columns whose values come by row address, from wherever they were computed.

| what | rows that no value comes for |
| --- | --- |
| new columns | live ones make the file incomplete; deleted ones get null, or the value of a row nearby where there must be one |
| new values of columns that there are | keep what they have |

A new file has a row for each physical row of its fragment, and is written as the values come: one
fragment after the other, addresses increasing. One window of rows is in memory at a time. Nothing
refers to the files before they are committed. Specification: table/commit/transaction.md, `Merge`
and `Update`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.columns.deleted_row_padding import DeletedRowPadding
from lance_spark.mutations.retry import check_once, check_rows_writable
from lance_spark.mutations.rewrite.row_reader import (
    RowReader,
    check_first_field,
    keeping_references,
    replace_data_file,
    splice,
)
from lance_spark.mutations.rows.update_task import ChangedColumns
from lance_spark.scan.fragment.column_reader import WINDOW_BYTES
from lance_spark.table.align import align
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.fragments.writer import FragmentWriter, delete_fragments
from lance_spark.table.open import OpenTable
from lance_spark.table.placement import Placement, placement_of
from lance_spark.table.rows.deletion_writer import bitmap_of, encode_bitmap
from lance_spark.table.rows.deletions import Offsets, read_deletions
from lance_spark.table.rows.index import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

#: One file for a fragment, however large.
_UNLIMITED = 1 << 62
_WINDOW_ROWS = 65_536
_OFFSETS = np.uint64((1 << OFFSET_BITS) - 1)


class RowOrderError(InvalidInputError):
    """Rows come twice, or not in the order of their addresses."""


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """The data file that was written for a fragment. Small, and can be pickled.

    Attributes
    ----------
    fragment_id : int
    file : DataFile
    rows : bytes
        Offsets of the rows that a value came for, as a Roaring bitmap.
    complete : bool
        Whether one came for each live row.
    """

    fragment_id: int
    file: DataFile
    rows: bytes
    complete: bool


class ColumnRewriter:
    """Writes one data file for each fragment that values come for. One for each task.

    Parameters
    ----------
    table : OpenTable
        At the version that the addresses are of.
    schema : Schema
        The top-level columns, with their ids.
    old : bool
        Whether the table has the columns, so that rows without a value keep theirs; they are new
        ones otherwise.
    tag : bytes
        Ends the names of the files.

    Raises
    ------
    UnsupportedFeatureError, UnsupportedError, UnsupportedTypeError
        The table needs more than this release does, or its files cannot have such columns.
    """

    def __init__(self, table: OpenTable, schema: Schema, *, old: bool, tag: bytes = b"") -> None:
        check_rows_writable(table, data_files=True)
        check_types(schema, table.manifest.data_storage_version)
        if old:
            check_first_field(table, {node.id for node in schema.walk()})
        self._table = table
        self._schema = schema
        self._arrow = input_schema(schema)
        self._old = old
        self._tag = tag
        self._placement = placement_of(table)
        self._fragments = {item.id: item for item in counted_fragments(table.paths, table.manifest)}
        self._done: dict[int, ColumnFile] = {}
        self._open: _FragmentPatch | None = None

    def put(self, addresses: UInt64Array, values: pa.RecordBatch) -> None:
        """Give rows their values.

        Parameters
        ----------
        addresses : uint64 array
            Of live rows, increasing within a fragment; those of one fragment come one after the
            other.
        values : pa.RecordBatch
            The columns, in the types that a writer of the table takes.

        Raises
        ------
        RowOrderError
            An address comes twice or out of order.
        InvalidInputError
            It is not one of a live row, or a column that must not be null has nulls.
        SchemaMismatchError
            A column is missing, unknown, or of another type.
        """
        if len(addresses) != values.num_rows:
            raise InvalidInputError(f"{len(addresses)} addresses for {values.num_rows} rows")
        values = align(values, self._arrow)
        if not values.num_rows:
            return
        numbers = addresses >> np.uint64(OFFSET_BITS)
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] ^ np.uint64(1)))
        stops = [*starts[1:].tolist(), len(addresses)]
        for start, stop in zip(starts.tolist(), stops, strict=True):
            patch = self._patch(int(numbers[start]))
            offsets = (addresses[start:stop] & _OFFSETS).astype(np.int64)
            patch.put(offsets, values.slice(start, stop - start))

    def finish(self) -> list[ColumnFile]:
        """Close the last file, and return what was written, in the order that the fragments came
        in.
        """
        self._close()
        return list(self._done.values())

    def abort(self) -> None:
        """Delete everything that was written; what cannot be deleted is left to cleanup."""
        patch, self._open = self._open, None
        with suppress(StorageError):
            if patch is not None:
                patch.abort()
        with suppress(StorageError):
            delete_patched(self._table, self._done.values())
        self._done = {}

    def _patch(self, number: int) -> _FragmentPatch:
        if self._open is not None and self._open.fragment.id == number:
            return self._open
        self._close()
        name = self._table.store.display
        if number in self._done:
            raise RowOrderError(
                f"{name}: values for rows of fragment {number} come again after those of others; "
                "sort them by _rowaddr"
            )
        fragment = self._fragments.get(number)
        if fragment is None:
            raise InvalidInputError(
                f"{name}: version {self._table.version} has no fragment {number}, which a _rowaddr "
                "names"
            )
        if self._old:
            kind: type[_FragmentPatch] = _OldColumns
        else:
            kind = _NewColumns
        self._open = kind(self._table, fragment, self._schema, self._tag, self._placement)
        return self._open

    def _close(self) -> None:
        patch, self._open = self._open, None
        if patch is None:
            return
        try:
            self._done[patch.fragment.id] = patch.finish()
        except BaseException:
            patch.abort()
            raise


class _FragmentPatch:
    """The file of one fragment, while it is written."""

    def __init__(
        self,
        table: OpenTable,
        fragment: Fragment,
        schema: Schema,
        tag: bytes,
        placement: Placement,
    ) -> None:
        manifest = table.manifest
        self.fragment = fragment
        self._name = table.store.display
        self._schema = schema
        self._version = manifest.data_storage_version
        self._deleted = read_deletions(table.paths, fragment)
        self._writer = FragmentWriter(
            table.paths,
            schema,
            self._version,
            max_rows_per_file=_UNLIMITED,
            max_bytes_per_file=_UNLIMITED,
            tag=tag,
            blobs=keeping_references(manifest.base_paths),
            targets=placement.of_one_file(fragment),
        )
        #: The first physical row that is not written yet.
        self._next = 0
        self._rows = BitMap()

    def put(self, offsets: Offsets, values: pa.RecordBatch) -> None:
        """Write rows up to the last of some that have values."""
        self._check(offsets)
        self._rows |= bitmap_of(offsets)
        last = int(offsets[-1]) + 1
        window = self._window_rows(values)
        for start in range(self._next, last, window):
            stop = min(start + window, last)
            first, after = np.searchsorted(offsets, [start, stop])
            self._write(
                range(start, stop), offsets[first:after], values.slice(first, after - first)
            )
        self._next = last

    def finish(self) -> ColumnFile:
        """Write what is left, and close the file."""
        if self._next < self.fragment.physical_rows:
            self._write_rest(range(self._next, self.fragment.physical_rows))
        ((file,),) = (item.files for item in self._writer.finish())
        complete = len(self._rows) + len(self._deleted) == self.fragment.physical_rows
        return ColumnFile(self.fragment.id, file, encode_bitmap(self._rows), complete)

    def abort(self) -> None:
        """Delete the file."""
        self._writer.abort()

    def _window_rows(self, values: pa.RecordBatch) -> int:
        """Return how many rows there should be in memory; values that are sparse come among many
        others.
        """
        width: int = max(values.nbytes // values.num_rows, 1)
        return min(max(WINDOW_BYTES // width, 1), _WINDOW_ROWS)

    def _write(self, rows: range, offsets: Offsets, values: pa.RecordBatch) -> None:
        raise NotImplementedError

    def _write_rest(self, rows: range) -> None:
        raise NotImplementedError

    def _check(self, offsets: Offsets) -> None:
        wrong = np.flatnonzero(np.diff(offsets, prepend=self._next - 1) <= 0)
        if len(wrong):
            position = int(offsets[wrong[0]])
            twice = position in self._rows or bool((offsets == position).sum() > 1)
            what = "comes twice: a key may match twice" if twice else "comes out of order"
            raise RowOrderError(f"{self._name}: {self._shown(position)} {what}")
        if offsets[-1] >= self.fragment.physical_rows:
            raise InvalidInputError(
                f"{self._name}: {self._shown(int(offsets[-1]))} is none: there are "
                f"{self.fragment.physical_rows} rows"
            )
        gone = offsets[np.isin(offsets, self._deleted, assume_unique=True)]
        if len(gone):
            raise InvalidInputError(f"{self._name}: {self._shown(int(gone[0]))} is deleted")

    def _shown(self, offset: int) -> str:
        return f"row {offset} of fragment {self.fragment.id} (_rowaddr {(self.fragment.id << OFFSET_BITS) + offset})"


class _NewColumns(_FragmentPatch):
    """Columns that the table does not have yet: the other rows are filled."""

    def __init__(
        self,
        table: OpenTable,
        fragment: Fragment,
        schema: Schema,
        tag: bytes,
        placement: Placement,
    ) -> None:
        super().__init__(table, fragment, schema, tag, placement)
        # Structs are never null in files of version 2.0.
        nullable = self._version > (2, 0) and all(field.nullable for field in schema.fields)
        self._filler = DeletedRowPadding(nullable)

    def _write(self, rows: range, offsets: Offsets, values: pa.RecordBatch) -> None:
        absent = np.ones(len(rows), dtype=bool)
        absent[offsets - rows.start] = False
        live = [values] if values.num_rows else []
        for batch in self._filler.fill(live, np.flatnonzero(absent), len(rows)):
            self._writer.write(batch)

    def _write_rest(self, rows: range) -> None:
        for batch in self._filler.fill([], np.arange(len(rows)), len(rows)):
            self._writer.write(batch)


class _OldColumns(_FragmentPatch):
    """Columns that the table has: the other rows keep their values."""

    def __init__(
        self,
        table: OpenTable,
        fragment: Fragment,
        schema: Schema,
        tag: bytes,
        placement: Placement,
    ) -> None:
        super().__init__(table, fragment, schema, tag, placement)
        manifest = table.manifest
        self._arrow = input_schema(schema)
        self._there = RowReader(
            table.paths, fragment, schema.fields, self._version, manifest.base_paths
        )

    def finish(self) -> ColumnFile:
        """Write what is left, and close the files."""
        patched = super().finish()
        self._there.close()
        return patched

    def abort(self) -> None:
        """Delete the new file."""
        self._there.close()
        super().abort()

    def _window_rows(self, values: pa.RecordBatch) -> int:
        return min(super()._window_rows(values), max(self._there.window_rows(), 1))

    def _write(self, rows: range, offsets: Offsets, values: pa.RecordBatch) -> None:
        if len(offsets) == len(rows):
            self._writer.write(values)
            return
        for piece, batch in self._pieces(rows):
            first, after = np.searchsorted(offsets, [piece.start, piece.stop])
            self._writer.write(
                self._replaced(
                    piece, batch, offsets[first:after], values.slice(first, after - first)
                )
            )

    def _write_rest(self, rows: range) -> None:
        for _, batch in self._pieces(rows):
            self._writer.write(batch)

    def _pieces(self, rows: range) -> Iterator[tuple[range, pa.RecordBatch]]:
        window = max(self._there.window_rows(), 1)
        for start in range(rows.start, rows.stop, window):
            within = range(start, min(start + window, rows.stop))
            for piece, batch in self._there.pieces(within):
                yield piece, align(batch, self._arrow)

    def _replaced(
        self, rows: range, old: pa.RecordBatch, offsets: Offsets, new: pa.RecordBatch
    ) -> pa.RecordBatch:
        if not len(offsets):
            return old
        order = np.arange(len(rows))
        order[offsets - rows.start] = len(rows) + np.arange(len(offsets))
        indices = pa.array(order)
        columns: Sequence[pa.ChunkedArray] = [
            splice(column, pa.chunked_array([other]), indices)
            for column, other in zip(old.columns, new.columns, strict=True)
        ]
        table = pa.Table.from_arrays(columns, schema=self._arrow).combine_chunks()
        (batch,) = table.to_batches()
        return batch


def changed_columns(table: OpenTable, patched: Iterable[ColumnFile]) -> list[ChangedColumns]:
    """Return what an update in columns mode commits.

    Parameters
    ----------
    table : OpenTable
        At the version that the columns were patched on.
    patched : iterable of Patched
        Of columns that the table has, of all tasks.

    Raises
    ------
    InvalidInputError
        Two are of one fragment.
    CorruptTableError, StorageError
    """
    patched = list(patched)
    check_once(table, (item.fragment_id for item in patched))
    fragments = {item.id: item for item in counted_fragments(table.paths, table.manifest)}
    trees = [{node.id for node in Schema((field,)).walk()} for field in table.schema.fields]
    result = []
    for item in patched:
        ids = set(item.file.fields)
        superseded = ids.union(*(tree for tree in trees if not tree.isdisjoint(ids)))
        state = replace_data_file(table.paths, fragments[item.fragment_id], item.file, superseded)
        num_rows = len(BitMap.deserialize(item.rows))
        result.append(ChangedColumns(state, item.rows, item.file.fields, num_rows))
    return result


def delete_patched(table: OpenTable, patched: Iterable[ColumnFile]) -> None:
    """Delete files that are not committed.

    Raises
    ------
    StorageError
    """
    delete_fragments(table.paths, [Fragment(0, [item.file for item in patched], 0)])
