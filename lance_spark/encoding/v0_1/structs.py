"""Structs: nothing but their children.

A struct has no page: its entries in the page table are zero. There is no validity: a null struct
comes back as a struct of the values that its children had there. pylance reads the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.storage.source import ReadPlan, gather_plans


class StructReader:
    """Reads structs: their children side by side."""

    def __init__(self, dtype: pa.DataType, children: Sequence[FieldReader]) -> None:
        self._dtype = dtype
        self._children = children

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        arrays = yield from gather_plans([child.read(rows) for child in self._children])
        return pa.Array.from_buffers(self._dtype, len(rows), [None], children=arrays)
