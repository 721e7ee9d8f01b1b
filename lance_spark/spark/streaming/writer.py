"""A table as the sink of a stream: each batch is one version, exactly once.

    frame.writeStream.format("lance").option("checkpointLocation", folder).start(path)

Spark runs a batch again if it was stopped after the table had it and before the checkpoint did. So
the transaction says which batch of which query it is, and a commit looks for that in the history
and in what others commit meanwhile (`table.once`): a batch that is there already is thrown away.

| property of the transaction | value |
| --- | --- |
| `lance.streaming.queryId` | option streamingQueryId, or the id that the query's checkpoint has |
| `lance.streaming.epochId` | number of the batch |

Append: a batch without rows makes no version. Complete: each batch overwrites the table. The
query's id stays what it is over restarts, and is another one for another checkpoint, so that a
query which starts afresh is not taken for the one before.

Spark makes a writer in one process, which it pickles to the tasks, and another one, in another
process, which commits what the messages of the tasks say: the write is planned when the writer is
pickled, and travels with the messages.
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
from lance_spark.spark.options.options import WriteOptions
from lance_spark.spark.write.planning import make_writer
from lance_spark.spark.write.writer import LanceCommitMessage, LanceWriter
from lance_spark.table.commit.idempotency import DEFAULT_LOOKBACK, WriteToken
from lance_spark.table.commit.transaction import with_message
from lance_spark.table.commit.write_job import WriteJob
from lance_spark.table.commit.write_rebase import commit_again

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.table.fragments.fragment import Fragment

QUERY_ID = "lance.streaming.queryId"
EPOCH_ID = "lance.streaming.epochId"
#: Where Spark says which query a task is of.
_SPARK_QUERY_ID = "sql.streaming.queryId"


class StreamCommitMessage(WriterCommitMessage):
    """What one task wrote, and of what.

    Parameters
    ----------
    job : WriteJob
        The same in all messages of a batch.
    fragments : sequence of Fragment
        Without ids: the commit gives them.
    query_id : str
    """

    def __init__(self, job: WriteJob, fragments: Sequence[Fragment], query_id: str) -> None:
        self.job = job
        self.fragments = tuple(fragments)
        self.query_id = query_id


class LanceStreamWriter(DataSourceArrowWriter, DataSourceStreamWriter):
    """Writes the batches of a stream.

    Parameters
    ----------
    options : WriteOptions
    schema : StructType
        Of the stream.
    overwrite : bool
        True if each batch is the whole table.
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

        Raises
        ------
        InvalidInputError
            A value does not fit the table's type, or nobody knows which query this is.
        StorageError
        """
        query_id = self.options.streaming_query_id or _query_of_task()
        writer = self._planned()
        written = writer.write(iterator)
        assert isinstance(written, LanceCommitMessage)
        return StreamCommitMessage(writer.job, written.fragments, query_id)

    def commit(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Make the rows of a batch part of the table, unless they are already.

        Raises
        ------
        CommitConflictError
            Somebody else changed the table in a way that contradicts this write.
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
        once = None
        if first is not None:
            lookback = self.options.lookback_versions or DEFAULT_LOOKBACK
            once = WriteToken(QUERY_ID, first.query_id, EPOCH_ID, batchId, lookback)
        # Without tasks nobody said which query it is; a table that is emptied twice is as empty.
        job = self._planned().job if first is None else first.job
        properties = with_message(None, self.options.commit_message)
        try:
            commit_again(job, fragments, properties, once)
        except AlreadyCommittedError:
            # Their files have been deleted.
            return

    def abort(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Remove the files that the tasks wrote, unless a commit was tried; see
        `LanceWriter.abort`.
        """
        if any(message is None for message in messages):
            for message in _ours(messages)[:1]:
                message.job.abort_all()

    def _planned(self) -> LanceWriter:
        if self._writer is None:
            if self.options.rules:
                self._check_rules()
            made = make_writer(self.options, self.spark_schema, self.overwrite)
            assert isinstance(made, LanceWriter)
            self._writer = made
        return self._writer

    def _check_rules(self) -> None:
        from lance_spark.spark.options.overwrite_options import OverwriteOptions

        rules = OverwriteOptions.parse(self.options, self.overwrite)
        if rules.once is not None or rules.replaces_part:
            raise InvalidOptionError(
                "options txnAppId, txnVersion, replaceWhere and partitionOverwriteMode are for "
                "writes of one DataFrame: a stream "
                "numbers its batches itself, and appends, or in complete mode overwrites the "
                "table; for more, use "
                "writeStream.foreachBatch"
            )


def _ours(messages: Sequence[WriterCommitMessage | None]) -> list[StreamCommitMessage]:
    return [message for message in messages if isinstance(message, StreamCommitMessage)]


def _query_of_task() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    result = None if context is None else context.getLocalProperty(_SPARK_QUERY_ID)
    if not result:
        raise InvalidInputError(
            "nobody says which query this stream is, so that its batches could not be told apart: "
            "set the option "
            "streamingQueryId, to the same name after each restart"
        )
    return str(result)
