"""Random geometries without other packages, in all encodings of columns, and as WKT.

A geometry is its type and its coordinates: a pair for a point, a list of pairs for a line, a list
of rings for a polygon, and a list of these for the types MULTI.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Geometry = tuple[str, Any]

_POINT = pa.struct([pa.field(name, pa.float64(), nullable=False) for name in "xy"])
_BOX = pa.struct(
    [pa.field(name, pa.float64(), nullable=False) for name in ("xmin", "ymin", "xmax", "ymax")]
)
_DEPTHS = {"POINT": 0, "LINESTRING": 1, "POLYGON": 2}
_NAMES = {
    "linestring": ["vertices"],
    "polygon": ["rings", "vertices"],
    "multipoint": ["points"],
    "multilinestring": ["linestrings", "vertices"],
    "multipolygon": ["polygons", "rings", "vertices"],
}
TYPES = ("POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON")
NATIVE = ("point", *_NAMES)
ENCODINGS = (*NATIVE, "box", "wkb", "wkt")


def storage(encoding: str) -> pa.DataType:
    """Return the storage type of an encoding."""
    simple = {"box": _BOX, "wkb": pa.binary(), "wkt": pa.string(), "point": _POINT}
    if encoding in simple:
        return simple[encoding]
    dtype = _POINT
    for name in reversed(_NAMES[encoding]):
        dtype = pa.list_(pa.field(name, dtype, nullable=False))
    return dtype


def field(name: str, encoding: str) -> pa.Field:
    """Return the field of a column of geometries."""
    metadata = {"ARROW:extension:name": f"geoarrow.{encoding}"}
    return pa.field(name, storage(encoding), metadata=metadata)


def column(geometries: Sequence[Geometry | None], encoding: str) -> pa.Array:
    """Return geometries as a column of an encoding, which has their type."""
    values = [None if item is None else _value(item, encoding) for item in geometries]
    return pa.array(values, storage(encoding))


def _value(geometry: Geometry, encoding: str) -> Any:
    if encoding == "wkb":
        return wkb(geometry)
    if encoding == "wkt":
        return wkt(geometry)
    if encoding == "box":
        low, high = geometry[1][0][0], geometry[1][0][2]
        return dict(zip(("xmin", "ymin", "xmax", "ymax"), (*low, *high), strict=True))

    def nested(item: Any) -> Any:
        if isinstance(item, tuple):
            return {"x": item[0], "y": item[1]}
        return [nested(child) for child in item]

    return nested(geometry[1])


def wkt(geometry: Geometry) -> str:
    """Return WKT."""

    def text(item: Any) -> str:
        if isinstance(item, tuple):
            return f"{item[0]!r} {item[1]!r}"
        return ", ".join(
            text(child) if isinstance(child, tuple) else f"({text(child)})" for child in item
        )

    name, items = geometry
    return f"{name} ({text(items)})"


def wkb(geometry: Geometry, order: str = "<") -> bytes:
    """Return WKB, of the other byte order for ``>``."""
    name, items = geometry

    def path(pairs: Any) -> bytes:
        return struct.pack(f"{order}I", len(pairs)) + b"".join(map(position, pairs))

    def position(pair: Any) -> bytes:
        return struct.pack(f"{order}dd", *pair)

    head = bytes([order == "<"]) + struct.pack(f"{order}I", TYPES.index(name) + 1)
    if name == "POINT":
        return head + position(items)
    if name == "LINESTRING":
        return head + path(items)
    count = struct.pack(f"{order}I", len(items))
    if name == "POLYGON":
        return head + count + b"".join(map(path, items))
    single = name.removeprefix("MULTI")
    return head + count + b"".join(wkb((single, item), order) for item in items)


def type_of(encoding: str, rng: random.Random) -> str:
    """Return the type of a value of an encoding: one of all for WKB and WKT."""
    if encoding == "box":
        return "POLYGON"
    return encoding.upper() if encoding in NATIVE else rng.choice(TYPES)


def geometry(name: str, rng: random.Random, size: int, *, box: bool = False) -> Geometry:
    """Return a valid geometry with whole coordinates from 0 to `size`, so that many touch.

    Parameters
    ----------
    name : str
        One of `TYPES`.
    rng : random.Random
    size : int
    box : bool
        Whether a polygon is a rectangle.
    """

    def pair(first: int = 0, last: int = size) -> tuple[float, float]:
        return float(rng.randint(first, last)), float(rng.randint(0, size))

    def line(count: int) -> list[tuple[float, float]]:
        # No place twice, so that a line has no loops of length 0.
        points: list[tuple[float, float]] = []
        while len(points) < count:
            point = pair()
            if point not in points:
                points.append(point)
        return points

    def ring(x: float, y: float, right: float, top: float) -> list[tuple[float, float]]:
        return [(x, y), (right, y), (right, top), (x, top), (x, y)]

    def polygon(first: int, last: int) -> list[Any]:
        x, right = sorted(rng.sample(range(first, last + 1), 2))
        y, top = sorted(rng.sample(range(size + 1), 2))
        outer = ring(float(x), float(y), float(right), float(top))
        kind = rng.random()
        if not box and kind < 0.3 and right - x > 2 and top - y > 2:
            return [outer, ring(x + 1.0, y + 1.0, right - 1.0, top - 1.0)[::-1]]
        if not box and kind < 0.6:
            return [[*outer[:3], outer[0]]]
        return [outer]

    if name == "POINT":
        return name, pair()
    if name == "LINESTRING":
        return name, line(rng.randint(2, 3))
    if name == "POLYGON":
        return name, polygon(0, size)
    if name == "MULTIPOINT":
        return name, [pair() for _ in range(rng.randint(1, 3))]
    if name == "MULTILINESTRING":
        return name, [line(2) for _ in range(rng.randint(1, 2))]
    middle = size // 2
    parts = [polygon(0, middle - 1), polygon(middle, size)]
    return name, parts[: rng.randint(1, 2)]
