"""Whether the dictionaries of a column's pages have one common dictionary that the type of their
indices can tell.

Each page has a dictionary of its own, but readers put together the pages of what is read at once.
With indices of 8 or 16 bits few values are too many for that: a file with more of them in its pages
cannot be read as a whole, by no client. Wider indices have room for all that a file holds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.page_buffer import dictionaries

_NARROW_BITS = 16


def narrow_indices(dtype: pa.DataType) -> list[pa.DataType | None]:
    """Return the index type of each dictionary in a type, depth-first; None for those with room for
    all values.

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


class IndexRoom:
    """Collects the values that the dictionaries of one column of a file have.

    Parameters
    ----------
    kind : pyarrow.DataType
        Of the column.
    name : str
        What errors call it.
    """

    def __init__(self, dtype: pa.DataType, name: str) -> None:
        self._name = name
        self._indices = narrow_indices(dtype)
        self._is_narrow = any(index is not None for index in self._indices)
        self._known: list[pa.Array | None] = [None] * len(self._indices)

    def add(self, array: pa.Array) -> None:
        """Take note of the dictionaries of some rows.

        Raises
        ------
        InvalidInputError
            All dictionaries up to now have too many values together.
        """
        if not self._is_narrow:
            return
        for index, (indices, result) in enumerate(
            zip(self._indices, dictionaries(array), strict=True)
        ):
            if indices is not None:
                self._known[index] = self._joined(self._known[index], result, indices)

    def _joined(self, known: pa.Array | None, found: pa.Array, indices: pa.DataType) -> pa.Array:
        if known is None or found.equals(known):
            return found
        # Readers import this module, too, while they plan.
        import pyarrow.compute as pc

        joined = pc.unique(pa.chunked_array([known, found]))
        # Arrow joins different dictionaries to one of so many values only, though the indices could
        # tell one more.
        room = (1 << (indices.bit_width - int(pat.is_signed_integer(indices)))) - 1
        if len(joined) > room:
            raise InvalidInputError(
                f"{self._name}: its dictionaries have more than {room} different values together, "
                "which is all that there is room for in "
                f"indices of type {indices}, so that no client could read them at once; cast the "
                "column to a dictionary with wider indices, or to its values"
            )
        return joined
