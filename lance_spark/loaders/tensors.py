"""Record batches as tensors of torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
import torch

from lance_spark.errors import InvalidInputError, UnsupportedTypeError

_BFLOAT16 = "lance.bfloat16"


def to_tensors(batch: pa.RecordBatch, **_: Any) -> Any:
    """Return the columns of a batch as tensors by name; the tensor of a single column alone.

    | column | tensor |
    | --- | --- |
    | numbers, booleans | of one dimension; uint64 as int64 |
    | lists of numbers of a fixed size | of two dimensions, of lists of such lists of three |
    | tensors of a fixed shape | of their dimensions and one more |
    | bfloat16 | bfloat16 |

    A null among floats is NaN. Raises UnsupportedTypeError: a column has another type. Raises
    InvalidInputError: a column that cannot have NaN has a null.
    """
    tensors = {
        field.name: _tensor(field.name, column)
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def _tensor(name: str, array: Any) -> torch.Tensor:
    dtype = array.type
    if isinstance(dtype, pa.FixedShapeTensorType):
        rows = _tensor(name, array.storage)
        return rows.reshape(len(array), *dtype.shape)
    if pat.is_fixed_size_list(dtype):
        if array.null_count:
            raise InvalidInputError(f"column {name!r} has nulls, which have no tensor; filter them")
        items = _tensor(name, array.flatten())
        return items.reshape(len(array), dtype.list_size, *items.shape[1:])
    if getattr(dtype, "extension_name", None) == _BFLOAT16:
        return _bfloat16(array)
    if not (pat.is_integer(dtype) or pat.is_floating(dtype) or pat.is_boolean(dtype)):
        raise UnsupportedTypeError(
            f"column {name!r} has type {dtype}, which has no tensor; leave it out, or give "
            "to_tensor_fn"
        )
    if array.null_count:
        if not pat.is_floating(dtype):
            raise InvalidInputError(
                f"column {name!r} of type {dtype} has nulls, which have no tensor; filter them, or "
                "give to_tensor_fn"
            )
        if pat.is_float16(dtype):
            values = array.to_numpy(zero_copy_only=False).astype(np.float16)
            return torch.from_numpy(values)
        array = array.fill_null(math.nan)
    # A copy: tensors are writable, and Arrow's memory is not.
    values = np.array(array.to_numpy(zero_copy_only=False))
    if values.dtype == np.uint64:
        values = values.astype(np.int64)
    return torch.from_numpy(values)


def _bfloat16(array: Any) -> torch.Tensor:
    storage = array.storage
    data = np.frombuffer(storage.buffers()[1], np.int16, len(storage), storage.offset * 2)
    tensor = torch.from_numpy(data.copy()).view(torch.bfloat16)
    if array.null_count:
        tensor[torch.from_numpy(array.is_null().to_numpy(zero_copy_only=False))] = math.nan
    return tensor
