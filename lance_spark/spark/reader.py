"""Reading: the driver plans tasks on one version of the table, executors decode them into Spark's batches.

The version is chosen anew each time Spark plans a query, unless the options name one, so that a view sees what was appended
since; the tasks of one scan all read the version they were planned on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lance_spark.spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.dataset import Dataset
    from lance_spark.scan.task import ScanTask

#: Rows of a batch at most, unless the option batch_size says otherwise. The scan itself keeps wide rows to fewer.
DEFAULT_BATCH_SIZE = 65_536
#: Partitions a large table is split into at least: the planning process knows nothing of the cluster's cores.
MIN_PARTITIONS = 8


class LancePartition(InputPartition):
    """One task of a scan; none for a table without rows.

    Parameters
    ----------
    task : ScanTask or None
    """

    def __init__(self, task: ScanTask | None) -> None:
        super().__init__(None)
        self.task = task


class LanceReader(DataSourceReader):
    """Reads the columns of a Spark schema.

    Parameters
    ----------
    options : ReadOptions
    schema : StructType
        The table's own schema, or a user's, which may ask for fewer columns, for wider types, and for columns that every
        table has of its rows, such as _rowid.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.spark_schema = schema

    def partitions(self) -> list[LancePartition]:
        """Plan the scan.

        Raises
        ------
        SchemaMismatchError
            The table lacks a column of the schema, or has it in a type that cannot be read as the schema's.
        """
        from lance_spark.spark.convert import BatchConverter
        from lance_spark.spark.projection import paths_for
        from lance_spark.spark.types import batch_schema

        dataset = open_table(self.options)
        table = display(self.options.path)
        visible = with_row_columns(visible_schema(dataset, self.options))
        paths_for(visible, self.spark_schema, table)
        BatchConverter(visible, batch_schema(self.spark_schema), reading=True)
        whole = with_row_columns(whole_schema(dataset, self.options))
        columns = paths_for(whole, self.spark_schema, table)
        tasks = dataset.plan(
            columns,
            target_rows=self.options.target_rows,
            min_partitions=max(MIN_PARTITIONS, 2 * (os.cpu_count() or 1)),
            batch_size=self.options.batch_size or DEFAULT_BATCH_SIZE,
            blob_handling=self.options.blob_handling,
        )
        return [LancePartition(task) for task in tasks] or [LancePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in batches of exactly the Arrow schema that Spark expects."""
        assert isinstance(partition, LancePartition)
        if partition.task is not None:
            yield from spark_batches([partition.task], self.options, self.spark_schema)


def spark_batches(
    tasks: Iterable[ScanTask], options: ReadOptions, schema: StructType | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks as Spark takes them.

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
    from lance_spark.spark.convert import BatchConverter
    from lance_spark.spark.types import batch_schema, to_spark_schema

    wanted: pa.Schema | None = None
    for task in tasks:
        if wanted is None:
            wanted = batch_schema(to_spark_schema(task.schema) if schema is None else schema)
        convert = BatchConverter(task.schema, wanted, reading=True)
        for batch in task.batches():
            yield from convert(batch)


def open_table(options: ReadOptions) -> Dataset:
    """Open the version that the options name, or the newest.

    Raises
    ------
    TableNotFoundError, VersionNotFoundError, StorageError
    """
    from lance_spark.dataset import open_dataset

    chosen: dict[str, Any] = {}
    for name in ("branch", "tag", "timestamp"):
        if (value := getattr(options, name)) is not None:
            chosen[name] = value
    return open_dataset(
        options.path, options.version, storage_options=options.storage_options or None, **chosen
    )


def visible_schema(dataset: Dataset, options: ReadOptions) -> pa.Schema:
    """Return the table's schema, cut to the option columns, and with the columns about rows that options ask for.

    Raises
    ------
    InvalidOptionError
        The option names a column that the table lacks.
    """
    schema = whole_schema(dataset, options)
    if options.columns is not None:
        from lance_spark.spark.projection import select

        schema = select(with_row_columns(schema), options.columns, display(options.path))
    if not (options.with_row_id or options.with_row_address):
        return schema
    from lance_spark.scan.row_meta import ROW_ADDRESS, ROW_ID

    for field, wanted in ((ROW_ID, options.with_row_id), (ROW_ADDRESS, options.with_row_address)):
        if wanted and field.name not in schema.names:
            schema = schema.append(field.arrow_field)
    return schema


def with_row_columns(schema: pa.Schema) -> pa.Schema:
    """Return a schema with all columns that every table has of its rows, for names to be looked up in."""
    from lance_spark.scan.row_meta import META_FIELDS

    for field in META_FIELDS.values():
        if field.name not in schema.names:
            schema = schema.append(field.arrow_field)
    return schema


def whole_schema(dataset: Dataset, options: ReadOptions) -> pa.Schema:
    """Return the schema that a read of all columns has, with blobs as the options have them."""
    return dataset.schema_of(blob_handling=options.blob_handling)


def table_schema(options: ReadOptions) -> pa.Schema:
    """Return the Arrow schema that a read with these options has."""
    return visible_schema(open_table(options), options)


def display(path: str) -> str:
    """Return a path as messages may show it."""
    from lance_spark.storage.uri import parse_uri

    return parse_uri(path).display
