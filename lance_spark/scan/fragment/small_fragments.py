"""Consecutive small fragments read as one: their files are opened one after the other, and decoded together.

What it takes to read a fragment of some thousand rows is mostly what it takes to read any fragment. Whole fragments whose data files
have the same fields, and no cells with new values, make a *run*; its rows are those of its fragments, in order. A run is as large as a
window is: in rows, in bytes of the files, and in bytes that its columns have at most once they are decoded.

What cannot be read in this way is left to `FragmentReader`, fragment by fragment; so is a run with a damaged file, so that errors
name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark.encoding.levels import BoolArray, IndexArray
from lance_spark.encoding.rows import RowNumbers, Rows, split_rows
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.errors import LanceError
from lance_spark.file.multi_file import JoinedReader, alike, can_join, most_bytes
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.fragment.assemble import FieldPart, files_of, locate
from lance_spark.scan.fragment.reader import MAX_WINDOW_ROWS, WINDOW_BYTES, FragmentReader
from lance_spark.scan.fragment.row_meta import COMPUTED, META_FIELDS, RowMeta
from lance_spark.scan.fragment.selection import FilterResult
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition, top_fields
from lance_spark.scan.row_size import fixed_width
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

#: Fragments of more rows are worth a reader of their own.
_SMALL_ROWS = 64 * 1024
#: Fragments of a run at most: what is unpacked of a chunk has 1,024 values, however few there are.
_MOST_FRAGMENTS = 1024
#: The first run has few, so that the first rows are there soon; each that follows may have so many times as many.
_FIRST_FRAGMENTS = 16
_GROWTH = 4
#: Bytes of the files of a run at most.
_MOST_STORED = 8 * 1024 * 1024


class Whole(NamedTuple):
    """A fragment that is read whole, and the position of its first live row in the table's order, if the scan needs it."""

    fragment: Fragment
    first_position: int | None


class Opened(NamedTuple):
    """A fragment, and its data files that hold columns which are read, by their number."""

    whole: Whole
    files: dict[int, FileReader]


