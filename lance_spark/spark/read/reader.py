"""The reader of a table: the driver plans tasks, executors decode their rows into batches of Spark.

Unless the options name a version, each query reads the version that is the newest when Spark plans
it, so that a view sees appended rows. All tasks of a scan read the version that it was planned on.
The plan combines the request of the optimizer rule (`request`), filters that Spark itself pushes
(`spark_filters`) and the option filter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_spark.errors import LanceError, error_context
from lance_spark.file.blobs import fields
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.task import ScanTask
from lance_spark.spark.options.declared import DEFAULT_BLOB_HANDLING
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.python_process import TaskObject, plain_messages
from lance_spark.spark.read.planning import LancePartition, Plan
from lance_spark.spark.replies import reply_of
from lance_spark.table.indexes.sections import MEM_WAL

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.file.schema.schema import Schema
    from lance_spark.predicates.sql import SqlSettings
    from lance_spark.predicates.tree import Predicate
    from lance_spark.scan.top_rows import FirstRows
    from lance_spark.spark.options.predicate_text import OptionText
    from lance_spark.spark.pushdown.request import PushedScan, SortOrder, Version
    from lance_spark.spark.read.planning import PlanReply, ResidualFilter
    from lance_spark.table.open import OpenTable, PresumedTable


# --------------------------------------------------------------------------------------------------
# What a read has, or leaves out, of the rows of the MemWAL of its table.


def fresh_sources(partitions: Sequence[LancePartition]) -> tuple[int, int]:
    """Return how many SSTables and WAL entries a fresh read reads."""
    from lance_spark.mem_wal.fresh.scan import count_sources

    return count_sources([part.task for part in partitions if part.task is not None])


def unread_rows(dataset: Dataset, options: ReadOptions) -> str | None:
    """Return a warning if a read of the newest version leaves out rows of a MemWAL.

    No warning is returned if the option `fresh` is given, or a version is named.
    """
    is_newest = not any((options.version, options.tag, options.timestamp))
    if options.fresh is not None or not is_newest:
        return None
    manifest = dataset._table.manifest
    # The section of a table with many indexes takes long to parse.
    if manifest.index_section is None or MEM_WAL.encode() not in manifest.index_section:
        return None
    from lance_spark.mem_wal.table.details import details_of
    from lance_spark.mem_wal.table.guard import shards_with_fresh_rows

    try:
        details = details_of(manifest)
        if details is None:
            return None
        shards = shards_with_fresh_rows(dataset._table.store, details.compacted)
        if next(shards, None) is None:
            return None
    except LanceError:
        # The read does not need the MemWAL.
        return None
    return (
        f"{dataset._table.store.display}: the MemWAL of the table has rows that are not in the "
        "table yet, and a read does not return them: set the option fresh to true to read them, "
        "or to false to read without this warning; compaction brings them into the table"
    )


# --------------------------------------------------------------------------------------------------
# Scans that return locators in place of large blobs, for queries that only copy them.


def with_locators(plan: Plan, partitions: Sequence[LancePartition]) -> None:
    """Let the tasks of partitions return locators, in place, where the request allows it.

    A request only says that the query does not look at the blobs. Rows of a MemWAL or of a search,
    whose tasks are of other classes, and rows that a filter compares with bytes, keep their bytes.
    """
    locators, options = plan.request.locators, plan.options
    is_plain = options.blob_handling == DEFAULT_BLOB_HANDLING and not options.fresh
    if locators is None or not is_plain or options.is_search or plan.request.is_aggregated:
        return
    for partition in partitions:
        task = partition.task
        if type(task) is not ScanTask or partition.residual is not None:
            continue
        columns = tuple(
            fields.with_locators(field, locators.mark)
            if field.name in locators.columns and field.is_blob
            else field
            for field in task.lance_schema.fields
        )
        partition.task = replace(task, lance_schema=replace(task.lance_schema, fields=columns))


# --------------------------------------------------------------------------------------------------
# Counters of reads for Spark's web interface: what a task has read, as `ReadCounts.java` gets it.
#
# A worker of pyspark sends the values of its accumulators to the JVM when a task ends. The rule of
# Spark's optimizer gives the scan an accumulator of its own, which gets the pickle of such a value
# with a reply (`lance_spark.spark.replies`): `counts` has the numbers in the order of `report`.

#: Not a number of Spark's own accumulators.
_ID = -1


def report(metrics: ScanMetrics) -> None:
    """Leave the counters of a scan to the worker that runs it."""
    numbers = (
        metrics.iops,
        metrics.bytes_read,
        metrics.files_opened,
        metrics.read_time_ns,
        metrics.decode_time_ns,
    )
    # An accumulator is sent if it exists.
    Accumulator(_ID, reply_of("read", counts=numbers), AccumulatorParam[bytes]())


# --------------------------------------------------------------------------------------------------
# The reader of a table: the driver plans tasks, executors decode their rows into batches of Spark.

#: Options that name a version, besides its number.
_REFERENCES = ("branch", "tag", "timestamp")


class LanceReader(TaskObject, DataSourceReader):
    """Reads the columns of a Spark schema.

    - `schema`: The table's own schema, or a user's, which may have fewer columns, wider types, and
      row columns such as _rowid. With aggregates, one column for each aggregate.
    - `request`: Of the rule of Spark's optimizer.
    - `columnar`: Whether tasks return columns, if the request asks for them (`pushdown.columnar`).
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        request: PushedScan | None = None,
        columnar: str | None = None,
    ) -> None:
        self.options = options
        self.spark_schema = schema
        self.request = request
        self.columnar = columnar
        self._pushed: tuple[Predicate, ...] = ()
        self._dataset: Dataset | None = None
        self._presumed: PresumedTable | None = None
        if options.push_filters:
            from lance_spark.spark.pushdown.filter_trees import PushFilters

            self.pushFilters = PushFilters(self._push)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need besides their partition."""
        state = {**vars(self), "_pushed": (), "_dataset": None, "_presumed": None}
        state.pop("pushFilters", None)
        if self.request is not None:
            state["request"] = replace(self.request, filters=(), others=())
        return state

    def _push(self, filters: Sequence[Any]) -> list[Any]:
        """Take the filters that the scan can answer exactly, and return the others."""
        from lance_spark.spark.pushdown.filter_trees import push
        from lance_spark.spark.read.planning import known_columns

        # The plan must read the version whose columns the filters were matched with.
        self._dataset = open_table(self.options)
        predicates, remaining = push(filters, self.spark_schema, known_columns(self._dataset))
        self._pushed = tuple(predicates)
        return remaining

    def partitions(self) -> list[InputPartition]:
        """Plan the scan. With a request, the first partition is the reply to it (`PlanReply`).

        Raises SchemaMismatchError: the table lacks a column of the schema, or its type cannot be
        read as the schema's. Raises InvalidInputError: the option filter is not a predicate on the
        table's columns. Raises UnsupportedError: this release does not know a part of the request.
        """
        from lance_spark.spark.pushdown.request import PushedScan

        request = self.request or PushedScan()
        if self._dataset is not None:
            return self._planned(self._dataset, request)
        presumed = None
        if request.at is None and not self.options.fresh:
            with error_context(display(self.options.path)):
                presumed = presumed_table(self.options, request.query)
        expect_tables(request)
        if presumed is None:
            return self._planned(open_table(self.options, request.at), request)

        def planned(table: OpenTable) -> list[InputPartition]:
            self._presumed = presumed if table is presumed.table else None
            return self._planned(dataset_of(table, self.options), request)

        return presumed.result_of(planned)

    def _planned(self, dataset: Dataset, request: PushedScan) -> list[InputPartition]:
        """Plan the scan of a version."""
        if request.keys and (reply := self._rows_of_keys(dataset, request)) is not None:
            return [reply]
        if self.options.fresh:
            # The rows of a MemWAL belong to the newest version, even if other scans of the query
            # read an older one. The result has all methods of a dataset that plans call.
            dataset = cast("Dataset", dataset.fresh())
        plan, text = self._plan(dataset, request)
        partitions, rows = self._partitions(plan)
        if request.locators is not None:
            with_locators(plan, partitions)
        for partition in partitions:
            # In the partitions, as Spark pickled this reader before it called the method.
            partition.text = text
            if request.computed:
                partition.columns = plan.wanted
        if self.request is None:
            return [*partitions]
        return self._with_reply(plan, partitions, rows)

    def _rows_of_keys(self, dataset: Dataset, request: PushedScan) -> PlanReply | None:
        """Return the reply with the rows that have keys; None if they are not for the driver."""
        from lance_spark.spark.read.planning import PlanReply

        if self.options.fresh or self.options.is_search or request.tasks:
            return None
        filters = (*request.filters, *request.keys)
        plan, text = self._plan(dataset, replace(request, filters=filters))
        if text is not None:
            return None
        reply = self._with_reply(plan, *self._partitions(plan))[0]
        assert isinstance(reply, PlanReply)
        return reply if reply.has_rows else None

    def _partitions(self, plan: Plan) -> tuple[list[LancePartition], int]:
        """Return the partitions of a scan or search, and the maximum number of their rows."""
        top = plan.request.top
        if self.options.nearest is not None:
            from lance_spark.spark.read.searches import nearest_partitions

            return nearest_partitions(plan)
        if self.options.full_text_query is not None:
            from lance_spark.spark.read.searches import text_partitions

            return text_partitions(plan)
        if top is not None and top.approximate is not None and not self.options.fresh:
            from lance_spark.spark.read.searches import ordered_partitions

            return ordered_partitions(plan)
        return plan.partitions()

    def _with_reply(
        self, plan: Plan, partitions: list[LancePartition], rows: int
    ) -> list[InputPartition]:
        """Return the reply to the request, and the partitions behind it.

        The reply has the rows themselves if the driver reads them, and else the order and the keys
        of the partitions.
        """
        from lance_spark.spark.read.driver_read import (
            read_on_driver,
            sampled_groups,
            sampled_size,
        )
        from lance_spark.spark.read.planning import PlanReply, count_fragments

        request, dataset = plan.request, plan.dataset
        groups = None
        if request.groups:
            groups = sampled_groups(plan, partitions, self.spark_schema, self._rows)
        stream, spent = None, 0
        if groups is None or groups.are_few:
            stream, spent = read_on_driver(plan, partitions, rows, self.spark_schema, self._rows)
        ordered = plan.reported_order if stream is None else ()
        keys = None
        if stream is None and request.clustering:
            from lance_spark.spark.pushdown.partition_keys import keyed_partitions

            partitions, keys, stream = keyed_partitions(plan, partitions)
        in_tasks = stream is None
        reply = PlanReply(
            rows,
            sampled_size(plan, partitions, rows) if in_tasks else plan.reported_size(rows),
            version_of(dataset, self.options),
            (count_fragments(partitions), len(dataset.fragments)),
            plan.table,
            stream,
            self.columnar,
            groups is not None and groups.are_many,
            ordered,
            plan.indexes,
            fresh_sources(partitions) if self.options.fresh else None,
            unread_rows(dataset, self.options),
            keys,
            spent,
        )
        return [reply, *partitions]

    def _plan(self, dataset: Dataset, request: PushedScan) -> tuple[Plan, OptionText | None]:
        """Return the plan of a read, and the text of a predicate that tasks check."""
        from lance_spark.spark.read.estimate import reported_order
        from lance_spark.spark.read.planning import Plan, known_columns, with_limit
        from lance_spark.spark.read.projection import (
            paths_for,
            visible_schema,
            whole_schema,
            with_row_columns,
        )
        from lance_spark.spark.types.convert import check_conversion
        from lance_spark.spark.types.mapping import batch_schema, check_descriptors

        table = display(self.options.path)
        schema = with_row_columns(whole_schema(dataset, self.options))
        wanted = self.spark_schema
        if request.is_aggregated:
            from lance_spark.spark.read.aggregates import check_types, needed_columns

            paths = (*request.groups, *(aggregate.path for aggregate in request.aggregates))
            computed = request.computed_names
            stored_paths = [path for path in paths if path and path[0] not in computed]
            wanted = needed_columns(stored_paths, schema, table)
            check_types(request, wanted, self.spark_schema)
        if request.computed:
            from lance_spark.spark.pushdown.value_trees import with_sources

            wanted = with_sources(wanted, request.computed)
        if not request.is_aggregated:
            check_descriptors(schema, wanted, table)
        selected = schema
        if self.options.columns is not None:
            selected = with_row_columns(visible_schema(dataset, self.options))
            # Refuses columns that the option does not select.
            paths_for(selected, wanted, table)
        columns = paths_for(schema, wanted, table)
        # Before tasks start: each task plans its own conversion, which cannot be pickled.
        check_conversion(selected, batch_schema(wanted), reading=True)
        known = known_columns(dataset)
        filters, text = option_filter(known, self.options, request.settings)
        stored = dataset._table
        ordered: tuple[SortOrder, ...] = ()
        if not self.options.is_search and not self.options.fresh:
            ordered = reported_order(stored.manifest.message, stored.schema.fields, wanted)
        plan = Plan(
            dataset=dataset,
            options=self.options,
            table=table,
            schema=schema,
            known=known,
            wanted=wanted,
            columns=columns,
            request=with_limit(request, ordered),
            pushed=(*self._pushed, *filters),
            prefilter=filters,
            ordered=ordered,
        )
        return plan, text

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in exactly the Arrow schema that Spark expects."""
        from lance_spark.spark.read.planning import LancePartition

        assert isinstance(partition, LancePartition)
        from lance_spark.spark.pushdown.columnar import YES, streams

        is_columnar = self.columnar == YES
        batches = self._rows(partition, is_columnar=is_columnar)
        if self.request is not None and self.request.packed:
            from lance_spark.spark.pushdown.columnar import packed

            batches = packed(batches, self.request.packed)
        if is_columnar:
            batches = streams(batches, self.request is not None and self.request.shared_memory)
        with plain_messages():
            yield from batches

    def _rows(
        self, partition: LancePartition, *, is_columnar: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, before arrays are packed."""
        from lance_spark.spark.types.mapping import batch_schema

        if self._presumed is not None:
            # The driver reads for a plan that may be dropped.
            self._presumed.check()
        if partition.text is not None:
            partition.text.check()
        output = batch_schema(self.spark_schema)
        metrics = ScanMetrics()
        try:
            if self.request is not None and self.request.is_aggregated:
                yield from self._aggregates(partition, output, metrics)
            elif self.request is not None and self.request.computed:
                yield from self._with_computed(partition, output, metrics, is_columnar)
            elif partition.task is not None:
                # With a limit, no prefetch: closing the scan would wait for reads that are not
                # used.
                ahead = partition.limit is None
                scan = Scan(partition.task, metrics, ahead, is_columnar, is_columnar, partition.top)
                yield from limited(scan.batches(output, partition.residual), partition.limit)
        finally:
            if self.request is not None and self.request.counts:
                report(metrics)
            if self.options.scan_metrics:
                name = display(self.options.path)
                print(
                    f"lance_spark scan of {name}: {metrics.summary()}", file=sys.stderr, flush=True
                )

    def _aggregates(
        self, partition: LancePartition, output: pa.Schema, metrics: ScanMetrics
    ) -> Iterator[pa.RecordBatch]:
        from lance_spark.scan.task import ScanTask
        from lance_spark.spark.read.aggregates import GroupedRows, row_of, split_counted
        from lance_spark.spark.types.mapping import batch_schema

        assert self.request is not None
        if partition.values is not None:
            yield row_of(partition.values, output)
            return
        groups, aggregates = self.request.groups, self.request.aggregates
        batches: Iterator[pa.RecordBatch] = iter(())
        schema = pa.schema([])
        if partition.task is not None:
            assert partition.columns is not None
            task = partition.task
            is_whole = type(task) is ScanTask and not task.filters
            if is_whole and partition.residual is None and not groups:
                counted, task = split_counted(aggregates, task)
                if counted:
                    yield row_of([pa.array([counted])] * len(aggregates), output)
                    if not task.slices:
                        return
            keep = bool(groups or self.request.computed)
            scan = Scan(task, metrics, keep_dictionaries=keep, unscaled=True)
            schema = batch_schema(partition.columns)
            batches = scan.batches(schema, partition.residual)
            if self.request.computed:
                from lance_spark.spark.pushdown.value_trees import ValueColumns

                computed = ValueColumns(self.request.computed, partition.columns)
                batches = computed.added(batches, unscaled=True)
                schema = computed.schema
        yield from GroupedRows(groups, aggregates, output, schema).rows(batches)

    def _with_computed(
        self, partition: LancePartition, output: pa.Schema, metrics: ScanMetrics, keep: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with computed columns.

        - `keep`: Whether dictionary arrays stay such.
        """
        from lance_spark.spark.pushdown.value_trees import ValueColumns, selected
        from lance_spark.spark.types.mapping import batch_schema

        assert self.request is not None
        if partition.task is None:
            return
        assert partition.columns is not None
        ahead = partition.limit is None
        scan = Scan(partition.task, metrics, ahead, keep, top=partition.top)
        batches = scan.batches(batch_schema(partition.columns), partition.residual)
        computed = ValueColumns(self.request.computed, partition.columns)
        batches = computed.added(batches, unscaled=False)
        yield from limited(selected(batches, output), partition.limit)


@dataclass(frozen=True, slots=True)
class Scan:
    """Converts the rows of a task for Spark.

    - `ahead`: Whether a thread prefetches.
    - `keep_dictionaries`: Whether strings and bytes that are stored with a dictionary stay
      dictionary arrays.
    - `unscaled`: Whether decimals of at most 18 digits may be their unscaled values, as int64.
    - `top`: The only rows that are wanted.
    """

    task: ScanTask
    metrics: ScanMetrics
    ahead: bool = True
    keep_dictionaries: bool = False
    unscaled: bool = False
    top: FirstRows | None = None

    def batches(
        self, output: pa.Schema, residual: ResidualFilter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that meet a residual filter, in an Arrow schema that Spark expects.

        Raises UnsupportedTypeError: a value, or a type, has no counterpart in Spark.
        """
        from lance_spark.scan.task import with_dictionaries, with_unscaled
        from lance_spark.spark.types.convert import BatchConverter
        from lance_spark.spark.types.mapping import batch_schema

        with error_context(display(self.task.uri)):
            if residual is None:
                task, keep = self.task, self.keep_dictionaries
                convert = BatchConverter(
                    task.schema,
                    output,
                    reading=True,
                    keep_dictionaries=keep,
                    unscaled=self.unscaled,
                )
                if self.top is not None:
                    from lance_spark.scan.top_rows import top_batches

                    batches = top_batches(task, self.top, self.metrics)
                else:
                    task = with_dictionaries(task) if keep else task
                    task = with_unscaled(task) if self.unscaled else task
                    batches = task.batches(self.metrics, prefetch=self.ahead)
                for batch in batches:
                    yield from convert(batch) if len(output) else (batch.select([]),)
                return
            converted = batch_schema(residual.schema)
            convert = BatchConverter(converted, output, reading=True)
            unfiltered = replace(self, keep_dictionaries=False, unscaled=False)
            for batch in unfiltered.batches(converted):
                matching = batch.filter(residual.predicate.holds(batch))
                yield from convert(matching) if len(output) else (matching.select([]),)


def limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches up to a number of rows, and read no further."""
    if limit is None:
        yield from batches
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


def version_of(dataset: Dataset, options: ReadOptions) -> Version:
    """Return the version by which `open_table` opens a dataset again, with the same options."""
    from lance_spark.spark.pushdown.request import Version
    from lance_spark.table.refs.names import MAIN

    # A tag may name a version on another branch than that of the path or the options.
    branch = None if options.tag is None else dataset.branch or MAIN
    return Version(dataset.version, branch, dataset._table.manifest.tag)


def open_table(options: ReadOptions, planned: Version | None = None) -> Dataset:
    """Open the version that the options name.

    - `planned`: Version to open instead of the newest, or of a tag or time, which later queries may
      find at another version.

    Raises TableNotFoundError, VersionNotFoundError, StorageError.
    """
    from lance_spark.table import open as opening

    references: dict[str, Any] = {}
    for name in _REFERENCES:
        if (value := getattr(options, name)) is not None:
            references[name] = value
    version = options.version
    if planned is not None:
        version = planned.number
        references.pop("timestamp", None)
        references.pop("tag", None)
        if planned.branch is not None:
            references["branch"] = planned.branch
    with error_context(display(options.path)):
        table = opening.open_table(
            options.path,
            version=version,
            storage_options=options.storage_options or None,
            manifest_tag=None if planned is None else planned.manifest_tag,
            **references,
        )
    return dataset_of(table, options)


def dataset_of(table: OpenTable, options: ReadOptions) -> Dataset:
    """Return the dataset of an open table."""
    from lance_spark.dataset.dataset import Dataset

    return Dataset(table, options.storage_options)


def presumed_table(options: ReadOptions, query: str | None = None) -> PresumedTable | None:
    """Return the version that is presumed to be the newest; None if it must be looked up first.

    Raises InvalidOptionError, StorageError.
    """
    if not _reads_newest(options):
        return None
    from lance_spark.table.open import presume_newest

    return presume_newest(options.path, options.storage_options or None, query)


def expect_tables(request: PushedScan) -> None:
    """Begin to look up the newest versions of the other tables that a query reads."""
    if request.query is None or not request.others:
        return
    from lance_spark.table.open import expect_newest

    for given in request.others:
        # The scan of the table raises the error.
        with suppress(LanceError):
            options = ReadOptions.parse(given)
            if _reads_newest(options):
                expect_newest(options.path, options.storage_options or None, request.query)


def _reads_newest(options: ReadOptions) -> bool:
    return all(getattr(options, name) is None for name in ("version", *_REFERENCES))


def option_filter(
    schema: Schema, options: ReadOptions, settings: SqlSettings | None = None
) -> tuple[tuple[Predicate, ...], OptionText | None]:
    """Return the predicates of the options filter and filter_tree.

    Parameters
    ----------
    schema : Schema
        Columns that the predicates can name (`known_columns`).
    settings : SqlSettings, optional
        Settings of the session, if they are known.

    Returns
    -------
    tuple of Predicate
    OptionText or None
        Text of a predicate that tasks check before they read.

    Raises
    ------
    InvalidInputError
        The option filter is not a predicate on the table's columns.
    """
    predicates: list[Predicate] = []
    text_for_tasks = None
    if options.filter_tree is not None:
        from lance_spark.spark.pushdown.filter_trees import to_predicate

        predicates.append(to_predicate(dict(options.filter_tree), schema))
    if options.filter is not None:
        from lance_spark.spark.options.predicate_text import OptionText

        text = OptionText.planned("filter", options.filter, schema, settings, options.timezone)
        predicates.append(text.predicate())
        text_for_tasks = text.for_tasks()
    return tuple(predicates), text_for_tasks


def table_schema(options: ReadOptions) -> pa.Schema:
    """Return the Arrow schema of a read with these options."""
    from lance_spark.spark.read.projection import visible_schema

    return visible_schema(open_table(options), options)


def display(path: str) -> str:
    """Return a path without secrets, for messages."""
    from lance_spark.storage.uri import parse_uri

    return parse_uri(path).display
