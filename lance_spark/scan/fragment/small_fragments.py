"""Scan of consecutive small fragments as one: their files are decoded together.

Most of the cost of reading a fragment of some thousand rows is the fixed cost per fragment. Whole
fragments whose data files have the same fields, and no overlays, form a *run*, which has the rows
of its fragments in order. A run is at most as large as a window: in rows, in bytes of the files,
and in decoded bytes of its columns.

`FragmentReader` reads other fragments one by one, and also the fragments of a run with a damaged
file, so that the error names the file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark.encoding.blocks import with_kept_forms
from lance_spark.encoding.levels import BoolArray, IndexArray
from lance_spark.encoding.rows import RowNumbers, RowRanges, Rows, split_rows
from lance_spark.encoding.v2_1.codec import bounds
from lance_spark.errors import LanceError
from lance_spark.file.dictionaries import declared
from lance_spark.file.footer import expect_tail
from lance_spark.file.multi_file import JoinedReader, can_join, can_read_together, max_column_bytes
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.conditions import Condition, matching, top_fields
from lance_spark.scan.fragment.assemble import FieldPart, files_of, locate
from lance_spark.scan.fragment.column_reader import (
    MAX_WINDOW_ROWS,
    NO_READERS,
    WINDOW_BYTES,
    ColumnReader,
    FragmentFiles,
    fixed_width,
)
from lance_spark.scan.fragment.reader import (
    SMALL_BYTES,
    FilterResult,
    FragmentReader,
    SelectiveReader,
)
from lance_spark.scan.fragment.row_meta import COMPUTED, META_FIELDS, ROW_OFFSET, RowMeta, needs
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.prefetch import Admit
from lance_spark.storage.source import ByteSource
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

#: Fragments of more rows have a reader of their own.
_SMALL_ROWS = 64 * 1024
#: The same if fragments are read at the same time.
_TINY_ROWS = 8 * 1024
#: Most fragments of a run: a chunk is unpacked to 1,024 values, however few it holds.
_MAX_FRAGMENTS = 1024
#: The first run has few fragments, so that the first rows come soon. The limit of each following
#: run is larger by this factor.
_FIRST_FRAGMENTS = 16
_GROWTH = 4
#: Most bytes of the files of a run.
_MAX_STORED = 8 * 1024 * 1024


class Whole(NamedTuple):
    """A fragment that is read whole.

    `first_position` is the position of its first live row in the table's order, if the scan needs
    it.
    """

    fragment: Fragment
    first_position: int | None


class Opened(NamedTuple):
    """A fragment, and its open data files that hold columns to read, by their number."""

    source: Whole
    files: dict[int, FileReader]


class JoinedColumns:
    """Columns that are read of several fragments together.

    - `stored`: Those that data files may have.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        # Fields of row metadata have ids below -1.
        self.stored = [field for field in fields if field.id >= -1]
        self._computed = {field.id for field in fields if field.id < -1}
        self._joinable: dict[tuple[int, int], bool] = {}

    def can_join(self, fragment: Fragment) -> bool:
        """Return whether a fragment can be read together with others of the same columns."""
        if fragment.has_overlays:
            return False
        for file in fragment.files:
            joinable = self._joinable.get(file.version)
            if joinable is None:
                joinable = all(can_join(field, file.version) for field in self.stored)
                self._joinable[file.version] = joinable
            if not joinable:
                return False
        # A run computes row ids and versions; it does not read them from hidden columns.
        return not self._computed or not any(
            lineage.field_id in self._computed and fragment.has_lineage_column(lineage)
            for lineage in Lineage
        )

    def files(self, fragment: Fragment) -> list[int] | None:
        """Return the numbers of the files that hold the columns; None if they cannot be joined."""
        file_of = files_of(fragment)
        # `locate` may name fields that are not in `stored`, as witnesses of a struct.
        parts = [part for field in self.stored for part in locate(field, file_of)]
        if not all(can_join(part.field, fragment.files[part.file].version) for part in parts):
            return None
        return sorted({part.file for part in parts})


