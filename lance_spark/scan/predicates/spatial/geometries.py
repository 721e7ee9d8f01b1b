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
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lance_spark.scan.predicates.common_types import NoCommonTypeError

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
