"""Rows that move: they are written to new fragments with some new values, and are to be deleted where they were.

Values that nobody gives are read where the row is. In tables with stable row ids rows keep their ids and the version that they were
created in; the commit notes its own version as that of their last change. Specification: table/row_id_lineage.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.changes.rewriting import keeping_references
from lance_spark.changes.rows_at import RowsAt, note_once
from lance_spark.changes.update_task import carrying
from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.file.blob_fields import input_schema
from lance_spark.file.schema import Schema
from lance_spark.table.align import align
from lance_spark.table.deletion_writer import encode_bitmap
from lance_spark.table.fragment import Fragment
from lance_spark.table.fragment_writer import DEFAULT_MAX_ROWS_PER_FILE, FragmentWriter
from lance_spark.table.open import OpenTable
from lance_spark.table.segments import Words

#: Rows that are moved at once, at most.
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Moved:
    """What a task wrote. Small, and can be pickled.

    Attributes
    ----------
    fragments : tuple of Fragment
        Of rows that moved: with their ids, and the versions that they were created in, in tables with stable row ids.
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
    rows: RowsAt
    reads: bool


class RowMover:
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
    """

    def __init__(
        self,
        table: OpenTable,
        schema: Schema,
        given: Sequence[str],
        *,
        tag: bytes,
        max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    ) -> None:
        self._table = table
        self._schema = schema
        self._arrow = input_schema(schema)
        self._given = tuple(given)
        self._rests: dict[tuple[str, ...], _Rest] = {}
        self._stable = table.manifest.flags.stable_row_ids
        self._tag = tag
        self._max_rows = max_rows_per_file
        self._moving: FragmentWriter | None = None
        self._inserting: FragmentWriter | None = None
        self._ids, self._created = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        self._rows: dict[int, BitMap] = {}
        self._num_rows = self._num_inserted = 0

    def move(
        self, addresses: Words, values: pa.RecordBatch, given: Sequence[str] | None = None
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
            An address comes twice, or is not one of a live row; or a column that must not be null has nulls.
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
        step = _BATCH_ROWS
        if rest.reads:
            step = min(step, rest.rows.window_rows(int(addresses[0])))
        for at in range(0, len(addresses), step):
            self._write(rest, addresses[at : at + step], values.slice(at, step))

    def mark(self, addresses: Words) -> None:
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
            self._inserting = self._writer()
        self._inserting.write(values)
        self._num_inserted += values.num_rows

    def finish(self) -> Moved:
        """Close the files, and return what was written."""
        self._close()
        fragments = self._moving.finish() if self._moving is not None else []
        inserted = self._inserting.finish() if self._inserting is not None else []
        if self._stable:
            fragments = carrying(
                fragments, np.concatenate(self._ids), np.concatenate(self._created)
            )
        return Moved(
            tuple(fragments),
            tuple(inserted),
            {number: encode_bitmap(rows) for number, rows in self._rows.items()},
            self._num_rows,
            self._num_inserted,
        )

    def abort(self) -> None:
        """Delete everything that was written; what cannot be deleted is left to cleanup."""
        self._close()
        for writer in (self._moving, self._inserting):
            if writer is not None:
                with suppress(StorageError):
                    writer.abort()

    def _rest_of(self, given: tuple[str, ...]) -> _Rest:
        found = self._rests.get(given)
        if found is None:
            fields = tuple(one for one in self._schema.fields if one.name not in given)
            chosen = pa.schema([one for one in self._arrow if one.name in given])
            found = _Rest(chosen, RowsAt(self._table, fields), bool(fields))
            self._rests[given] = found
        return found

    def _close(self) -> None:
        for rest in self._rests.values():
            rest.rows.close()

    def _write(self, rest: _Rest, addresses: Words, values: pa.RecordBatch) -> None:
        new = dict(zip(values.schema.names, values.columns, strict=True))
        if rest.reads or self._stable:
            there = rest.rows.read(addresses)
            new.update(zip(there.values.schema.names, there.values.columns, strict=True))
            if self._stable:
                self._ids.append(there.row_ids)
                self._created.append(there.created)
        names = self._schema.names
        if self._moving is None:
            self._moving = self._writer()
        self._moving.write(pa.RecordBatch.from_arrays([new[one] for one in names], names=names))

    def _note(self, addresses: Words) -> None:
        note_once(self._table, self._rows, addresses)
        self._num_rows += len(addresses)

    def _writer(self) -> FragmentWriter:
        manifest = self._table.manifest
        return FragmentWriter(
            self._table.store,
            self._schema,
            manifest.data_storage_version,
            max_rows_per_file=self._max_rows,
            tag=self._tag,
            blobs=keeping_references(manifest.base_paths),
            storage_options=self._table.store.options,
        )
