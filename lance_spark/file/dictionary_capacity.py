"""Checks that the dictionaries of all pages of a column fit one common dictionary.

Each page has its own dictionary, but a reader merges the dictionaries of all pages that it reads
together. Indices of 8 or 16 bits overflow soon: no client could read such a column as a whole.
Wider indices are wide enough for all values of a file.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.page_buffer import dictionaries

_NARROW_BITS = 16


def narrow_indices(dtype: pa.DataType) -> list[pa.DataType | None]:
    """Return the index type of each dictionary in a type, depth-first; None for wide indices.

    Parameters
    ----------
    dtype : pyarrow.DataType
    """
    if not dtype.num_fields:
        if not pat.is_dictionary(dtype):
            return []
        return [dtype.index_type if dtype.index_type.bit_width <= _NARROW_BITS else None]
    children = (dtype.field(index).type for index in range(dtype.num_fields))
    return [result for child in children for result in narrow_indices(child)]


class DictionaryCapacity:
    """Collects the distinct values in the dictionaries of one column of a file.

    Parameters
    ----------
    dtype : pyarrow.DataType
        Type of the column.
    name : str
        Name of the column in errors.
    """

    def __init__(self, dtype: pa.DataType, name: str) -> None:
        self._name = name
        self._indices = narrow_indices(dtype)
        self._is_narrow = any(index is not None for index in self._indices)
        self._dictionaries: list[pa.Array | None] = [None] * len(self._indices)

    def add(self, array: pa.Array) -> None:
        """Add the dictionaries of some rows.

        Raises
        ------
        InvalidInputError
            The dictionaries have too many distinct values together.
        """
        if not self._is_narrow:
            return
        for index, (indices, result) in enumerate(
            zip(self._indices, dictionaries(array), strict=True)
        ):
            if indices is not None:
                self._dictionaries[index] = self._joined(self._dictionaries[index], result, indices)

    def _joined(self, existing: pa.Array | None, new: pa.Array, indices: pa.DataType) -> pa.Array:
        if existing is None or new.equals(existing):
            return new
        # Imported here, as readers import this module while they plan.
        import pyarrow.compute as pc

        joined = pc.unique(pa.chunked_array([existing, new]))
        # Arrow merges dictionaries only up to this size, although the indices could hold one more.
        capacity = (1 << (indices.bit_width - int(pat.is_signed_integer(indices)))) - 1
        if len(joined) > capacity:
            raise InvalidInputError(
                f"{self._name}: its dictionaries have more than {capacity} distinct values "
                f"together, which is too many for indices of type {indices}, so no client could "
                "read the column; cast the column to a dictionary with wider indices, or to its "
                "values"
            )
        return joined
