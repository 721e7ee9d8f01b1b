"""Rows that move: they are written to new fragments with some new values, and are to be deleted
where they were.

Values that nobody gives are read where the row is. In tables with stable row ids rows keep their
ids and the version that they were created in; the commit notes its own version as that of their
last change. Specification: table/row_id_lineage.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.rewrite.address_reader import AddressReader, add_unique_addresses
from lance_spark.mutations.rewrite.row_reader import keeping_references
from lance_spark.mutations.rows.update_task import carrying
from lance_spark.table.align import align
from lance_spark.table.bases import Target
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import DEFAULT_MAX_ROWS_PER_FILE, FragmentWriter
from lance_spark.table.open import OpenTable
from lance_spark.table.placement import placement_of
from lance_spark.table.rows.deletion_writer import encode_bitmap
from lance_spark.table.rows.index import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

#: Rows that are moved at once, at most.
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class RewrittenRows:
    """What a task wrote. Small, and can be pickled.

    Attributes
    ----------
    fragments : tuple of Fragment
        Of rows that moved: with their ids, and the versions that they were created in, in tables
        with stable row ids.
    inserted : tuple of Fragment
        Of rows that are new.
    rows : mapping of int to bytes
        By fragment, offsets of the rows where they were before, as a Roaring bitmap.
    num_rows : int
        Rows that moved.
    num_inserted : int
        Rows that are new.
    """

    fragments: tuple[Fragment, ...] = ()
    inserted: tuple[Fragment, ...] = ()
    rows: Mapping[int, bytes] = field(default_factory=dict)
    num_rows: int = 0
    num_inserted: int = 0


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is read of rows, some of whose columns are given.

    Attributes
    ----------
    given : pyarrow.Schema
    rows : RowsAt
        Of the other columns.
    reads : bool
        Whether there are any.
    """

    given: pa.Schema
    rows: AddressReader
    reads: bool


@dataclass(slots=True)
class _Moving:
    """Rows that move to the same places.

    Attributes
    ----------
    writer : FragmentWriter
    ids, created : list of uint64 array
        Ids of the rows that were written, and the versions that they were created in, in tables
        with stable row ids.
    """

    writer: FragmentWriter
    ids: list[UInt64Array] = field(default_factory=list)
    created: list[UInt64Array] = field(default_factory=list)


