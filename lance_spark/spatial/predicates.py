"""Conditions on how the geometries of a column lie to a literal, or to those of another column.

The relations are those of OGC's simple features, by the interior, the boundary and the exterior of
both geometries. No relation holds for an empty geometry, but two of them are equal. The result is
null if a geometry is null.

Points, and points in WKB, are compared with a literal here (`points`), all other geometries by the
package shapely (`shapes`). Only geometries whose bounding boxes have a point in common are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.predicates.conditions import RangePruner
from lance_spark.predicates.tree import Column, Predicate
from lance_spark.spatial.geometries import (
    BOX,
    LINE,
    POINT,
    POINT_COLUMN,
    WKB,
    Flags,
    Floats,
    Geometry,
    bounding_boxes,
    coordinates,
    encoding_of,
    points_of_wkb,
)

# --------------------------------------------------------------------------------------------------
# Points against geometries, decided exactly.
#
# A point is in the interior of a geometry, on its boundary, or outside. The boundary of lines is
# the set of their ends, of which an odd number are at one place; points have no boundary. A ray
# from the point to the right crosses the rings of a polygon an odd number of times if the point is
# inside.
#
# On which side of an edge a point lies is the sign of a sum of products. Doubles decide it if the
# sum is larger than their error; otherwise the sum is computed without error, as a list of doubles
# that add up to it.

OUTSIDE, BOUNDARY, INTERIOR = 0, 1, 2
#: Pairs of a point and an edge that are compared at once.
_BATCH_PAIRS = 1 << 19
#: Bound of the relative error of `_turns` with doubles: (3 + 16e) e for a unit in the last place e.
_ERROR = (3 + 16 * 2.0**-53) * 2.0**-53
#: Splits a double into halves of 26 bits.
_SPLITTER = 2.0**27 + 1
#: The error of a product of two numbers that are not smaller does not vanish.
_LEAST_SCALED = 2.0**-400

_Places = npt.NDArray[np.int8]


def related(relation: str, x: Floats, y: Floats, geometry: Geometry) -> Flags:
    """Return for which points a relation to a geometry holds.

    - `relation`: A key of `predicates.RELATIONS`.
    - `x`, `y`: Finite.
    """
    if relation in ("crosses", "overlaps"):
        # Parts of a point are neither inside nor outside.
        return np.zeros(len(x), np.bool_)
    if relation in ("contains", "covers", "equals"):
        box = geometry.box
        is_point = geometry.base == POINT and box[:2] == box[2:]
        same: Flags = (x == box.xmin) & (y == box.ymin) & is_point
        return same
    places = _places(x, y, geometry)
    wanted = {"touches": [BOUNDARY], "within": [INTERIOR]}.get(relation, [BOUNDARY, INTERIOR])
    return np.isin(places, wanted)


def _places(x: Floats, y: Floats, geometry: Geometry) -> _Places:
    result: _Places = np.zeros(len(x), np.int8)
    step = max(_BATCH_PAIRS // len(geometry.coordinates), 1)
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        result[part] = _places_of_batch(x[part, None], y[part, None], geometry)
    return result


def _places_of_batch(x: Floats, y: Floats, geometry: Geometry) -> _Places:
    """Return the place of each point, given in one column each."""
    result: _Places = np.zeros(len(x), np.int8)
    for number in range(len(geometry.parts)):
        paths = geometry.paths(number)
        if geometry.base == POINT:
            (px, py) = paths[0][0]
            result[(x == px)[:, 0] & (y == py)[:, 0]] = INTERIOR
        elif geometry.base == LINE:
            result[_sides(x, y, paths)[0]] = INTERIOR
        else:
            on_ring, is_inside = _sides(x, y, paths)
            inner = np.where(is_inside, INTERIOR, OUTSIDE)
            result = np.maximum(result, np.where(on_ring, BOUNDARY, inner)).astype(np.int8)
    if geometry.base == LINE:
        for px, py in _ends(geometry):
            result[(x == px)[:, 0] & (y == py)[:, 0]] = BOUNDARY
    return result


def _ends(geometry: Geometry) -> Floats:
    """Return the boundary of lines."""
    paths = [geometry.paths(number)[0] for number in range(len(geometry.parts))]
    ends = np.array([end for path in paths for end in (path[0], path[-1])])
    places, counts = np.unique(ends + 0.0, axis=0, return_counts=True)
    odd: Floats = places[counts % 2 == 1]
    return odd


def _sides(x: Floats, y: Floats, paths: Sequence[Floats]) -> tuple[Flags, Flags]:
    """Return which points are on a path, and for which a ray to the right crosses oddly often."""
    edges = np.concatenate([np.hstack([path[:-1], path[1:]]) for path in paths])
    ax, ay, bx, by = edges.T
    low, high = np.minimum(ax, bx), np.maximum(ax, bx)
    straddles = (ay > y) != (by > y)
    crosses = straddles & (x < low)
    near = (low <= x) & (x <= high) & (np.minimum(ay, by) <= y) & (y <= np.maximum(ay, by))
    point, edge = np.nonzero(near)
    turn = _turns(edges[edge].T, x[point, 0], y[point, 0])
    on_path = np.zeros(len(x), np.bool_)
    on_path[point[turn == 0]] = True
    # The point is left of an edge that goes up, or right of one that goes down.
    is_left = (turn > 0) == (by > ay)[edge]
    crosses[point, edge] = straddles[point, edge] & is_left
    is_odd: Flags = np.count_nonzero(crosses, axis=1) % 2 == 1
    return on_path, is_odd


def _turns(edges: Floats, x: Floats, y: Floats) -> Floats:
    """Return on which side of an edge each point is: 1 left, -1 right, 0 on the line."""
    ax, ay, bx, by = edges
    left, right = (ax - x) * (by - y), (ay - y) * (bx - x)
    total = left - right
    signs: Floats = np.sign(total)
    # A comparison with NaN is false, after an overflow.
    unsure = np.flatnonzero(~(np.abs(total) > _ERROR * (np.abs(left) + np.abs(right))))
    if len(unsure):
        signs[unsure] = _exact_turns(*(side[unsure] for side in (ax, ay, bx, by, x, y)))
    return signs


def _exact_turns(*sides: Floats) -> Floats:
    # A power of two for each row, so that products do not overflow.
    exponents = np.frexp(np.max(np.abs(sides), axis=0))[1]
    scaled = np.ldexp(np.array(sides), -exponents)
    signs = _signs_of_products(*scaled)
    # Products of smaller numbers, and their errors, may vanish.
    is_wide = ((np.abs(scaled) < _LEAST_SCALED) & (np.array(sides) != 0)).any(axis=0)
    for place in np.flatnonzero(is_wide):
        ax, ay, bx, by, x, y = (Fraction(float(side[place])) for side in sides)
        total = (ax - x) * (by - y) - (ay - y) * (bx - x)
        signs[place] = (total > 0) - (total < 0)
    return signs


def _signs_of_products(
    ax: Floats, ay: Floats, bx: Floats, by: Floats, x: Floats, y: Floats
) -> Floats:
    factors = ((ax, by), (-ax, y), (-x, by), (-ay, bx), (ay, x), (y, bx))
    terms = [term for pair in factors for term in _product(*pair)]
    # Each list is in increasing order, and its numbers have no bits in common.
    total: list[Floats] = []
    for term in terms:
        carry, grown = term, []
        for number in total:
            carry, error = _sum(carry, number)
            grown.append(error)
        total = [*grown, carry]
    signs = np.zeros(len(x))
    for number in total:
        signs = np.where(number != 0, np.sign(number), signs)
    return signs


def _sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sum, and its error."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the error of the rounded product, and the product."""
    total = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = ((a_high * b_high - total) + a_high * b_low + a_low * b_high) + a_low * b_low
    return error, total


