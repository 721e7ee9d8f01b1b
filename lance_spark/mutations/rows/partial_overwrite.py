"""Partial overwrite: one version deletes the rows that meet a condition and adds new rows.

| step | where | what |
| --- | --- | --- |
| `begin_write` with the mode append | driver | plans the write on a version |
| `WriteJob.writer` | task | writes data files of the new rows; no version refers to them yet |
| `ReplaceRows.commit` | driver | finds the rows, writes deletion files, commits one `Update` |

A fragment that loses all rows is removed without a deletion file. Only the columns of the condition
are read. The first attempt deletes rows of the version that the write was planned on: rows that
another client appended meanwhile stay. If another client changed rows to delete, the overwrite is
planned again on the newest version, and deletes the rows that meet the condition there.

Partitions are rows with the same combination of values of some columns. `Partitions` collects the
combinations in data, `InPartitions` selects the rows that have one of them. Null counts as a value:
rows with null in a column are in one partition.

Specification: table/commit/transaction.md, `Update`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowRanges, in_all, in_any
from lance_spark.errors import CommitConflictError, InvalidInputError, InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.commits import commit_rows, retry_on_conflict
from lance_spark.mutations.rows.conditions import Filter
from lance_spark.mutations.rows.delete import RowsByFragment, deletion_effects, run_delete
from lance_spark.predicates.conditions import RangePruner
from lance_spark.predicates.tree import Column, Predicate
from lance_spark.runner import LocalRunner, Runner
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.write import WriteJob, WriteStrategy
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.update import Update

#: Number of tasks that search fragments at the same time.
_THREADS = 16
#: Maximum number of combinations of values of a write.
MAX_PARTITIONS = 10_000
#: With more distinct values of a column, statistics are not used.
_MAX_PRUNING_VALUES = 64


def replace_once(
    table: OpenTable,
    runner: Runner,
    filters: Sequence[Filter],
    rows: RowsByFragment | None,
    fragments: Sequence[Fragment],
    options: CommitOptions,
    *,
    keep_new_fragments: bool = False,
) -> tuple[Manifest, int]:
    """Replace rows of one version by the rows of new fragments: plan, run and commit.

    - `table`, `runner`, `filters`, `rows`: As for `run_delete`: the rows to replace.
    - `fragments`: The new rows.
    - `keep_new_fragments`: As for `commit_rows`.

    Returns the new version, and the number of replaced rows.
    """
    deletions = run_delete(table, runner, filters, rows)
    changed, removed, affected = deletion_effects(table, deletions)
    operation = Update(
        fragments=changed,
        new_fragments=tuple(fragments),
        removed_fragment_ids=removed,
        affected=affected,
    )
    manifest = commit_rows(table, operation, options, keep_new_fragments=keep_new_fragments)
    return manifest, sum(deletion.num_rows for deletion in deletions)


@dataclass(frozen=True, slots=True)
class ReplaceRows(WriteStrategy):
    """Replace the rows that meet a condition, in a table that exists.

    - `reads_rows`: Whether the new rows were made of rows of the version on which the write was
      planned: it is not planned again after a conflict, because they may replace newer rows.
    """

    condition: Predicate
    reads_rows: bool = False

    def commit(
        self, job: WriteJob, fragments: Sequence[Fragment], options: CommitOptions
    ) -> Manifest:
        """Find the rows, write their deletion files, and commit; plan again after a conflict.

        Raises LanceError: errors of `commit`. The new fragments stay: `WriteJob.abort` deletes
        them.
        """
        table = job.base_table()
        runner = LocalRunner(table.store.is_local, _THREADS)
        runner.tag = job.tag

        def change(current: OpenTable) -> Manifest:
            if self.reads_rows and current.version != job.read_version:
                raise _changed_meanwhile_error(current, "rows that its query has read were changed")
            _check_columns(current, job, self.condition)
            condition = [self.condition]
            return replace_once(
                current, runner, condition, None, fragments, options, keep_new_fragments=True
            )[0]

        return retry_on_conflict(table, change, options)


def _check_columns(table: OpenTable, job: WriteJob, condition: Predicate) -> None:
    """Raise an error if a version lacks columns or base paths of the new rows, or of the condition.

    Raises CommitConflictError.
    """
    for field in [*job.schema.walk(), *(field for path in condition.paths for field in path)]:
        current = table.schema.field_by_id(field.id)
        # The id of a dropped column can be used again.
        if current is None or (current.name, current.logical_type) != (
            field.name,
            field.logical_type,
        ):
            raise _changed_meanwhile_error(
                table, f"column {field.name!r} was dropped, renamed or given another type"
            )
    if not job.has_targets(table.manifest):
        raise _changed_meanwhile_error(table, "a base path that has new rows was changed")
    if table.version != job.read_version and not job.fits(table.manifest):
        raise _changed_meanwhile_error(
            table, "the columns no longer fit the rows to write: they were changed"
        )


def _changed_meanwhile_error(table: OpenTable, change: str) -> CommitConflictError:
    return CommitConflictError(
        f"{table.store.display}: {change} by version {table.version}, while this overwrite was "
        "running; write again",
        retryable=False,
    )


def partition_columns(schema: Schema, names: Sequence[str], table: str) -> tuple[Column, ...]:
    """Return the columns that define partitions.

    - `names`: Top-level columns.

    Raises InvalidOptionError: a column does not exist, or its type cannot define partitions.
    """
    by_name = {field.name: field for field in schema.fields}
    columns = []
    for name in names:
        field = by_name.get(name)
        if field is None:
            raise InvalidOptionError(
                f"{table} has no column {name!r} to partition by; it has {', '.join(by_name)}"
            )
        dtype = field.arrow_field.type
        dtype = dtype.value_type if pat.is_dictionary(dtype) else dtype
        if field.is_blob or pat.is_nested(dtype) or pat.is_floating(dtype):
            raise InvalidOptionError(
                f"{table}: column {name!r} of type {dtype} cannot define partitions; choose "
                "columns "
                "of integers, strings, dates, times, decimals or booleans"
            )
        columns.append(Column((field,)))
    return tuple(columns)


class Partitions:
    """Collects the combinations of values in batches."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._combinations: pa.Table | None = None

    def __call__(self, batch: pa.RecordBatch) -> None:
        """Add the combinations of a batch that has the columns.

        Raises InvalidInputError: the combinations are too many.
        """
        arrays = [column.values(batch) for column in self._columns]
        self.merge(pa.RecordBatch.from_arrays(arrays, names=_names(len(arrays))))

    def merge(self, values: pa.RecordBatch) -> None:
        """Add the combinations that another task collected.

        Raises InvalidInputError: the combinations are too many.
        """
        names = _names(len(self._columns))
        combined = pa.Table.from_batches([values]).group_by(names).aggregate([])
        if self._combinations is not None:
            combined = (
                pa.concat_tables([self._combinations, combined]).group_by(names).aggregate([])
            )
        if len(combined) > MAX_PARTITIONS:
            columns = ", ".join(map(str, self._columns))
            raise InvalidInputError(
                f"the rows have more than {MAX_PARTITIONS} combinations of values of {columns}; "
                "partition by columns with fewer values, or select the replaced rows with "
                "replaceWhere"
            )
        self._combinations = combined

    def values(self) -> pa.RecordBatch | None:
        """Return the distinct combinations; None if no row was added."""
        if self._combinations is None or not len(self._combinations):
            return None
        (batch,) = self._combinations.combine_chunks().to_batches()
        return batch


