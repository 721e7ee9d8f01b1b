"""Columns that existing rows get from other rows with the same key: a left join by one column.

| key | its row of the other side |
| --- | --- |
| several times on the other side | the last one |
| null | the row whose key is null |
| not on the other side | nulls |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.logical_types import storage_type
from lance_spark.mutations.rows.key_matching import comparable


@dataclass(frozen=True, slots=True)
class ColumnLookup:
    """Finds the new columns of rows by their keys.

    - `keys`: Keys of the other side, the last row first.
    - `columns`: Its other columns, in the order of the keys.
    """

    keys: pa.Array
    columns: pa.RecordBatch

    @classmethod
    def of(cls, rows: pa.Table, key: str, dtype: pa.DataType) -> ColumnLookup:
        """Return the columns of a table by a key of it.

        - `dtype`: Type of the key on the side of the existing rows.

        Raises InvalidInputError: the table does not have the key, has no other column, or the key
        has another type.
        """
        if key not in rows.column_names:
            raise InvalidInputError(
                f"column {key!r} not found in the rows to merge, which have "
                f"{', '.join(rows.column_names)}"
            )
        if rows.num_columns == 1:
            raise InvalidInputError(f"the rows to merge have no column other than {key!r}")
        own = rows.schema.field(key).type
        if storage_type(own) != storage_type(dtype):
            raise InvalidInputError(
                f"column {key!r} must have the type {dtype}, as the existing rows have, not {own}"
            )
        last_first = pa.array(np.arange(rows.num_rows)[::-1])
        try:
            rows = rows.take(last_first).combine_chunks()
        except pa.ArrowInvalid as error:
            raise _too_large(error) from None
        others = rows.drop_columns([key])
        batches = others.to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], others.schema)
        return cls(_comparable(rows[key]), batch)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the new columns of some rows, whose only column is the key."""
        try:
            return self.columns.take(self.places(rows.column(0)))
        except pa.ArrowInvalid as error:
            raise _too_large(error) from None

    def places(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the place in `columns` of the row with each key; null without one."""
        return pc.index_in(_comparable(keys), value_set=self.keys)


def _too_large(error: pa.ArrowInvalid) -> InvalidInputError:
    return InvalidInputError(
        f"the rows to merge have more values than one array holds ({error}); give their columns "
        "the types large_binary or large_string, or merge fewer rows at once"
    )


def _comparable(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of one chunk, as a hash table of Arrow compares them."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return pa.concat_arrays([comparable(chunk) for chunk in chunks or [pa.array([], array.type)]])
