"""Columns of codes: fixed-size lists as the rows of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def list_field(name: str, dtype: npt.DTypeLike, width: int, *, nullable: bool = True) -> pa.Field:
    """Return the field of a column with `width` items in each row."""
    return pa.field(name, pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), width), nullable=nullable)


def vector_list(rows: npt.NDArray[Any]) -> pa.FixedSizeListArray:
    """Return the rows of a matrix as fixed-size lists."""
    values = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, rows.shape[1])


def has_nulls(column: pa.Array) -> bool:
    """Return whether a column has nulls, or lists with nulls."""
    is_list = pa.types.is_fixed_size_list(column.type)
    return bool(column.null_count or (is_list and column.values.null_count))


def matrix(column: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    """Return fixed-size lists without nulls as the rows of a matrix."""
    width = column.type.list_size
    values = column.values.slice(column.offset * width, len(column) * width)
    rows: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return rows.reshape(len(column), width)
