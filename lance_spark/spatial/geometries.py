"""Geometries as literals, from WKT and WKB.

Coordinates beyond x and y are read and left out. A literal is not empty, its coordinates are
finite, and it is not a collection of geometries of several types.

Specification: OGC 06-103r4, "Well-known Text Representation" and "Well-known Binary
Representation"; extended WKB as PostGIS writes it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.schema.field import Field
from lance_spark.predicates.coercion import NoCommonTypeError

Floats = npt.NDArray[np.float64]
_Item = TypeVar("_Item")

POINT, LINE, POLYGON = "POINT", "LINESTRING", "POLYGON"
MULTI = "MULTI"
#: By the number in WKB.
_TYPES = {
    1: POINT,
    2: LINE,
    3: POLYGON,
    4: MULTI + POINT,
    5: MULTI + LINE,
    6: MULTI + POLYGON,
    7: "GEOMETRYCOLLECTION",
}
#: Flags of extended WKB in the number of a type.
_HAS_Z, _HAS_M, _HAS_SRID = 1 << 31, 1 << 30, 1 << 29
#: Most parts and rings; a larger literal is not one that somebody wrote.
_MAX_PARTS = 1 << 20
_TOKEN = re.compile(r"\s*([A-Za-z]+|[(),]|[^\s(),]+)")


class Box(NamedTuple):
    """A rectangle along the axes, with its edges."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


@dataclass(frozen=True, slots=True)
class Geometry:
    """A geometry of one type. Can be hashed and pickled.

    - `base`: ``POINT``, ``LINESTRING`` or ``POLYGON``.
    - `is_multi`: Whether it is a ``MULTI`` geometry of this type.
    - `parts`: The paths of each part: one, or the rings of a polygon, which are closed. The bytes
      of a path are pairs of x and y, each a float64.
    """

    base: str
    is_multi: bool
    parts: tuple[tuple[bytes, ...], ...]

    def paths(self, part: int) -> list[Floats]:
        """Return the coordinates of each path of a part, in two columns."""
        return [np.frombuffer(path, np.float64).reshape(-1, 2) for path in self.parts[part]]

    @property
    def coordinates(self) -> Floats:
        """All coordinates, in two columns."""
        return np.concatenate(
            [path for part in range(len(self.parts)) for path in self.paths(part)]
        )

    @property
    def box(self) -> Box:
        """The bounding box."""
        coordinates = self.coordinates
        return Box(*coordinates.min(axis=0).tolist(), *coordinates.max(axis=0).tolist())


def point(x: float, y: float) -> Geometry:
    """Return a point. Raises NoCommonTypeError: a coordinate is not finite."""
    return _geometry(POINT, [[np.array([[x, y]])]])


def from_wkt(text: str) -> Geometry:
    """Parse WKT.

    Raises NoCommonTypeError: the text is not WKT, or a geometry that is not supported.
    """
    try:
        return _WktParser(text).geometry()
    except NoCommonTypeError:
        raise
    except (ValueError, IndexError, RecursionError):
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise NoCommonTypeError(f"{shown!r} is not the WKT of a geometry") from None


def from_wkb(data: bytes) -> Geometry:
    """Parse WKB.

    Raises NoCommonTypeError: the bytes are not WKB, or a geometry that is not supported.
    """
    try:
        return _WkbParser(data).geometry()
    except NoCommonTypeError:
        raise
    except (ValueError, struct.error):
        shown = data[:20].hex() + ("..." if len(data) > 20 else "")
        raise NoCommonTypeError(f"X'{shown}' is not the WKB of a geometry") from None


