"""A predicate that indexes and statistics understand, for an expression of Arrow.

The predicate holds for all rows for which the expression holds, and maybe for more. Where Arrow
casts a column before it compares, or a function is not known here, there is no predicate. Arrow
compares NaN with nothing, and a predicate takes it for the greatest value; so a comparison of a
predicate keeps more rows than Arrow's, but not its negation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.logical_types import EXTENSION_NAME
from lance_spark.scan.predicates.arrow.tree import ArrowCall, ArrowLiteral, ArrowNode, FieldRef
from lance_spark.scan.predicates.column_predicates import Compare, In, IsNull, any_of
from lance_spark.scan.predicates.comparison import FLIPPED, Op
from lance_spark.scan.predicates.tree import And, Column, Predicate

#: Most levels of a predicate, as of one that is parsed.
MAX_LEVELS = 100
_OPS: dict[str, Op] = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


def bounds_of(
    node: ArrowNode, fields: Sequence[Field], levels: int = MAX_LEVELS
) -> Predicate | None:
    """Return a predicate that keeps all rows of a boolean expression; None if there is none.

    - `fields`: The table's top-level fields, with those of row metadata.
    - `levels`: Most levels of the predicate. Deeper parts of the expression have none.
    """
    if not isinstance(node, ArrowCall) or not levels:
        return None
    if node.function in ("and_kleene", "and"):
        parts = [
            part for arg in node.args if (part := bounds_of(arg, fields, levels - 1)) is not None
        ]
        return And(tuple(parts)) if parts else None
    if node.function in ("or_kleene", "or"):
        branches: list[Predicate] = []
        for arg in node.args:
            branch = bounds_of(arg, fields, levels - 1)
            if branch is None:
                return None
            branches.append(branch)
        return any_of(branches)
    if node.function == "invert" and isinstance(node.args[0], ArrowCall):
        inner = node.args[0]
        if inner.function not in ("is_null", "is_valid"):
            return None
        part = bounds_of(inner, fields, levels)
        return None if part is None else part.negated()
    column = _column(node.args[0], fields) if node.args else None
    if node.function in _OPS:
        left, right = node.args
        return _comparison(_OPS[node.function], left, right, fields)
    if column is None:
        return None
    if node.function == "is_valid":
        return IsNull(column, inverted=True)
    if node.function == "is_null":
        takes_nan = _option(node, "nan_is_null")
        return None if takes_nan or takes_nan is None else IsNull(column)
    return _is_in(column, node) if node.function == "is_in" else None


def exact_equality(node: ArrowNode, fields: Sequence[Field]) -> Predicate | None:
    """Return the predicate of a comparison for equality; None if it is not one, or not exact."""
    if not isinstance(node, ArrowCall) or node.function != "equal":
        return None
    left, right = node.args
    return _comparison("==", left, right, fields)


def _option(node: ArrowCall, name: str) -> object:
    """Return an option of a function; None if it is not known."""
    try:
        return None if node.options is None else node.options[name].as_py()
    except (KeyError, TypeError, AttributeError):
        return None


def _column(node: ArrowNode, fields: Sequence[Field]) -> Column | None:
    """Return a column that predicates compare as Arrow does; None for other columns and nodes."""
    if not isinstance(node, FieldRef):
        return None
    path: list[Field] = []
    for name in node.path:
        named = [field for field in fields if field.name == name]
        if len(named) != 1:
            return None
        path += named
        fields = named[0].children
    last = path[-1]
    dtype = last.to_arrow().type
    if any(not pat.is_struct(field.to_arrow().type) for field in path[:-1]):
        return None
    if last.is_blob or EXTENSION_NAME in last.metadata or isinstance(dtype, pa.BaseExtensionType):
        return None
    return None if pat.is_nested(dtype) or pat.is_dictionary(dtype) else Column(tuple(path))


def _comparison(
    op: Op, left: ArrowNode, right: ArrowNode, fields: Sequence[Field]
) -> Predicate | None:
    if isinstance(left, ArrowLiteral):
        left, right, op = right, left, FLIPPED[op]
    column = _column(left, fields)
    if column is None or not isinstance(right, ArrowLiteral) or not right.value.is_valid:
        return None
    values = _as_column(pa.array([right.value.as_py()], right.value.type), column)
    if values is None or _has_nan(values):
        return None
    return Compare(column, op, values[0])


def _is_in(column: Column, node: ArrowCall) -> Predicate | None:
    try:
        values = None if node.options is None else node.options["value_set"].values
    except (KeyError, TypeError, AttributeError):
        return None
    # A null in the set may equal the nulls of the column.
    if values is None or values.null_count:
        return None
    values = _as_column(values, column)
    return None if values is None or _has_nan(values) else In(column, values)


def _as_column(values: pa.Array, column: Column) -> pa.Array | None:
    """Return literals in the type of a column, if Arrow compares their values as they are."""
    dtype = column.field.to_arrow().type
    same = (
        values.type.equals(dtype)
        or (pat.is_integer(values.type) and pat.is_integer(dtype))
        or (pat.is_float32(dtype) and pat.is_float64(values.type))
        or (_is_text(values.type) and _is_text(dtype))
    )
    if not same or pat.is_float16(dtype):
        return None
    try:
        cast = values.cast(dtype)
        # A float that the column cannot have.
        return cast if cast.cast(values.type).equals(values) or _has_nan(values) else None
    except pa.ArrowException:
        return None


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pat.is_string(dtype) or pat.is_large_string(dtype))


def _has_nan(values: pa.Array) -> bool:
    return pat.is_floating(values.type) and any(math.isnan(value) for value in values.to_pylist())