def _halves(value: Floats) -> tuple[Floats, Floats]:
    scaled = _SPLITTER * value
    high = scaled - (scaled - value)
    return high, value - high


# --------------------------------------------------------------------------------------------------
# Conditions on how the geometries of a column lie to a literal, or to those of another column.

#: Relations, with the relation of the right side to the left. Each implies that the bounding boxes
#: intersect.
RELATIONS = {
    "intersects": "intersects",
    "contains": "within",
    "within": "contains",
    "covers": "coveredby",
    "coveredby": "covers",
    "touches": "touches",
    "crosses": "crosses",
    "overlaps": "overlaps",
    "equals": "equals",
}


@dataclass(frozen=True, slots=True)
class Related(Predicate):
    """Whether a geometry has a relation to another; null if one of them is null.

    - `relation`: A key of `RELATIONS`.
    - `inverted`: Whether true and false are exchanged.
    """

    relation: str
    column: Column
    other: Geometry | Column
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        sides = [column.values(batch) for column in self.columns()]
        valid = np.ones(batch.num_rows, np.bool_)
        for side in sides:
            valid &= side.is_valid().to_numpy(zero_copy_only=False)
        try:
            holds = self._holds(sides)
        except ValueError as error:
            names = ", ".join(map(str, self.columns()))
            raise EvaluationError(f"filter on {names!r}: {error}") from None
        return pa.array(holds != self.inverted, mask=~valid)

    def _holds(self, sides: list[pa.Array]) -> Flags:
        encodings = [checked_encoding(column) for column in self.columns()]
        boxes = [bounding_boxes(*pair) for pair in zip(sides, encodings, strict=True)]
        if isinstance(self.other, Geometry):
            near = boxes[0].intersect(self.other.box)
        else:
            near = boxes[0].intersect(boxes[1])
        rows = np.flatnonzero(near)
        holds = np.zeros(len(near), np.bool_)
        if self.relation == "equals" and len(boxes) == 2:
            holds = ~boxes[0].not_empty & ~boxes[1].not_empty
        if len(rows):
            holds[rows] = self._related([side.take(pa.array(rows)) for side in sides], encodings)
        return holds

    def _related(self, sides: list[pa.Array], encodings: list[str]) -> Flags:
        if isinstance(self.other, Geometry):
            coordinates = _points(sides[0], encodings[0])
            if coordinates is not None:
                return related(self.relation, *coordinates, self.other)
        from lance_spark.spatial import geometries as shapes

        if self.relation != "intersects":
            for side, encoding in zip(sides, encodings, strict=True):
                _check_areas(side, encoding)
        left, *others = (shapes.shapes_of(*pair) for pair in zip(sides, encodings, strict=True))
        if isinstance(self.other, Geometry):
            return shapes.related(self.relation, left, self.other)
        return shapes.related_pairs(self.relation, left, others[0])

    def columns(self) -> Iterator[Column]:
        yield self.column
        if isinstance(self.other, Column):
            yield self.other

    def negated(self) -> Related:
        return replace(self, inverted=not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if self.inverted or not isinstance(self.other, Geometry):
            return None
        return statistics(self.column.field, "intersects", self.other.box)


def _points(array: pa.Array, encoding: str) -> tuple[Floats, Floats] | None:
    """Return the coordinates of points; None for other geometries."""
    if encoding == WKB:
        return points_of_wkb(array)
    if encoding != POINT_COLUMN:
        return None
    _, x, y = coordinates(array, encoding)
    return x, y


def _check_areas(array: pa.Array, encoding: str) -> None:
    """Raise an error if a box is a line or a point, which clients take for a polygon or not."""
    if encoding != BOX:
        return
    boxes = bounding_boxes(array, encoding)
    if not ((boxes.xmin < boxes.xmax) & (boxes.ymin < boxes.ymax)).all():
        raise ValueError("a value is a box without an area; only st_intersects takes it")


def checked_encoding(column: Column) -> str:
    """Return the encoding of a column of geometries.

    Raises InvalidInputError: the column has no geometries.
    """
    encoding = encoding_of(column.field)
    if encoding is None:
        raise InvalidInputError(
            f"filter on {str(column)!r}: a column of type {column.field.arrow_field.type} without "
            "an extension type of GeoArrow has no geometries"
        )
    return encoding
