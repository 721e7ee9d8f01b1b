"""Columns of geometries, as GeoArrow stores them.

| encoding | extension type | storage |
| --- | --- | --- |
| point | `geoarrow.point` | coordinates: a struct of doubles x, y and others |
| linestring, multipoint | `geoarrow.linestring`, ... | lists of coordinates |
| polygon, multilinestring | `geoarrow.polygon`, ... | lists of lists of coordinates |
| multipolygon | `geoarrow.multipolygon` | lists of lists of lists of coordinates |
| box | `geoarrow.box` | a struct of doubles xmin, ymin, xmax, ymax and others |
| wkb | `geoarrow.wkb`, `ogc.wkb`, or none | binary |
| wkt | `geoarrow.wkt`, or none | strings |

WKB of points is read here; other WKB, and WKT, needs the package shapely (`shapes`).

Specification: geoarrow.org, "GeoArrow format" and "GeoArrow extension types".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.field import Field
from lance_spark.scan.predicates.spatial.geometries import Floats

WKB, WKT, BOX, POINT = "wkb", "wkt", "box", "point"
#: Levels of lists around the coordinates.
DEPTHS = {
    POINT: 0,
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
    names = [POINT, "linestring", "polygon", "multipolygon"]
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
