"""Writing: executors write data files and send fragments home, the driver commits them in one step.

A task that fails removes its files, and a job that is aborted those of all its tasks. Files of a task that Spark ran twice,
and whose second result it dropped, are never part of the table. Nothing is visible before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage

from lance_spark.errors import LanceError, SchemaMismatchError
from lance_spark.file.blob_fields import given_as
from lance_spark.spark.convert import BatchConverter
from lance_spark.spark.layout import with_offsets
from lance_spark.spark.options import WriteOptions
from lance_spark.spark.projection import find
from lance_spark.spark.reader import display
from lance_spark.spark.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.table.fragment import Fragment
    from lance_spark.table.fragment_writer import FragmentWriter
    from lance_spark.table.write_job import WriteJob


class LanceCommitMessage(WriterCommitMessage):
    """The fragments that one task wrote.

    Parameters
    ----------
    fragments : sequence of Fragment
        Without ids: the commit gives them.
    """

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.fragments = tuple(fragments)


#: Options that the plan of a write takes as they are; what is not given is its default.
_PASSED_ON = ("max_rows_per_file", "max_bytes_per_file", "enable_stable_row_ids", "commit_retries")


class LanceWriter(DataSourceArrowWriter):
    """Writes batches of Arrow; planned on the driver, pickled to the executors.

    Parameters
    ----------
    job : WriteJob
    names : sequence of str
        For each column of Spark's batches, the table's column that it goes to.
    commit_message : str, optional
    """

    def __init__(
        self, job: WriteJob, names: Sequence[str], commit_message: str | None = None
    ) -> None:
        self.job = job
        self.names = list(names)
        self.commit_message = commit_message

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the batches of one task.

        Raises
        ------
        InvalidInputError
            A value does not fit the table's type.
        StorageError
        """
        from lance_spark.spark.behind import WriteBehind

        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return LanceCommitMessage([])
        source = pa.schema(
            field.with_name(name) for field, name in zip(first.schema, self.names, strict=True)
        )
        target = given_as(self.job.arrow_schema, source)
        convert = BatchConverter(source, target, reading=False)
        writer = self.job.writer()

        def write(batch: pa.RecordBatch) -> None:
            columns = [with_offsets(column) for column in batch.columns]
            for piece in convert(pa.RecordBatch.from_arrays(columns, schema=source)):
                writer.write(piece)

        try:
            with WriteBehind(write) as behind:
                for batch in chain([first], batches):
                    behind.put(batch)
            return LanceCommitMessage(writer.finish())
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
        from lance_spark.table.transaction import with_message
        from lance_spark.table.write_job import commit_or_clean_up

        commit_or_clean_up(self.job, _fragments(messages), with_message(None, self.commit_message))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files that the tasks wrote, unless a commit was tried.

        Spark calls this after a failed commit too, in another process. Then every task has sent its message, and the
        commit itself has removed the files if it knew that nobody refers to them.
        """
        if any(message is None for message in messages):
            # A task whose input failed may have finished its file, but its message was thrown away.
            self.job.abort_all()


def make_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Plan a write on the driver.

    Parameters
    ----------
    options : WriteOptions
    schema : StructType
        Of the DataFrame.
    overwrite : bool
        True to replace the table's rows and schema, False to append.

    Raises
    ------
    SchemaMismatchError
        The columns do not fit the table's.
    """
    from lance_spark.file.blob_write import blob_options
    from lance_spark.table.write_job import begin_write

    if not schema.fields:
        raise SchemaMismatchError("the DataFrame has no columns: a table needs at least one")
    table = None if overwrite else existing_schema(options)
    given = {name: getattr(options, name) for name in _PASSED_ON}
    if table is None:
        target = to_arrow_schema(
            schema, options.column_metadata, large_var_types=options.large_var_types
        )
        names = schema.names
    else:
        target = table
        names = matched_names(schema.names, table.names, display(options.path))
    job = begin_write(
        options.path,
        target,
        mode="overwrite" if overwrite else "append",
        branch=options.branch,
        data_storage_version=options.data_storage_version,
        storage_options=options.storage_options or None,
        blobs=blob_options(
            options.external_blob_mode,
            options.allow_external_blob_outside_bases,
            options.blob_pack_file_size_threshold,
        ),
        **{name: value for name, value in given.items() if value is not None},
    )
    check_types(schema, options, names, job.arrow_schema)
    return LanceWriter(job, names, options.commit_message)


def existing_schema(options: WriteOptions) -> pa.Schema | None:
    """Return the schema of the table that is there; None if there is none."""
    from lance_spark.dataset import open_dataset
    from lance_spark.errors import TableNotFoundError

    try:
        return open_dataset(
            options.path, branch=options.branch, storage_options=options.storage_options or None
        ).schema
    except TableNotFoundError:
        return None


def matched_names(given: list[str], wanted: list[str], table: str) -> list[str]:
    """Return for each column of a DataFrame the column of the table that it goes to.

    Columns go by name, in whatever order. Those of an INSERT, which go by position, Spark has named as the table has them.

    Raises
    ------
    SchemaMismatchError
        A column has no counterpart, on either side.
    """
    found = [find(wanted, name) for name in given]
    unknown = [name for name, index in zip(given, found, strict=True) if index < 0]
    missing = [name for index, name in enumerate(wanted) if index not in found]
    twice = [name for name, index in zip(given, found, strict=True) if found.count(index) > 1]
    problems = []
    if unknown:
        problems.append(f"the table has no {', '.join(unknown)}")
    if missing:
        problems.append(f"the DataFrame has no {', '.join(missing)}")
    if not problems and twice:
        problems.append(f"{', '.join(twice)} go to one column")
    if problems:
        raise SchemaMismatchError(
            f"table {table}: {'; '.join(problems)}. Columns go by name: select what the table has "
            f"({', '.join(wanted[:50])}), or overwrite the table"
        )
    return [wanted[index] for index in found]


def check_types(
    schema: StructType, options: WriteOptions, names: list[str], target: pa.Schema
) -> None:
    """Refuse before any task runs what no value could make fit.

    Raises
    ------
    SchemaMismatchError
    """
    made = to_arrow_schema(schema, options.column_metadata)
    source = pa.schema(field.with_name(name) for field, name in zip(made, names, strict=True))
    BatchConverter(source, given_as(target, source), reading=False)


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
