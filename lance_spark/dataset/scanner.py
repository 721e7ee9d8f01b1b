"""`Scanner`: a planned read of a `Dataset`, as pylance's `LanceScanner`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.decorators import prefixes_errors_by
from lance_spark.dataset.scan_keywords import (
    ExplainKeywords,
    ScanStatistics,
    SearchKeywords,
    SplitKeywords,
    TaskKeywords,
    key_names,
)
from lance_spark.dataset.scan_request import ScanRequest, scan_request, with_others
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.types import extended_batches, extended_schema, extended_table
from lance_spark.keywords import of_group
from lance_spark.predicates.comparison import column_at
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.fragment.column_reader import rows_without_columns
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.take import PART_BYTES, take_parts
from lance_spark.scan.task import ScanTask
from lance_spark.scan.top_rows import TopRowsCollector
from lance_spark.turns import turn

if TYPE_CHECKING:
    import pandas as pd

    from lance_spark.dataset.reader import VersionReader


# --------------------------------------------------------------------------------------------------
# Streams of record batches: a part of their rows, and other sizes of batches.


def sliced(
    batches: Iterable[pa.RecordBatch], offset: int, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the first `offset` rows, at most `limit` of them."""
    if limit == 0:
        return
    for batch in batches:
        start = min(offset, batch.num_rows)
        offset -= start
        part = batch.slice(start, limit)
        if not part.num_rows:
            continue
        yield part
        if limit is not None:
            limit -= part.num_rows
            if limit <= 0:
                return


def of_bytes(batches: Iterable[pa.RecordBatch], num_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about that many bytes, by the average row of a batch."""
    for batch in batches:
        rows = max(1, num_bytes * batch.num_rows // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def of_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, num_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of exactly that many rows; the last one may have fewer."""
    waiting: list[pa.RecordBatch] = []
    missing = num_rows
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, missing)
            waiting.append(part)
            start += part.num_rows
            missing -= part.num_rows
            if not missing:
                yield _joined(waiting, schema)
                waiting, missing = [], num_rows
    if waiting:
        yield _joined(waiting, schema)


