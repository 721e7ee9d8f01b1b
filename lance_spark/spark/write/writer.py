"""Writes a table: executors write data files, the driver commits all fragments in one commit.

A failed task deletes its files, and an aborted job deletes the files of all tasks. If Spark runs a
task twice, the files of the dropped result never become part of the table. Readers see nothing
before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_spark.errors import AlreadyCommittedError, LanceError, error_context
from lance_spark.spark.job import task_number
from lance_spark.spark.python_process import TaskObject, plain_messages
from lance_spark.spark.read.reader import display
from lance_spark.spark.replies import reply_of
from lance_spark.spark.write.input import InputConverter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.spark.write.locators import BlobSources
    from lance_spark.table.commit.options import WriteToken
    from lance_spark.table.commit.write import WriteJob
    from lance_spark.table.fragments.files import DataFile
    from lance_spark.table.fragments.fragment import Fragment
    from lance_spark.table.fragments.writer import FragmentWriter


class LanceCommitMessage(WriterCommitMessage):
    """The fragments of one task.

    - `fragments`: Fragments without ids, which the commit assigns.
    """

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.fragments = tuple(fragments)
        rows = sum(fragment.physical_rows for fragment in self.fragments)
        self.counts = counts_of(self.fragments, inserted=rows)


def counts_of(
    fragments: Sequence[Fragment],
    *,
    inserted: int,
    updated: int = 0,
    deleted: int = 0,
    deletion_files: int = 0,
    column_files: Sequence[DataFile] = (),
) -> bytes:
    """Return what a task has written, which `WriteCounts.java` reads in the pickle of a message."""
    files = [file for fragment in fragments for file in fragment.files] + [*column_files]
    size = sum(file.file_size_bytes for file in files)
    numbers = (inserted, updated, deleted, len(fragments), len(files) + deletion_files, size)
    return reply_of("written", counts=numbers)


class LanceWriter(TaskObject, DataSourceArrowWriter):
    """Writes Arrow batches; planned on the driver, pickled to the executors.

    - `write_token`: Identifies the write, which is skipped if it was committed before.
    - `fill_children`: Whether children of structs that the rows lack become null.
    """

    #: Columns of the rows that tasks receive (`batches.received`).
    schema: StructType | None = None
    #: Of locators in place of blobs, if the query only copies some.
    sources: BlobSources | None = None

    def __init__(
        self,
        job: WriteJob,
        names: Sequence[str],
        commit_message: str | None = None,
        write_token: WriteToken | None = None,
        *,
        fill_children: bool = False,
    ) -> None:
        self.job = job
        self.names = list(names)
        self.fill_children = fill_children
        self.commit_message = commit_message
        self.write_token = write_token

    def watcher(self) -> Callable[[pa.RecordBatch], None] | None:
        """Return a function that receives each batch of a task before it is written."""
        return None

    def message(
        self, fragments: Sequence[Fragment], watcher: Callable[[pa.RecordBatch], None] | None
    ) -> LanceCommitMessage:
        """Return the message of a task."""
        return LanceCommitMessage(fragments)

    def job_for(self, messages: Sequence[WriterCommitMessage | None]) -> WriteJob:
        """Return the write to commit, from the messages of all tasks."""
        return self.job

    @plain_messages()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the batches of one task.

        Raises StorageError. Raises InvalidInputError: a value does not fit the type of the table.
        """
        from lance_spark.spark.write.input import BackgroundWriter, received
        from lance_spark.spark.write.locators import resolved

        batches = resolved(received(iterator, self.schema), self.sources)
        rows = (batch for batch in batches if batch.num_rows)
        watcher = self.watcher()
        first = next(rows, None)
        if first is None:
            return self.message([], watcher)
        convert = InputConverter(
            self.job.arrow_schema, self.names, fill_children=self.fill_children
        )
        writer = self.job.writer(task_number())
        # A batch may hold a large blob: neither a name nor a list keeps the first one.
        batches = chain(iter([first]), rows)
        del first

        def write(batch: pa.RecordBatch) -> None:
            for piece in convert(batch):
                if watcher is not None:
                    watcher(piece)
                writer.write(piece)

        try:
            with error_context(display(self.job.uri)), BackgroundWriter(write) as background:
                for batch in batches:
                    background.put(batch)
            return self.message(writer.finish(), watcher)
        except BaseException:
            _abandon(writer)
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the fragments of all tasks.

        Raises CommitConflictError: another client committed a conflicting change.
        """
        if any(message is None for message in messages):
            raise LanceError(
                "a task of the write sent no result: nothing was committed; run the write again"
            )
        from lance_spark.table.commit.transaction import with_message
        from lance_spark.table.commit.write import commit_on_newest

        with suppress(AlreadyCommittedError):
            commit_on_newest(
                self.job_for(messages),
                _fragments(messages),
                with_message(None, self.commit_message),
                self.write_token,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of all tasks, unless a commit was attempted.

        Spark calls this method also after a failed commit, in another process. Then every task has
        sent its message, and the commit itself has deleted the files if no version can refer to
        them.
        """
        if any(message is None for message in messages):
            # A task whose input failed may have finished its file, but Spark dropped its message.
            self.job.abort_all()


def _fragments(messages: list[WriterCommitMessage | None]) -> list[Fragment]:
    return [
        fragment
        for message in messages
        if isinstance(message, LanceCommitMessage)
        for fragment in message.fragments
    ]


def _abandon(writer: FragmentWriter) -> None:
    # The error of the task matters more than an error of this cleanup.
    with suppress(Exception):
        writer.abort()
