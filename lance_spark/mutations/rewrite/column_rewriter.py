"""A writer of data files for columns whose values arrive by row address.

| columns | rows without a value |
| --- | --- |
| new | live rows make the file incomplete; deleted rows get null, or repeat a live row |
| old | keep their old values |
| overlay | are not in the file |

A file of new or old columns has a row for each physical row of its fragment. Values arrive and are
written fragment by fragment, with increasing addresses. One window of rows is in memory at a time.
No version refers to the files before the commit. Specification: table/commit/transaction.md,
`Merge`, `Update` and `DataOverlay`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.overlay_files import (
    OverlayFile,
    check_null_structs,
    check_overlaid_fields,
    has_structs,
)
from lance_spark.mutations.rewrite.readers import (
    RowReader,
    check_first_field,
    replace_data_file,
    spliced_rows,
)
from lance_spark.mutations.rewrite.writers import (
    UNLIMITED,
    DeletedRowPadding,
    NewFile,
    rewrite_writer,
    undo,
)
from lance_spark.mutations.rows.update import ChangedColumns
from lance_spark.runner import check_once
from lance_spark.scan.fragment.column_reader import WINDOW_BYTES
from lance_spark.table.align import align
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable
from lance_spark.table.placement import Placement, placement_of
from lance_spark.table.rows.addresses import OFFSET_BITS, fragment_runs
from lance_spark.table.rows.deletions import Offsets, bitmap_of, encode_bitmap, read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array

#: What the files of a `ColumnRewriter` are.
ColumnTarget = Literal["new", "old", "overlay"]
_WINDOW_ROWS = 65_536


class RowOrderError(InvalidInputError):
    """A row address occurs twice, or addresses are not in order."""


@dataclass(frozen=True, slots=True)
class ColumnFile(NewFile):
    """The data file of rewritten columns of a fragment.

    - `rows`: Offsets of the rows that got a value, as a Roaring bitmap.
    - `complete`: Whether each live row got a value.
    """

    rows: bytes
    complete: bool


class ColumnRewriter:
    """Writes one data file for each fragment whose rows get values. Each task has one.

    - `schema`: The top-level columns, with their ids.
    - `target`: ``new``: the table does not have the columns. ``old``: it has them, and rows without
      a value keep their old value. ``overlay``: it has them, and the files are overlays.

    Raises UnsupportedFeatureError, UnsupportedError, UnsupportedTypeError: the table needs a newer
    release, or its files cannot have such columns.
    """

    def __init__(
        self, table: OpenTable, schema: Schema, *, target: ColumnTarget, tag: bytes = b""
    ) -> None:
        # The plan of a statement says which constraints are checked, and the commit knows.
        check_rows_changeable(table, data_files=True, written=())
        check_types(schema, table.manifest.data_storage_version)
        if target == "old":
            check_first_field(table, {node.id for node in schema.walk()})
        elif target == "overlay":
            check_overlaid_fields(table, schema.fields)
        self._table = table
        self._schema = schema
        self._arrow = input_schema(schema)
        self._patch_type = _PATCHES[target]
        self._tag = tag
        self._placement = placement_of(table)
        self._fragments = {
            fragment.id: fragment for fragment in counted_fragments(table.paths, table.manifest)
        }
        self._done: dict[int, ColumnFile] = {}
        self._open: _FragmentPatch | None = None

    def put(self, addresses: UInt64Array, values: pa.RecordBatch) -> None:
        """Give rows their values.

        - `addresses`: Addresses of live rows, increasing within a fragment. The addresses of one
          fragment are adjacent, also over several calls.
        - `values`: The columns, in the types that a writer of the table accepts.

        Raises RowOrderError: an address occurs twice or out of order. Raises InvalidInputError: an
        address is not that of a live row, or a column that must not be null has nulls. Raises
        SchemaMismatchError: a column is missing, unknown, or of another type.
        """
        if len(addresses) != values.num_rows:
            raise InvalidInputError(f"{len(addresses)} addresses for {values.num_rows} rows")
        values = align(values, self._arrow)
        if not values.num_rows:
            return
        for number, rows, offsets in fragment_runs(addresses):
            self._patch(number).put(offsets, values.slice(rows.start, len(offsets)))

    def finish(self) -> list[ColumnFile]:
        """Close the last file, and return all files in the order in which they were written."""
        self._close()
        return list(self._done.values())

    def abort(self) -> None:
        """Delete all files; those that cannot be deleted are left to cleanup."""
        patch, self._open = self._open, None
        with suppress(StorageError):
            if patch is not None:
                patch.abort()
        with suppress(StorageError):
            undo(self._table.paths, self._done.values())
        self._done = {}

    def _patch(self, number: int) -> _FragmentPatch:
        if self._open is not None and self._open.fragment.id == number:
            return self._open
        self._close()
        name = self._table.store.display
        if number in self._done:
            raise RowOrderError(
                f"{name}: values of fragment {number} occur again after values of another "
                "fragment; sort the rows by _rowaddr"
            )
        fragment = self._fragments.get(number)
        if fragment is None:
            raise InvalidInputError(
                f"{name}: version {self._table.version} has no fragment {number}, which a _rowaddr "
                "names"
            )
        self._open = self._patch_type(
            self._table, fragment, self._schema, self._tag, self._placement
        )
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
    """Writes the file of one fragment."""

    def __init__(
        self, table: OpenTable, fragment: Fragment, schema: Schema, tag: bytes, placement: Placement
    ) -> None:
        manifest = table.manifest
        self.fragment = fragment
        self._name = table.store.display
        self._schema = schema
        self._version = manifest.data_storage_version
        self._deleted = read_deletions(table.paths, fragment)
        self._writer = rewrite_writer(
            table.paths,
            schema,
            self._version,
            manifest.base_paths,
            max_rows_per_file=UNLIMITED,
            max_bytes_per_file=UNLIMITED,
            tag=tag,
            targets=placement.of_one_file(fragment),
        )
        #: Offset of the first physical row that is not written yet.
        self._next = 0
        self._rows = BitMap()
        self._start(table)

    def put(self, offsets: Offsets, values: pa.RecordBatch) -> None:
        """Write all rows up to the last one of `offsets`."""
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
        """Write the remaining rows, and close the file."""
        if self._next < self.fragment.physical_rows:
            self._write_without_values(range(self._next, self.fragment.physical_rows))
        ((file,),) = (fragment.files for fragment in self._writer.finish())
        complete = len(self._rows) + len(self._deleted) == self.fragment.physical_rows
        return ColumnFile(self.fragment.id, file, encode_bitmap(self._rows), complete)

    def abort(self) -> None:
        """Delete the file."""
        self._writer.abort()

    def _window_rows(self, values: pa.RecordBatch) -> int:
        """Return the number of rows to hold in memory: sparse values lie among many other rows."""
        width: int = max(values.nbytes // values.num_rows, 1)
        return min(max(WINDOW_BYTES // width, 1), _WINDOW_ROWS)

    def _start(self, table: OpenTable) -> None:
        raise NotImplementedError

    def _write(self, rows: range, offsets: Offsets, values: pa.RecordBatch) -> None:
        raise NotImplementedError

    def _write_without_values(self, rows: range) -> None:
        raise NotImplementedError

    def _check(self, offsets: Offsets) -> None:
        misplaced = np.flatnonzero(np.diff(offsets, prepend=self._next - 1) <= 0)
        if len(misplaced):
            position = int(offsets[misplaced[0]])
            is_repeated = position in self._rows or bool((offsets == position).sum() > 1)
            problem = "occurs twice: a key may match twice" if is_repeated else "is out of order"
            raise RowOrderError(f"{self._name}: {self._shown(position)} {problem}")
        if offsets[-1] >= self.fragment.physical_rows:
            raise InvalidInputError(
                f"{self._name}: {self._shown(int(offsets[-1]))} is out of range: the fragment has "
                f"{self.fragment.physical_rows} rows"
            )
        deleted = offsets[np.isin(offsets, self._deleted, assume_unique=True)]
        if len(deleted):
            raise InvalidInputError(f"{self._name}: {self._shown(int(deleted[0]))} is deleted")

    def _shown(self, offset: int) -> str:
        address = (self.fragment.id << OFFSET_BITS) + offset
        return f"row {offset} of fragment {self.fragment.id} (_rowaddr {address})"


class _NewColumns(_FragmentPatch):
    """Writes columns that the table does not have yet; rows without a value are padded."""

    def _start(self, table: OpenTable) -> None:
        self._padding = DeletedRowPadding(self._schema, self._version)

    def _write(self, rows: range, offsets: Offsets, values: pa.RecordBatch) -> None:
        is_absent = np.ones(len(rows), dtype=bool)
        is_absent[offsets - rows.start] = False
        live = [values] if values.num_rows else []
        for batch in self._padding.fill(live, np.flatnonzero(is_absent), len(rows)):
            self._writer.write(batch)

    def _write_without_values(self, rows: range) -> None:
        for batch in self._padding.fill([], np.arange(len(rows)), len(rows)):
            self._writer.write(batch)


class _OldColumns(_FragmentPatch):
    """Writes columns that the table has; rows without a value keep their old value."""

    def _start(self, table: OpenTable) -> None:
        self._arrow = input_schema(self._schema)
        self._old_reader = RowReader(
            table.paths,
            self.fragment,
            self._schema.fields,
            self._version,
            table.manifest.base_paths,
        )

    def finish(self) -> ColumnFile:
        """Write the remaining rows, and close the files."""
        patched = super().finish()
        self._old_reader.close()
        return patched

    def abort(self) -> None:
        """Delete the new file."""
        self._old_reader.close()
        super().abort()

    def _window_rows(self, values: pa.RecordBatch) -> int:
        return min(super()._window_rows(values), max(self._old_reader.window_rows(), 1))

    def _write(self, rows: range, offsets: Offsets, values: pa.RecordBatch) -> None:
        if len(offsets) == len(rows):
            self._writer.write(values)
            return
        for piece, batch in self._pieces(rows):
            first, after = np.searchsorted(offsets, [piece.start, piece.stop])
            if first == after:
                self._writer.write(batch)
                continue
            new = pa.Table.from_batches([values.slice(first, after - first)])
            for spliced in spliced_rows(piece, batch, offsets[first:after], new):
                self._writer.write(spliced)

    def _write_without_values(self, rows: range) -> None:
        for _, batch in self._pieces(rows):
            self._writer.write(batch)

    def _pieces(self, rows: range) -> Iterator[tuple[range, pa.RecordBatch]]:
        window = max(self._old_reader.window_rows(), 1)
        for start in range(rows.start, rows.stop, window):
            within = range(start, min(start + window, rows.stop))
            for piece, batch in self._old_reader.pieces(within):
                yield piece, align(batch, self._arrow)


class _OverlaidColumns(_FragmentPatch):
    """Writes new values alone, of columns that the table has."""

    def _start(self, table: OpenTable) -> None:
        self._structs = tuple(field for field in self._schema.fields if has_structs(field))
        self._old_reader = RowReader(
            table.paths, self.fragment, self._structs, self._version, table.manifest.base_paths
        )

    def put(self, offsets: Offsets, values: pa.RecordBatch) -> None:
        self._check(offsets)
        if self._structs:
            old = self._old_reader.read(offsets).values
            for field in self._structs:
                check_null_structs(field, old.column(field.name), values.column(field.name))
        self._rows |= bitmap_of(offsets)
        self._writer.write(values)
        self._next = int(offsets[-1]) + 1

    def finish(self) -> ColumnFile:
        """Close the files."""
        self._old_reader.close()
        return super().finish()

    def abort(self) -> None:
        """Delete the new file."""
        self._old_reader.close()
        super().abort()

    def _write_without_values(self, rows: range) -> None:
        pass


_PATCHES: Mapping[ColumnTarget, type[_FragmentPatch]] = {
    "new": _NewColumns,
    "old": _OldColumns,
    "overlay": _OverlaidColumns,
}


def overlay_files(files: Iterable[ColumnFile]) -> list[OverlayFile]:
    """Return the overlays that files of the target ``overlay`` are."""
    return [
        OverlayFile(file.fragment_id, file.file, file.rows, len(BitMap.deserialize(file.rows)))
        for file in files
    ]


def changed_columns(table: OpenTable, patched: Iterable[ColumnFile]) -> list[ChangedColumns]:
    """Return the changed fragments that an update in columns mode commits.

    - `table`: The version that the columns were rewritten on.
    - `patched`: Files of columns that the table has, from all tasks.

    Raises CorruptTableError, StorageError. Raises InvalidInputError: two files are of one fragment.
    """
    patched = list(patched)
    check_once(table, (file.fragment_id for file in patched))
    fragments = {
        fragment.id: fragment for fragment in counted_fragments(table.paths, table.manifest)
    }
    trees = [{node.id for node in Schema((field,)).walk()} for field in table.schema.fields]
    changed = []
    for column_file in patched:
        ids = set(column_file.file.fields)
        superseded = ids.union(*(tree for tree in trees if not tree.isdisjoint(ids)))
        state = replace_data_file(
            table.paths, fragments[column_file.fragment_id], column_file.file, superseded
        )
        num_rows = len(BitMap.deserialize(column_file.rows))
        changed.append(ChangedColumns(state, column_file.rows, column_file.file.fields, num_rows))
    return changed