def _geometry(name: str, parts: Sequence[Sequence[Floats]]) -> Geometry:
    is_multi = name.startswith(MULTI)
    base = name.removeprefix(MULTI)
    if base not in (POINT, LINE, POLYGON):
        raise NoCommonTypeError(f"geometries of type {name} are not supported")
    paths = [path for part in parts for path in part]
    if not paths or not all(map(len, paths)) or not all(parts):
        raise NoCommonTypeError(f"an empty {name} is not supported")
    if not all(np.isfinite(path).all() for path in paths):
        raise NoCommonTypeError(f"a coordinate of the {name} is not finite")
    if base == POLYGON:
        parts = [[_closed(ring) for ring in part] for part in parts]
    elif base == LINE and min(map(len, paths)) < 2:
        raise NoCommonTypeError(f"a line of the {name} has less than two points")
    stored = tuple(
        tuple(np.ascontiguousarray(path, np.float64).tobytes() for path in part) for part in parts
    )
    return Geometry(base, is_multi, stored)


def _closed(ring: Floats) -> Floats:
    if not np.array_equal(ring[0], ring[-1]):
        ring = np.concatenate([ring, ring[:1]])
    if len(ring) < 4:
        raise NoCommonTypeError("a ring of the polygon has less than three different points")
    return ring


class _WktParser:
    """Raises `ValueError` or `IndexError` if the text is not WKT."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != "".join(text.split()):
            raise ValueError(text)
        self._next = 0

    def geometry(self) -> Geometry:
        name = self._take().upper()
        if self._peek().upper() in ("Z", "M", "ZM"):
            self._take()
        else:
            name = re.sub("(ZM|Z|M)$", "", name) if name not in _TYPES.values() else name
        if name not in _TYPES.values():
            raise ValueError(name)
        if name == "GEOMETRYCOLLECTION" or self._peek().upper() == "EMPTY":
            return _geometry(name, [])
        is_multi, base = name.startswith(MULTI), name.removeprefix(MULTI)
        if base == POLYGON:
            parts = self._list(lambda: self._list(self._path)) if is_multi else [self._rings()]
        elif base == LINE:
            parts = [[path] for path in (self._list(self._path) if is_multi else [self._path()])]
        elif is_multi:
            parts = [[path] for path in self._list(self._point)]
        else:
            parts = [[self._path()]]
            if len(parts[0][0]) != 1:
                raise ValueError(name)
        if self._next != len(self._tokens):
            raise ValueError(name)
        return _geometry(name, parts)

    def _rings(self) -> list[Floats]:
        return self._list(self._path)

    def _point(self) -> Floats:
        """Parse a point of a multipoint, in brackets or not."""
        return self._path() if self._peek() == "(" else np.array([self._position()])

    def _path(self) -> Floats:
        return np.array(self._list(self._position))

    def _position(self) -> list[float]:
        numbers = []
        while self._peek() not in (",", ")"):
            numbers.append(float(self._take()))
        if not 2 <= len(numbers) <= 4:
            raise ValueError(numbers)
        return numbers[:2]

    def _list(self, item: Callable[[], _Item]) -> list[_Item]:
        if self._take() != "(":
            raise ValueError("(")
        items = [item()]
        while (sign := self._take()) == ",":
            items.append(item())
        if sign != ")":
            raise ValueError(sign)
        return items

    def _peek(self) -> str:
        token: str = self._tokens[self._next]
        return token

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token


class _WkbParser:
    """Raises `ValueError` or `struct.error` if the bytes are not WKB."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def geometry(self) -> Geometry:
        name, parts = self._parse()
        if self._offset != len(self._data):
            raise ValueError(name)
        return _geometry(name, parts)

    def _parse(self, expected: str | None = None) -> tuple[str, list[list[Floats]]]:
        (order,) = self._unpack("B")
        if order not in (0, 1):
            raise ValueError(order)
        sign = "<" if order else ">"
        (number,) = self._unpack(f"{sign}I")
        width = 2 + bool(number & _HAS_Z) + bool(number & _HAS_M)
        if number & _HAS_SRID:
            self._unpack(f"{sign}I")
        number &= ~(_HAS_Z | _HAS_M | _HAS_SRID)
        # The thousands are the dimensions: 1 for z, 2 for m, 3 for both.
        dimensions, number = divmod(number, 1000)
        if number not in _TYPES or dimensions > 3:
            raise ValueError(number)
        width = max(width, (2, 3, 3, 4)[dimensions])
        name = _TYPES[number]
        if expected not in (None, name):
            raise ValueError(name)
        if name == POINT:
            return name, [[self._coordinates(1, width, sign)]]
        if name == "GEOMETRYCOLLECTION":
            return name, []
        if name == LINE:
            return name, [[self._coordinates(self._count(sign), width, sign)]]
        if name == POLYGON:
            rings = range(self._count(sign))
            return name, [[self._coordinates(self._count(sign), width, sign) for _ in rings]]
        base = name.removeprefix(MULTI)
        return name, [self._parse(base)[1][0] for _ in range(self._count(sign))]

    def _count(self, sign: str) -> int:
        count: int = self._unpack(f"{sign}I")[0]
        # Each part takes at least four bytes.
        if count > min(_MAX_PARTS, len(self._data)):
            raise ValueError(count)
        return count

    def _coordinates(self, count: int, width: int, sign: str) -> Floats:
        size = count * width * 8
        if size > len(self._data) - self._offset:
            raise ValueError(count)
        values = np.frombuffer(self._data, f"{sign}f8", count * width, self._offset)
        self._offset += size
        return values.reshape(-1, width)[:, :2].astype(np.float64)

    def _unpack(self, layout: str) -> tuple[int, ...]:
        result = struct.unpack_from(layout, self._data, self._offset)
        self._offset += struct.calcsize(layout)
        return result


