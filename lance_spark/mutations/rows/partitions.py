"""Rows by the values of some columns together: what data has of them, and a condition on rows that
have one of those.

Null is a value of its own here: rows with null in a column go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates.conditions import RangePruner
from lance_spark.scan.predicates.tree import Column, Predicate
from lance_spark.scan.pruning.ranges import in_all, in_any

#: Combinations of values that a write may have.
MOST_PARTITIONS = 10_000
#: Values of a column that statistics are asked for.
_MOST_ASKED = 64


def partition_columns(schema: Schema, names: Sequence[str], table: str) -> tuple[Column, ...]:
    """Return the columns that partitions are made by.

    Parameters
    ----------
    schema : Schema
        Of the table.
    names : sequence of str
        Top-level columns.
    table : str
        What errors call it.

    Raises
    ------
    InvalidOptionError
        There is no such column, or its values make no partitions.
    """
    by_name = {item.name: item for item in schema.fields}
    result = []
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
                f"{table}: column {name!r} of {dtype} makes no partitions; choose columns of whole "
                "numbers, texts, dates, "
                "times, decimals or booleans"
            )
        result.append(Column((field,)))
    return tuple(result)


class Partitions:
    """Collects which combinations of values there are.

    Parameters
    ----------
    columns : sequence of Column
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._found: pa.Table | None = None

    def __call__(self, batch: pa.RecordBatch) -> None:
        """Look at the rows of a batch, which has the columns.

        Raises
        ------
        InvalidInputError
            There are too many combinations.
        """
        arrays = [column.values(batch) for column in self._columns]
        self.merge(pa.RecordBatch.from_arrays(arrays, names=_names(len(arrays))))

    def merge(self, values: pa.RecordBatch) -> None:
        """Add combinations that another one has found.

        Raises
        ------
        InvalidInputError
            There are too many.
        """
        names = _names(len(self._columns))
        more = pa.Table.from_batches([values]).group_by(names).aggregate([])
        if self._found is not None:
            more = pa.concat_tables([self._found, more]).group_by(names).aggregate([])
        if len(more) > MOST_PARTITIONS:
            columns = ", ".join(map(str, self._columns))
            raise InvalidInputError(
                f"the rows have more than {MOST_PARTITIONS} combinations of values of {columns}: "
                "partition by columns with "
                "fewer values, or say what is replaced by replaceWhere"
            )
        self._found = more

    def values(self) -> pa.RecordBatch | None:
        """Return the combinations, each once; None if there was no row."""
        if self._found is None or not len(self._found):
            return None
        (batch,) = self._found.combine_chunks().to_batches()
        return batch


@dataclass(frozen=True, slots=True)
class InPartitions(Predicate):
    """Columns that together have one of some combinations of values; never null.

    Attributes
    ----------
    columns_of : tuple of Column
    values : pa.RecordBatch
        A column for each of them, a row for each combination, in the types that `Column.values`
        gives.
    inverted : bool
    """

    columns_of: tuple[Column, ...]
    values: pa.RecordBatch
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true or false for each row."""
        arrays = [column.values(batch) for column in self.columns_of]
        result = _codes(self.values.columns, arrays, batch.num_rows) >= 0
        return pa.array(~result if self.inverted else result)

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield from self.columns_of

    def negated(self) -> InPartitions:
        """Return the opposite."""
        return InPartitions(self.columns_of, self.values, not self.inverted)

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out."""
        if self.inverted:
            return None
        return in_all(
            self._candidates(column, values.unique(), statistics)
            for column, values in zip(self.columns_of, self.values.columns, strict=True)
        )

    @staticmethod
    def _candidates(
        column: Column, values: pa.Array, statistics: RangePruner
    ) -> list[range] | None:
        if len(values) > _MOST_ASKED:
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
    wanted: Iterable[pa.Array], given: Iterable[pa.Array], num_rows: int
) -> npt.NDArray[np.int64]:
    """Return for each row the number of its combination among those that are wanted; -1 for
    others.
    """
    import pyarrow.compute as pc

    codes: npt.NDArray[np.int64] = np.zeros(num_rows, np.int64)
    known: npt.NDArray[np.int64] | None = None
    for values, array in zip(wanted, given, strict=True):
        some = values if values.type.equals(array.type) else values.cast(array.type)
        unique = some.unique()
        own = pc.index_in(some, value_set=unique).to_numpy(zero_copy_only=False).astype(np.int64)
        result = pc.index_in(array, value_set=unique).fill_null(-1)
        theirs = result.to_numpy(zero_copy_only=False).astype(np.int64)
        known = own if known is None else known * len(unique) + own
        both = np.where((codes < 0) | (theirs < 0), -1, codes * len(unique) + theirs)
        # Numbered anew after each column: products of many would not fit.
        distinct, known = np.unique(known, return_inverse=True)
        places = np.searchsorted(distinct, both)
        places[places == len(distinct)] = 0
        codes = np.where(distinct[places] == both, places, -1)
    return codes


def _names(count: int) -> list[str]:
    return [str(number) for number in range(count)]
