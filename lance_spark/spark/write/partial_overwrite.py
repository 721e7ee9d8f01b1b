"""Writers of partial overwrites: `.mode("overwrite")` with ``replaceWhere`` or dynamic partitions.

| option | replaced rows | new rows |
| --- | --- | --- |
| `replaceWhere` | rows that meet the condition | must meet it |
| `partitionOverwriteMode`, `partitionBy` | rows of the partitions of the DataFrame | any |

The session, `INSERT OVERWRITE ... PARTITION` and `INSERT ... REPLACE USING` ask for partitions too
(`PartitionOverwrite`), and a property of the table can name their columns.

Executors write as for an append, and check each batch. The commit finds the replaced rows in its
own process, without executors; it reads only the columns of the condition. Everything is one
commit, see `lance_spark.mutations.rows.partial_overwrite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from lance_spark.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError
from lance_spark.mutations.rows.partial_overwrite import (
    InPartitions,
    Partitions,
    ReplaceRows,
    partition_columns,
)
from lance_spark.predicates.tree import Column, Predicate
from lance_spark.spark.options.predicate_text import OptionText
from lance_spark.spark.pushdown.filter_trees import to_predicate
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.reader import display
from lance_spark.spark.write.writer import LanceCommitMessage, LanceWriter

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Schema
    from lance_spark.spark.options.overwrite import OverwriteOptions
    from lance_spark.spark.options.write import WriteOptions
    from lance_spark.table.commit.options import WriteToken
    from lance_spark.table.commit.write import WriteJob
    from lance_spark.table.fragments.fragment import Fragment

#: Maximum characters of a value in an error.
_SHOWN = 60


class PartitionsMessage(LanceCommitMessage):
    """The fragments of one task, and the partitions of their rows.

    - `values`: Combinations of the values of the partition columns.
    """

    def __init__(self, fragments: Sequence[Fragment], values: pa.RecordBatch | None) -> None:
        super().__init__(fragments)
        self.values = values


class RefusedMessage(LanceCommitMessage):
    """A task has written nothing, as a row does not meet the condition."""

    def __init__(self, error: str) -> None:
        super().__init__([])
        self.error = error


class _RefusedRowError(InvalidInputError):
    """A row does not meet the condition."""


class WhereWriter(LanceWriter):
    """Replaces the rows that meet a condition."""

    def __init__(
        self,
        job: WriteJob,
        names: Sequence[str],
        condition: Predicate,
        text: OptionText,
        commit_message: str | None = None,
        write_token: WriteToken | None = None,
    ) -> None:
        super().__init__(job, names, commit_message, write_token)
        self.condition = condition
        self.text = text.text
        self._checked = text.for_tasks()

    def watcher(self) -> Callable[[pa.RecordBatch], None]:
        """Return a check that refuses rows which do not meet the condition.

        Raises InvalidOptionError: the session would parse the condition differently.
        """
        if self._checked is not None:
            self._checked.check()
        return self._check

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the batches of one task; a row that is refused is the message.

        Spark would try a task that fails again, and show its traceback.
        """
        try:
            return super().write(iterator)
        except _RefusedRowError as error:
            return RefusedMessage(str(error))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the fragments of all tasks.

        Raises CommitConflictError. Raises InvalidInputError: a row does not meet the condition: the
        files of all tasks are deleted.
        """
        for message in messages:
            if isinstance(message, RefusedMessage):
                self.job.abort_all()
                raise InvalidInputError(message.error)
        super().commit(messages)

    def _check(self, batch: pa.RecordBatch) -> None:
        met = self.condition.holds(batch)
        if met.true_count == len(met):
            return
        position = met.index(False).as_py()
        shown = []
        for column in dict.fromkeys(self.condition.columns()):
            value = repr(column.values(batch)[position].as_py())
            shown.append(f"{column} is {value[:_SHOWN]}")
        values = f": {', '.join(shown)}" if shown else ""
        raise _RefusedRowError(
            f"option replaceWhere: a row of the DataFrame does not meet {self.text!r}{values}. "
            "Nothing was replaced; filter the DataFrame by the same condition"
        )


class DynamicWriter(LanceWriter):
    """Replaces the partitions of the rows of the DataFrame."""

    def __init__(
        self,
        job: WriteJob,
        names: Sequence[str],
        columns: Sequence[Column],
        commit_message: str | None = None,
        write_token: WriteToken | None = None,
        *,
        reads_rows: bool = False,
        without_null: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(job, names, commit_message, write_token)
        self.columns = tuple(columns)
        self.without_null = without_null
        self.reads_rows = reads_rows

    def watcher(self) -> Partitions:
        """Return a collector of the partitions of one task."""
        return Partitions(self.columns)

    def message(
        self, fragments: Sequence[Fragment], watcher: Callable[[pa.RecordBatch], None] | None
    ) -> LanceCommitMessage:
        """Return the message of a task."""
        assert isinstance(watcher, Partitions)
        return PartitionsMessage(fragments, watcher.values())

    def job_for(self, messages: Sequence[WriterCommitMessage | None]) -> WriteJob:
        """Return the write with the partitions of all tasks; without any, nothing is replaced.

        Raises InvalidInputError: there are too many partitions.
        """
        partitions = Partitions(self.columns)
        for message in messages:
            if isinstance(message, PartitionsMessage) and message.values is not None:
                partitions.merge(message.values)
        values = partitions.values()
        if values is not None and self.without_null:
            values = self._comparable(values)
        if not values or not self.job.read_version:
            return self.job
        condition = InPartitions(self.columns, values)
        return self.job.with_strategy(ReplaceRows(condition, self.reads_rows))

    def _comparable(self, values: pa.RecordBatch) -> pa.RecordBatch:
        """Return the combinations without null in the columns of which null equals no value."""
        import pyarrow.compute as pc

        for column, array in zip(self.columns, values.columns, strict=True):
            if str(column) in self.without_null:
                values = values.filter(pc.is_valid(array))
        return values


def replacing_writer(
    options: WriteOptions,
    effect: OverwriteOptions,
    job: WriteJob,
    names: Sequence[str],
    table: Schema,
) -> LanceWriter:
    """Return the writer for the options.

    - `effect`: Options with `replace_where` or `partitions`.
    - `job`: An append, or the creation of the table.
    - `names`: Target column of each column of the DataFrame.

    Raises InvalidOptionError: the condition is not supported, or the columns cannot be partition
    columns. Raises SchemaMismatchError: the DataFrame lacks a column of the condition or of the
    partitions.
    """
    name = display(options.path)
    reads_rows = effect.rows_read is not None
    if effect.partitions is not None:
        partition_by = [_table_name(table, column) for column in effect.partitions.columns]
        columns = partition_columns(table, partition_by, f"table {name}")
        _check_given(columns, names, name, "partitionBy")
        return DynamicWriter(
            job,
            names,
            columns,
            options.commit_message,
            effect.write_token,
            reads_rows=reads_rows,
            without_null=frozenset(
                _table_name(table, column) for column in effect.partitions.without_null
            ),
        )
    if effect.where_forms:
        # As in Spark, rows that do not meet the condition are added too.
        condition = to_predicate({"op": "and", "args": list(effect.where_forms)}, table)
        if job.read_version:
            job = job.with_strategy(ReplaceRows(condition, reads_rows))
        return LanceWriter(job, names, options.commit_message, effect.write_token)
    assert effect.replace_where is not None
    try:
        text = OptionText.planned(
            "replaceWhere", effect.replace_where, table, effect.settings, effect.timezone
        )
        condition = text.predicate()
    except InvalidInputError as error:
        raise InvalidOptionError(
            f"option replaceWhere: {error}. Use LanceTable.replace_where for conditions that only "
            "Spark supports"
        ) from None
    _check_given(list(condition.columns()), names, name, "replaceWhere")
    if job.read_version:
        job = job.with_strategy(ReplaceRows(condition, reads_rows))
    return WhereWriter(job, names, condition, text, options.commit_message, effect.write_token)


def _table_name(table: Schema, name: str) -> str:
    index = find(table.names, name)
    return name if index < 0 else table.names[index]


def _check_given(columns: Sequence[Column], names: Sequence[str], table: str, option: str) -> None:
    missing = [str(column) for column in columns if column.path[0].name not in names]
    if missing:
        raise SchemaMismatchError(
            f"table {table}: the DataFrame has no {', '.join(missing)}, which the option {option} "
            "needs; select it"
        )
