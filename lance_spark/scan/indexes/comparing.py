"""Comparisons of the values in indexes, with the meaning that they have in conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.integer_sets import is_in
from lance_spark.scan.predicates.comparison import compared, has_nan, is_nan, with_one_zero
from lance_spark.scan.predicates.conditions import Bound

#: The comparisons that a `between` consists of, or one comparison.
Bounds = list[Bound]


def typed(op: str, value: Any, dtype: pa.DataType) -> Bounds | pa.Array | None:
    """Return the other side of a comparison in the type of an index.

    Parameters
    ----------
    op : str
        ``in``, ``between``, or a comparison; see `conditions.RangePruner`.
    value : object
    dtype : pa.DataType

    Returns
    -------
    list of Bound, pa.Array or None
        An array for ``in`` and ``not_in``. None if a value is not of the type, or is NaN.
    """
    if op in ("in", "not_in"):
        # Arrow has no sets of float16.
        if value.type != dtype or pat.is_float16(dtype) or has_nan(value):
            return None
        return with_both_zeros(value)
    bounds = value if op == "between" else [Bound(op, value)]
    scalars = [Bound(bound.op, _scalar(bound.value, dtype)) for bound in bounds]
    return None if any(bound.value is None for bound in scalars) else scalars


def matching(values: pa.Array, op: str, sides: Bounds | pa.Array) -> pa.BooleanArray:
    """Return for which values a comparison holds, with the other side as `typed` returns it."""
    import pyarrow.compute as pc

    if op == "in":
        return is_in(values, sides)
    if op == "not_in":
        return pc.and_(values.is_valid(), pc.invert(is_in(values, sides)))
    (first_op, first), *further = sides
    matches = holds(values, first_op, first)
    for op_of_side, side in further:
        matches = pc.and_(matches, holds(values, op_of_side, side))
    return matches


def holds(values: pa.Array, op: str, value: pa.Scalar) -> pa.BooleanArray:
    """Return for which values a comparison holds; null for null."""
    if pat.is_float16(values.type):
        values, value = values.cast(pa.float32()), value.cast(pa.float32())
    return compared(values, op, value)  # type: ignore[arg-type]


def filled(truths: pa.BooleanArray, unknown: bool = True) -> npt.NDArray[np.bool_]:
    """Return truth values, with a value for those that are null."""
    flags: npt.NDArray[np.bool_] = truths.fill_null(unknown).to_numpy(zero_copy_only=False)
    return flags.astype(np.bool_)


def with_both_zeros(values: pa.Array) -> pa.Array:
    """Return a set of floats with both zeros, if it has one of them."""
    if not pat.is_floating(values.type):
        return values
    zeros = pa.array([0.0, -0.0], values.type)
    values = with_one_zero(values)
    return pa.concat_arrays([values, zeros]) if 0.0 in values.to_pylist() else values


def _scalar(value: Any, dtype: pa.DataType) -> pa.Scalar | None:
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if not scalar.is_valid or scalar.type != dtype or is_nan(scalar):
        return None
    return scalar
