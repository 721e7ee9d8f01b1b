"""The change feed of a table as a DataFrame: rows that versions inserted, updated and deleted.

    spark.read.format("lance").option("readChangeFeed", True)
        .option("startingVersion", 5).load(path)

Each version is reported separately, so a row that three versions changed appears three times. The
columns are the columns of the last version, and `_change_type`, `_commit_version` and
`_commit_timestamp`. A removed version is an error: a feed is never incomplete. The optimizer rule
does not change feeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_spark.change_feed.diff import VersionChanges, changes_between, is_first_of_clone
from lance_spark.change_feed.tasks import (
    CHANGE_FIELDS,
    TARGET_ROWS,
    ChangeTask,
    FeedColumns,
    plan_changes,
)
from lance_spark.errors import InvalidOptionError, SchemaMismatchError, VersionNotFoundError
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.python_process import TaskObject
from lance_spark.spark.read.planning import DEFAULT_BATCH_SIZE
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.reader import display
from lance_spark.spark.types.convert import BatchConverter, check_conversion
from lance_spark.spark.types.mapping import batch_schema, check_descriptors
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.history import manifest_as_of
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.open import OpenTable, open_table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.storage.store import ObjectStore
    from lance_spark.table.manifest.manifest import Manifest

_MICROSECOND = timedelta(microseconds=1)
_FIRST_TIME = datetime.min.replace(tzinfo=UTC)
_CHANGE_NAMES = tuple(field.name for field in CHANGE_FIELDS)


class ChangePartition(InputPartition):
    """A partition: one task of a feed, or none without changes."""

    def __init__(self, task: ChangeTask | None) -> None:
        super().__init__(None)
        self.task = task


class ChangeFeedReader(TaskObject, DataSourceReader):
    """Reads the changes of some versions.

    - `schema`: Schema of the feed or of the user. The latter may have fewer columns and wider
      types.
    """

    def __init__(self, options: ReadOptions, feed: FeedOptions, schema: StructType) -> None:
        self.options = options
        self.feed = feed.of_batch(options)
        self.spark_schema = schema

    def partitions(self) -> list[InputPartition]:
        """Find the changes, and split them into tasks.

        Raises VersionNotFoundError: a requested version, or the version before it, does not exist,
        or no longer. Raises SchemaMismatchError: a column is missing, or has another type in one of
        the versions.
        """
        span = Span.of(self.options, self.feed)
        changes = list(changes_between(span.table, span.first, span.last))
        tasks = tasks_of(span.table, changes, span.manifest(), self.options, self.spark_schema)
        return [ChangePartition(task) for task in tasks] or [ChangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in batches of exactly the schema that Spark expects."""
        assert isinstance(partition, ChangePartition)
        if partition.task is not None:
            yield from spark_rows(partition.task, self.spark_schema, self.options)


@dataclass(frozen=True, slots=True)
class Span:
    """Versions of a table whose changes are read.

    - `table`: The newest version.
    - `first`, `last`: Both inclusive; empty if the first is greater.
    """

    table: OpenTable
    first: int
    last: int

    @classmethod
    def of(cls, options: ReadOptions, feed: FeedOptions) -> Span:
        """Find the versions that options name.

        Raises VersionNotFoundError: a version does not exist. Raises InvalidOptionError: the last
        is before the first.
        """
        table = newest_of(options)
        last = _last(table, feed)
        first = first_version(table, feed)
        assert first is not None, "`FeedOptions.of_batch` requires a start"
        # No version may have been committed between two times.
        if first > last + 1:
            raise InvalidOptionError(
                f"{table.store.display}: the change feed starts at version {first} and ends at "
                f"version {last}: set an end that is not before the start"
            )
        return cls(table, first, last)

    def manifest(self) -> Manifest:
        """Return the manifest of the last version."""
        return _manifest(self.table, self.last)


def newest_of(options: ReadOptions) -> OpenTable:
    """Open the newest version of the branch that options name."""
    return open_table(
        options.path, branch=options.branch, storage_options=options.storage_options or None
    )


def feed_schema(options: ReadOptions, feed: FeedOptions) -> pa.Schema:
    """Return the Arrow schema of a feed.

    Raises VersionNotFoundError, InvalidInputError, InvalidOptionError.
    """
    table = newest_of(options)
    manifest = _manifest(table, _last(table, feed))
    return FeedColumns.of(manifest, _selected(options, manifest), options.blob_handling).to_arrow()