# --------------------------------------------------------------------------------------------------
# Columns of geometries, as GeoArrow stores them.
#
# | encoding | extension type | storage |
# | --- | --- | --- |
# | point | `geoarrow.point` | coordinates: a struct of doubles x, y and others |
# | linestring, multipoint | `geoarrow.linestring`, ... | lists of coordinates |
# | polygon, multilinestring | `geoarrow.polygon`, ... | lists of lists of coordinates |
# | multipolygon | `geoarrow.multipolygon` | lists of lists of lists of coordinates |
# | box | `geoarrow.box` | a struct of doubles xmin, ymin, xmax, ymax and others |
# | wkb | `geoarrow.wkb`, `ogc.wkb`, or none | binary |
# | wkt | `geoarrow.wkt`, or none | strings |
#
# WKB of points is read here; other WKB, and WKT, needs the package shapely (`shapes`).
#
# Specification: geoarrow.org, "GeoArrow format" and "GeoArrow extension types".

WKB, WKT, BOX, POINT_COLUMN = "wkb", "wkt", "box", "point"
#: Levels of lists around the coordinates.
DEPTHS = {
    POINT_COLUMN: 0,
    "linestring": 1,
    "multipoint": 1,
    "polygon": 2,
    "multilinestring": 2,
    "multipolygon": 3,
}
_EXTENSION = "ARROW:extension:name"
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
#: Bytes of a point in WKB, little-endian: byte order, type, x and y.
_WKB_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])

Flags = npt.NDArray[np.bool_]


def encoding_of(field: Field) -> str | None:
    """Return the encoding of a column; None if it has no geometries."""
    dtype = field.arrow_field.type
    name = (field.metadata or {}).get(_EXTENSION, b"").decode(errors="replace")
    if isinstance(dtype, pa.BaseExtensionType):
        name, dtype = getattr(dtype, "extension_name", name), dtype.storage_type
    if name in ("", "geoarrow.wkb", "ogc.wkb") and (
        pat.is_binary(dtype) or pat.is_large_binary(dtype)
    ):
        return WKB
    if name in ("", "geoarrow.wkt") and (pat.is_string(dtype) or pat.is_large_string(dtype)):
        return WKT
    encoding = name.removeprefix("geoarrow.")
    if encoding == BOX and _has_doubles(dtype, _CORNERS):
        return BOX
    if encoding not in DEPTHS or encoding == name:
        return None
    for _ in range(DEPTHS[encoding]):
        if not pat.is_list(dtype):
            return None
        dtype = dtype.value_type
    return encoding if _has_doubles(dtype, ("x", "y")) else None


