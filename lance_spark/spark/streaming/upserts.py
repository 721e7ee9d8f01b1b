"""A table with a MemWAL as the sink of a stream of upserts.

    frame.writeStream.format("lance").option("upsert", "true").start(path)

Rows replace rows of the same key, also within a batch. Tasks only stage their rows
(`mem_wal/staging`): Spark cannot distribute rows of a Python source by shard. The driver reads the
rows of a batch, and writes them to the shards that they belong to (`mem_wal/stream_batches`), each
batch once. A batch must fit into the memory of the process that commits it.

| option | meaning |
| --- | --- |
| `upsert` | `true` |
| `upsert_mode` | `sstable`: an SSTable per shard and batch; `log`: a WAL entry |
| `sequence_column` | of rows of a batch with the same key, the one with the greatest value counts |
| `delete_column` | a column of booleans: the rows to delete |

The last two columns need not be columns of the table. Rows of a later batch
replace those of an earlier batch, even if their sequence is lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from lance_spark.errors import (
    InvalidOptionError,
    LanceError,
    SchemaMismatchError,
    StorageError,
    error_context,
)
from lance_spark.mem_wal.compaction import mem_wal_of
from lance_spark.mem_wal.open import spec_of
from lance_spark.mem_wal.staging import read_staged, stage
from lance_spark.mem_wal.stream_batches import StreamBatch, StreamMode, shaped_rows, write_batch
from lance_spark.spark.options.declared import MUST_EXIST
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.python_process import TaskObject, plain_messages
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.reader import display
from lance_spark.spark.streaming.writer import query_of_task
from lance_spark.spark.types.mapping import to_arrow_schema
from lance_spark.spark.write.input import InputConverter, received
from lance_spark.spark.write.planning import check_columns
from lance_spark.table.commit.options import DEFAULT_LOOKBACK
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.primary_key import primary_key

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class StagedMessage(WriterCommitMessage):
    """The staged rows of one task.

    - `path`: The file with the rows; None without rows.
    - `columns`: Field ids of the table's columns in the file.
    """

    def __init__(self, path: str | None, query_id: str, columns: dict[str, int]) -> None:
        self.path = path
        self.query_id = query_id
        self.columns = columns


class LanceUpsertWriter(TaskObject, DataSourceArrowWriter, DataSourceStreamWriter):
    """Writes the batches of a stream of upserts.

    - `schema`: Columns of the stream.

    Raises InvalidOptionError: an option does not apply. Raises SchemaMismatchError: the columns do
    not fit the table. Raises InvalidInputError: the table has no MemWAL, or no key.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.spark_schema = schema
        if overwrite:
            raise InvalidOptionError(
                "option upsert does not apply to the output mode complete, which replaces the "
                "table; use the output mode append"
            )
        if refused := [name for name in options.overwrite if name != MUST_EXIST]:
            raise InvalidOptionError(
                f"{display(options.path)}: option {refused[0]} does not apply "
                "to streams of upserts: remove it, and add new columns to the table before"
            )
        with error_context(display(options.path)):
            self._columns = _StreamColumns.of(self._open(), schema, options)

    @plain_messages()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task.

        Raises StorageError. Raises InvalidInputError: a value does not fit the type of the table,
        or the query id is unknown.
        """
        query_id = self.options.streaming_query_id or query_of_task()
        convert = InputConverter(self._columns.target, self._columns.names)
        with error_context(display(self.options.path)):
            batches = (
                piece
                for batch in received(iterator, self.spark_schema)
                if batch.num_rows
                for piece in convert(batch)
            )
            path = stage(self._open().store, batches)
            return StagedMessage(path, query_id, self._columns.ids)

    @plain_messages()
    def commit(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Write the rows of a batch to the shards that do not have them.

        Raises CommitConflictError: other writers claimed a shard again and again. Raises
        SchemaMismatchError: another client renamed or dropped a column while the batch ran. Raises
        InvalidInputError: a shard has a later batch of the query.
        """
        if any(message is None for message in messages):
            raise LanceError(
                f"a task of batch {batchId} sent no result: nothing was written; start the query "
                "again"
            )
        staged = _staged(messages)
        if not staged:
            return
        paths = list(staged)
        first = staged[paths[0]]
        with error_context(display(self.options.path)):
            table = self._open()
            _check_columns(table, first.columns)
            parts = read_staged(table.store, paths)
            rows = self._columns.rows(table, pa.concat_tables(parts))
            lookback = self.options.lookback_versions or DEFAULT_LOOKBACK
            mode = StreamMode(self.options.upsert_mode or StreamMode.SSTABLE.value)
            write_batch(table, rows, StreamBatch(first.query_id, batchId, lookback, mode))
        with suppress(StorageError):
            table.store.delete(paths)

    def abort(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Delete the staged rows of all tasks. The next run of the batch stages them again."""
        with suppress(LanceError):
            self._open().store.delete(list(_staged(messages)))

    def _open(self) -> OpenTable:
        options = self.options
        return open_table(
            options.path, branch=options.branch, storage_options=options.storage_options or None
        )


def _staged(messages: Sequence[WriterCommitMessage | None]) -> dict[str, StagedMessage]:
    """Return the messages of tasks with rows, by their staged files."""
    ours = [message for message in messages if isinstance(message, StagedMessage)]
    return {message.path: message for message in ours if message.path is not None}


def _check_columns(table: OpenTable, staged: dict[str, int]) -> None:
    """Check that the table still has the columns that tasks have staged.

    Raises SchemaMismatchError.
    """
    ids = {field.name: field.id for field in table.schema.fields}
    for name, number in staged.items():
        if ids.get(name) != number:
            raise SchemaMismatchError(
                f"column {name!r} of the table was renamed, dropped or replaced while the batch "
                "ran, and nothing of the batch was written: start the query again with columns "
                f"of the table ({', '.join(list(ids)[:50])})"
            )


class _StreamColumns:
    """The columns of a stream, and what they are for.

    - `names`: For each column of the stream, the table's column, or its own name.
    - `target`: The columns that are staged.
    - `ids`: Field ids of the table's columns among them.
    """

    def __init__(
        self,
        names: list[str],
        target: pa.Schema,
        ids: dict[str, int],
        sequence: str,
        delete: str,
    ) -> None:
        self.names = names
        self.target = target
        self.ids = ids
        self._sequence = sequence
        self._delete = delete

    @classmethod
    def of(cls, table: OpenTable, schema: StructType, options: WriteOptions) -> _StreamColumns:
        """Match the columns of a stream to those of the table."""
        spec_of(table, mem_wal_of(table))
        source = to_arrow_schema(schema, options.column_metadata)
        sequence = _named(source.names, options.sequence_column, "sequence_column")
        delete = _named(source.names, options.delete_column, "delete_column")
        if delete and not pa.types.is_boolean(source.field(delete).type):
            raise SchemaMismatchError(
                f"delete_column {delete!r} must be boolean, not {source.field(delete).type}"
            )
        arrow = table.schema.to_arrow()
        key = {path[0].name for path in primary_key(table.schema)}
        names, fields = [], []
        for field in source:
            index = find(arrow.names, field.name)
            if index < 0 and field.name not in (sequence, delete):
                raise SchemaMismatchError(
                    f"the table has no column {field.name!r}; its columns are "
                    f"{', '.join(arrow.names[:50])}. Select these, or name the column by the "
                    "option sequence_column or delete_column"
                )
            target = field if index < 0 else arrow.field(index)
            # Rows to delete have nulls outside of the key; others are checked by the commit.
            is_nullable = target.nullable or target.name not in key
            names.append(target.name)
            fields.append(target.with_nullable(is_nullable))
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatchError(f"two columns match the column {repeated!r} of the table")
        missing = [
            field.name
            for field in arrow
            if field.name not in names and (not field.nullable or field.name in key)
        ]
        if missing:
            raise SchemaMismatchError(
                f"the stream has no column {missing[0]!r}, which must not be null"
            )
        target_schema = pa.schema(fields)
        check_columns(source, names, target_schema)
        by_source = dict(zip(source.names, names, strict=True))
        ids = {field.name: field.id for field in table.schema.fields if field.name in names}
        return cls(
            names, target_schema, ids, by_source.get(sequence, ""), by_source.get(delete, "")
        )

    def rows(self, table: OpenTable, staged: pa.Table) -> pa.Table:
        """Return the staged rows of a batch in the shape of a log."""
        order = staged.column(self._sequence) if self._sequence else None
        deleted = staged.column(self._delete) if self._delete else None
        arrow = table.schema.to_arrow()
        columns = [
            staged.column(field.name)
            if field.name in staged.column_names
            else pa.chunked_array([pa.nulls(staged.num_rows, field.type)])
            for field in arrow
        ]
        schema = pa.schema(
            [
                field.with_type(column.type).with_nullable(True)
                for field, column in zip(arrow, columns, strict=True)
            ]
        )
        return shaped_rows(table, pa.Table.from_arrays(columns, schema=schema), deleted, order)


def _named(names: Sequence[str], wanted: str | None, option: str) -> str:
    """Return the column of the stream that an option names; empty without the option."""
    if wanted is None:
        return ""
    index = find(list(names), wanted)
    if index < 0:
        raise InvalidOptionError(
            f"option {option}: the stream has no column {wanted!r}, only {', '.join(names)}"
        )
    return names[index]
