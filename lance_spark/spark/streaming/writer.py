"""A table as the sink of a stream: each batch is one version, exactly once.

    frame.writeStream.format("lance").option("checkpointLocation", folder).start(path)

Spark repeats a batch if it stopped after the commit and before the checkpoint. So the transaction
records query and batch, and a commit looks for them in the history and in concurrent commits
(`table/commit/options`): a batch that was committed before is dropped. A later batch of the query
is an error: a crash repeats only the last batch, so the checkpoint is an old one.

| property of the transaction | value |
| --- | --- |
| `lance.streaming.queryId` | option streamingQueryId, or the id of the query in its checkpoint |
| `lance.streaming.epochId` | number of the batch |

Append: a batch without rows creates no version. Complete: each batch overwrites the table. The
query id survives restarts, and differs for another checkpoint.

Spark creates one writer, which it pickles for tasks, and another one in another process, which
commits the messages of the tasks. So the write is planned when the writer is pickled, and is a part
of the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from lance_spark.errors import (
    AlreadyCommittedError,
    InvalidInputError,
    InvalidOptionError,
    LanceError,
)
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.python_process import TaskObject, plain_messages
from lance_spark.spark.write.planning import make_writer
from lance_spark.spark.write.writer import LanceCommitMessage, LanceWriter
from lance_spark.table.commit.options import DEFAULT_LOOKBACK, WriteToken, stale_batch_error
from lance_spark.table.commit.transaction import read_transaction, with_message
from lance_spark.table.commit.write import WriteJob, commit_on_newest
from lance_spark.table.manifest.codec import read_version

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.table.fragments.fragment import Fragment

QUERY_ID = "lance.streaming.queryId"
EPOCH_ID = "lance.streaming.epochId"
#: Local property of Spark with the query of a task.
_SPARK_QUERY_ID = "sql.streaming.queryId"


class StreamCommitMessage(WriterCommitMessage):
    """The fragments of one task, and the write that they belong to.

    - `job`: The write; equal in all messages of a batch.
    - `fragments`: Fragments without ids, which the commit assigns.
    """

    def __init__(self, job: WriteJob, fragments: Sequence[Fragment], query_id: str) -> None:
        self.job = job
        self.fragments = tuple(fragments)
        self.query_id = query_id


class LanceStreamWriter(TaskObject, DataSourceArrowWriter, DataSourceStreamWriter):
    """Writes the batches of a stream.

    - `overwrite`: True if each batch replaces the whole table.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self.options = options
        self.spark_schema = schema
        self.overwrite = overwrite
        self._writer: LanceWriter | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Plan the write, once for all pickles of this writer."""
        self._planned()
        return vars(self)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task.

        Raises StorageError. Raises InvalidInputError: a value does not fit the type of the table,
        or the query id is unknown.
        """
        query_id = self.options.streaming_query_id or query_of_task()
        writer = self._planned()
        written = writer.write(iterator)
        assert isinstance(written, LanceCommitMessage)
        return StreamCommitMessage(writer.job, written.fragments, query_id)

    @plain_messages()
    def commit(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Commit the rows of a batch, unless it was committed before.

        Raises CommitConflictError: another client committed a conflicting change. Raises
        InvalidInputError: the table has a later batch of the query.
        """
        if any(message is None for message in messages):
            raise LanceError(
                f"a task of batch {batchId} sent no result: nothing was committed; start the query "
                "again"
            )
        fragments = [fragment for message in _ours(messages) for fragment in message.fragments]
        if not fragments and not self.overwrite:
            return
        first = next(iter(_ours(messages)), None)
        write_token = None
        if first is not None:
            lookback = self.options.lookback_versions or DEFAULT_LOOKBACK
            write_token = WriteToken(QUERY_ID, first.query_id, EPOCH_ID, batchId, lookback)
        # Without tasks the query is unknown; emptying a table twice is harmless.
        job = self._planned().job if first is None else first.job
        properties = with_message(None, self.options.commit_message)
        try:
            commit_on_newest(job, fragments, properties, write_token)
        except AlreadyCommittedError as error:
            # The files of these messages have been deleted.
            _check_repeated(job, write_token, error.version)

    def abort(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Delete the files of all tasks, unless a commit was attempted; see `LanceWriter.abort`."""
        if any(message is None for message in messages):
            for message in _ours(messages)[:1]:
                message.job.abort_all()

    def _planned(self) -> LanceWriter:
        if self._writer is None:
            if self.options.overwrite:
                self._refuse_overwrite_options()
            writer = make_writer(self.options, self.spark_schema, self.overwrite)
            assert isinstance(writer, LanceWriter)
            writer.schema = self.spark_schema
            self._writer = writer
        return self._writer

    def _refuse_overwrite_options(self) -> None:
        from lance_spark.spark.options.overwrite import OverwriteOptions

        effect = OverwriteOptions.parse(self.options, self.overwrite)
        # An append would ignore it, and add the rows to those that they should replace.
        mode = self.options.overwrite.get("partition_overwrite_mode", "")
        is_dynamic = mode.strip().lower() == "dynamic"
        if effect.write_token is not None or effect.replaces_part or is_dynamic:
            raise InvalidOptionError(
                "options txnAppId, txnVersion, replaceWhere and partitionOverwriteMode do not "
                "apply to streams: a stream numbers its batches itself, and appends, or overwrites "
                "the table in complete mode; for other writes, use writeStream.foreachBatch"
            )


def _check_repeated(job: WriteJob, write_token: WriteToken | None, version: int) -> None:
    """Check that a version has this batch, and no later one of the query.

    Raises InvalidInputError.
    """
    assert write_token is not None
    store = job.store()
    number = write_token.number_of(read_transaction(store, read_version(store, version)))
    if number is not None and number > write_token.number:
        raise stale_batch_error(store, write_token.id, number, write_token.number)


def _ours(messages: Sequence[WriterCommitMessage | None]) -> list[StreamCommitMessage]:
    return [message for message in messages if isinstance(message, StreamCommitMessage)]


def query_of_task() -> str:
    """Return the id of the streaming query that a task belongs to.

    Raises InvalidInputError: the task does not know it.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    result = None if context is None else context.getLocalProperty(_SPARK_QUERY_ID)
    if not result:
        raise InvalidInputError(
            "the id of the streaming query is unknown, so repeated batches cannot be detected: set "
            "the option streamingQueryId to a name that stays the same after each restart"
        )
    return str(result)
