"""Values that readers of version 0.1 would get changed.

The version stores no validity, so these values are read changed:

======================================  =====================================================
value                                   is read as
======================================  =====================================================
null number, bool, date, time, decimal  0, false, or the like
null fixed-size binary or list          zeros
null list                               an empty list
null struct                             a struct of such values
null of a dictionary column             the first value of the dictionary
empty string or bytes, where the field  null
may be null
======================================  =====================================================

Nulls of strings and bytes are stored as empty values, and nulls of type null are stored. Every
other null is refused. So the values that are read from a file of the version can always be written
to another file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_text, is_variable, vector_items


@dataclass(frozen=True, slots=True)
class Change:
    """A value that would be read as another value.

    - `row`: The first such row of the array.
    - `path`: The field, with the fields above it.
    - `value`, `becomes`: The value, and the value that would be read instead.
    """

    row: int
    path: str
    value: str
    becomes: str


def first_change(array: pa.Array, field: pa.Field, path: str = "") -> Change | None:
    """Return the first value of a field, or of a field below it, that version 0.1 would change;
    None if no value would change.

    - `array`: Of the field's type.
    - `path`: Path of the fields above.
    """
    dtype = array.type
    path = f"{path}.{field.name}" if path else field.name
    if pat.is_null(dtype):
        return None
    if is_variable(dtype):
        return _first_empty(array, path) if field.nullable else _first_null(array, path)
    result = _first_null(array, path)
    if result is not None or not len(array):
        return result
    if pat.is_struct(dtype):
        changes = [
            first_change(array.field(index), dtype.field(index), path)
            for index in range(dtype.num_fields)
        ]
        return min(filter(None, changes), key=attrgetter("row"), default=None)
    if pat.is_dictionary(dtype):
        return _first_of_dictionary(array, path)
    if pat.is_fixed_size_list(dtype):
        result = first_change(vector_items(array), dtype.value_field, path)
        row_items = max(dtype.list_size, 1)
        return None if result is None else replace(result, row=result.row // row_items)
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        offsets = array.offsets.to_numpy()
        start, stop = int(offsets[0]), int(offsets[-1])
        result = first_change(array.values.slice(start, stop - start), dtype.value_field, path)
        if result is not None:
            row = int(np.searchsorted(offsets, result.row + start, side="right")) - 1
            return replace(result, row=row)
    return None


def _first_null(array: pa.Array, path: str) -> Change | None:
    if not array.null_count:
        return None
    row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
    return Change(row, path, "null", _becomes(array.type))


def _first_empty(array: pa.Array, path: str) -> Change | None:
    empty = pc.equal(pc.binary_length(array), 0).fill_null(False)
    if not empty.true_count:
        return None
    row = int(np.argmax(empty.to_numpy(zero_copy_only=False)))
    value = "an empty string" if is_text(array.type) else "an empty value"
    return Change(row, path, value, "null")


def _first_of_dictionary(array: pa.DictionaryArray, path: str) -> Change | None:
    values = array.dictionary
    if is_variable(values.type):
        changed = pc.equal(pc.binary_length(values), 0).fill_null(False)
        value, becomes = "an empty value of its dictionary", "null"
    else:
        changed = values.is_null()
        value, becomes = "a null of its dictionary", _becomes(values.type)
    if not changed.true_count:
        return None
    used = changed.take(array.indices).to_numpy(zero_copy_only=False)
    return Change(int(np.argmax(used)), path, value, becomes) if used.any() else None


def _becomes(dtype: pa.DataType) -> str:
    if pat.is_boolean(dtype):
        return "false"
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        return "an empty list"
    if pat.is_struct(dtype):
        return "a struct of zeros"
    if pat.is_dictionary(dtype):
        return "the first value of the dictionary"
    if is_variable(dtype):
        return "an empty value"
    return "zeros" if pat.is_nested(dtype) or pat.is_fixed_size_binary(dtype) else "0"
