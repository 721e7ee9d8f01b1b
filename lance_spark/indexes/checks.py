"""The rows that a segment must have, and what a check finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.indexes import registry
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.order import float_keys, floats_of_keys
from lance_spark.indexes.row_sets import MovedRows, RowSet
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

#: Most problems that are described.
MAX_PROBLEMS = 20
_MAX_SHOWN = 60
#: A larger set is reduced to rows that exist before its row keys become an array.
_MANY_WORDS = 1 << 20

Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Findings:
    """What the check of a segment has found so far.

    - `missing`, `wrong`, `stale`: See `check.IndexCheck`.
    - `problems`: The first problems.
    """

    missing: int = 0
    wrong: int = 0
    stale: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, problems: Iterable[str]) -> None:
        """Add problems, which are made only as far as they are kept."""
        self.problems += islice(problems, MAX_PROBLEMS - len(self.problems))


class CoveredRows:
    """The live rows of the fragments that a segment covers.

    - `row_keys` (uint64 array): Row id or address of each value, increasing.
    - `has_addresses`: Whether they are addresses.
    - `moved`: Translates the addresses in the index.
    """

    def __init__(
        self, values: pa.Array, row_keys: UInt64Array, has_addresses: bool, moved: MovedRows | None
    ) -> None:
        self.values, self.row_keys = values, row_keys
        self.moved = moved if has_addresses else None
        self._has_addresses = has_addresses
        self._known: RowSet | None = None

    def __len__(self) -> int:
        return len(self.row_keys)

    def find(self, row_keys: UInt64Array) -> tuple[RowNumbers, Flags]:
        """Return the position of each word of an index, and whether it is that of a live row."""
        if self.moved is not None:
            row_keys = self.moved.new_addresses(row_keys)
        position = np.searchsorted(self.row_keys, row_keys)
        if not len(self.row_keys):
            return position, np.zeros(len(row_keys), np.bool_)
        position = np.minimum(position, len(self.row_keys) - 1)
        return position, self.row_keys[position] == row_keys

    def find_set(self, rows: RowSet) -> tuple[RowNumbers, int]:
        """Return the positions of the live rows in a set, and the number of its other rows."""
        total = rows.num_rows
        if total > _MANY_WORDS:
            rows = RowSet.intersection([rows, self._known_rows()])
        position, is_live = self.find(rows.row_keys())
        position = position[is_live]
        return position, total - len(position)

    def _known_rows(self) -> RowSet:
        """Return the live rows, and all rows that compactions moved."""
        if self._known is None:
            moved = [] if self.moved is None else [self.moved.old_rows()]
            self._known = RowSet.union([RowSet.of(self.row_keys), *moved])
        return self._known

    def name(self, position: int) -> str:
        """Return what problems call a row."""
        word = int(self.row_keys[position])
        if not self._has_addresses:
            return f"row id {word}"
        offset = word & ((1 << OFFSET_BITS) - 1)
        return f"row address {word} (fragment {word >> OFFSET_BITS}, row {offset})"

    def problem(self, position: int, text: str) -> str:
        """Return the sentence about a row, with its value."""
        return f"{self.name(position)}: {text}; the column has {shown(self.values[position])}"


def comparable(values: pa.Array) -> pa.Array:
    """Return values to compare for equality: floats as integers, with one NaN."""
    if pat.is_duration(values.type):
        return values.view(pa.int64())
    if not pat.is_floating(values.type):
        return values
    keys = float_keys(values)
    numbers = keys.fill_null(0)
    is_null = keys.is_null().to_numpy(zero_copy_only=False)
    is_nan = np.isnan(floats_of_keys(numbers, values.type).to_numpy())
    integers = numbers.to_numpy()
    greatest = np.array(np.iinfo(integers.dtype).max, integers.dtype)
    return pa.array(np.where(is_nan, greatest, integers), mask=is_null)


def original(values: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return the values whose `comparable` values are given."""
    if pat.is_duration(dtype):
        return values.view(dtype)
    return floats_of_keys(values, dtype) if pat.is_floating(dtype) else values


def ordered(values: pa.Array) -> pa.Array:
    """Return values that have the order of an index."""
    if pat.is_duration(values.type):
        return values.view(pa.int64())
    return float_keys(values) if pat.is_floating(values.type) else values


def differ(first: pa.Array, second: pa.Array) -> Flags:
    """Return which values of two arrays of one type differ."""
    import pyarrow.compute as pc

    unequal = pc.not_equal(comparable(first), comparable(second))
    return flags(unequal) | (flags(first.is_null()) ^ flags(second.is_null()))


def flags(array: pa.Array, unknown: bool = False) -> Flags:
    """Return the values of a boolean array."""
    result: Flags = array.fill_null(unknown).to_numpy(zero_copy_only=False).astype(np.bool_)
    return result


def shown(value: Any) -> str:
    """Return a value for problems, shortened."""
    try:
        text = repr(value.as_py())
    except (ValueError, OverflowError, ArithmeticError):
        # Python has no such date, or the text is no UTF-8.
        text = pa.repeat(value, 1).to_string().strip("[]\n ")
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


class CompareRows(Protocol):
    """Compares a segment with its rows."""

    def __call__(self, files: IndexFiles, rows: CoveredRows, findings: Findings, /) -> None:
        """Add what is found.

        Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
        """


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """The check of a type of index against its column.

    - `versions`: Index versions that can be checked; None for that which is written.
    - `prepare`: Raises an error on the driver if a segment cannot be checked.
    """

    compare: CompareRows
    versions: Collection[int] | None = None
    prepare: Callable[[IndexFiles], None] | None = None


def check_of(type_name: str) -> ColumnCheck | None:
    """Return the check of a type; None if it cannot be checked."""
    check: ColumnCheck | None = registry.part_of(type_name, "check")
    return check
