"""Dictionary encoding: positions in a list of values that the whole file shares.

==========================  ===================================================================
part                        content
==========================  ===================================================================
pages                       the positions, plainly encoded, of the index type of the dictionary
values                      one page of their own, plainly encoded if they are integers, else as
                            variable-width values; `Field.dictionary` of the file's schema
                            says where: the position of the page and its number of values
==========================  ===================================================================

Validity is not stored. A null is read as the value at the position that the writer stored for it,
usually the first value. Values that are empty strings are read as nulls of the dictionary. pylance
reads the same.

pylance takes the values from the copy in the manifest of the table, and refuses to append rows with
another dictionary: both copies are equal.

Specification: format/file/encoding of the legacy format, "Dictionary".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_variable
from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v0_1.pages import EncodedPages, FieldPages, Numbers, bounds_of
from lance_spark.encoding.v0_1.plain import PlainReader, encode_plain
from lance_spark.encoding.v0_1.var_binary import VarBinaryReader, encode_var_binary
from lance_spark.errors import CorruptFileError, UnsupportedTypeError
from lance_spark.storage.source import ReadPlan


class DictionaryReader:
    """Reads dictionary-encoded values.

    - `dtype`: A dictionary type.
    - `pages`: Pages of the positions.
    - `bounds`: First row of each page, and the number of all rows.
    - `values`: The only page of the values.
    - `size`: Size of the file in bytes.

    Raises CorruptFileError: a page lies outside the file. Raises UnsupportedTypeError: version 0.1
    has no dictionaries of such values.
    """

    def __init__(
        self, dtype: pa.DataType, pages: FieldPages, bounds: Numbers, values: FieldPages, size: int
    ) -> None:
        self._dtype = dtype
        self._positions = PlainReader(dtype.index_type, pages, bounds, size)
        self._num_values = int(values.lengths.sum())
        self._values = open_values(dtype.value_type, values, size)
        self._items: pa.Array | None = None

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        if self._items is None:
            self._items = yield from self._values.read(range(self._num_values))
        positions = yield from self._positions.read(rows)
        if len(positions):
            numbers = positions.to_numpy()
            low, high = int(numbers.min()), int(numbers.max())
            if low < 0 or high >= self._num_values:
                raise CorruptFileError(
                    f"position {low if low < 0 else high} in a dictionary of {self._num_values} "
                    "values"
                )
        return pa.DictionaryArray.from_arrays(
            positions, self._items, ordered=self._dtype.ordered, safe=False
        )


def encode_values(values: pa.Array, start: int) -> EncodedPages:
    """Encode the values of a dictionary as one page, which the whole file shares.

    Raises UnsupportedTypeError: version 0.1 has no dictionaries of such values.
    """
    check_values(values.type)
    cuts = np.array([0, len(values)], np.int64)
    if is_variable(values.type):
        return encode_var_binary(values, cuts, start)
    return encode_plain(values, cuts, start)


def check_values(dtype: pa.DataType) -> None:
    """Raise UnsupportedTypeError if version 0.1 has no dictionaries of such values."""
    if not (is_variable(dtype) or pat.is_integer(dtype)):
        raise UnsupportedTypeError(f"file version 0.1 has no dictionaries of {dtype} values")


def open_values(dtype: pa.DataType, values: FieldPages, size: int) -> FieldReader:
    """Return the reader of the values of a dictionary, of type `dtype`; see `DictionaryReader`."""
    bounds = bounds_of(np.maximum(values.lengths, 0))
    if is_variable(dtype):
        return VarBinaryReader(dtype, True, values, bounds, size)
    if pat.is_integer(dtype) or pat.is_floating(dtype):
        return PlainReader(dtype, values, bounds, size)
    raise UnsupportedTypeError(f"file version 0.1 has no dictionaries of {dtype} values")