class SmallFragmentScan:
    """Reads whole fragments of one task, several at a time.

    Parameters
    ----------
    paths : TablePaths
    schema : Schema
    filters : sequence of Condition
    metrics : ScanMetrics
    """

    def __init__(
        self,
        paths: TablePaths,
        schema: Schema,
        filters: Sequence[Condition],
        metrics: ScanMetrics,
    ) -> None:
        self._paths = paths
        self._schema = schema
        self._filters = tuple(filters)
        self._metrics = metrics
        fields = list(
            {field.id: field for field in (*schema.fields, *top_fields(filters))}.values()
        )
        # Columns about rows have ids that no table gives.
        self._stored = [field for field in fields if field.id >= -1]
        self._computed = {field.id for field in fields if field.id < -1}
        widths = {field.id: fixed_width(field.arrow_field.type) for field in fields}
        self._fixed = sum([width for width in widths.values() if width is not None])
        self._variable = [field for field in self._stored if widths[field.id] is None]
        self._versions: dict[tuple[int, int], bool] = {}
        self._limit = _FIRST_FRAGMENTS
        self._waiting: list[Whole] = []
        self._rows = self._bytes = 0

    def fits(self, fragment: Fragment) -> bool:
        """Whether a fragment can be part of a run."""
        if not 0 < fragment.physical_rows <= _SMALL_ROWS or fragment.has_overlays:
            return False
        for file in fragment.files:
            if not 0 < file.file_size_bytes <= _MOST_STORED // 4:
                return False
            known = self._versions.get(file.version)
            if known is None:
                known = all(can_join(field, file.version) for field in self._stored)
                self._versions[file.version] = known
            if not known:
                return False
        # What is known of rows may be a column of a data file.
        return not self._computed or not any(
            kind.field_id in self._computed and fragment.has_lineage_column(kind)
            for kind in Lineage
        )

    def add(self, one: Whole) -> Iterator[pa.RecordBatch]:
        """Take a fragment that fits, and yield the rows of those before if there is no place for it among them."""
        rows, size = one.fragment.physical_rows, one.fragment.size_bytes
        if self._waiting and (
            len(self._waiting) >= self._limit
            or self._rows + rows > MAX_WINDOW_ROWS
            or (self._rows + rows) * self._fixed > WINDOW_BYTES
            or self._bytes + size > _MOST_STORED
            or not _same_columns(self._waiting[0].fragment, one.fragment)
        ):
            yield from self.flush()
        self._waiting.append(one)
        self._rows += rows
        self._bytes += size

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all fragments that were taken."""
        waiting, self._waiting = self._waiting, []
        self._rows = self._bytes = 0
        if len(waiting) >= self._limit:
            self._limit = min(self._limit * _GROWTH, _MOST_FRAGMENTS)
        opened = self._open(waiting) if len(waiting) > 1 else None
        if opened is None:
            yield from self._singly(waiting)
            return
        try:
            while opened:
                count = self._alike(opened)
                several, opened = opened[:count], opened[count:]
                yield from self._read(several)
        finally:
            _close(opened)

    def _open(self, fragments: Sequence[Whole]) -> list[Opened] | None:
        """Open fragments; None if one cannot be read in this way, or not at all."""
        first = fragments[0].fragment
        file_of = files_of(first)
        # Of a struct without any of the wanted children, another one is read.
        parts = [part for field in self._stored for part in locate(field, file_of)]
        if not all(can_join(part.field, first.files[part.file].version) for part in parts):
            return None
        numbers = sorted({part.file for part in parts})
        opened: list[Opened] = []
        at_once = self._paths.store.reads_at_once
        try:
            if at_once == 1:
                for one in fragments:
                    opened.append(self._open_one(one, numbers))
            else:
                with ThreadPoolExecutor(min(at_once, len(fragments))) as pool:
                    waited = [pool.submit(self._open_one, one, numbers) for one in fragments]
                for future in waited:
                    if future.exception() is None:
                        opened.append(future.result())
                for future in waited:
                    future.result()
        except (LanceError, _NoRunError):
            _close(opened)
            return None
        except BaseException:
            _close(opened)
            raise
        return opened

    def _open_one(self, one: Whole, numbers: Sequence[int]) -> Opened:
        files: dict[int, FileReader] = {}
        opened = Opened(one, files)
        fragment = one.fragment
        try:
            for number in numbers:
                file = fragment.files[number]
                reader = open_file(self._paths.open_data_file(file), file.fields)
                if not isinstance(reader, FileReader) or reader.num_rows != fragment.physical_rows:
                    reader.close()
                    raise _NoRunError
                files[number] = reader
        except BaseException:
            _close([opened])
            raise
        return opened

    def _alike(self, opened: Sequence[Opened]) -> int:
        """Return how many of the first fragments can be decoded together."""
        size = 0
        for count, one in enumerate(opened):
            size += self._most_bytes(one)
            if count and (
                size > WINDOW_BYTES
                or not all(alike(opened[0].files[n], file) for n, file in one.files.items())
            ):
                return count
        return len(opened)

    def _most_bytes(self, one: Opened) -> int:
        fragment = one.whole.fragment
        total = int(fragment.physical_rows * self._fixed)
        if not self._variable:
            return total
        for number, reader in one.files.items():
            file = fragment.files[number]
            columns = dict(zip(file.fields, file.column_indices, strict=False))
            try:
                total += most_bytes(reader, self._variable, columns)
            except LanceError:
                # Read alone, it is said what is wrong.
                return WINDOW_BYTES + 1
        return total

    def _read(self, opened: list[Opened]) -> Iterator[pa.RecordBatch]:
        wholes = [one.whole for one in opened]
        if len(opened) == 1:
            _close(opened)
            yield from self._singly(wholes)
            return
        reader = RunReader(self._paths, opened, self._schema, self._filters, self._metrics)
        done = 0
        try:
            for piece in reader.live(range(reader.num_rows)):
                done += piece.num_rows
                yield piece
        except LanceError:
            pass
        else:
            self._metrics.fragments_scanned += len(opened)
            return
        finally:
            reader.close()
            _close(opened)
        # One by one, the file that is to blame is named; the rows before it are to come first.
        for piece in self._singly(wholes):
            if done >= piece.num_rows:
                done -= piece.num_rows
                continue
            yield piece.slice(done)
            done = 0

    def _singly(self, fragments: Sequence[Whole]) -> Iterator[pa.RecordBatch]:
        for fragment, first_position in fragments:
            reader = FragmentReader(
                self._paths,
                fragment,
                self._schema,
                self._filters,
                first_position=first_position,
                metrics=self._metrics,
            )
            self._metrics.fragments_scanned += 1
            try:
                yield from reader.live(range(fragment.physical_rows))
            finally:
                reader.close()


class _NoRunError(Exception):
    """A fragment cannot be read together with others."""


class RunReader(FragmentReader):
    """Reads rows of several fragments, counted from the first row of the first one on.

    Parameters
    ----------
    paths : TablePaths
    opened : sequence of Opened
        Their files are closed by who opened them.
    schema : Schema
    filters : sequence of Condition
    metrics : ScanMetrics, optional
    """

    def __init__(
        self,
        paths: TablePaths,
        opened: Sequence[Opened],
        schema: Schema,
        filters: Sequence[Condition] = (),
        metrics: ScanMetrics | None = None,
    ) -> None:
        self._opened = opened
        counts = [one.whole.fragment.physical_rows for one in opened]
        self._bounds = bounds(counts)
        super().__init__(paths, opened[0].whole.fragment, schema, filters, metrics=metrics)
        self._physical_rows = self.num_rows

    @property
    def num_rows(self) -> int:
        """Physical rows of all fragments."""
        return int(self._bounds[-1])

    def window_rows(self) -> int:
        """All rows: a run is no larger than a window."""
        return self.num_rows

    def deleted(self) -> RowNumbers:
        """Return which rows are deleted, increasing; read once."""
        if self._deleted is None:
            found = [
                self._deleted_of(number) + start
                for number, start in enumerate(self._bounds[:-1].tolist())
                if self._opened[number].whole.fragment.deletion_file is not None
            ]
            self._deleted = np.concatenate([np.empty(0, np.int64), *found])
        return self._deleted

    def _deleted_of(self, number: int) -> RowNumbers:
        return read_deletions(self._paths, self._opened[number].whole.fragment)

    def _row_meta(self, first_position: int | None) -> RowMeta:
        return _RunMeta(self._meta_of, self._bounds)

    def _meta_of(self, number: int) -> RowMeta:
        whole = self._opened[number].whole
        deleted = partial(self._deleted_of, number)
        return RowMeta(whole.fragment, whole.first_position, deleted, self._paths)

    def _like(self, schema: Schema, first_position: int | None) -> FragmentReader:
        return RunReader(self._paths, self._opened, schema)

    def _surviving(
        self, rows: range, wanted: BoolArray | None, judged: FilterResult | None
    ) -> Iterator[pa.RecordBatch]:
        held = None
        if wanted is not None and len(rows) == self.num_rows:
            held = np.logical_or.reduceat(wanted, self._bounds[:-1])
        if held is None or wanted is None or held.all():
            yield from super()._surviving(rows, wanted, judged)
            return
        # Of a fragment without such rows, not even the descriptions of pages are read.
        kept = np.repeat(held, np.diff(self._bounds))
        part = self._part(held)
        try:
            yield from part._surviving(
                range(part.num_rows), wanted[kept], None if judged is None else judged.part(kept)
            )
        finally:
            part.close()

    def _part(self, held: BoolArray) -> RunReader:
        """Return a reader of the rows of some fragments, in the same shape."""
        part = copy(self)
        part._opened = [one for one, is_held in zip(self._opened, held, strict=True) if is_held]
        part._bounds = bounds([one.whole.fragment.physical_rows for one in part._opened])
        part._physical_rows = part.num_rows
        part._meta = part._row_meta(None)
        part._files, part._loaders = {}, {}
        part._judge = part._deleted = part._costs = part._stored_bytes = None
        return part

    def _file(self, number: int) -> DataFileReader:
        reader = self._files.get(number)
        if reader is None:
            at_once = self._paths.store.reads_at_once
            reader = JoinedReader([one.files[number] for one in self._opened], at_once)
            self._files[number] = reader
        return reader


class _RunMeta(RowMeta):
    """Values of the columns about the rows of several fragments."""

    def __init__(self, meta_of: Callable[[int], RowMeta], starts: IndexArray) -> None:
        self._meta_of = meta_of
        self._starts = starts
        self._metas: dict[int, RowMeta] = {}

    def array(self, field: Field, rows: Rows) -> pa.Array:
        found = []
        for number, part in split_rows(rows, np.diff(self._starts).tolist()):
            if number not in self._metas:
                self._metas[number] = self._meta_of(number)
            found.append(self._metas[number].array(field, part))
        return pa.concat_arrays(found) if found else pa.nulls(0, field.arrow_field.type)

    def locate(self, field: Field) -> list[FieldPart] | None:
        return [FieldPart(COMPUTED, field)] if field.id < -1 and field.name in META_FIELDS else None


def _same_columns(first: Fragment, second: Fragment) -> bool:
    some, others = first.files, second.files
    if len(some) != len(others):
        return False
    for one, other in zip(some, others, strict=True):
        if (
            one.fields != other.fields
            or one.column_indices != other.column_indices
            or one.version != other.version
        ):
            return False
    return True


def _close(opened: Sequence[Opened]) -> None:
    for one in opened:
        for file in one.files.values():
            file.close()
