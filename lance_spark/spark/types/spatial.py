"""GEOMETRY and GEOGRAPHY: Spark's batches have structs of SRID and WKB, tables have WKB.

Spark checks that all values of a column have the SRID of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.spark.types.arrow_buffers import struct_children, validity

_MARKS = (b"geometry", b"geography")


def is_spatial(dtype: pa.DataType) -> bool:
    """Return whether a type is the struct by which Spark sends geometries."""
    if not pa.types.is_struct(dtype) or [child.name for child in dtype] != ["srid", "wkb"]:
        return False
    metadata = dtype.field("wkb").metadata or {}
    return any(metadata.get(mark) == b"true" for mark in _MARKS)


def to_wkb(array: Any) -> Any:
    """Return the WKB of geometries, null where they are null."""
    wkb = struct_children(array)[1]
    if not array.null_count:
        return wkb
    import pyarrow.compute as pc

    return pc.if_else(array.is_valid(), wkb, None)


def from_wkb(dtype: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that makes geometries of Spark from WKB."""
    srid = int(dtype.field("wkb").metadata[b"srid"])

    def step(array: Any) -> Any:
        srids = pa.array(np.full(len(array), srid, np.int32))
        wkb = array.fill_null(b"") if array.null_count else array
        return pa.Array.from_buffers(
            dtype, len(array), [validity(array)], array.null_count, children=[srids, wkb]
        )

    return step