def _joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    if not len(schema):
        rows = sum(part.num_rows for part in parts)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    columns = [
        pa.concat_arrays([part.column(number) for part in parts]) for number in range(len(schema))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --------------------------------------------------------------------------------------------------
# `Scanner`: a planned read of a `Dataset`, as pylance's `LanceScanner`.

_LOG = logging.getLogger(__name__)
#: One task for all rows.
_ALL_ROWS = 1 << 62


@prefixes_errors_by(lambda scanner: scanner._reader.table.store.display)
class Scanner:
    """A read of some rows and columns of one version. Made by `Dataset.scanner`.

    Each method reads again. A scanner holds no open file.

    Examples
    --------
    >>> scanner = dataset.scanner(["id", "name"], filter="id > 5", limit=100)
    >>> scanner.to_table()
    >>> for batch in scanner.to_batches(): ...
    """

    def __init__(self, reader: VersionReader, request: ScanRequest) -> None:
        self._reader = reader
        self._request = request

    def __repr__(self) -> str:
        return f"Scanner({self._reader!r}, {self.projected_schema.names})"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a stream of Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @property
    def dataset_schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return extended_schema(self._reader.table.schema.to_arrow())

    @property
    def projected_schema(self) -> pa.Schema:
        """The Arrow schema of the rows that are read."""
        return extended_schema(self._stored_schema())

    def _stored_schema(self) -> pa.Schema:
        """Return the schema of the rows, with stored types."""
        request = self._request
        if request.is_search:
            return replace_limit(self, 0)._searched().schema
        if request.computed is None:
            read = self._read_schema(request.columns)
            return read if request.children is None else request.children.schema(read)
        flags = self._read_schema([])
        return with_others(request.computed, list(flags))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches.

        Raises
        ------
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        request = self._request
        metrics = ScanMetrics()
        batches = self._batches(metrics)
        if request.options["strict_batch_size"]:
            batches = of_rows(batches, self._stored_schema(), request.batch_size)
        elif request.batch_size_bytes is not None:
            batches = of_bytes(batches, request.batch_size_bytes)
        yield from extended_batches(batches)
        callback = request.options["scan_stats_callback"]
        if callback is not None:
            try:
                callback(ScanStatistics.of(metrics))
            except Exception:
                _LOG.warning("scan_stats_callback failed", exc_info=True)

    def to_table(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        with turn(local=self._reader.table.store.is_local):
            if self._request.is_search:
                return extended_table(self._searched())
            return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader, which reads them as they are asked for."""
        if self._request.is_search:
            return self.to_table().to_reader(max_chunksize=self._request.batch_size)
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> pd.DataFrame:
        """Return the rows as a DataFrame of pandas.

        Parameters
        ----------
        blob_mode : str
            As in `Dataset.to_pandas`.
        **kwargs
            Arguments of `pyarrow.Table.to_pandas`.

        Raises
        ------
        InvalidInputError
            `blob_mode` is unknown, or pandas is not installed.
        CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.dataset.frames import to_pandas

        return to_pandas(self, kwargs, blob_mode)

    def scan_batches(self) -> list[pa.RecordBatch]:
        """Return all record batches."""
        return list(self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows as an Arrow table.

        Parameters
        ----------
        num_rows : int
            Most rows.
        """
        check_least("num_rows", num_rows, 0)
        limit = self._request.limit
        return replace_limit(self, num_rows if limit is None else min(limit, num_rows)).to_table()

    def count_rows(self) -> int:
        """Return the number of rows that meet the filter.

        Raises
        ------
        InvalidInputError
            The scan has a limit or an offset.
        """
        request = self._request
        if request.limit is not None or request.offset:
            raise InvalidInputError(
                "count_rows cannot be combined with limit or offset; count all rows, and cut the "
                "number"
            )
        if request.is_search:
            return int(self._searched().num_rows)
        reader = self._reader
        if request.has_deleted_rows:
            return sum(int(task.num_rows) for task in self._tasks([]))
        if request.fragment_ids is None:
            return reader.count_rows(request.conditions, **request.indexes)
        if not request.conditions:
            chosen = set(request.fragment_ids)
            return sum(part.num_rows for part in reader.fragments if part.id in chosen)
        batches = (batch for task in self._tasks([]) for batch in self._run(task))
        return sum(int(batch.num_rows) for batch in batches)

    def explain_plan(self, verbose: bool = False) -> str:
        """Return a text that says what the scan reads; see `Dataset.explain`.

        Parameters
        ----------
        verbose : bool
            Has no effect.
        """
        return _explained(self._reader, self._request)

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Read all rows, and return the text of `explain_plan` with what was read.

        Parameters
        ----------
        count_rows : bool
            Whether to count the rows in place of reading their columns.
        """
        read = self
        if count_rows:
            request = replace(self._request, columns=[], computed=None, children=None, order=())
            read = Scanner(self._reader, request)
        metrics = ScanMetrics()
        rows = sum(batch.num_rows for batch in read._batches(metrics))
        return f"{read.explain_plan()}\n  rows returned: {rows:,}\n  read: {metrics.summary()}"

    # How the rows are read

    def _read_schema(self, columns: Any) -> pa.Schema:
        request = self._request
        return self._reader.select(columns, **request.projection).to_arrow()

    def _searched(self) -> pa.Table:
        """Return the rows of a search of text or vectors."""
        from lance_spark.dataset.search import searched_rows

        return searched_rows(self._reader, self._request)

    def _batches(self, metrics: ScanMetrics) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most `batch_size` rows."""
        request = self._request
        if request.is_search:
            yield from self._searched().to_batches(max_chunksize=request.batch_size)
            return
        if request.limit == 0:
            return
        columns = request.columns
        if request.computed is not None:
            columns = request.computed.read
        rows: Iterable[pa.RecordBatch]
        if request.order:
            rows = self._in_order(columns, metrics)
        else:
            rows = self._in_table_order(columns, metrics)
        if request.computed is None:
            yield from rows if request.children is None else map(request.children.of_batch, rows)
            return
        schema = self._stored_schema()
        for batch in rows:
            yield request.computed.of_batch(batch, schema)

    def _in_table_order(self, columns: Any, metrics: ScanMetrics) -> Iterator[pa.RecordBatch]:
        request = self._request
        offset, limit = request.offset, request.limit
        chosen: range | None = None
        is_counted = request.fragment_ids is None and not request.conditions
        if (offset or limit is not None) and is_counted and self._reader.has_only_fragments:
            # Whole fragments before the first row, and after the last one, are not planned.
            fragments = self._reader.fragments
            ends = fragments.physical_ends if request.has_deleted_rows else fragments.row_ends
            first, stop = int(np.searchsorted(ends, offset, "right")), len(fragments)
            if limit is not None:
                stop = min(stop, int(np.searchsorted(ends, offset + limit)) + 1)
            chosen = range(first, stop)
            offset -= int(ends[first - 1]) if first else 0
        tasks = self._tasks(columns, chosen)
        batches = (batch for task in tasks for batch in self._run(task, metrics))
        if not offset and request.limit is None:
            yield from batches
            return
        yield from sliced(batches, offset, request.limit)

    def _run(self, task: ScanTask, metrics: ScanMetrics | None = None) -> Iterator[pa.RecordBatch]:
        reader, request = self._reader, self._request
        batches = task._batches(
            reader.table.paths, reader.open_files, metrics, prefetch=request.limit is None
        )
        if not request.has_deleted_rows:
            return batches
        return map(self._with_null_ids(task), batches)

    def _tasks(self, columns: Any, chosen: range | None = None) -> list[ScanTask]:
        """Return the tasks in the order of their rows.

        - `chosen`: The positions of the fragments to read; all by default.
        """
        request, reader = self._request, self._reader
        groups: list[list[int] | None] = [None]
        if chosen is not None:
            fragments = reader.fragments
            groups = [[fragments[position].id for position in chosen]]
        if request.fragment_ids is not None:
            places = {fragment.id: place for place, fragment in enumerate(reader.fragments)}
            order = [places.get(number, -1) for number in request.fragment_ids]
            groups = [list(request.fragment_ids)]
            if order != sorted(order):
                groups = [[number] for number in request.fragment_ids]
        keywords: TaskKeywords = {**request.tasks, "rows_per_task": _ALL_ROWS}
        if request.has_deleted_rows:
            # Deleted rows are known by their addresses.
            keywords["with_row_address"] = True
        tasks = []
        for ids in groups:
            keywords["fragment_ids"] = ids
            tasks += reader.plan(columns, request.conditions, **keywords).tasks
        if not request.has_deleted_rows:
            return tasks
        return [
            replace(
                task,
                slices=tuple(
                    piece._replace(fragment=piece.fragment.without_deletions())
                    for piece in task.slices
                ),
            )
            for task in tasks
        ]

    def _with_null_ids(self, task: ScanTask) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return a function that makes the ids and addresses of deleted rows null.

        A deleted row has the position of the live row after it.
        """
        import pyarrow.compute as pc

        from lance_spark.table.rows.deletions import expect_deletions, read_deletions

        reader, request = self._reader, self._request
        columns = request.columns if request.computed is None else request.computed.read
        names = self._read_schema(columns).names
        read = {piece.fragment.id for piece in task.slices}
        parts = [part for part in reader.fragments if part.id in read]
        expect_deletions(reader.table.paths, parts)
        deleted = [
            (np.uint64(part.id) << np.uint64(32)) + offsets.astype(np.uint64)
            for part in parts
            if len(offsets := read_deletions(reader.table.paths, part))
        ]
        numbers = np.sort(np.concatenate(deleted)) if deleted else np.empty(0, np.uint64)

        def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
            addresses = batch.column(row_meta.ROW_ADDRESS.name)
            is_deleted = pc.is_in(addresses, pa.array(numbers))
            arrays = batch.columns
            for place, field in enumerate(batch.schema):
                if field.name in (row_meta.ROW_ID.name, row_meta.ROW_ADDRESS.name):
                    null = pa.scalar(None, field.type)
                    arrays[place] = pc.if_else(is_deleted, null, arrays[place])
                elif field.name == row_meta.ROW_OFFSET.name:
                    words = addresses.to_numpy()
                    before = np.searchsorted(numbers, words)
                    before -= np.searchsorted(numbers, words & ~np.uint64(0xFFFFFFFF))
                    arrays[place] = pc.subtract(arrays[place], pa.array(before, field.type))
            return pa.RecordBatch.from_arrays(arrays, schema=batch.schema).select(names)

        return convert

    def _in_order(self, columns: Any, metrics: ScanMetrics) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the keys."""
        request, reader = self._request, self._reader
        keys = key_names(request.order)
        # Rows of a MemWAL have no addresses. Scans of one state return them in the same order.
        by_address = reader.has_only_fragments
        address = row_meta.ROW_ADDRESS.name
        names = list(dict.fromkeys([*keys, address] if by_address else keys))
        unordered = replace(
            request,
            computed=None,
            children=None,
            order=(),
        ).with_options(with_row_id=False, with_row_address=False)
        scan = Scanner(reader, replace(unordered, columns=names, limit=None, offset=0))
        stop = None if request.limit is None else request.offset + request.limit
        sort_keys = [order_key.key for order_key in request.order]
        dtypes = [key.field.to_arrow().type for key in sort_keys]
        collector, count = TopRowsCollector(sort_keys, dtypes, stop), 0
        for batch in (batch for task in scan._tasks(names) for batch in scan._run(task, metrics)):
            if by_address:
                numbers = batch.column(address)
            else:
                numbers = pa.array(np.arange(count, count + batch.num_rows, dtype=np.uint64))
                count += batch.num_rows
            collector.add([column_at(batch, key.path) for key in request.order], numbers)
        order = collector.numbers()[request.offset :]
        schema = reader.select(columns, **request.projection)
        if not schema.fields:
            # Arrow takes no rows of a table without columns.
            for start in range(0, len(order), request.batch_size):
                yield rows_without_columns(min(len(order) - start, request.batch_size))
            return
        if not by_address:
            rest = Scanner(reader, replace(unordered, columns=columns, limit=None, offset=0))
            batches = [b for task in rest._tasks(columns) for b in rest._run(task, metrics)]
            rows = pa.Table.from_batches(batches, schema.to_arrow())
            step = max(PART_BYTES * rows.num_rows // max(rows.nbytes, 1), 1)
            for start in range(0, len(order), step):
                part = rows.take(pa.array(order[start : start + step])).combine_chunks()
                yield from part.to_batches(max_chunksize=request.batch_size)
            return
        taken = take_parts(
            reader.table.paths, reader.fragments, schema, order, reader.open_files, metrics
        )
        for part in taken:
            yield from part.to_batches(max_chunksize=request.batch_size)


def replace_limit(scanner: Scanner, limit: int) -> Scanner:
    """Return the same scan of at most that many rows."""
    return Scanner(scanner._reader, replace(scanner._request, limit=limit))


def explained(
    reader: VersionReader,
    columns: Sequence[str] | None = None,
    **keywords: Unpack[ExplainKeywords],
) -> str:
    """Return a text that says what a scan reads; see `Dataset.explain`."""
    split = of_group(SplitKeywords, keywords)
    scan = {name: value for name, value in keywords.items() if name not in split}
    return _explained(reader, scan_request(reader, columns, **scan), **split)  # type: ignore[arg-type]


def _explained(
    reader: VersionReader, request: ScanRequest, **keywords: Unpack[SplitKeywords]
) -> str:
    from lance_spark.scan.plan import explained as explained_plan

    if request.nearest is not None:
        from lance_spark.dataset.search import explained_search

        search = of_group(SearchKeywords, request.options)
        text = explained_search(reader, request.nearest, request.condition, **search)
    else:
        given: TaskKeywords = {**request.tasks, **keywords, "fragment_ids": request.fragment_ids}
        plan = reader.plan_version(request.columns, request.conditions, **given)
        paths, fragments = reader.table.paths, reader.fragments
        text = explained_plan(plan, paths, fragments, reader.title, request.condition)
    return text + reader.explained_sources(request.conditions)