@dataclass(frozen=True, slots=True)
class InPartitions(Predicate):
    """True for rows whose columns have one of some combinations of values; never null.

    - `values`: One column for each of `columns_of` and one row for each combination, in the types
      that `Column.values` returns.
    """

    columns_of: tuple[Column, ...]
    values: pa.RecordBatch
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true or false for each row."""
        arrays = [column.values(batch) for column in self.columns_of]
        is_member = _codes(self.values.columns, arrays, batch.num_rows) >= 0
        return pa.array(~is_member if self.inverted else is_member)

    def columns(self) -> Iterator[Column]:
        """Yield the columns of the predicate."""
        yield from self.columns_of

    def negated(self) -> InPartitions:
        """Return the negated predicate."""
        return InPartitions(self.columns_of, self.values, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the ranges of rows that can meet the predicate; None for all rows."""
        if self.inverted:
            return None
        return in_all(
            self._candidates(column, values.unique(), statistics)
            for column, values in zip(self.columns_of, self.values.columns, strict=True)
        )

    @staticmethod
    def _candidates(column: Column, values: pa.Array, statistics: RangePruner) -> RowRanges | None:
        if len(values) > _MAX_PRUNING_VALUES:
            return None
        return in_any(
            statistics(column.field, "==", value)
            if value.is_valid
            else statistics(column.field, "is_null", None)
            for value in values
        )

    def __str__(self) -> str:
        names = ", ".join(map(str, self.columns_of))
        return f"({names}) {'NOT ' if self.inverted else ''}IN ({len(self.values)} combinations)"


def _codes(
    combinations: Iterable[pa.Array], arrays: Iterable[pa.Array], num_rows: int
) -> npt.NDArray[np.int64]:
    """Return for each row the number of its combination in `combinations`; -1 if it has none."""
    import pyarrow.compute as pc

    codes: npt.NDArray[np.int64] = np.zeros(num_rows, np.int64)
    combination_codes: npt.NDArray[np.int64] | None = None
    for values, array in zip(combinations, arrays, strict=True):
        typed = values if values.type.equals(array.type) else values.cast(array.type)
        unique = typed.unique()
        value_codes = (
            pc.index_in(typed, value_set=unique).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        row_indices = pc.index_in(array, value_set=unique).fill_null(-1)
        row_codes = row_indices.to_numpy(zero_copy_only=False).astype(np.int64)
        combination_codes = (
            value_codes
            if combination_codes is None
            else combination_codes * len(unique) + value_codes
        )
        joint = np.where((codes < 0) | (row_codes < 0), -1, codes * len(unique) + row_codes)
        # Codes are made dense after each column: the product of all counts could overflow.
        distinct, combination_codes = np.unique(combination_codes, return_inverse=True)
        positions = np.searchsorted(distinct, joint)
        positions[positions == len(distinct)] = 0
        codes = np.where(distinct[positions] == joint, positions, -1)
    return codes


def _names(count: int) -> list[str]:
    return [str(number) for number in range(count)]
