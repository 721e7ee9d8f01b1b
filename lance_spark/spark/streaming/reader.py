"""A table as the source of a stream: a snapshot, then new rows; or the change feed.

    spark.readStream.format("lance").load(path)
    spark.readStream.format("lance").option("readChangeFeed", True)
        .option("startingVersion", 5).load(path)

One object, in one Python process for the whole query, plans batches and partitions; copies of it
read the partitions. Start and end define the rows of a batch (`offsets`), so a batch that is
repeated after a restart has the same rows.

| Spark | requests |
| --- | --- |
| 4.2 and later | start and limit of a batch, so batches can be small; or all available rows |
| before | only the newest position: a batch has all new rows |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lance_spark.change_feed.field_mapping import field_ids, renamed_field
from lance_spark.change_feed.tasks import CHANGE_FIELDS
from lance_spark.errors import (
    InvalidOptionError,
    SchemaMismatchError,
    UnsupportedError,
    error_context,
)
from lance_spark.predicates.tree import conjunction
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.task import ScanTask
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.python_process import TaskObject, plain_messages
from lance_spark.spark.read.planning import DEFAULT_BATCH_SIZE, MIN_PARTITIONS, known_columns
from lance_spark.spark.read.projection import find, paths_for, whole_schema, with_row_columns
from lance_spark.spark.read.reader import Scan, display, option_filter
from lance_spark.spark.replies import reply_of
from lance_spark.spark.streaming.change_feed import first_version, newest_of, spark_rows, tasks_of
from lance_spark.spark.streaming.plan import (
    BEGINNING,
    Limit,
    StreamPlan,
    StreamPosition,
    VersionPart,
    as_inserted,
    seen,
)
from lance_spark.spark.types.convert import check_conversion
from lance_spark.spark.types.mapping import batch_schema, check_descriptors
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.versions import latest
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from lance_spark.change_feed.diff import VersionChanges
    from lance_spark.change_feed.tasks import ChangeTask
    from lance_spark.errors import LanceError
    from lance_spark.file.schema.field import Field
    from lance_spark.spark.options.predicate_text import OptionText
    from lance_spark.table.manifest.manifest import Manifest


# --------------------------------------------------------------------------------------------------
# A stream whose options are wrong: each call raises the error.
#
# Spark 4 answers an error of `DataSource.streamReader` by an `UnboundLocalError`, and shows that.


class RefusedReader(DataSourceStreamReader):
    """Raises an error in place of reading."""

    def __init__(self, error: LanceError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._raise()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Raise the error."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        self._raise()

    def _raise(self) -> NoReturn:
        with plain_messages():
            raise self.error


# --------------------------------------------------------------------------------------------------
# A table as the source of a stream: a snapshot, then new rows; or the change feed.

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces a class that this release of Spark lacks."""


