"""Conditions that rows must meet: what they are, which rows of a batch meet them, and which rows of a file cannot.

A filter is a list of comparisons that must all hold, each a column, an operator and a value, as in
pyarrow's readers::

    [("carrier", "in", ["AA", "DL"]), ("dep_delay", ">", 60), ("tailnum", "is_not_null", None)]

Null compares with nothing: neither ``!=`` nor ``not in`` holds for it. NaN equals nothing and is
neither less nor greater. Floats are compared with integers exactly, also with those that no float
of the column equals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.predicates.comparison import KERNELS, column_at
from lance_spark.scan.predicates.conditions import RangePruner
from lance_spark.scan.predicates.literals import to_array, to_scalar
from lance_spark.scan.pruning.ranges import in_any

if TYPE_CHECKING:
    from lance_spark.scan.predicates.cast_bounds import Order

_OPERATORS = (*KERNELS, "in", "not in", "is_null", "is_not_null")


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
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The one column that it looks at."""
        return (self.path,)

    @property
    def field(self) -> Field:
        """The field that is compared."""
        return self.path[-1]

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""
        array = column_at(batch, [node.name for node in self.path])
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
        return pc.call_function(KERNELS[self.op], [array, value]).fill_null(False)

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that the condition can hold for, as far as statistics tell; None if they do not."""
        if self.op == "not in":
            return None
        if self.op != "in":
            return statistics(self.field, self.op, self.value)
        return in_any(statistics(self.field, "==", value) for value in self.value)


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


def _parse(part: Sequence[Any], schema: Schema) -> Comparison:
    if (
        not isinstance(part, list | tuple)
        or len(part) not in (2, 3)
        or not isinstance(part[0], str)
    ):
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
        raise InvalidInputError(
            f"filter on {name!r}: {kind} cannot be compared; name a child of a struct, or read the "
            "column and compare its values"
        )
    if pat.is_floating(kind):
        if op in ("in", "not in"):
            value = [one for one in value if not _is_between_floats(one, kind)]
        elif _is_between_floats(value, kind):
            return _between_floats(path, op, value, kind)
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


def _is_between_floats(value: Any, kind: pa.DataType) -> bool:
    """Tell whether a value is an integer that no float of a type equals."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    first, after = _floats(kind).places(value)
    return first == after


def _between_floats(path: tuple[Field, ...], op: str, value: int, kind: pa.DataType) -> Comparison:
    """Return the comparison with the floats on either side of an integer."""
    if op == "==":
        return Comparison(path, "in", pa.array([], _plain(kind)))
    if op == "!=":
        return Comparison(path, "is_not_null", None)
    order = _floats(kind)
    first, _ = order.places(value)
    # Minus infinity is below all integers, infinity above: there is a float on either side.
    if op in ("<", "<="):
        return Comparison(path, "<=", order.scalar(first - 1))
    return Comparison(path, ">=", order.scalar(first))


def _floats(kind: pa.DataType) -> Order:
    # Most filters do without, and without the kernels.
    from lance_spark.scan.predicates.cast_bounds import order_of

    order = order_of(_plain(kind))
    assert order is not None
    return order


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.float32() if pat.is_float16(kind) else kind


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
