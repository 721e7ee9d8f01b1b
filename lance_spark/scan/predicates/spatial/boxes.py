"""Bounding boxes of geometries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.predicates.spatial.columns import (
    BOX,
    WKB,
    WKT,
    Flags,
    coordinates,
    corners,
    points_of_wkb,
)
from lance_spark.scan.predicates.spatial.geometries import Box, Floats

#: Values that are parsed at once.
_BATCH_ROWS = 1 << 16


class Boxes(NamedTuple):
    """Bounding boxes of geometries; those of nulls and of empty geometries are inside out."""

    xmin: Floats
    ymin: Floats
    xmax: Floats
    ymax: Floats

    def intersect(self, box: Box | Boxes) -> Flags:
        """Return which boxes, each with the other or its own, have a common point, or NaN."""
        apart: Flags = (
            (self.xmax < box.xmin)
            | (self.xmin > box.xmax)
            | (self.ymax < box.ymin)
            | (self.ymin > box.ymax)
        )
        return ~apart

    @property
    def not_empty(self) -> Flags:
        """Which boxes have a point."""
        result: Flags = (self.xmin <= self.xmax) & (self.ymin <= self.ymax)
        return result

    def take(self, rows: RowNumbers | Flags) -> Boxes:
        """Return some of the boxes."""
        return Boxes(*(side[rows] for side in self))


def bounding_boxes(array: pa.Array, encoding: str) -> Boxes:
    """Return the bounding box of each geometry. Coordinates that are NaN are left out.

    Raises ValueError: a value is not a geometry. Raises UnsupportedFeatureError: the package
    shapely is needed and missing.
    """
    parts = []
    for start in range(0, max(len(array), 1), _BATCH_ROWS):
        parts.append(_boxes(array.slice(start, _BATCH_ROWS), encoding))
    return parts[0] if len(parts) == 1 else Boxes(*map(np.concatenate, zip(*parts, strict=True)))


def _boxes(array: pa.Array, encoding: str) -> Boxes:
    if encoding == BOX:
        left, bottom, right, top = corners(array)
        return Boxes(
            np.fmin(np.fmin(left, right), np.inf),
            np.fmin(np.fmin(bottom, top), np.inf),
            np.fmax(np.fmax(left, right), -np.inf),
            np.fmax(np.fmax(bottom, top), -np.inf),
        )
    if encoding in (WKB, WKT):
        points = points_of_wkb(array) if encoding == WKB else None
        if points is None:
            from lance_spark.scan.predicates.spatial.shapes import bounds_of

            return Boxes(*bounds_of(array, encoding))
        return _of_points(*points)
    levels, x, y = coordinates(array, encoding)
    if not levels:
        return _of_points(x, y)
    bounds = np.arange(len(array) + 1)
    for offsets in levels:
        bounds = offsets[bounds]
    return Boxes(*_extremes(x, y, bounds))


def _of_points(x: Floats, y: Floats) -> Boxes:
    """Return the boxes of points, which share their coordinates if none is NaN."""
    low, high = [], []
    for values in (x, y):
        is_nan = np.isnan(values)
        has_nan = bool(is_nan.any())
        low.append(np.where(is_nan, np.inf, values) if has_nan else values)
        high.append(np.where(is_nan, -np.inf, values) if has_nan else values)
    return Boxes(*low, *high)


def _extremes(x: Floats, y: Floats, bounds: RowNumbers) -> tuple[Floats, ...]:
    """Return the box of each run of coordinates, given the first of each and their number."""
    starts = bounds[:-1]
    filled = starts < bounds[1:]
    sides = []
    for ufunc, limit in ((np.fmin, np.inf), (np.fmax, -np.inf)):
        for values in (x, y):
            side = np.full(len(starts), limit)
            if filled.any():
                side[filled] = ufunc(ufunc.reduceat(values, starts[filled]), limit)
            sides.append(side)
    return tuple(sides)
