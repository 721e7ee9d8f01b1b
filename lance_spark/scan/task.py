"""A unit of scanning that can travel: pieces of fragments, and all it takes to read them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from time import perf_counter_ns
from typing import Any, NamedTuple

import pyarrow as pa

from lance_spark.errors import naming
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.decode_prefetch import read_ahead
from lance_spark.scan.fragment.reader import FragmentReader, batches_of
from lance_spark.scan.fragment.small_fragments import SmallFragmentScan, Whole
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.storage.uri import parse_uri
from lance_spark.table.fragments.fragment import Fragment, packed, unpacked
from lance_spark.table.paths import BasePath, TablePaths

#: Whether the next piece is read while the caller is busy with one.
READ_AHEAD = True


class FragmentSlice(NamedTuple):
    """Physical rows `start` to `stop` of one fragment. A tuple: a plan makes 100,000 of them.

    Attributes
    ----------
    fragment : Fragment
    start, stop : int
    first_position : int, optional
        Position of the fragment's first live row in the table's order, if the scan needs it.
    """

    fragment: Fragment
    start: int
    stop: int
    first_position: int | None = None

    @property
    def num_rows(self) -> int:
        """Physical rows, deleted ones included."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Slices of fragments of one version that one worker reads.

    A task holds no open file and no manifest: it can be pickled, and reads the version it was planned on whatever is
    committed meanwhile.

    Attributes
    ----------
    uri : str
        Root of the table.
    lance_schema : Schema
        Columns to read, with the table's field ids.
    slices : tuple of FragmentSlice
    batch_size : int
        Rows of a batch at most.
    filters : tuple of Condition
        Rows that do not meet all of them are left out.
    base_paths : mapping of int to BasePath
        Other roots that data files may stand in, by id.
    storage_options : mapping, not shown by `repr`
    """

    uri: str = field(repr=False)
    lance_schema: Schema
    slices: tuple[FragmentSlice, ...]
    batch_size: int
    filters: tuple[Condition, ...] = ()
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        fragments: list[Fragment] = []
        places: list[tuple[int, int, int, int | None]] = []
        for fragment, start, stop, first_position in self.slices:
            if not fragments or fragments[-1] is not fragment:
                fragments.append(fragment)
            places.append((len(fragments) - 1, start, stop, first_position))
        rest = (
            self.uri,
            self.lance_schema,
            self.batch_size,
            self.filters,
            self.base_paths,
            self.storage_options,
        )
        columns = tuple(list(column) for column in zip(*places, strict=True))
        return _unpickle, (packed(fragments), columns, rest)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return self.lance_schema.to_arrow()

    @property
    def num_rows(self) -> int:
        """Physical rows, deleted ones included."""
        return sum(piece.num_rows for piece in self.slices)

    def batches(
        self, metrics: ScanMetrics | None = None, *, ahead: bool = READ_AHEAD
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows in order.

        Parameters
        ----------
        metrics : ScanMetrics, optional
            Counts what is read; complete when the iterator is exhausted or closed.
        ahead : bool
            Whether a thread reads what comes next while the caller is busy. Not worth it for who wants the first rows only.
        """
        counted = ScanMetrics() if metrics is None else metrics
        made = self._pieces(counted, ahead=ahead)
        pieces = read_ahead(made) if ahead else made
        try:
            with naming(parse_uri(self.uri).display):
                begun = perf_counter_ns()
                for piece in pieces:
                    counted.batch_load_time_ns += perf_counter_ns() - begun
                    for batch in batches_of(piece, self.batch_size):
                        counted.batches_loaded += 1
                        counted.rows_scanned += batch.num_rows
                        yield batch
                    begun = perf_counter_ns()
                counted.batch_load_time_ns += perf_counter_ns() - begun
        finally:
            pieces.close()

    def _pieces(
        self, metrics: ScanMetrics, *, ahead: bool
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as they are read: in pieces of about a window's bytes."""
        paths = TablePaths.open(self.uri, self.storage_options, self.base_paths)
        runs = SmallFragmentScan(paths, self.lance_schema, self.filters, metrics)
        # Slices of one fragment follow one another where zone maps rule out what is between.
        for fragment, slices in groupby(self.slices, key=attrgetter("fragment")):
            several = list(slices)
            first = several[0]
            if (
                len(several) == 1
                and first.num_rows == fragment.physical_rows
                and runs.fits(fragment)
            ):
                yield from runs.add(Whole(fragment, first.first_position))
                continue
            yield from runs.flush()
            reader = FragmentReader(
                paths,
                fragment,
                self.lance_schema,
                self.filters,
                first_position=first.first_position,
                metrics=metrics,
            )
            metrics.fragments_scanned += 1
            try:
                for piece in several:
                    yield from reader.live(range(piece.start, piece.stop), ahead=ahead)
            finally:
                reader.close()
        yield from runs.flush()


def _unpickle(
    held: tuple[list[str], list[int], list[bytes]],
    columns: tuple[list[Any], ...],
    rest: tuple[Any, ...],
) -> ScanTask:
    fragments = unpacked(*held)
    slices: tuple[FragmentSlice, ...] = ()
    if columns:
        numbers, *others = columns
        slices = tuple(map(FragmentSlice, map(fragments.__getitem__, numbers), *others))
    uri, schema, *options = rest
    return ScanTask(uri, schema, slices, *options)
