"""Reads a table: the driver plans tasks on one version, executors decode its rows to batches.

Unless the options name a version, each query reads the newest version when Spark plans it, so a
view sees later appends. All tasks of a scan read the version that they were planned on. The request
of the optimizer rule (`request`), filters that Spark pushes (`spark_filters`) and the option filter
are parts of one plan.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_spark.errors import naming
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.spark.options.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.predicates.sql import SqlSettings
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.scan.task import ScanTask
    from lance_spark.spark.options.predicate_text import OptionText
    from lance_spark.spark.pushdown.request import Request, Version
    from lance_spark.spark.read.planning import LancePartition, ResidualFilter


class LanceReader(DataSourceReader):
    """Reads the columns of a Spark schema.

    Parameters
    ----------
    options : ReadOptions
    schema : StructType
        Schema of the table or of the user. The latter may have fewer columns, wider types and row
        columns such as _rowid. With aggregates, one column for each.
    request : Request, optional
        The request of the optimizer rule.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, request: Request | None = None
    ) -> None:
        self.options = options
        self.spark_schema = schema
        self.request = request
        self._pushed: tuple[Predicate, ...] = ()
        self._dataset: Dataset | None = None
        if options.push_filters:
            from lance_spark.spark.pushdown.spark_filters import PushFilters

            self.pushFilters = PushFilters(self.push)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks: everything else is in the partitions."""
        kept = {**vars(self), "_pushed": (), "_dataset": None}
        kept.pop("pushFilters", None)
        if self.request is not None:
            kept["request"] = replace(self.request, filters=())
        return kept

    def push(self, filters: Sequence[Any]) -> list[Any]:
        """Take filters that the scan evaluates exactly, and return the others."""
        from lance_spark.spark.pushdown.spark_filters import push
        from lance_spark.spark.read.planning import known_columns

        # Filters refer to columns of one version, on which the scan must be planned.
        self._dataset = open_table(self.options)
        known = known_columns(self._dataset)
        result, left = push(filters, self.spark_schema, known)
        self._pushed = tuple(result)
        return left

    def partitions(self) -> list[InputPartition]:
        """Plan the scan. With a request, the first item is the reply to it, not a partition.

        Raises
        ------
        SchemaMismatchError
            The table lacks a column of the schema, or its type cannot be read as requested.
        InvalidInputError
            The option filter is not a predicate on the columns of the table.
        UnsupportedError
            The request has parts that this release does not support.
        """
        from lance_spark.spark.pushdown.request import Request
        from lance_spark.spark.read.planning import Plan, PlanReply, read_fragments
        from lance_spark.spark.read.projection import paths_for
        from lance_spark.spark.types.convert import BatchConverter
        from lance_spark.spark.types.mapping import batch_schema

        request = self.request or Request()
        dataset = self._dataset or open_table(self.options, request.at)
        table = display(self.options.path)
        whole = with_row_columns(whole_schema(dataset, self.options))
        wanted = self.spark_schema
        if request.aggregates:
            from lance_spark.spark.read.aggregates import needed

            wanted = needed(request.aggregates, whole)
        visible = with_row_columns(visible_schema(dataset, self.options))
        paths_for(visible, wanted, table)
        BatchConverter(visible, batch_schema(wanted), reading=True)
        option_filters, text = option_filter(dataset, self.options, request.settings)
        filters = (*self._pushed, *option_filters)
        plan = Plan(dataset, self.options, wanted, whole, table, request, filters)
        partitions, rows, size = plan.partitions()
        for partition in partitions:
            # Tasks receive the reader as it was before this call.
            partition.text = text
        if self.request is None:
            return [*partitions]
        from lance_spark.spark.read.driver_read import read_on_driver

        stream = read_on_driver(self.rows, self.spark_schema, plan, partitions, size)
        fragments = (read_fragments(partitions), len(dataset.fragments))
        version = version_of(dataset, self.options)
        return [PlanReply(rows, size, version, fragments, stream), *partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in batches of exactly the Arrow schema that Spark
        expects.
        """
        if self.request is None or not self.request.packed:
            yield from self.rows(partition)
            return
        from lance_spark.spark.pushdown.packed_arrays import packed

        yield from packed(self.rows(partition), self.request.packed)

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition without packed columns."""
        from lance_spark.spark.read.planning import LancePartition
        from lance_spark.spark.types.mapping import batch_schema

        assert isinstance(partition, LancePartition)
        if partition.text is not None:
            partition.text.check()
        wanted = batch_schema(self.spark_schema)
        metrics = ScanMetrics()
        try:
            if self.request is None or not self.request.aggregates:
                if partition.task is not None:
                    # Closing a scan that prefetches waits for unneeded reads.
                    scan = Scan(partition.task, metrics, ahead=partition.limit is None)
                    yield from limited(scan.batches(wanted, partition.after), partition.limit)
                return
            yield self._aggregates(partition, wanted, metrics)
        finally:
            if self.options.scan_metrics:
                name = display(self.options.path)
                print(
                    f"lance_spark scan of {name}: {metrics.summary()}", file=sys.stderr, flush=True
                )

    def _aggregates(
        self, partition: LancePartition, wanted: pa.Schema, metrics: ScanMetrics
    ) -> pa.RecordBatch:
        from lance_spark.spark.read.aggregates import aggregated, row_of, split_counted
        from lance_spark.spark.types.mapping import batch_schema

        assert self.request is not None
        if partition.values is not None:
            return row_of(partition.values, wanted)
        rows: Iterator[pa.RecordBatch] = iter(())
        counted = 0
        if partition.task is not None:
            assert partition.columns is not None
            task = partition.task
            if not task.filters and partition.after is None:
                counted, task = split_counted(self.request.aggregates, task)
            scan = Scan(task, metrics)
            rows = scan.batches(batch_schema(partition.columns), partition.after)
        return aggregated(self.request.aggregates, wanted, rows, counted)


@dataclass(frozen=True, slots=True)
class Scan:
    """Converts the rows of a task for Spark.

    Attributes
    ----------
    task : ScanTask
    metrics : ScanMetrics
        Counters of the read.
    ahead : bool
        Whether a thread prefetches the next rows.
    """

    task: ScanTask
    metrics: ScanMetrics
    ahead: bool = True

    def batches(
        self, wanted: pa.Schema, after: ResidualFilter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in an Arrow schema of Spark.

        Raises
        ------
        UnsupportedTypeError
            A value, or a type, has no counterpart in Spark.
        """
        from lance_spark.spark.types.convert import BatchConverter
        from lance_spark.spark.types.mapping import batch_schema

        with naming(display(self.task.uri)):
            if after is None:
                convert = BatchConverter(self.task.schema, wanted, reading=True)
                for batch in self.task.batches(self.metrics, ahead=self.ahead):
                    yield from convert(batch) if len(wanted) else (batch.select([]),)
                return
            seen = batch_schema(after.schema)
            convert = BatchConverter(seen, wanted, reading=True)
            for batch in self.batches(seen):
                kept = batch.filter(after.predicate.holds(batch))
                yield from convert(kept) if len(wanted) else (kept.select([]),)


def limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches up to a number of rows; further rows are not read."""
    if limit is None:
        yield from batches
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


def spark_batches(
    tasks: Iterable[ScanTask], options: ReadOptions, schema: StructType | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks as Spark expects them.

    Parameters
    ----------
    tasks : iterable of ScanTask
    options : ReadOptions
    schema : StructType, optional
        By default, the schema of the tasks' own columns.

    Raises
    ------
    UnsupportedTypeError
        A value, or a type, has no counterpart in Spark.
    """
    from lance_spark.spark.types.mapping import batch_schema, to_spark_schema

    wanted: pa.Schema | None = None
    for task in tasks:
        if wanted is None:
            wanted = batch_schema(to_spark_schema(task.schema) if schema is None else schema)
        yield from Scan(task, ScanMetrics()).batches(wanted)


def version_of(dataset: Dataset, options: ReadOptions) -> Version:
    """Return what `open_table` needs to open the version of a dataset again."""
    from lance_spark.spark.pushdown.request import Version
    from lance_spark.table.refs.names import MAIN

    # A tag can be on another branch than that of the path or the options.
    return Version(dataset.version, None if options.tag is None else dataset.branch or MAIN)


def open_table(options: ReadOptions, at: Version | None = None) -> Dataset:
    """Open the version in the options, or the newest version.

    A request can name the version in `at`: a tag, a timestamp or the newest version could change
    between two scans of a query.

    Raises
    ------
    TableNotFoundError, VersionNotFoundError, StorageError
    """
    from lance_spark.dataset.dataset import open_dataset

    chosen: dict[str, Any] = {}
    for name in ("branch", "tag", "timestamp"):
        if (value := getattr(options, name)) is not None:
            chosen[name] = value
    version = options.version
    if at is not None:
        version = at.number
        chosen.pop("timestamp", None)
        chosen.pop("tag", None)
        if at.branch is not None:
            chosen["branch"] = at.branch
    return open_dataset(
        options.path, version, storage_options=options.storage_options or None, **chosen
    )


