"""Writers of rewritten rows; removal of their files that are not committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.file.arrays import without_sliced_matrices
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.rewrite.readers import AddressReader, add_unique_addresses
from lance_spark.runner import abort_on_error
from lance_spark.table.align import align
from lance_spark.table.bases import Target
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment, with_id
from lance_spark.table.fragments.limits import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_spark.table.fragments.writer import FragmentWriter, delete_fragments
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.placement import placement_of
from lance_spark.table.rows.addresses import split_addresses
from lance_spark.table.rows.deletions import Offsets, encode_bitmap
from lance_spark.table.rows.ids import store_lineage
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Writers of rewritten rows and columns; removal of their files that are not committed.

#: Limit of a file that holds any number of rows.
UNLIMITED = 1 << 62
#: Maximum number of deleted rows in a batch.
_FILL_ROWS = 65_536


class Written:
    """Result of a task that wrote files. Small, and can be pickled."""

    __slots__ = ()

    @property
    def new_data(self) -> Iterable[Fragment]:
        """Fragments with the data files that the task wrote, and no others."""
        return ()

    @property
    def new_deletion_files(self) -> Iterable[str]:
        """Paths of the deletion files that the task wrote."""
        return ()


@dataclass(frozen=True, slots=True)
class NewFile(Written):
    """The data file of some columns of a fragment."""

    fragment_id: int
    file: DataFile

    @property
    def new_data(self) -> Iterable[Fragment]:
        """The data file."""
        return (Fragment(0, [self.file], 0),)


def undo(paths: TablePaths, results: Written | Iterable[Written]) -> None:
    """Delete the files of tasks that are not committed. Raises StorageError."""
    results = [results] if isinstance(results, Written) else list(results)
    paths.store.delete([path for result in results for path in result.new_deletion_files])
    delete_fragments(paths, [fragment for result in results for fragment in result.new_data])


def discard(paths: TablePaths, results: Iterable[Written]) -> None:
    """Delete the files of tasks that are not committed; ignore errors of the store."""
    for result in results:
        with suppress(StorageError):
            undo(paths, result)


def rewrite_writer(
    paths: TablePaths,
    schema: Schema,
    version: tuple[int, int],
    base_paths: Mapping[int, BasePath],
    *,
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    tag: bytes = b"",
    targets: Sequence[Target] = (None,),
    first: int = 0,
) -> FragmentWriter:
    """Return a writer of rows that were read from the table: blob references stay references.

    - `paths`, `schema`, `version`, `max_rows_per_file`, `max_bytes_per_file`, `tag`, `targets`,
      `first`: Parameters of `FragmentWriter`.
    """
    folders = {number: base.path for number, base in base_paths.items() if not base.is_dataset_root}
    return FragmentWriter(
        paths,
        schema,
        version,
        max_rows_per_file=max_rows_per_file,
        max_bytes_per_file=max_bytes_per_file,
        tag=tag,
        blobs=BlobOptions("reference", bases=folders),
        targets=targets,
        first=first,
    )


class MovedRowsWriter:
    """Writes rows that move to new fragments, and keeps their lineage with stable row ids.

    New rows can follow in the same fragments: `add`.

    - `stable_row_ids`: Whether the table has stable row ids.
    """

    def __init__(self, writer: FragmentWriter, stable_row_ids: bool) -> None:
        self._writer = writer
        self._stable = stable_row_ids
        self._lineage: list[tuple[UInt64Array, ...]] = []
        self._has_new_rows = False

    def write(self, values: pa.RecordBatch, *lineage: UInt64Array) -> None:
        """Write rows.

        - `*lineage`: Row ids, the versions that created the rows, and, unless the commit sets
          these, the versions that last updated them. Not used without stable row ids.
        """
        self._writer.write(values)
        if self._stable:
            self._lineage.append(lineage)

    def add(self, values: pa.RecordBatch) -> None:
        """Write new rows. With stable row ids, no rows can move after them.

        The commit assigns ids to the rows of a fragment after those that have them.
        """
        self._has_new_rows = True
        self._writer.write(values)

    def finish(self) -> list[Fragment]:
        """Close the files; return the new fragments, with the lineage of rows that moved."""
        fragments = self._writer.finish()
        if not self._lineage:
            return fragments
        lineage = map(np.concatenate, zip(*self._lineage, strict=True))
        return with_lineage(fragments, *lineage, has_new_rows=self._has_new_rows)

    def abort(self) -> None:
        """Delete the files. Raises StorageError."""
        self._writer.abort()


def with_lineage(
    fragments: Iterable[Fragment],
    row_ids: UInt64Array,
    created: UInt64Array,
    updated: UInt64Array | None = None,
    *,
    has_new_rows: bool = False,
) -> list[Fragment]:
    """Return new fragments with the lineage of their rows: one value for each row.

    - `has_new_rows`: Whether new rows, which have no values, follow.
    """
    new = []
    start = 0
    for fragment in fragments:
        rows = slice(start, start + fragment.physical_rows)
        if has_new_rows and start >= len(row_ids):
            new.append(fragment)
            continue
        proto = fragment.to_proto()
        store_lineage(
            proto,
            row_ids=row_ids[rows],
            created=created[rows],
            updated=None if updated is None else updated[rows],
            has_new_rows=has_new_rows,
        )
        new.append(Fragment.from_proto(proto, "new fragment"))
        start = rows.stop
    return new


def with_reserved_ids(fragments: Iterable[Fragment], first: int) -> tuple[Fragment, ...]:
    """Return new fragments with reserved ids, from `first` on."""
    return tuple(with_id(fragment, number) for number, fragment in enumerate(fragments, first))


class DeletedRowPadding:
    """Adds rows to new columns in the place of deleted rows.

    - `schema`: The new columns. If all are nullable, deleted rows get nulls; else they repeat a
      live row.
    """

    def __init__(self, schema: Schema, file_version: tuple[int, int]) -> None:
        # Files of version 2.0 cannot store null structs.
        self._with_nulls = file_version > (2, 0) and all(field.nullable for field in schema.fields)
        self._row: pa.RecordBatch | None = None
        self._pending_rows = 0

    def fill(
        self, live: Sequence[pa.RecordBatch], deleted: Offsets, num_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield `num_rows` rows: the rows of `live`, and padding at the offsets `deleted`.

        If no live row is known yet, the padding is yielded by the call that has the first one.
        """
        if not len(deleted):
            for batch in live:
                yield from self._pending(batch)
                self._row = batch.slice(batch.num_rows - 1)
                yield batch
            return
        if not live:
            if self._row is None:
                self._pending_rows += num_rows
            else:
                yield from self._repeat(self._row, num_rows)
            return
        table = pa.Table.from_batches(map(without_sliced_matrices, live), live[0].schema)
        is_live = np.ones(num_rows, dtype=bool)
        is_live[deleted] = False
        live_index = np.cumsum(is_live) - 1
        indices = pa.array(np.maximum(live_index, 0), mask=~is_live if self._with_nulls else None)
        for batch in table.slice(0, 1).combine_chunks().to_batches():
            yield from self._pending(batch)
        filled = table.take(indices).combine_chunks()
        self._row = table.slice(table.num_rows - 1).combine_chunks().to_batches()[0]
        yield from filled.to_batches()

    def _pending(self, row: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        count, self._pending_rows = self._pending_rows, 0
        if count:
            yield from self._repeat(row.slice(0, 1), count)

    def _repeat(self, row: pa.RecordBatch, num_rows: int) -> Iterator[pa.RecordBatch]:
        row = without_sliced_matrices(row)
        for position in range(0, num_rows, _FILL_ROWS):
            count = min(_FILL_ROWS, num_rows - position)
            indices = np.zeros(count, np.int64)
            mask = np.ones(count, dtype=bool) if self._with_nulls else None
            yield row.take(pa.array(indices, mask=mask))


# --------------------------------------------------------------------------------------------------
# A writer of rows that move: they are written to new fragments with some new values.
#
# The commit deletes them from their old fragments. Values that are not given are read from the old
# fragment. In tables with stable row ids, rows keep their ids and the versions that created them;
# the commit records its version as their last update. Specification: table/row_id_lineage.md.
#
# Inserted rows follow the rows that moved, in the same fragment, so that many small merges make
# half as many fragments. They have a fragment of their own if an index can cover the rows that
# moved: with stable row ids, a commit adds a fragment to the indexes of columns that did not
# change.
#
# A task may hold few bytes of rows that move in place of writing them. The commit writes the rows
# that all tasks hold (`write_held`), so that a small change of many fragments makes one fragment.

#: Maximum number of rows that are moved at once.
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows that the commit writes. Can be pickled.

    - `targets`: Where the rows go.
    - `stream`: The rows, with all columns of the table, as an Arrow stream of one batch.
    - `lineage` (tuple of uint64 array): See `MovedRowsWriter.write`.
    """

    targets: tuple[Target, ...]
    stream: bytes
    lineage: tuple[UInt64Array, ...]

    @classmethod
    def of(
        cls, targets: tuple[Target, ...], rows: pa.RecordBatch, lineage: tuple[UInt64Array, ...]
    ) -> HeldRows:
        """Return rows without what else is in their buffers, which a pickle would have."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        return cls(targets, sink.getvalue().to_pybytes(), lineage)

    @property
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        reader: Iterator[pa.RecordBatch] = pa.ipc.open_stream(self.stream)
        return reader


@dataclass(frozen=True, slots=True)
class RewrittenRows:
    """The result of a task. Small, and can be pickled.

    - `fragments`: New fragments of moved rows, with the lineage of these rows in tables with stable
      row ids. Inserted rows may follow them.
    - `inserted`: New fragments of inserted rows alone.
    - `rows`: Old offsets of the moved and deleted rows by fragment, as Roaring bitmaps.
    - `num_rows`: Number of moved rows.
    - `held`: Moved rows that no fragment has yet.
    """

    fragments: tuple[Fragment, ...] = ()
    inserted: tuple[Fragment, ...] = ()
    rows: Mapping[int, bytes] = field(default_factory=dict)
    num_rows: int = 0
    num_inserted: int = 0
    held: tuple[HeldRows, ...] = ()


@dataclass(frozen=True, slots=True)
class _ValueSource:
    """The source of the values of rows, some of whose columns are given."""

    schema: pa.Schema
    reader: AddressReader
    has_others: bool


class RowRewriter:
    """Writes moved and inserted rows. Each task has one.

    - `given_names`: Top-level columns whose values are given by default; the values of the others
      are read.
    - `max_held`: Bytes of rows that move up to which no file is written, if no row is inserted.
    """

    def __init__(
        self,
        table: OpenTable,
        schema: Schema,
        given_names: Sequence[str],
        *,
        tag: bytes,
        max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
        first: int = 0,
        max_held: int = 0,
    ) -> None:
        self._table = table
        self._schema = schema
        self._arrow = input_schema(schema)
        self._given_names = tuple(given_names)
        self._sources: dict[tuple[str, ...], _ValueSource] = {}
        self._stable = table.manifest.flags.stable_row_ids
        self._tag = tag
        self._max_rows = max_rows_per_file
        self._first = first
        self._placement = placement_of(table)
        self._moving: dict[tuple[Target, ...], MovedRowsWriter] = {}
        self._inserting: MovedRowsWriter | None = None
        #: All writers; the value is whether a writer has rows that moved.
        self._writers: dict[MovedRowsWriter, bool] = {}
        self._targets: dict[int, tuple[Target, ...]] | None = None
        self._rows: dict[int, BitMap] = {}
        self._num_rows = self._num_inserted = 0
        self._held: list[HeldRows] = []
        self._unheld = max_held

    def move(
        self,
        addresses: UInt64Array,
        values: pa.RecordBatch,
        given_names: Sequence[str] | None = None,
    ) -> None:
        """Write rows with new values.

        - `addresses` (uint64 array): Addresses of live rows.
        - `values`: The given columns, in the types that a writer of the table accepts.
        - `given_names`: Names of the given columns, if they differ from the default.

        Raises InvalidInputError: an address occurs twice, or is not that of a live row; or a column
        that must not be null has nulls. Raises SchemaMismatchError: a column is missing, unknown,
        or of another type.
        """
        if len(addresses) != values.num_rows:
            raise InvalidInputError(f"{len(addresses)} addresses for {values.num_rows} rows")
        if not len(addresses):
            return
        self._add(addresses)
        source = self._source_of(self._given_names if given_names is None else tuple(given_names))
        values = without_sliced_matrices(align(values, source.schema))
        for targets, rows in self._by_targets(addresses):
            if rows is None:
                self._move(source, targets, addresses, values)
            else:
                self._move(source, targets, addresses[rows], values.take(pa.array(rows)))

    def mark_deleted(self, addresses: UInt64Array) -> None:
        """Record rows that the commit deletes and that are not written again.

        Raises InvalidInputError: an address occurs twice.
        """
        self._add(addresses)
        self._num_rows -= len(addresses)

    def insert(self, values: pa.RecordBatch) -> None:
        """Write new rows.

        - `values`: All columns, in the types that a writer of the table accepts.
        """
        self._write_held()
        if self._inserting is None:
            self._inserting = self._inserting_writer()
        self._inserting.add(values)
        self._num_inserted += values.num_rows

    def write_again(self, held: Sequence[HeldRows]) -> None:
        """Write rows that tasks hold."""
        self._held += held
        self._write_held()

    @property
    def num_rows(self) -> int:
        """The number of moved rows."""
        return self._num_rows

    @property
    def removed(self) -> dict[int, bytes]:
        """The offsets of the moved and deleted rows; see `RewrittenRows.rows`."""
        return {number: encode_bitmap(rows) for number, rows in self._rows.items()}

    def finish(self) -> RewrittenRows:
        """Close the files, and return the result."""
        self._close()
        fragments: dict[bool, list[Fragment]] = {True: [], False: []}
        for writer, has_moved_rows in self._writers.items():
            fragments[has_moved_rows] += writer.finish()
        return RewrittenRows(
            tuple(fragments[True]),
            tuple(fragments[False]),
            self.removed,
            self._num_rows,
            self._num_inserted,
            tuple(self._held),
        )

    def abort(self) -> None:
        """Delete all files; those that cannot be deleted are left to cleanup."""
        self._close()
        for writer in self._writers:
            with suppress(StorageError):
                writer.abort()

    def _source_of(self, given_names: tuple[str, ...]) -> _ValueSource:
        source = self._sources.get(given_names)
        if source is None:
            other_fields = tuple(
                field for field in self._schema.fields if field.name not in given_names
            )
            given_schema = pa.schema([field for field in self._arrow if field.name in given_names])
            source = _ValueSource(
                given_schema, AddressReader(self._table, other_fields), bool(other_fields)
            )
            self._sources[given_names] = source
        return source

    def _close(self) -> None:
        for source in self._sources.values():
            source.reader.close()

    def _by_targets(
        self, addresses: UInt64Array
    ) -> Iterator[tuple[tuple[Target, ...], npt.NDArray[np.intp] | None]]:
        """Yield targets, and the indices of the rows that go there; None for all rows."""
        if self._placement.chosen or not self._placement.homes:
            yield self._placement.of_new_rows, None
            return
        if self._targets is None:
            fragments = self._table.manifest.fragments
            self._targets = {fragment.id: self._placement.of(fragment) for fragment in fragments}
        numbers, inverse = np.unique(split_addresses(addresses)[0], return_inverse=True)
        # The reader raises an error for a fragment that does not exist.
        by_fragment = [self._targets.get(number, (None,)) for number in numbers.tolist()]
        distinct = list(dict.fromkeys(by_fragment))
        codes = np.array([distinct.index(targets) for targets in by_fragment])[inverse]
        for code, targets in enumerate(distinct):
            yield targets, None if len(distinct) == 1 else np.flatnonzero(codes == code)

    def _move(
        self,
        source: _ValueSource,
        targets: tuple[Target, ...],
        addresses: UInt64Array,
        values: pa.RecordBatch,
    ) -> None:
        names = self._schema.names
        step = _BATCH_ROWS
        if source.has_others:
            step = min(step, source.reader.window_rows(int(addresses[0])))
        for position, count in self._steps(source, addresses, step):
            part = values.slice(position, count)
            new = dict(zip(part.schema.names, part.columns, strict=True))
            lineage: tuple[UInt64Array, ...] = ()
            if source.has_others or self._stable:
                rows = source.reader.read(addresses[position : position + count])
                new.update(zip(rows.values.schema.names, rows.values.columns, strict=True))
                lineage = (rows.row_ids, rows.created)
            columns = [new[name] for name in names]
            self._keep(targets, pa.RecordBatch.from_arrays(columns, names=names), lineage)

    def _keep(
        self, targets: tuple[Target, ...], rows: pa.RecordBatch, lineage: tuple[UInt64Array, ...]
    ) -> None:
        """Hold rows that have all columns; write them and those before if they are too many."""
        if self._unheld and rows.nbytes <= self._unheld:
            self._held.append(HeldRows.of(targets, rows, lineage))
            self._unheld -= rows.nbytes
            return
        self._write_held()
        self._moving_writer(targets).write(rows, *lineage)

    def _write_held(self) -> None:
        self._unheld = 0
        held, self._held = self._held, []
        for part in held:
            for rows in part.batches:
                self._moving_writer(part.targets).write(rows, *part.lineage)

    def _moving_writer(self, targets: tuple[Target, ...]) -> MovedRowsWriter:
        moving = self._moving.get(targets)
        if moving is None:
            moving = self._moving[targets] = self._moved_rows_writer(targets)
        self._writers[moving] = True
        return moving

    @staticmethod
    def _steps(
        source: _ValueSource, addresses: UInt64Array, step: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the first row and the number of rows of each step."""
        for start in range(0, len(addresses), step):
            for part in source.reader.parts(addresses[start : start + step]):
                yield start + part.start, part.stop - part.start

    def _add(self, addresses: UInt64Array) -> None:
        add_unique_addresses(self._table, self._rows, addresses)
        self._num_rows += len(addresses)

    def _inserting_writer(self) -> MovedRowsWriter:
        """Return the writer of inserted rows: that of rows that move, if they may share it."""
        targets = tuple(self._placement.of_new_rows)
        has_indexes = self._table.manifest.index_section is not None
        if self._stable and has_indexes and any(s.has_others for s in self._sources.values()):
            return self._moved_rows_writer(targets)
        # With stable row ids, rows that move later need another writer.
        shared = self._moving.pop(targets, None) if self._stable else self._moving.get(targets)
        if shared is None:
            shared = self._moved_rows_writer(targets)
            if not self._stable:
                self._moving[targets] = shared
        return shared

    def _moved_rows_writer(self, targets: Sequence[Target]) -> MovedRowsWriter:
        writer = MovedRowsWriter(self._writer(targets), self._stable)
        self._writers[writer] = False
        return writer

    def _writer(self, targets: Sequence[Target]) -> FragmentWriter:
        manifest = self._table.manifest
        return rewrite_writer(
            self._table.paths,
            self._schema,
            manifest.data_storage_version,
            manifest.base_paths,
            max_rows_per_file=self._max_rows,
            tag=self._tag,
            targets=targets,
            first=self._first,
        )


def write_held(table: OpenTable, parts: Sequence[RewrittenRows], tag: bytes) -> list[RewrittenRows]:
    """Write the rows that tasks hold to as few fragments as possible.

    Returns the results of the tasks. The first that held rows has the fragments of all. Raises
    StorageError: no file is left.
    """
    results = list(parts)
    holding = [index for index, part in enumerate(results) if part.held]
    if not holding:
        return results
    writer = RowRewriter(table, table.schema, (), tag=tag)
    with abort_on_error(writer.abort):
        for index in holding:
            writer.write_again(results[index].held)
            results[index] = replace(results[index], held=())
        fragments = writer.finish().fragments
    first = results[holding[0]]
    results[holding[0]] = replace(first, fragments=(*first.fragments, *fragments))
    return results