#: Minimum rows of a partition of merged tasks, and the target number of partitions.
_SMALL_ROWS = 100_000
_PARTITIONS = 2 * MIN_PARTITIONS
#: Maximum versions of a batch, and of changes that are planned together: manifests can be large.
MOST_VERSIONS = 1_000
_TOGETHER = 32
_NO_LIMIT = 2**31 - 1

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _explained(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let errors of a method of a reader name the table, and be shown without a traceback."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        reader = args[0]
        assert isinstance(reader, LanceStreamReader)
        with plain_messages(), error_context(display(reader.options.path)):
            return method(*args, **kwargs)

    return call


class StreamPartition(InputPartition):
    """A partition: tasks that are read in sequence.

    - `text`: Text that the task must check first.
    """

    def __init__(
        self, tasks: Sequence[ScanTask | ChangeTask], text: OptionText | None = None
    ) -> None:
        super().__init__(None)
        self.tasks = tuple(tasks)
        self.text = text


class LanceStreamReader(TaskObject, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as a stream.

    - `schema`: Schema of the table when the stream began, or of the user.
    - `columnar`: Whether tasks return columns, if Spark asks for them (`pushdown.columnar`).
    - `shared_memory`: Whether such tasks may share memory with the JVM.

    Raises InvalidOptionError. Raises UnsupportedError: the options limit batches, but this release
    of Spark does not support it.
    """

    def __init__(
        self,
        options: ReadOptions,
        feed: FeedOptions,
        schema: StructType,
        columnar: str | None = None,
        shared_memory: bool = False,
    ) -> None:
        self.options = options
        self.columnar = columnar
        self.shared_memory = shared_memory
        self.feed = feed.of_stream(options)
        self.spark_schema = schema
        self._plan: StreamPlan | None = None
        self._start: StreamPosition | None = None
        self._target: int | None = None
        self._end: StreamPosition | None = None
        self._text: OptionText | None = None
        if not HAS_LIMITS and (feed.max_fragments_per_trigger or feed.max_bytes_per_trigger):
            raise UnsupportedError(
                "options maxFragmentsPerTrigger and maxBytesPerTrigger need Spark 4.2 or later, "
                "which lets a source limit its batches; remove the options"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks: everything else is in the partitions.

        `ColumnarStream.java` reads the reply in the pickle.
        """
        reply = reply_of("stream", columnar=self.columnar)
        return {**vars(self), "_plan": None, "reply": reply}

    @_explained
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of the stream; the same also after a restart.

        Raises VersionNotFoundError: the version does not exist, or the first version of a timestamp
        is unknown. Raises InvalidOptionError: the timestamp is in the future.
        """
        if self._start is None:
            self._start = self._beginning()
        return self._start.to_json()

    @_explained
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next batch.

        Raises VersionNotFoundError: a version was removed before it was read. Raises
        UnsupportedError: a version changed rows.
        """
        newest = self._target if self._target is not None else self._newest()
        if start is None:
            return self._end_of(newest).to_json()
        unlimited = HAS_LIMITS and isinstance(limit, ReadAllAvailable)
        bound = (
            Limit()
            if unlimited
            else Limit(
                self.feed.max_fragments_per_trigger, self.feed.max_bytes_per_trigger, MOST_VERSIONS
            )
        )
        return self._planned().next(StreamPosition.parse(start), newest, bound).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the size limit of a batch."""
        if self.feed.max_fragments_per_trigger is not None:
            return ReadMaxFiles(self.feed.max_fragments_per_trigger)
        if self.feed.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.feed.max_bytes_per_trigger)
        # A batch always has a limit of versions, except with the trigger `once`.
        return ReadMaxFiles(_NO_LIMIT)

    @_explained
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the newest position, for the progress of the query."""
        return StreamPosition(self._newest() + 1).to_json()

    @_explained
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the newest version, which is the last version that the query reads."""
        self._target = self._newest()

    @_explained
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a batch.

        Raises VersionNotFoundError, UnsupportedError, SchemaMismatchError.
        """
        parts = self._planned().parts(StreamPosition.parse(start), StreamPosition.parse(end))
        newest: Manifest | None = None
        tasks: list[ScanTask | ChangeTask] = []
        # Manifests are dropped as soon as their parts are known.
        while group := list(islice(parts, _TOGETHER if self.feed.read_change_feed else 1)):
            if newest is None:
                newest = newest_of(self.options).manifest
                self._check_names(newest)
            if self.feed.read_change_feed:
                changes = [part.changes for part in group if part.changes is not None]
                tasks += self._changes(changes, newest)
            else:
                tasks += self._scans(group[0], newest)
        return _together(tasks, self._text)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in batches of exactly the schema that Spark expects."""
        from lance_spark.spark.pushdown.columnar import YES, streams

        assert isinstance(partition, StreamPartition)
        is_columnar = self.columnar == YES
        batches = self._rows(partition, is_columnar=is_columnar)
        yield from streams(batches, self.shared_memory) if is_columnar else batches

    def _rows(self, partition: StreamPartition, *, is_columnar: bool) -> Iterator[pa.RecordBatch]:
        if partition.text is not None:
            partition.text.check()
        for task in partition.tasks:
            if isinstance(task, ScanTask):
                scan = Scan(
                    task, ScanMetrics(), keep_dictionaries=is_columnar, unscaled=is_columnar
                )
                yield from scan.batches(batch_schema(self.spark_schema))
            else:
                yield from spark_rows(task, self.spark_schema, self.options)

    @_explained
    def commit(self, end: dict[str, Any]) -> None:
        """Drop cached data of versions that have been read."""
        self._planned().forget(StreamPosition.parse(end))

    def stop(self) -> None:
        """Do nothing: no resources are open."""

    def _beginning(self) -> StreamPosition:
        timestamp = self.feed.starting_timestamp
        if timestamp is not None and timestamp > datetime.now(UTC):
            # Versions before that time may follow. Which ones, a restart would answer differently.
            raise InvalidOptionError(
                f"option startingTimestamp: {timestamp.isoformat()} is in the future; start the "
                "stream at that time, or set startingVersion"
            )
        first = first_version(newest_of(self.options), self.feed)
        return BEGINNING if first is None else StreamPosition(first)

    def _planned(self) -> StreamPlan:
        if self._plan is None:
            table = newest_of(self.options)
            self._plan = StreamPlan(
                table, self.feed.read_change_feed, self.feed.skip_change_commits
            )
        return self._plan

    def _end_of(self, version: int) -> StreamPosition:
        """Return the end of a version. Before Spark 4.2 it is requested repeatedly."""
        if self._end is None or self._end.last != version:
            manifest = read_version(self._planned().table.store, version)
            self._end = StreamPosition(version + 1, seen=seen(manifest))
        return self._end

    def _newest(self) -> int:
        return latest(self._planned().table.store).version

    def _check_names(self, newest: Manifest) -> None:
        """Check that no other column got the name of a column since the query was started.

        Raises SchemaMismatchError.
        """
        plan = self._planned()
        started = plan.table.manifest
        renamed = self._renamed(started, newest, field_ids(newest))
        if renamed is not None:
            # A field may have got the id of a dropped one.
            renamed = self._renamed(started, newest, plan.same_ids(started.version, newest))
        if renamed is not None:
            name = next(field.name for field in newest.schema.walk() if field.id == renamed.id)
            raise SchemaMismatchError(
                f"{renamed.name!r}, which the stream reads, was renamed to {name!r} after the "
                f"query was started, and another column or field is {renamed.name!r} now; start "
                "the query again, to read the columns by their present names"
            )

    def _renamed(
        self, started: Manifest, newest: Manifest, same_ids: Collection[int]
    ) -> Field | None:
        older, present = started.schema.fields, newest.schema.fields
        older_names = [field.name for field in older]
        names = [field.name for field in present]
        for column in self.spark_schema:
            before, after = find(older_names, column.name), find(names, column.name)
            if before >= 0 and after >= 0:
                field = renamed_field(older[before], present[after], same_ids)
                if field is not None:
                    return field
        return None

    def _changes(self, changes: list[VersionChanges], manifest: Manifest) -> list[ChangeTask]:
        """Return tasks for changes, with the columns of the newest or of their last version."""
        plan, last = self._planned(), changes[-1].after
        existing = [field.name for field in (*manifest.schema.fields, *CHANGE_FIELDS)]
        existing += [name for name in META_FIELDS if name not in existing]
        if any(find(existing, name) < 0 for name in self.spark_schema.names):
            manifest = last
        return tasks_of(
            plan.table,
            changes,
            manifest,
            self.options,
            self.spark_schema,
            same_ids=plan.same_ids(last.version, manifest),
        )

    def _scans(self, part: VersionPart, newest: Manifest) -> Sequence[ScanTask | ChangeTask]:
        """Return tasks for fragments, as of the version that added them."""
        if not part.fragments:
            return []
        if not _can_read_by_name(
            self.spark_schema, newest.schema.fields, part.manifest.schema.fields
        ):
            if self.options.filter is not None:
                raise self._filter_error(part.manifest.version)
            return self._changes([as_inserted(part.manifest, part.fragments)], newest)
        from lance_spark.dataset.dataset import Dataset

        paths = self._planned().table.paths.with_bases(part.manifest.base_paths)
        dataset = Dataset(OpenTable(paths, part.manifest), self.options.storage_options)
        visible = with_row_columns(whole_schema(dataset, self.options))
        check_descriptors(visible, self.spark_schema, display(self.options.path))
        columns = paths_for(visible, self.spark_schema, display(self.options.path))
        check_conversion(visible, batch_schema(self.spark_schema), reading=True)
        filters, self._text = option_filter(known_columns(dataset), self.options)
        names = {path[0].name for predicate in filters for path in predicate.paths}
        for field in newest.schema.fields:
            if field.name in names:
                older = _same_by_name(field, newest.schema.fields, part.manifest.schema.fields)
                if older is None or not _has_same_names(field, older):
                    raise self._filter_error(part.manifest.version)
        return dataset.plan(
            columns,
            rows_per_task=self.options.target_rows_per_partition,
            min_partitions=MIN_PARTITIONS,
            batch_size=self.options.batch_size or DEFAULT_BATCH_SIZE,
            filter=conjunction(filters),
            blob_handling=self.options.blob_handling,
            fragment_ids=[fragment.id for fragment in part.fragments],
        )

    def _filter_error(self, version: int) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"table {display(self.options.path)}: version {version} lacks columns of the stream or "
            "of its filter, which were added or renamed later; remove the option filter"
        )


def _can_read_by_name(schema: StructType, newest: Sequence[Field], fields: Sequence[Field]) -> bool:
    """Return whether an older version has columns under their present names.

    It has not if a column, or a field of a struct, was renamed or added since. A column whose type
    was changed since has another id, and the same name.

    - `newest`, `fields`: Columns of the newest and of the older version, or fields of a struct of
      both.
    """
    names = [field.name for field in newest]
    for column in schema:
        position = find(names, column.name)
        if position < 0:
            # Dropped since, or a column such as `_rowid`.
            continue
        present = newest[position]
        older = _same_by_name(present, newest, fields)
        if older is None:
            return False
        nested = column.dataType
        if isinstance(nested, StructType) and present.logical_type == "struct":
            if older.logical_type == "struct" and not _can_read_by_name(
                nested, present.children, older.children
            ):
                return False
        elif not _has_same_names(present, older):
            return False
    return True


def _has_same_names(present: Field, older: Field, *, is_entry: bool = False) -> bool:
    """Return whether an older version has all fields below a list or a map by their names."""
    if present.logical_type == "struct" and not is_entry:
        children = [
            _same_by_name(child, present.children, older.children) for child in present.children
        ]
    else:
        # Names of items, entries, keys and values mean nothing: writers choose them.
        children = list(older.children)
    is_map = present.logical_type == "map"
    return all(
        older_child is not None and _has_same_names(child, older_child, is_entry=is_map)
        for child, older_child in zip(present.children, children, strict=False)
    )


def _same_by_name(present: Field, newest: Sequence[Field], fields: Sequence[Field]) -> Field | None:
    """Return the older field of the same name; None if another field had this name."""
    older = next((field for field in fields if field.name == present.name), None)
    if older is None or older.id == present.id:
        return older
    is_other = present.id in {field.id for field in fields} or older.id in {
        field.id for field in newest
    }
    return None if is_other else older


def _together(
    tasks: Sequence[ScanTask | ChangeTask], text: OptionText | None
) -> list[StreamPartition]:
    """Merge the tasks of small versions, in order."""
    max_rows = max(_SMALL_ROWS, sum(task.num_rows for task in tasks) // _PARTITIONS)
    results: list[StreamPartition] = []
    current: list[ScanTask | ChangeTask] = []
    rows = 0
    for task in tasks:
        if current and rows + task.num_rows > max_rows:
            results.append(StreamPartition(current, text))
            current, rows = [], 0
        current.append(task)
        rows += task.num_rows
    if current:
        results.append(StreamPartition(current, text))
    return results
