"""Geometries as objects of the package shapely, which is loaded when it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.scan.predicates.spatial.columns import (
    BOX,
    WKB,
    WKT,
    Flags,
    coordinates,
    corners,
)
from lance_spark.scan.predicates.spatial.geometries import LINE, POINT, Floats, Geometry

Shapes = npt.NDArray[np.object_]
_COLLECTION = 7
#: The first release of GEOS, on which shapely is built, that can lose the contact of a part of a
#: multipolygon with a hole of another part.
_WITHOUT_CONTACTS = (3, 13)
#: The function of shapely for each relation with both sides exchanged, as a prepared literal comes
#: first.
_EXCHANGED = {
    "intersects": "intersects",
    "contains": "within",
    "within": "contains",
    "covers": "covered_by",
    "coveredby": "covers",
    "touches": "touches",
    "crosses": "crosses",
    "overlaps": "overlaps",
    "equals": "equals",
}


def shapely() -> Any:
    """Return the package. Raises UnsupportedFeatureError: it is missing."""
    try:
        import shapely as package
    except ImportError:
        raise UnsupportedFeatureError(
            "geometries other than points need the package shapely: pip install "
            "'lance-spark[spatial]'"
        ) from None
    return package


def related(relation: str, shapes: Shapes, geometry: Geometry) -> Flags:
    """Return for which shapes a relation to a geometry holds.

    Raises ValueError: the package cannot decide it. Raises UnsupportedFeatureError: the package is
    missing.
    """
    other = _shape(geometry)
    shapely().prepare(other)
    return related_pairs(relation, shapes, np.array([other], object))


def related_pairs(relation: str, left: Shapes, right: Shapes) -> Flags:
    """Return for which pairs of shapes a relation of the left to the right holds.

    Raises ValueError: the package cannot decide it. Raises UnsupportedFeatureError: the package is
    missing.
    """
    package = shapely()
    if relation != "intersects" and package.geos_version >= _WITHOUT_CONTACTS:
        _check_contacts(package, left)
        _check_contacts(package, right)
    try:
        result: Flags = getattr(package, _EXCHANGED[relation])(right, left)
    except package.errors.ShapelyError as error:
        raise ValueError(f"shapely cannot compare the geometries ({error})") from None
    return result


def _check_contacts(package: Any, shapes: Shapes) -> None:
    """Raise an error if a part of a multipolygon touches a hole of another part."""
    several = shapes[package.get_num_geometries(shapes) > 1]
    parts, owner = package.get_parts(several, return_index=True)
    with_holes = np.unique(owner[package.get_num_interior_rings(parts) > 0])
    for number in with_holes.tolist():
        own = parts[owner == number]
        rings, part = package.get_rings(own, return_index=True)
        is_hole = np.diff(part, prepend=-1) == 0
        outer, inner = rings[~is_hole], rings[is_hole]
        contacts = package.intersects(inner[:, None], outer[None, :])
        if (contacts & (part[is_hole][:, None] != part[~is_hole][None, :])).any():
            raise ValueError(
                "a part of a MULTIPOLYGON touches a hole of another part, which GEOS "
                f"{package.geos_version_string} does not compare rightly; use st_intersects, or "
                "shapely 2.0"
            )


def shapes_of(array: pa.Array, encoding: str) -> Shapes:
    """Return geometries as shapes; None for null.

    Raises ValueError: a value is not a geometry, or is a collection of geometries of several types.
    Raises UnsupportedFeatureError: the package is missing.
    """
    package = shapely()
    shapes = _shapes(package, array, encoding)
    if (package.get_type_id(shapes) == _COLLECTION).any():
        raise ValueError("a value is a GEOMETRYCOLLECTION, which clients compare in different ways")
    return shapes


def bounds_of(array: pa.Array, encoding: str) -> list[Floats]:
    """Return xmin, ymin, xmax and ymax of geometries; inside out for null and empty ones.

    Raises ValueError: a value is not a geometry. Raises UnsupportedFeatureError: the package is
    missing.
    """
    package = shapely()
    sides = package.bounds(_shapes(package, array, encoding)).T
    limits = (np.inf, np.inf, -np.inf, -np.inf)
    return [
        np.where(np.isnan(side), limit, side) for side, limit in zip(sides, limits, strict=True)
    ]


def _shapes(package: Any, array: pa.Array, encoding: str) -> Shapes:
    try:
        if encoding in (WKB, WKT):
            parse = package.from_wkb if encoding == WKB else package.from_wkt
            shapes: Shapes = parse(array.to_numpy(zero_copy_only=False).astype(object))
            return shapes
        if encoding == BOX:
            shapes = package.box(*corners(array))
        else:
            shapes = _of_coordinates(package, array, encoding)
    except package.errors.ShapelyError as error:
        raise ValueError(f"a value is not a geometry ({error})") from None
    shapes[array.is_null().to_numpy(zero_copy_only=False)] = None
    return shapes


def _of_coordinates(package: Any, array: pa.Array, encoding: str) -> Shapes:
    levels, x, y = coordinates(array, encoding)
    pairs = np.column_stack([x, y])
    if encoding in ("polygon", "multipolygon"):
        pairs, levels[-1] = _closed(pairs, levels[-1])
    geometry_type = package.GeometryType[encoding.upper()]
    shapes: Shapes = package.from_ragged_array(geometry_type, pairs, tuple(levels[::-1]) or None)
    return shapes


def _closed(pairs: Floats, bounds: RowNumbers) -> tuple[Floats, RowNumbers]:
    """Return rings that end where they begin, and the bounds of each."""
    starts, stops = bounds[:-1], bounds[1:]
    is_open = np.zeros(len(starts), np.bool_)
    filled = np.flatnonzero(starts < stops)
    is_open[filled] = (pairs[starts[filled]] != pairs[stops[filled] - 1]).any(axis=1)
    pairs = np.insert(pairs, stops[is_open], pairs[starts[is_open]], axis=0)
    return pairs, bounds + np.concatenate([np.zeros(1, np.int64), np.cumsum(is_open)])


def _shape(geometry: Geometry) -> Any:
    package = shapely()
    parts = []
    for number in range(len(geometry.parts)):
        first, *others = geometry.paths(number)
        if geometry.base == POINT:
            parts.append(package.Point(first[0]))
        elif geometry.base == LINE:
            parts.append(package.LineString(first))
        else:
            parts.append(package.Polygon(first, others))
    if not geometry.is_multi:
        return parts[0]
    makers = {
        POINT: package.MultiPoint,
        LINE: package.MultiLineString,
    }
    return makers.get(geometry.base, package.MultiPolygon)(parts)