def encoding_of_storage(dtype: pa.DataType) -> str | None:
    """Return an encoding whose storage has a type; None if there is none.

    Encodings of one storage have the same bounding boxes.
    """
    if pat.is_struct(dtype) and _has_doubles(dtype, _CORNERS):
        return BOX
    names = [POINT_COLUMN, "linestring", "polygon", "multipolygon"]
    for name in [WKB, WKT, *names]:
        metadata = {_EXTENSION: f"geoarrow.{name}"}
        field = Field.from_arrow(pa.field(name, dtype, metadata=metadata), 0)
        if encoding_of(field) == name:
            return name
    return None


def _has_doubles(dtype: pa.DataType, names: tuple[str, ...]) -> bool:
    return (
        pat.is_struct(dtype)
        and {child.name for child in dtype} >= set(names)
        and all(pat.is_float64(child.type) for child in dtype)
    )


def coordinates(array: pa.Array, encoding: str) -> tuple[list[RowNumbers], Floats, Floats]:
    """Return the coordinates of geometries that are not in WKB, WKT or boxes.

    Returns
    -------
    levels : list of int64 array
        For each level of lists, from the outermost, the first item of each list and the number of
        items. A null list is empty.
    x, y : float64 array
        NaN for a null point.
    """
    import pyarrow.compute as pc

    levels = []
    for _ in range(DEPTHS[encoding]):
        lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
        levels.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))
        array = array.flatten()
    children = _children(array)
    return levels, _numbers(children["x"]), _numbers(children["y"])


def points_of_wkb(array: pa.Array) -> tuple[Floats, Floats] | None:
    """Return the coordinates of points in WKB, NaN for null; None if there are other geometries."""
    import pyarrow.compute as pc

    values = array.drop_null()
    lengths = pc.binary_length(values).to_numpy()
    x, y = np.full((2, len(array)), np.nan)
    if len(values):
        if (lengths != _WKB_POINT.itemsize).any():
            return None
        width = np.int64 if pat.is_large_binary(values.type) else np.int32
        _, offsets, data = values.buffers()
        first = int(np.frombuffer(offsets, width)[values.offset])
        points = np.frombuffer(data, _WKB_POINT, len(values), first)
        if (points["order"] != 1).any() or (points["type"] != 1).any():
            return None
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        x[valid], y[valid] = points["x"], points["y"]
    return x, y


def corners(array: pa.Array) -> list[Floats]:
    """Return xmin, ymin, xmax and ymax of boxes as they are stored; NaN for null."""
    children = _children(array)
    return [_numbers(children[name]) for name in _CORNERS]


def _children(array: pa.Array) -> dict[str, pa.Array]:
    return dict(zip((child.name for child in array.type), array.flatten(), strict=True))


def _numbers(array: pa.Array) -> Floats:
    """Return doubles, NaN for null."""
    values: Floats = array.to_numpy(zero_copy_only=False)
    return values


# --------------------------------------------------------------------------------------------------
# Bounding boxes of geometries.

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


# --------------------------------------------------------------------------------------------------
# Geometries as objects of the package shapely, which is loaded when it is needed.

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
        pairs, levels[-1] = _closed_ring(pairs, levels[-1])
    geometry_type = package.GeometryType[encoding.upper()]
    shapes: Shapes = package.from_ragged_array(geometry_type, pairs, tuple(levels[::-1]) or None)
    return shapes


def _closed_ring(pairs: Floats, bounds: RowNumbers) -> tuple[Floats, RowNumbers]:
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