def visible_schema(dataset: Dataset, options: ReadOptions) -> pa.Schema:
    """Return the schema of the table, reduced to the option columns, with requested row columns.

    Raises
    ------
    InvalidOptionError
        The option names a column that does not exist.
    """
    schema = whole_schema(dataset, options)
    if options.columns is not None:
        from lance_spark.spark.read.projection import select

        schema = select(with_row_columns(schema), options.columns, display(options.path))
    if not (options.with_row_id or options.with_row_address):
        return schema
    from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, ROW_ID

    for field, wanted in ((ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address)):
        if wanted and field.name not in schema.names:
            schema = schema.append(field.arrow_field)
    return schema


def option_filter(
    dataset: Dataset, options: ReadOptions, settings: SqlSettings | None = None
) -> tuple[tuple[Predicate, ...], OptionText | None]:
    """Return the predicates of the options filter and filter_tree.

    Parameters
    ----------
    dataset : Dataset
    options : ReadOptions
    settings : SqlSettings, optional
        Settings of the session, if known.

    Returns
    -------
    tuple of tuple of Predicate and OptionText or None
        The predicates, and the text that tasks must check.

    Raises
    ------
    InvalidInputError
        The option filter is not a predicate on the columns of the table.
    """
    if options.filter_tree is None and options.filter is None:
        return (), None
    from lance_spark.spark.read.planning import known_columns

    known = known_columns(dataset)
    results: list[Predicate] = []
    checked = None
    if options.filter_tree is not None:
        from lance_spark.spark.pushdown.filter_trees import to_predicate

        results.append(to_predicate(dict(options.filter_tree), known))
    if options.filter is not None:
        from lance_spark.spark.options.predicate_text import OptionText

        text = OptionText.planned("filter", options.filter, known, settings, options.timezone)
        results.append(text.predicate())
        checked = text.for_tasks()
    return tuple(results), checked


def with_row_columns(schema: pa.Schema) -> pa.Schema:
    """Return a schema with all row columns, to look up names."""
    from lance_spark.scan.fragment.row_meta import META_FIELDS

    for field in META_FIELDS.values():
        if field.name not in schema.names:
            schema = schema.append(field.arrow_field)
    return schema


def whole_schema(dataset: Dataset, options: ReadOptions) -> pa.Schema:
    """Return the schema of a read of all columns, with blobs as the options define."""
    return dataset.schema_of(blob_handling=options.blob_handling)


def table_schema(options: ReadOptions) -> pa.Schema:
    """Return the Arrow schema of a read with these options."""
    return visible_schema(open_table(options), options)


def display(path: str) -> str:
    """Return a path as errors show it."""
    from lance_spark.storage.uri import parse_uri

    return parse_uri(path).display