def tasks_of(
    table: OpenTable,
    changes: list[VersionChanges],
    manifest: Manifest,
    options: ReadOptions,
    schema: StructType,
    *,
    same_ids: frozenset[int] | None = None,
) -> list[ChangeTask]:
    """Split changes into tasks that return the columns of a Spark schema.

    - `manifest`: Manifest of the last version, or of a later one.
    - `same_ids`: Ids of fields that mean the same columns in all versions; see `plan_changes`.

    Raises SchemaMismatchError.
    """
    visible = FeedColumns.of(
        manifest, _selected(options, manifest, all_columns=True), options.blob_handling
    ).to_arrow()
    check_descriptors(visible, schema, display(options.path))
    names: list[str] = []
    for field in schema:
        position = find(visible.names, field.name)
        if position < 0:
            raise SchemaMismatchError(
                f"table {display(options.path)} has no column {field.name} in version "
                f"{manifest.version}; the columns are {', '.join(visible.names[:50])}"
            )
        if visible.names[position] not in _CHANGE_NAMES:
            names.append(visible.names[position])
    columns = FeedColumns.of(manifest, names, options.blob_handling)
    check_conversion(columns.to_arrow(), batch_schema(schema), reading=True)
    return plan_changes(
        table.store.uri,
        changes,
        columns,
        options.storage_options,
        target_rows=options.target_rows_per_partition or TARGET_ROWS,
        same_ids=same_ids,
    )


def spark_rows(
    task: ChangeTask, schema: StructType, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as Spark expects them."""
    target = batch_schema(schema)
    convert = BatchConverter(task.schema, target, reading=True)
    for batch in task.batches(options.batch_size or DEFAULT_BATCH_SIZE):
        yield from convert(batch) if len(target) else (batch.select([]),)


def first_version(table: OpenTable, feed: FeedOptions) -> int | None:
    """Return the first version that options name; None if they name none.

    - `table`: The newest version of the branch.

    Returns one more than the newest version if all are older than the starting timestamp. Raises
    VersionNotFoundError: the version does not exist, or versions before the starting timestamp were
    removed, so the first version is unknown.
    """
    first = feed.starting_version
    if feed.starting_timestamp is not None:
        first = _first_since(table.store, feed.starting_timestamp)
    if first is not None and first > table.version + 1:
        raise VersionNotFoundError(
            f"{table.store.display}: startingVersion is {first}, but the newest version is "
            f"{table.version}"
        )
    return first


def _first_since(store: ObjectStore, timestamp: datetime) -> int:
    # No version is older than the first time that Python has.
    before = max(timestamp, _FIRST_TIME + _MICROSECOND) - _MICROSECOND
    try:
        return manifest_as_of(store, before).version + 1
    except VersionNotFoundError as error:
        oldest = list_manifests(store)[0].version
        if oldest > 1 and not is_first_of_clone(store, read_version(store, oldest)):
            raise VersionNotFoundError(
                f"{error}; earlier versions have been cleaned up, so the first version of that "
                f"time is unknown: set startingVersion to {oldest + 1} or later"
            ) from None
        return oldest


def _last(table: OpenTable, feed: FeedOptions) -> int:
    if feed.ending_timestamp is not None:
        return manifest_as_of(table.store, feed.ending_timestamp).version
    if feed.ending_version is None:
        return table.version
    if feed.ending_version > table.version:
        raise VersionNotFoundError(
            f"{table.store.display}: endingVersion is {feed.ending_version}, but the newest "
            f"version is {table.version}"
        )
    return feed.ending_version


def _manifest(table: OpenTable, version: int) -> Manifest:
    return table.manifest if version == table.version else read_version(table.store, version)


def _selected(
    options: ReadOptions, manifest: Manifest, *, all_columns: bool = False
) -> list[str] | None:
    """Return the columns and row columns of the options; None for all columns.

    Raises InvalidOptionError: the column does not exist, or is a child of a struct.
    """
    from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS, ROW_ID, ROW_OFFSET

    columns = [field.name for field in manifest.schema.fields]
    row_columns = [name for name in META_FIELDS if name != ROW_OFFSET.name and name not in columns]
    if all_columns:
        return columns + row_columns
    selected = columns
    if options.columns is not None:
        selected = []
        for name in options.columns:
            index = find(columns + row_columns, name)
            if index < 0:
                raise InvalidOptionError(
                    f"option columns: a change feed of table {display(options.path)} has no column "
                    f"{name}; the columns are {', '.join(columns[:50])}, without nested fields"
                )
            selected.append((columns + row_columns)[index])
    flags = ((ROW_ID.name, options.with_row_id), (ROW_ADDRESS.name, options.with_row_address))
    return [*selected, *(name for name, is_asked in flags if is_asked and name not in selected)]
