"""Conditions that rows must meet: what they are, which rows of a batch meet them, and which rows of a file cannot.

A filter is a list of comparisons that must all hold, each a column, an operator and a value, as in pyarrow's readers::

    [("carrier", "in", ["AA", "DL"]), ("dep_delay", ">", 60), ("tailnum", "is_not_null", None)]

Null compares with nothing: neither ``!=`` nor ``not in`` holds for it. NaN equals nothing and is neither less nor greater.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema import Field, Schema
from lance_spark.scan.literals import to_array, to_scalar

_COMPARE = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_OPERATORS = (*_COMPARE, "in", "not in", "is_null", "is_not_null")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One condition.

    Attributes
    ----------
    path : tuple of Field
        The top-level field, and its children down to the one that is compared.
    op : str
    value : pa.Scalar, pa.Array or None
        An array for ``in`` and ``not in``, None for the operators about nulls.
    """

    path: tuple[Field, ...]
    op: str
    value: Any

    @property
    def field(self) -> Field:
        """The field that is compared."""
        return self.path[-1]

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""
        array = batch.column(batch.schema.get_field_index(self.path[0].name))
        for node in self.path[1:]:
            # Children of a null struct are null.
            array = array.flatten()[array.type.get_field_index(node.name)]
        if pat.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        if self.op == "is_null":
            return array.is_null()
        if self.op == "is_not_null":
            return array.is_valid()
        # Whoever plans a scan without filters does without the kernels.
        import pyarrow.compute as pc

        array, value = _comparable(array), _comparable(self.value)
        if self.op in ("in", "not in"):
            found = pc.is_in(array, value_set=value)
            return found if self.op == "in" else pc.and_(pc.invert(found), array.is_valid())
        return pc.call_function(_COMPARE[self.op], [array, value]).fill_null(False)

    def candidates(self, file: DataFileReader) -> list[range] | None:
        """Return the rows of a file that the condition can hold for, as far as its statistics tell; None if they do not."""
        if file.version >= (2, 0):
            return None
        from lance_spark.file.legacy import LegacyFileReader
        from lance_spark.file.legacy_statistics import prune

        if not isinstance(file, LegacyFileReader) or self.op == "not in":
            return None
        statistics = file.statistics(self.field.id)
        if statistics is None:
            return None
        if self.op == "in":
            return _union([prune(statistics, "==", value) for value in self.value])
        return prune(statistics, self.op, self.value)  # type: ignore[arg-type]


def parse_filters(
    filters: Iterable[Sequence[Any]] | None, schema: Schema
) -> tuple[Comparison, ...]:
    """Return the comparisons that a caller gave.

    Parameters
    ----------
    filters : iterable of (str, str, value), optional
    schema : Schema
        Of the table.

    Raises
    ------
    InvalidInputError
        There is no such column or operator, or a value is none of the column's type.
    """
    return tuple(_parse(part, schema) for part in filters or ())


def matching(comparisons: Sequence[Comparison], batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch meet all conditions."""
    met = np.ones(batch.num_rows, np.bool_)
    for comparison in comparisons:
        met &= comparison.holds(batch).to_numpy(zero_copy_only=False)
    return met


def intersection(one: Sequence[range], other: Sequence[range]) -> list[range]:
    """Return the rows that are in both of two lists of increasing ranges."""
    found: list[range] = []
    at = 0
    for rows in one:
        while at < len(other) and other[at].stop <= rows.start:
            at += 1
        behind = at
        while behind < len(other) and other[behind].start < rows.stop:
            common = range(max(rows.start, other[behind].start), min(rows.stop, other[behind].stop))
            if common:
                found.append(common)
            behind += 1
    return found


def _parse(part: Sequence[Any], schema: Schema) -> Comparison:
    if isinstance(part, str) or len(part) not in (2, 3) or not isinstance(part[0], str):
        raise InvalidInputError(f"a filter is (column, operator, value), not {part!r}")
    name, op, value = (*part, None)[:3]
    if op not in _OPERATORS:
        raise InvalidInputError(
            f"filter on {name!r}: operator {op!r} is none of {', '.join(_OPERATORS)}"
        )
    path = schema.path(name)
    kind = path[-1].arrow_field.type
    if pat.is_dictionary(kind):
        kind = kind.value_type
    if path[-1].is_blob or any(not pat.is_struct(node.arrow_field.type) for node in path[:-1]):
        raise InvalidInputError(f"filter on {name!r}: only values outside of lists and blobs")
    if op in ("is_null", "is_not_null"):
        return Comparison(path, op, None)
    if pat.is_nested(kind):
        raise InvalidInputError(f"filter on {name!r}: {kind} cannot be compared")
    try:
        if op in ("in", "not in"):
            given = to_array(list(value), kind)
        else:
            scalar = to_scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"filter on {name!r}: {value!r} is no {kind}: {error}") from None
    if op in ("in", "not in"):
        return Comparison(path, op, _value_set(name, given))
    if not scalar.is_valid:
        raise InvalidInputError(f"filter on {name!r}: null equals nothing; use is_null")
    return Comparison(path, op, scalar)


def _value_set(name: str, values: pa.Array) -> pa.Array:
    if values.null_count:
        raise InvalidInputError(f"filter on {name!r}: null equals nothing; use is_null")
    if not pat.is_floating(values.type):
        return values
    # Arrow finds NaN among others, and of two zeros that are equal only the one of the same sign.
    numbers = values.to_numpy(zero_copy_only=False)
    numbers = numbers[~np.isnan(numbers)]
    if (numbers == 0).any():
        numbers = np.append(numbers[numbers != 0], [0.0, -0.0]).astype(numbers.dtype)
    return pa.array(numbers, values.type)


def _comparable(values: Any) -> Any:
    """Return float16 as float32: Arrow has no kernels for it."""
    return values.cast(pa.float32()) if pat.is_float16(values.type) else values


def _union(several: Sequence[Sequence[range]]) -> list[range]:
    found: list[range] = []
    for rows in sorted((rows for ranges in several for rows in ranges), key=lambda r: r.start):
        if found and rows.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, rows.stop))
        else:
            found.append(rows)
    return found
