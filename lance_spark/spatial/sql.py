"""Functions of geometries, as in pylance's filters.

| function | result |
| --- | --- |
| those of `FUNCTIONS` | whether the first geometry has the relation to the second |
| `st_geomfromtext(wkt)`, `st_geometryfromtext(wkt)` | a geometry for these functions |
| `st_geomfromwkb(wkb)`, `st_point(x, y)`, `st_makepoint(x, y)` | the same |

In place of a geometry they take a string with WKT, or a binary with WKB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.predicates.sql.computed import Operand
from lance_spark.predicates.sql.grammar import Apply, SqlNode
from lance_spark.predicates.tree import Column, Constant, Predicate
from lance_spark.predicates.typed_literals import Typed, is_bytes, is_number, is_text
from lance_spark.spatial.geometries import Geometry, from_wkb, from_wkt, point
from lance_spark.spatial.predicates import RELATIONS, Related, checked_encoding

#: The relation of each function.
FUNCTIONS = {f"st_{name}": name for name in (*RELATIONS, "disjoint")}
#: Relations whose sides pylance exchanges if only the first is a literal.
_ORDERED = ("contains", "within", "covers", "coveredby")


def _point(x: Any, y: Any) -> Geometry:
    return point(float(x), float(y))


#: For each function that makes a geometry: how, and the type and number of its arguments.
_MAKERS: Mapping[str, tuple[Callable[..., Geometry], str, Callable[[pa.DataType], bool], int]] = {
    **dict.fromkeys(("st_geomfromtext", "st_geometryfromtext"), (from_wkt, "string", is_text, 1)),
    "st_geomfromwkb": (from_wkb, "binary", is_bytes, 1),
    **dict.fromkeys(("st_point", "st_makepoint"), (_point, "number", is_number, 2)),
}


def related(node: Apply, operand: Callable[[SqlNode], Operand]) -> Predicate:
    """Return the condition of a function of `FUNCTIONS` with two arguments.

    - `operand`: Binds an argument.

    Raises NoCommonTypeError, InvalidInputError.
    """
    name, relation = node.detail, FUNCTIONS[node.detail]
    left, right = (_side(name, argument, operand) for argument in node.args)
    if left is None or right is None:
        return Constant(None)
    if isinstance(left, Geometry):
        if isinstance(right, Geometry):
            raise NoCommonTypeError(f"{name} takes a column and a geometry, or two columns")
        if relation in _ORDERED:
            raise NoCommonTypeError(
                f"{name} takes the column first, because pylance exchanges both sides otherwise; "
                f"write st_{RELATIONS[relation]}(column, geometry)"
            )
        left, right = right, left
    if relation == "disjoint":
        return Related("intersects", left, right).negated()
    return Related(relation, left, right)


#: The function that binds a call, by name.
RELATED = dict.fromkeys(FUNCTIONS, related)


def _side(
    name: str, node: SqlNode, operand: Callable[[SqlNode], Operand]
) -> Geometry | Column | None:
    """Return an argument; None for null."""
    if isinstance(node, Apply) and node.op == "call" and node.detail in _MAKERS:
        return _geometry(node.detail, [operand(arg) for arg in node.args])
    value = operand(node)
    if isinstance(value, Column) and value.cast_type is None:
        checked_encoding(value)
        return value
    if isinstance(value, Typed) and value.value is None:
        return None
    if isinstance(value, Typed) and is_text(value.dtype):
        return from_wkt(value.value)
    if isinstance(value, Typed) and is_bytes(value.dtype):
        return from_wkb(value.value)
    raise NoCommonTypeError(f"{name} takes columns of geometries, and literals of WKT or WKB")


def _geometry(name: str, operands: Sequence[Operand]) -> Geometry | None:
    make, noun, accepts, count = _MAKERS[name]
    values = [operand for operand in operands if isinstance(operand, Typed)]
    known = [value for value in values if value.value is not None]
    if not len(operands) == len(values) == count or not all(
        accepts(value.dtype) for value in known
    ):
        raise NoCommonTypeError(f"{name} takes {count} literal{'s' * (count > 1)} of type {noun}")
    return make(*(value.value for value in known)) if len(known) == count else None