class SmallFragmentScan:
    """Reads whole fragments of one task in runs.

    Add the fragments in order, read each run that is complete, and then the rest. Several threads
    can read runs at the same time.

    - `metrics`: Counts what is read.
    - `at_once`: Whether runs and fragments are read at the same time. Then only tiny fragments form
      runs.
    """

    def __init__(
        self,
        paths: TablePaths,
        schema: Schema,
        filters: Sequence[Condition],
        metrics: ScanMetrics,
        *,
        at_once: bool = False,
    ) -> None:
        self._paths = paths
        self._schema = schema
        self._filters = tuple(filters)
        self._metrics = metrics
        fields = list(
            {field.id: field for field in (*schema.fields, *top_fields(filters))}.values()
        )
        self._columns = JoinedColumns(fields)
        self._stored = self._columns.stored
        widths = {field.id: fixed_width(field.arrow_field.type) for field in fields}
        self._fixed_bytes = sum([width for width in widths.values() if width is not None])
        self._variable = [field for field in self._stored if widths[field.id] is None]
        self._small_rows = _TINY_ROWS if at_once else _SMALL_ROWS
        self._is_remote = not paths.store.is_local
        # All columns of a remote run are requested at once, also those that filters may not need.
        self._most_stored = SMALL_BYTES if self._is_remote and filters else _MAX_STORED // 4
        self._limit = _FIRST_FRAGMENTS
        self._waiting: list[Whole] = []
        self._rows = self._bytes = 0

    def fits(self, fragment: Fragment) -> bool:
        """Return whether a fragment can be part of a run."""
        if not 0 < fragment.physical_rows <= self._small_rows:
            return False
        if not all(0 < file.file_size_bytes <= self._most_stored for file in fragment.files):
            return False
        return self._columns.can_join(fragment)

    def add(self, source: Whole) -> list[Whole]:
        """Add a fragment that fits. Return the run before it, if it starts a new run."""
        rows, size = source.fragment.physical_rows, source.fragment.size_bytes
        run: list[Whole] = []
        if self._waiting and (
            len(self._waiting) >= self._limit
            or self._rows + rows > MAX_WINDOW_ROWS
            or (self._rows + rows) * self._fixed_bytes > WINDOW_BYTES
            or self._bytes + size > _MAX_STORED
            or not same_columns(self._waiting[0].fragment, source.fragment)
        ):
            run = self.rest()
        self._waiting.append(source)
        self._rows += rows
        self._bytes += size
        return run

    def rest(self) -> list[Whole]:
        """Return the run of all added fragments that no run has yet."""
        waiting, self._waiting = self._waiting, []
        self._rows = self._bytes = 0
        if len(waiting) >= self._limit:
            self._limit = min(self._limit * _GROWTH, _MAX_FRAGMENTS)
        return waiting

    def run_bytes(self, run: Sequence[Whole]) -> int:
        """Return about how many bytes a run takes: those of its files, and its rows."""
        rows = sum([source.fragment.physical_rows for source in run])
        size = sum([source.fragment.size_bytes for source in run])
        return 2 * size + int(rows * self._fixed_bytes)

    def read(
        self, run: Sequence[Whole], metrics: ScanMetrics | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a run.

        - `metrics`: Counts what is read; by default that of the scan.
        """
        counted = self._metrics if metrics is None else metrics
        opened = self._open_all(run) if len(run) > 1 else None
        if opened is None:
            yield from self._read_one_by_one(run, counted)
            return
        try:
            while opened:
                count = self._run_length(opened)
                part, opened = opened[:count], opened[count:]
                yield from self._read_run(part, counted)
        finally:
            _close(opened)

    def _open_all(self, fragments: Sequence[Whole]) -> list[Opened] | None:
        """Open the files of fragments; None if one cannot be opened, or not be part of a run."""
        numbers = self._columns.files(fragments[0].fragment)
        if numbers is None:
            return None
        opened: list[Opened] = []
        sources: Iterator[ByteSource] = iter(())
        try:
            sources = self._sources(fragments, numbers)
            for source in fragments:
                opened.append(self._open(source, numbers, sources))
            if self._is_remote:
                self._expect_columns(opened)
        except BaseException as error:
            _close(opened)
            if isinstance(error, LanceError | _NoRunError):
                return None
            raise
        return opened

    def _sources(self, fragments: Sequence[Whole], numbers: Sequence[int]) -> Iterator[ByteSource]:
        """Return the files of fragments; requests for the ends of remote files are under way."""
        files = [source.fragment.files[number] for source in fragments for number in numbers]
        if not self._is_remote:
            return map(self._paths.open_data_file, files)
        sources = list(map(self._paths.open_data_file, files))
        for source in sources:
            expect_tail(source)
        for whole in fragments:
            deletions = whole.fragment.deletion_file
            if deletions is not None:
                self._paths.expect_deletion_file(deletions, whole.fragment.id)
        return iter(sources)

    def _open(self, source: Whole, numbers: Sequence[int], sources: Iterator[ByteSource]) -> Opened:
        files: dict[int, FileReader] = {}
        opened = Opened(source, files)
        fragment = source.fragment
        try:
            for number in numbers:
                reader = open_file(next(sources), fragment.files[number].fields)
                if not isinstance(reader, FileReader) or reader.num_rows != fragment.physical_rows:
                    reader.close()
                    raise _NoRunError
                files[number] = reader
        except BaseException:
            _close([opened])
            raise
        return opened

    def _expect_columns(self, opened: Sequence[Opened]) -> None:
        """Request the columns of all fragments; their bytes stay until the files are closed."""
        for source, files in opened:
            for number, reader in files.items():
                file = source.fragment.files[number]
                columns = dict(zip(file.fields, file.column_indices, strict=False))
                reader.expect(self._stored, range(reader.num_rows), columns)

    def _run_length(self, opened: Sequence[Opened]) -> int:
        """Return how many of the first fragments can be decoded together."""
        size = 0
        for count, candidate in enumerate(opened):
            size += self._max_decoded_bytes(candidate)
            if count and (
                size > WINDOW_BYTES
                or not all(
                    can_read_together(opened[0].files[n], file)
                    for n, file in candidate.files.items()
                )
            ):
                return count
        return len(opened)

    def _max_decoded_bytes(self, opened: Opened) -> int:
        fragment = opened.source.fragment
        total = int(fragment.physical_rows * self._fixed_bytes)
        if not self._variable:
            return total
        for number, reader in opened.files.items():
            file = fragment.files[number]
            columns = dict(zip(file.fields, file.column_indices, strict=False))
            try:
                total += max_column_bytes(reader, self._variable, columns)
            except LanceError:
                # Too large for a run, so that it is read alone and the error names the file.
                return WINDOW_BYTES + 1
        return total

    def _read_run(self, opened: list[Opened], metrics: ScanMetrics) -> Iterator[pa.RecordBatch]:
        wholes = [member.source for member in opened]
        if len(opened) == 1:
            ((source, files),) = opened
            rows = range(source.fragment.physical_rows)
            yield from self.read_alone(source, rows, metrics=metrics, readers=files)
            return
        reader = RunReader(self._paths, opened, self._schema, self._filters, metrics)
        num_done = 0
        try:
            for piece in reader.live(range(reader.num_rows)):
                num_done += piece.num_rows
                yield piece
        except LanceError:
            pass
        else:
            metrics.fragments_scanned += len(opened)
            return
        finally:
            reader.close()
            _close(opened)
        # Read the fragments one by one, so that the error names the file. Rows that were yielded
        # already are skipped.
        for piece in self._read_one_by_one(wholes, metrics):
            if num_done >= piece.num_rows:
                num_done -= piece.num_rows
                continue
            yield piece.slice(num_done)
            num_done = 0

    def _read_one_by_one(
        self, fragments: Sequence[Whole], metrics: ScanMetrics
    ) -> Iterator[pa.RecordBatch]:
        for source in fragments:
            rows = range(source.fragment.physical_rows)
            yield from self.read_alone(source, rows, metrics=metrics)

    def read_alone(
        self,
        source: Whole,
        rows: range | RowRanges,
        *,
        prefetch: bool = False,
        open_files: OpenFiles | None = None,
        metrics: ScanMetrics | None = None,
        admit: Admit | None = None,
        readers: Mapping[int, DataFileReader] = NO_READERS,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield some rows of a fragment, by a reader of its own.

        - `metrics`: As for `read`.
        - `admit`: Called with the bytes that the reader will hold, before it reads values.
        - `readers`: As for `FragmentReader`.
        """
        counted = self._metrics if metrics is None else metrics
        reader = FragmentReader(
            self._paths,
            source.fragment,
            self._schema,
            self._filters,
            open_files,
            first_position=source.first_position,
            metrics=counted,
            readers=readers,
        )
        counted.fragments_scanned += 1
        try:
            if admit is not None:
                admit(reader.held_bytes(len(rows) if isinstance(rows, range) else rows.num_rows))
            yield from reader.live(rows, prefetch=prefetch)
        except BaseException:
            reader.close()
            raise
        reader.release()


class _NoRunError(Exception):
    """A fragment cannot be read together with others."""


class RunFiles(FragmentFiles):
    """The open files of the fragments of a run: file n of all fragments is read as one file.

    - `opened`: The caller closes their files.
    - `bounds`: First row of each fragment, and the number of all rows.
    """

    def __init__(self, paths: TablePaths, opened: Sequence[Opened]) -> None:
        super().__init__(paths, opened[0].source.fragment)
        self._opened = opened
        self.bounds = bounds([member.source.fragment.physical_rows for member in opened])
        self.physical_rows = int(self.bounds[-1])
        self.meta = _RunMeta(self._meta_of, self.bounds)

    def expect(self, numbers: Iterable[int]) -> None:
        """Do nothing: the files are open, and the deletion files are under way."""

    def only(self, selected: BoolArray) -> RunFiles:
        """Return the files of some of the fragments."""
        numbers = np.flatnonzero(selected).tolist()
        return RunFiles(self.paths, [self._opened[number] for number in numbers])

    def _open(self, number: int) -> DataFileReader:
        files = [member.files[number] for member in self._opened]
        return JoinedReader(files)

    def _read_deleted(self) -> RowNumbers:
        deleted = [
            self._deleted_of(number) + start
            for number, start in enumerate(self.bounds[:-1].tolist())
            if self._opened[number].source.fragment.deletion_file is not None
        ]
        return np.concatenate([np.empty(0, np.int64), *deleted])

    def _deleted_of(self, number: int) -> RowNumbers:
        return read_deletions(self.paths, self._opened[number].source.fragment)

    def _meta_of(self, number: int) -> RowMeta:
        source = self._opened[number].source
        deleted = partial(self._deleted_of, number)
        return RowMeta(source.fragment, source.first_position, deleted, self.paths)


class RunReader(SelectiveReader):
    """Reads rows of several fragments, numbered from the first row of the first fragment.

    - `opened`: The caller closes their files.
    """

    _files: RunFiles

    def __init__(
        self,
        paths: TablePaths,
        opened: Sequence[Opened],
        schema: Schema,
        filters: Sequence[Condition] = (),
        metrics: ScanMetrics | None = None,
    ) -> None:
        super().__init__(RunFiles(paths, opened), schema, filters, metrics)

    @property
    def num_rows(self) -> int:
        """Physical rows of all fragments."""
        return self._files.physical_rows

    def window_rows(self) -> int:
        """Return the number of all rows: a run is not larger than a window."""
        return self.num_rows

    def _windows(self, rows: range) -> Iterator[range]:
        yield rows

    def _selected(
        self, rows: range, selected: BoolArray | None, result: FilterResult | None
    ) -> Iterator[pa.RecordBatch]:
        has_rows = None
        if selected is not None and len(rows) == self.num_rows:
            has_rows = np.logical_or.reduceat(selected, self._files.bounds[:-1])
        if selected is None or has_rows is None or has_rows.all():
            yield from super()._selected(rows, selected, result)
            return
        # Not even the page descriptors of a fragment without selected rows are read.
        in_part = np.repeat(has_rows, np.diff(self._files.bounds))
        with closing(self._only(has_rows)) as part:
            yield from part._selected(
                range(part.num_rows),
                selected[in_part],
                None if result is None else result.compacted(in_part),
            )

    def _only(self, has_rows: BoolArray) -> RunReader:
        """Return a reader of some of the fragments in the same shape, without filters."""
        part = copy(self)
        part._files = self._files.only(has_rows)
        part._columns = self._columns.over(part._files)
        part._filter = part._costs = None
        return part


class _RunMeta(RowMeta):
    """Values of the row metadata columns of several fragments."""

    def __init__(self, meta_of: Callable[[int], RowMeta], bounds: IndexArray) -> None:
        self._meta_of = meta_of
        self._bounds = bounds
        self._metas: dict[int, RowMeta] = {}

    def array(self, field: Field, rows: Rows) -> pa.Array:
        arrays = []
        for number, part in split_rows(rows, np.diff(self._bounds).tolist()):
            if number not in self._metas:
                self._metas[number] = self._meta_of(number)
            arrays.append(self._metas[number].array(field, part))
        return pa.concat_arrays(arrays) if arrays else pa.nulls(0, field.arrow_field.type)

    def locate(self, field: Field) -> list[FieldPart] | None:
        return [FieldPart(COMPUTED, field)] if field.id < -1 and field.name in META_FIELDS else None


def same_columns(first: Fragment, second: Fragment) -> bool:
    """Return whether the data files of two fragments have the same columns."""
    if len(first.files) != len(second.files):
        return False
    return all(
        a.fields == b.fields and a.column_indices == b.column_indices and a.version == b.version
        for a, b in zip(first.files, second.files, strict=True)
    )


def _close(opened: Sequence[Opened]) -> None:
    for member in opened:
        for file in member.files.values():
            file.close()


# --------------------------------------------------------------------------------------------------
# Few rows of several fragments, decoded together.
#
# Most of the cost of a row is the fixed cost per fragment: readers, a plan and the decoding of one
# chunk. The files stay open in `OpenFiles`; see `small_fragments` for what can be read together.

#: Most rows that are read together, and most fragments: all of their files are open at once.
_MAX_ROWS = 1024
_MAX_SCATTERED_FRAGMENTS = 32


def read_scattered(
    paths: TablePaths,
    pieces: Sequence[tuple[Fragment, RowNumbers]],
    schema: Schema,
    open_files: OpenFiles,
    first_positions: Mapping[int, int],
    metrics: ScanMetrics,
) -> pa.RecordBatch | None:
    """Return rows of several fragments of a local store, one fragment after the other.

    - `pieces` (sequence of (Fragment, int64 array)): Physical rows, deleted rows included.
    - `first_positions`: Position of the first live row of a fragment in the table's order, if
      `schema` needs it.

    None if the rows cannot be read together, or if a file is damaged: a `FragmentReader` names it.
    """
    num_rows = sum(len(rows) for _, rows in pieces)
    if not 0 < len(pieces) <= _MAX_SCATTERED_FRAGMENTS or num_rows > _MAX_ROWS:
        return None
    columns = JoinedColumns(schema.fields)
    first = pieces[0][0]
    if not all(
        columns.can_join(fragment) and same_columns(first, fragment) for fragment, _ in pieces
    ):
        return None
    numbers = columns.files(first)
    if numbers is None:
        return None
    counts = ScanMetrics()
    opened: list[FragmentFiles] = []
    try:
        members: list[Opened] = []
        for fragment, _ in pieces:
            first_position = first_positions.get(fragment.id)
            files = FragmentFiles(paths, fragment, open_files, first_position)
            opened.append(files)
            readers: dict[int, FileReader] = {}
            for number in numbers:
                reader = files.reader(number)
                if not isinstance(reader, FileReader) or not can_read_together(
                    members[0].files[number] if members else reader, reader
                ):
                    return None
                readers[number] = reader
            members.append(Opened(Whole(fragment, first_position), readers))
        if len(members) == 1:
            batch = ColumnReader(opened[0], schema).read(pieces[0][1])
        else:
            run = RunFiles(paths, members)
            starts = run.bounds.tolist()
            rows = [start + own for start, (_, own) in zip(starts, pieces, strict=False)]
            batch = ColumnReader(run, schema).read(np.concatenate(rows))
    except LanceError:
        return None
    finally:
        # Of a read that is repeated, nothing is counted.
        for files in opened:
            files.release(counts)
    metrics += counts
    return batch


def matching_rows(
    paths: TablePaths,
    pieces: Sequence[tuple[Fragment, RowNumbers]],
    schema: Schema,
    filters: Sequence[Condition],
    open_files: OpenFiles,
    metrics: ScanMetrics,
) -> pa.RecordBatch | None:
    """Return the live rows among few rows of a local store that meet all conditions.

    The columns of the conditions are read together with the others: a second read costs more than
    values of rows that the conditions leave out.

    - `pieces` (sequence of (Fragment, int64 array)): Physical rows of distinct fragments, in order.

    None if the rows cannot be read together, see `read_scattered`.
    """
    tested = top_fields(filters)
    read = tuple(map(declared, schema.fields))
    others = tuple(field for field in tested if field not in read)
    fields = (*schema.fields, *others)
    # A batch without columns does not keep its number of rows.
    if not schema.fields or not tested:
        return None
    if needs(fields, ROW_OFFSET) or any(field.has_json for field in fields):
        return None
    live = []
    for fragment, rows in pieces:
        deleted = read_deletions(paths, fragment)
        live.append((fragment, rows[~np.isin(rows, deleted)] if len(deleted) else rows))
    live = [(fragment, rows) for fragment, rows in live if len(rows)]
    counts = ScanMetrics(fragments_scanned=len(pieces), windows=1)
    batch = read_scattered(paths, live, replace(schema, fields=fields), open_files, {}, counts)
    if batch is None:
        return None
    # Several columns can have parts of one field.
    columns = [batch.column((*read, *others).index(field)) for field in tested]
    names = [field.name for field in tested]
    matches = matching(filters, pa.RecordBatch.from_arrays(columns, names))
    count = int(np.count_nonzero(matches))
    counts.rows_filtered += len(matches) - count
    counts.windows_skipped += not count
    metrics += counts
    columns = batch.columns[: len(schema.fields)]
    result = pa.RecordBatch.from_arrays(columns, schema=with_kept_forms(schema.to_arrow(), columns))
    return result if count == len(matches) else result.filter(pa.array(matches))
