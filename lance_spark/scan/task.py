"""The scan task: slices of fragments with everything that a worker needs to read them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from lance_spark._forks import ForkLock
from lance_spark.encoding.rows import NO_ROWS, RowRanges, in_any
from lance_spark.errors import error_context
from lance_spark.file.dictionaries import preserve_dictionaries, unscaled_decimals
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.conditions import Condition
from lance_spark.scan.fragment.reader import batches_of
from lance_spark.scan.fragment.small_fragments import SmallFragmentScan, Whole
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.prefetch import AT_ONCE, Admit, parts_ahead, read_ahead
from lance_spark.storage.uri import parse_uri
from lance_spark.table.fragments.fragment import Fragment, packed, unpacked
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.turns import end_if_long

#: Whether a thread decodes the next piece while the caller is busy with one.
READ_AHEAD = True
#: A thread costs more than it saves for a task of fewer rows.
_FEW_ROWS = 16 * 1024
#: Most rows of a task whose columns are read together with those of its filters.
_FEW_CHOSEN = 64


#: Guards the sums of counts of several threads.
_ADDING = ForkLock()

#: Reads a part of a task; see `parts_ahead`.
BatchesReader = Callable[[Admit, ScanMetrics], Generator[pa.RecordBatch, None, None]]


# A tuple, because a plan makes 100,000 of them.
class FragmentSlice(NamedTuple):
    """Physical rows `start` to `stop` of one fragment, or some of them.

    - `first_position`: Position of the fragment's first live row in the table's order, if the scan
      needs it.
    - `rows`: The rows between `start` and `stop` that indexes do not rule out; None for all.
    """

    fragment: Fragment
    start: int
    stop: int
    first_position: int | None = None
    rows: RowRanges | None = None

    @property
    def num_rows(self) -> int:
        """Physical rows, with deleted rows."""
        return self.stop - self.start if self.rows is None else self.rows.num_rows

    @property
    def ranges(self) -> RowRanges:
        """The physical rows."""
        return RowRanges.of([range(self.start, self.stop)]) if self.rows is None else self.rows

    def part(self, first: int, stop: int) -> FragmentSlice:
        """Return some of the rows, by their number among the rows of the slice."""
        rows = self.ranges.part(first, stop)
        start, end = int(rows.starts[0]), int(rows.stops[-1])
        return self._replace(start=start, stop=end, rows=None if self.rows is None else rows)


class RowSearch(Protocol):
    """A search for the rows that filters can hold for, which a task makes before it reads."""

    def narrowed(
        self,
        paths: TablePaths,
        slices: Sequence[FragmentSlice],
        conditions: Sequence[Condition],
    ) -> Sequence[FragmentSlice]:
        """Return the slices without rows that do not meet all conditions."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Slices of fragments of one version that one worker reads.

    A task holds no open file and no manifest, and can be pickled. It reads the version on which it
    was planned, even if other versions are committed meanwhile.

    Attributes
    ----------
    uri : str
        Root of the table.
    lance_schema : Schema
        Columns to read, with the table's field ids.
    slices : tuple of FragmentSlice
    batch_size : int
        Most rows of a batch.
    filters : tuple of Condition
        Rows that do not meet all of them are left out.
    base_paths : mapping of int to BasePath
        The table's base paths, by id.
    storage_options : mapping, not shown by `repr`
    index_search : RowSearch, optional
        Leaves some rows of the slices out.
    """

    uri: str = field(repr=False)
    lance_schema: Schema
    slices: tuple[FragmentSlice, ...]
    batch_size: int
    filters: tuple[Condition, ...] = ()
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    index_search: RowSearch | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        # Each fragment is pickled once, and the slices as columns of numbers.
        fragments: list[Fragment] = []
        slices: list[tuple[Any, ...]] = []
        for fragment, *bounds in self.slices:
            if not fragments or fragments[-1] is not fragment:
                fragments.append(fragment)
            slices.append((len(fragments) - 1, *bounds))
        options = (
            self.uri,
            self.lance_schema,
            self.batch_size,
            self.filters,
            self.base_paths,
            self.storage_options,
            self.index_search,
        )
        columns = tuple(list(column) for column in zip(*slices, strict=True))
        inherited = {field.name for field in fields(ScanTask)}
        names = [field.name for field in fields(self) if field.name not in inherited]
        own = {name: getattr(self, name) for name in names}
        return _unpickle, (type(self), packed(fragments), columns, options, own)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return self.lance_schema.to_arrow()

    @property
    def num_rows(self) -> int:
        """Physical rows, with deleted rows."""
        return sum(piece.num_rows for piece in self.slices)

    def batches(
        self,
        metrics: ScanMetrics | None = None,
        *,
        prefetch: bool = READ_AHEAD,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows in order.

        Parameters
        ----------
        metrics : ScanMetrics, optional
            Counts what is read; complete when the iterator is exhausted or closed.
        prefetch : bool
            Whether a thread reads the next rows while the caller is busy. Not worth it for a caller
            that reads the first rows only.
        """
        paths = TablePaths.open(self.uri, self.storage_options, self.base_paths)
        return self._batches(paths, None, metrics, prefetch=prefetch)

    def _batches(
        self,
        paths: TablePaths,
        open_files: OpenFiles | None = None,
        metrics: ScanMetrics | None = None,
        *,
        prefetch: bool = READ_AHEAD,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `batches`, in the process that planned the task.

        - `paths`: Opens the table's files.
        - `open_files`: Data files that may be open already, and that are left open.
        """
        counted = ScanMetrics() if metrics is None else metrics
        if open_files is not None:
            with error_context(parse_uri(self.uri).display):
                few = self._few_rows(paths, open_files, counted)
            if few is not None:
                yield from self._counted(few, counted)
                return
        at_once = prefetch and paths.store.reads_at_once > 1
        parts = self._parts(paths, open_files, prefetch=prefetch, at_once=at_once)
        pieces: Generator[pa.RecordBatch, None, None]
        if at_once:
            pieces = parts_ahead(
                (partial(_counted, part, counted, ScanMetrics()) for part in parts),
                paths.store.ahead_bytes,
                min(paths.store.reads_at_once, AT_ONCE),
            )
        else:
            pieces = _timed((piece for part in parts for piece in part(_ignore, counted)), counted)
            if prefetch and self.num_rows > _FEW_ROWS:
                pieces = read_ahead(pieces)
        try:
            with error_context(parse_uri(self.uri).display):
                begun = perf_counter_ns()
                for piece in pieces:
                    counted.batch_load_time_ns += perf_counter_ns() - begun
                    end_if_long()
                    yield from self._counted(piece, counted)
                    begun = perf_counter_ns()
                counted.batch_load_time_ns += perf_counter_ns() - begun
        finally:
            pieces.close()

    def _counted(self, piece: pa.RecordBatch, metrics: ScanMetrics) -> Iterator[pa.RecordBatch]:
        """Yield the batches of some rows."""
        for batch in batches_of(piece, self.batch_size):
            metrics.batches_loaded += 1
            metrics.rows_scanned += batch.num_rows
            yield batch

    def _few_rows(
        self, paths: TablePaths, open_files: OpenFiles, metrics: ScanMetrics
    ) -> pa.RecordBatch | None:
        """Return the rows of the task if it has few rows of a local store, which are chosen."""
        slices = self.slices
        if (
            not self.filters
            or self.index_search is not None
            or not 0 < len(slices) <= _FEW_CHOSEN
            or not paths.store.is_local
            or not 0 < self.num_rows <= _FEW_CHOSEN
        ):
            return None
        from lance_spark.scan.fragment.small_fragments import matching_rows

        pieces = [(piece.fragment, piece.ranges.numbers()) for piece in slices]
        if len({fragment.id for fragment, _ in pieces}) < len(pieces):
            return None
        begun = perf_counter_ns()
        batch = matching_rows(paths, pieces, self.lance_schema, self.filters, open_files, metrics)
        metrics.scan_time_ns += perf_counter_ns() - begun
        metrics.batch_load_time_ns += perf_counter_ns() - begun
        return batch

    def _parts(
        self, paths: TablePaths, open_files: OpenFiles | None, *, prefetch: bool, at_once: bool
    ) -> Iterator[BatchesReader]:
        """Yield functions that read the rows in pieces of about a window's bytes, in order."""
        small = SmallFragmentScan(
            paths, self.lance_schema, self.filters, ScanMetrics(), at_once=at_once
        )

        def run_of(run: list[Whole]) -> BatchesReader:
            def read(admit: Admit, metrics: ScanMetrics) -> Generator[pa.RecordBatch, None, None]:
                admit(small.run_bytes(run))
                yield from small.read(run, metrics)

            return read

        def alone(source: Whole, rows: RowRanges) -> BatchesReader:
            return lambda admit, metrics: small.read_alone(
                source,
                rows,
                prefetch=prefetch,
                open_files=open_files,
                metrics=metrics,
                admit=admit if at_once else None,
            )

        slices: Sequence[FragmentSlice] = self.slices
        if self.index_search is not None:
            slices = self.index_search.narrowed(paths, slices, self.filters)
        for fragment, group in groupby(slices, key=attrgetter("fragment")):
            pieces = list(group)
            source = Whole(fragment, pieces[0].first_position)
            rows = in_any(piece.ranges for piece in pieces) or NO_ROWS
            if rows.num_rows == fragment.physical_rows and small.fits(fragment):
                if run := small.add(source):
                    yield run_of(run)
                continue
            if run := small.rest():
                yield run_of(run)
            yield alone(source, rows)
        if run := small.rest():
            yield run_of(run)


def with_dictionaries(task: ScanTask) -> ScanTask:
    """Return the task of the same rows, whose batches may have dictionary arrays.

    Columns of strings and bytes that are stored with a dictionary have dictionary arrays where all
    pages of a batch have one.
    """
    if any(piece.fragment.has_overlays for piece in task.slices):
        return task
    fields = preserve_dictionaries(task.lance_schema.fields)
    return replace(task, lance_schema=replace(task.lance_schema, fields=fields))


def with_unscaled(task: ScanTask) -> ScanTask:
    """Return the task of the same rows, whose batches may have the unscaled values of decimals.

    Decimals of at most 18 digits are int64 in the batches of files from version 2.1 on.
    """
    # Searches put columns together by their types.
    if type(task) is not ScanTask or any(piece.fragment.has_overlays for piece in task.slices):
        return task
    fields = unscaled_decimals(task.lance_schema.fields)
    return replace(task, lance_schema=replace(task.lance_schema, fields=fields))


def _ignore(_: int) -> None:
    """Admit any number of bytes: one part is read at a time."""


def _counted(
    part: BatchesReader, total: ScanMetrics, metrics: ScanMetrics, admit: Admit
) -> Iterator[pa.RecordBatch]:
    """Yield the pieces of a part that a thread reads, and add its counts to a total."""
    try:
        with closing(_timed(part(admit, metrics), metrics)) as pieces:
            yield from pieces
    finally:
        with _ADDING:
            total += metrics


def _timed(
    pieces: Generator[pa.RecordBatch, None, None], metrics: ScanMetrics
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the pieces, and count the time that they take, in any thread."""
    try:
        while True:
            begun = perf_counter_ns()
            piece = next(pieces, None)
            metrics.scan_time_ns += perf_counter_ns() - begun
            if piece is None:
                return
            yield piece
            del piece
    finally:
        pieces.close()


def _unpickle(
    cls: type[ScanTask],
    packed_fragments: tuple[list[str], list[int], list[bytes]],
    columns: tuple[list[Any], ...],
    other_fields: tuple[Any, ...],
    own: Mapping[str, Any],
) -> ScanTask:
    fragments = unpacked(*packed_fragments)
    slices: tuple[FragmentSlice, ...] = ()
    if columns:
        numbers, *bounds = columns
        slices = tuple(map(FragmentSlice, map(fragments.__getitem__, numbers), *bounds))
    uri, schema, *options = other_fields
    return cls(uri, schema, slices, *options, **own)
