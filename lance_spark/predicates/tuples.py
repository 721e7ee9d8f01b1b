"""Filters as lists of tuples, as in pyarrow's readers.

A filter is a list of comparisons that must all hold. Each has a column, an operator and a value::

    [("carrier", "in", ["AA", "DL"]), ("dep_delay", ">", 60), ("tailnum", "is_not_null", None)]

No comparison with null holds, also not ``!=`` and ``not in``. NaN equals no value, and is neither
less nor greater. Floats are compared with integers exactly, also if no float of the type equals the
integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowRanges, is_in
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import is_null
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.comparison import KERNELS, kernel_type, values_at
from lance_spark.predicates.conditions import Bound, ColumnBound, Condition, RangePruner
from lance_spark.predicates.literals import to_array, to_scalar

if TYPE_CHECKING:
    from lance_spark.predicates.coercion import Order

_OPERATORS = (*KERNELS, "in", "not in", "is_null", "is_not_null")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One condition.

    - `path`: The fields from the top-level field to the column.
    - `value`: An array for ``in`` and ``not in``, None for ``is_null`` and ``is_not_null``.
    """

    path: tuple[Field, ...]
    op: str
    value: Any

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The column, as the only one."""
        return (self.path,)

    @property
    def field(self) -> Field:
        """The field of the column."""
        return self.path[-1]

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""
        array = values_at(batch, self.path)
        if pat.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        # A scan without filters is spared the import.
        import pyarrow.compute as pc

        if self.op in ("is_null", "is_not_null"):
            nulls = is_null(array) if self.field.is_blob else array.is_null()
            return nulls if self.op == "is_null" else pc.invert(nulls)
        array, value = _comparable(array), _comparable(self.value)
        if self.op in ("in", "not in"):
            result = is_in(array, value)
            return result if self.op == "in" else pc.and_(pc.invert(result), array.is_valid())
        return pc.call_function(KERNELS[self.op], [array, value]).fill_null(False)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the rows for which it can hold by statistics; None if they do not decide."""
        if self.op == "not in":
            return None
        return statistics(self.field, self.op, self.value)

    @property
    def is_decided(self) -> bool:
        """Whether `candidates` has just the rows for which it holds if all answers have."""
        return self.op in KERNELS or self.op == "in"

    @property
    def can_fail(self) -> bool:
        """Whether `holds` may raise an error for a row: if a document is damaged."""
        return any(node.has_json for node in self.path)

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the condition itself."""
        yield self

    def column_bound(self) -> ColumnBound | None:
        """Return the comparison with ``<``, ``<=``, ``>`` or ``>=`` that it is; None if not."""
        if self.op not in ("<", "<=", ">", ">="):
            return None
        return ColumnBound(self.field, Bound(self.op, self.value))


def parse_filters(
    filters: Iterable[Sequence[Any]] | None, schema: Schema
) -> tuple[Comparison, ...]:
    """Parse the filters that a caller passed.

    - `schema`: Of the table.

    Raises InvalidInputError: a column is not found, an operator is unknown, or a value is not of
    the column's type.
    """
    return tuple(_parse(part, schema) for part in filters or ())


def _parse(part: Sequence[Any], schema: Schema) -> Comparison:
    if (
        not isinstance(part, list | tuple)
        or len(part) not in (2, 3)
        or not isinstance(part[0], str)
    ):
        raise InvalidInputError(f"a filter must be (column, operator, value), not {part!r}")
    name, op, value = (*part, None)[:3]
    if op not in _OPERATORS:
        raise InvalidInputError(
            f"filter on {name!r}: operator must be one of {', '.join(_OPERATORS)}, not {op!r}"
        )
    path = schema.path(name)
    dtype = path[-1].arrow_field.type
    if pat.is_dictionary(dtype):
        dtype = dtype.value_type
    tests_null = op in ("is_null", "is_not_null")
    parents = path[:-1]
    if path[-1].is_blob and not tests_null:
        raise InvalidInputError(
            f"filter on {name!r}: blobs cannot be compared, only tested by is_null and is_not_null"
        )
    if any(node.is_blob or not pat.is_struct(node.arrow_field.type) for node in parents):
        raise InvalidInputError(
            f"filter on {name!r}: values inside blobs, lists and maps cannot be compared"
        )
    if tests_null:
        return Comparison(path, op, None)
    if pat.is_nested(dtype):
        raise InvalidInputError(
            f"filter on {name!r}: {dtype} cannot be compared; name a child of a struct, or read "
            "the column and compare its values"
        )
    if pat.is_floating(dtype):
        if op in ("in", "not in"):
            value = [item for item in value if not _is_between_floats(item, dtype)]
        elif _is_between_floats(value, dtype):
            return _between_floats(path, op, value, dtype)
    try:
        if op in ("in", "not in"):
            values = to_array(list(value), dtype)
        else:
            scalar = to_scalar(value, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"filter on {name!r}: {value!r} is not a value of type {dtype}: {error}"
        ) from None
    if op in ("in", "not in"):
        return Comparison(path, op, _value_set(name, values))
    if not scalar.is_valid:
        raise InvalidInputError(f"filter on {name!r}: no value equals null; use is_null")
    return Comparison(path, op, scalar)


def _is_between_floats(value: Any, dtype: pa.DataType) -> bool:
    """Return whether a value is an integer that no float of a type equals."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    first, after = _order_of_floats(dtype).ordinals(value)
    return first == after


def _between_floats(path: tuple[Field, ...], op: str, value: int, dtype: pa.DataType) -> Comparison:
    """Return the comparison with the floats next to an integer."""
    if op == "==":
        return Comparison(path, "in", pa.array([], kernel_type(dtype)))
    if op == "!=":
        return Comparison(path, "is_not_null", None)
    order = _order_of_floats(dtype)
    first, _ = order.ordinals(value)
    # An integer always has a float below and above, because infinities are floats.
    if op in ("<", "<="):
        return Comparison(path, "<=", order.scalar(first - 1))
    return Comparison(path, ">=", order.scalar(first))


def _order_of_floats(dtype: pa.DataType) -> Order:
    # Most filters do not need this module, and are spared its imports.
    from lance_spark.predicates.coercion import order_of

    order = order_of(kernel_type(dtype))
    assert order is not None
    return order


def _value_set(name: str, values: pa.Array) -> pa.Array:
    if values.null_count:
        raise InvalidInputError(f"filter on {name!r}: no value equals null; use is_null")
    if not pat.is_floating(values.type):
        return values
    # Arrow's `is_in` takes NaN as equal to NaN, and the two zeros as different.
    numbers = values.to_numpy(zero_copy_only=False)
    numbers = numbers[~np.isnan(numbers)]
    if (numbers == 0).any():
        numbers = np.append(numbers[numbers != 0], [0.0, -0.0]).astype(numbers.dtype)
    return pa.array(numbers, values.type)


def _comparable(values: Any) -> Any:
    """Return float16 as float32, because Arrow has no kernels for float16."""
    return values.cast(pa.float32()) if pat.is_float16(values.type) else values
