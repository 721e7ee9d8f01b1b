"""Writing: executors write data files and send fragments home, the driver commits them in one step.

A task that fails removes its files, and a job that is aborted those of all its tasks. Files of a
task that Spark ran twice, and whose second result it dropped, are never part of the table. Nothing
is visible before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_spark.errors import AlreadyCommittedError, LanceError, naming
from lance_spark.spark.jobs.task_number import task_number
from lance_spark.spark.read.reader import display
from lance_spark.spark.write.input_converter import InputConverter

if TYPE_CHECKING:
    from lance_spark.table.commit.idempotency import WriteToken
    from lance_spark.table.commit.write_job import WriteJob
    from lance_spark.table.fragments.fragment import Fragment
    from lance_spark.table.fragments.writer import FragmentWriter


class LanceCommitMessage(WriterCommitMessage):
    """The fragments that one task wrote.

    Parameters
    ----------
    fragments : sequence of Fragment
        Without ids: the commit gives them.
    """

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.fragments = tuple(fragments)


class LanceWriter(DataSourceArrowWriter):
    """Writes batches of Arrow; planned on the driver, pickled to the executors.

    Parameters
    ----------
    job : WriteJob
    names : sequence of str
        For each column of Spark's batches, the table's column that it goes to.
    commit_message : str, optional
    once : Once, optional
        Which write of whom this is: it is left out if it was made before.
    """

    def __init__(
        self,
        job: WriteJob,
        names: Sequence[str],
        commit_message: str | None = None,
        once: WriteToken | None = None,
    ) -> None:
        self.job = job
        self.names = list(names)
        self.commit_message = commit_message
        self.once = once

    def watcher(self) -> Callable[[pa.RecordBatch], None] | None:
        """Return what looks at the batches of one task before they are written."""
        return None

    def message(
        self, fragments: Sequence[Fragment], watcher: Callable[[pa.RecordBatch], None] | None
    ) -> LanceCommitMessage:
        """Return what a task says that wrote fragments."""
        return LanceCommitMessage(fragments)

    def job_for(self, messages: Sequence[WriterCommitMessage | None]) -> WriteJob:
        """Return what is committed, now that all tasks have said what they wrote."""
        return self.job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the batches of one task.

        Raises
        ------
        InvalidInputError
            A value does not fit the table's type.
        StorageError
        """
        from lance_spark.spark.write.background_writer import BackgroundWriter

        batches = (batch for batch in iterator if batch.num_rows)
        watcher = self.watcher()
        first = next(batches, None)
        if first is None:
            return self.message([], watcher)
        convert = InputConverter(self.job.arrow_schema, self.names)
        writer = self.job.writer(task_number())

        def write(batch: pa.RecordBatch) -> None:
            for piece in convert(batch):
                if watcher is not None:
                    watcher(piece)
                writer.write(piece)

        try:
            with (
                naming(display(self.job.uri)),
                BackgroundWriter(write) as behind,
            ):
                for batch in chain([first], batches):
                    behind.put(batch)
            return self.message(writer.finish(), watcher)
        except BaseException:
            _abandon(writer)
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the fragments of all tasks part of the table.

        Raises
        ------
        CommitConflictError
            Somebody else changed the table in a way that contradicts this write.
        """
        if any(message is None for message in messages):
            raise LanceError(
                "a task of the write sent no result: nothing was committed; run the write again"
            )
        from lance_spark.table.commit.transaction import with_message
        from lance_spark.table.commit.write_rebase import commit_again

        with suppress(AlreadyCommittedError):
            commit_again(
                self.job_for(messages),
                _fragments(messages),
                with_message(None, self.commit_message),
                self.once,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files that the tasks wrote, unless a commit was tried.

        Spark calls this after a failed commit too, in another process. Then every task has sent its
        message, and the commit itself has removed the files if it knew that nobody refers to them.
        """
        if any(message is None for message in messages):
            # A task whose input failed may have finished its file, but its message was thrown away.
            self.job.abort_all()


def _fragments(messages: list[WriterCommitMessage | None]) -> list[Fragment]:
    return [
        fragment
        for message in messages
        if isinstance(message, LanceCommitMessage)
        for fragment in message.fragments
    ]


def _abandon(writer: FragmentWriter) -> None:
    # What made the task fail is the error to show.
    with suppress(Exception):
        writer.abort()
