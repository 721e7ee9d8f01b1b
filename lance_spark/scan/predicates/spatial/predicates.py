"""Conditions on how the geometries of a column lie to a literal, or to those of another column.

The relations are those of OGC's simple features, by the interior, the boundary and the exterior of
both geometries. No relation holds for an empty geometry, but two of them are equal. The result is
null if a geometry is null.

Points, and points in WKB, are compared with a literal here (`points`), all other geometries by the
package shapely (`shapes`). Only geometries whose bounding boxes have a point in common are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.scan.predicates.conditions import RangePruner
from lance_spark.scan.predicates.spatial import points
from lance_spark.scan.predicates.spatial.boxes import bounding_boxes
from lance_spark.scan.predicates.spatial.columns import (
    BOX,
    POINT,
    WKB,
    Flags,
    coordinates,
    encoding_of,
    points_of_wkb,
)
from lance_spark.scan.predicates.spatial.geometries import Floats, Geometry
from lance_spark.scan.predicates.tree import Column, Predicate

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
                return points.related(self.relation, *coordinates, self.other)
        from lance_spark.scan.predicates.spatial import shapes

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
    if encoding != POINT:
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