class RowRewriter:
    """Writes rows that move, and new ones. One for each task.

    Parameters
    ----------
    table : OpenTable
        At the version that the addresses are of.
    schema : Schema
        Of the table.
    given : sequence of str
        Top-level columns whose values come along by default; those of the others are read.
    tag : bytes
        Ends the names of the files.
    max_rows_per_file : int
    first : int
        Which of several target bases comes first; see `FragmentWriter`.
    """

    def __init__(
        self,
        table: OpenTable,
        schema: Schema,
        given: Sequence[str],
        *,
        tag: bytes,
        max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
        first: int = 0,
    ) -> None:
        self._table = table
        self._schema = schema
        self._arrow = input_schema(schema)
        self._given = tuple(given)
        self._rests: dict[tuple[str, ...], _Rest] = {}
        self._stable = table.manifest.flags.stable_row_ids
        self._tag = tag
        self._max_rows = max_rows_per_file
        self._first = first
        self._placement = placement_of(table)
        self._moving: dict[tuple[Target, ...], _Moving] = {}
        self._inserting: FragmentWriter | None = None
        self._places: dict[int, tuple[Target, ...]] | None = None
        self._rows: dict[int, BitMap] = {}
        self._num_rows = self._num_inserted = 0

    def move(
        self, addresses: UInt64Array, values: pa.RecordBatch, given: Sequence[str] | None = None
    ) -> None:
        """Write rows with new values.

        Parameters
        ----------
        addresses : uint64 array
            Of live rows.
        values : pa.RecordBatch
            The columns that are given, in the types that a writer of the table takes.
        given : sequence of str, optional
            Their names, if they are not those of the other rows.

        Raises
        ------
        InvalidInputError
            An address comes twice, or is not one of a live row; or a column that must not be null
            has nulls.
        SchemaMismatchError
            A column is missing, unknown, or of another type.
        """
        if len(addresses) != values.num_rows:
            raise InvalidInputError(f"{len(addresses)} addresses for {values.num_rows} rows")
        if not len(addresses):
            return
        self._note(addresses)
        rest = self._rest_of(self._given if given is None else tuple(given))
        values = align(values, rest.given)
        for places, rows in self._by_places(addresses):
            if rows is None:
                self._move(rest, places, addresses, values)
            else:
                self._move(rest, places, addresses[rows], values.take(pa.array(rows)))

    def mark(self, addresses: UInt64Array) -> None:
        """Note rows that go, and are not written anywhere.

        Raises
        ------
        InvalidInputError
            An address comes twice.
        """
        self._note(addresses)
        self._num_rows -= len(addresses)

    def insert(self, values: pa.RecordBatch) -> None:
        """Write new rows.

        Parameters
        ----------
        values : pa.RecordBatch
            All columns, in the types that a writer of the table takes.
        """
        if self._inserting is None:
            self._inserting = self._writer(self._placement.of_new_rows)
        self._inserting.write(values)
        self._num_inserted += values.num_rows

    def finish(self) -> RewrittenRows:
        """Close the files, and return what was written."""
        self._close()
        fragments: list[Fragment] = []
        for moving in self._moving.values():
            new = moving.writer.finish()
            if self._stable:
                new = carrying(new, np.concatenate(moving.ids), np.concatenate(moving.created))
            fragments += new
        inserted = self._inserting.finish() if self._inserting is not None else []
        return RewrittenRows(
            tuple(fragments),
            tuple(inserted),
            {number: encode_bitmap(rows) for number, rows in self._rows.items()},
            self._num_rows,
            self._num_inserted,
        )

    def abort(self) -> None:
        """Delete everything that was written; what cannot be deleted is left to cleanup."""
        self._close()
        for writer in (*(item.writer for item in self._moving.values()), self._inserting):
            if writer is not None:
                with suppress(StorageError):
                    writer.abort()

    def _rest_of(self, given: tuple[str, ...]) -> _Rest:
        result = self._rests.get(given)
        if result is None:
            fields = tuple(item for item in self._schema.fields if item.name not in given)
            chosen = pa.schema([item for item in self._arrow if item.name in given])
            result = _Rest(chosen, AddressReader(self._table, fields), bool(fields))
            self._rests[given] = result
        return result

    def _close(self) -> None:
        for rest in self._rests.values():
            rest.rows.close()

    def _by_places(
        self, addresses: UInt64Array
    ) -> Iterator[tuple[tuple[Target, ...], npt.NDArray[np.intp] | None]]:
        """Yield where files go, and which rows these are of; None if all are."""
        if self._placement.chosen or not self._placement.homes:
            yield self._placement.of_new_rows, None
            return
        if self._places is None:
            fragments = self._table.manifest.fragments
            self._places = {item.id: self._placement.of(item) for item in fragments}
        numbers, inverse = np.unique(addresses >> np.uint64(OFFSET_BITS), return_inverse=True)
        # A fragment that the table does not have is refused when its rows are read.
        places = [self._places.get(number, (None,)) for number in numbers.tolist()]
        kinds = list(dict.fromkeys(places))
        codes = np.array([kinds.index(item) for item in places])[inverse]
        for code, kind in enumerate(kinds):
            yield kind, None if len(kinds) == 1 else np.flatnonzero(codes == code)

    def _move(
        self,
        rest: _Rest,
        places: tuple[Target, ...],
        addresses: UInt64Array,
        values: pa.RecordBatch,
    ) -> None:
        step = _BATCH_ROWS
        if rest.reads:
            step = min(step, rest.rows.window_rows(int(addresses[0])))
        for position in range(0, len(addresses), step):
            self._write(
                rest, places, addresses[position : position + step], values.slice(position, step)
            )

    def _write(
        self,
        rest: _Rest,
        places: tuple[Target, ...],
        addresses: UInt64Array,
        values: pa.RecordBatch,
    ) -> None:
        moving = self._moving.get(places)
        if moving is None:
            moving = self._moving[places] = _Moving(self._writer(places))
        new = dict(zip(values.schema.names, values.columns, strict=True))
        if rest.reads or self._stable:
            there = rest.rows.read(addresses)
            new.update(zip(there.values.schema.names, there.values.columns, strict=True))
            if self._stable:
                moving.ids.append(there.row_ids)
                moving.created.append(there.created)
        names = self._schema.names
        moving.writer.write(pa.RecordBatch.from_arrays([new[name] for name in names], names=names))

    def _note(self, addresses: UInt64Array) -> None:
        add_unique_addresses(self._table, self._rows, addresses)
        self._num_rows += len(addresses)

    def _writer(self, targets: Sequence[Target]) -> FragmentWriter:
        manifest = self._table.manifest
        return FragmentWriter(
            self._table.paths,
            self._schema,
            manifest.data_storage_version,
            max_rows_per_file=self._max_rows,
            tag=self._tag,
            blobs=keeping_references(manifest.base_paths),
            targets=targets,
            first=self._first,
        )
