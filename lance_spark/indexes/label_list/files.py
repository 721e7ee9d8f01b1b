"""LABEL_LIST indexes: a set of rows for each distinct item of lists.

The only file is that of a BITMAP index (`bitmap`), with the items in place of the values. A list
with a null is in the set of null; an empty list and a null list are in no set. The schema metadata
`lance:label_list_nulls` is the number of a global buffer with the rows whose list is null, as a row
address map (`row_sets`). A search does not need them.

Specification: table/index/scalar/label_list.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.file.open import DataFileReader
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.bitmap import files as bitmap
from lance_spark.indexes.files import IndexFiles, SegmentWriter, buffer_in
from lance_spark.indexes.order import typed, with_both_zeros
from lance_spark.indexes.row_sets import Answer, RowSet, TooMany
from lance_spark.indexes.search import IndexSearch
from lance_spark.table.rows.u64_segments import UInt64Array

OPS = frozenset({"has_any", "has_all"})
#: Key in the schema metadata.
NULLS = "lance:label_list_nulls"
#: Most items that a list must have all; the scan checks others.
_MAX_ITEMS = 64


def search(files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int) -> Answer:
    """Return the row ids of lists that have one or all of some items; see `search.Search`."""
    keys = bitmap.cached_keys(files)
    if keys is None or not _is_list(dtype) or keys.type != dtype.value_type:
        return None
    sides = typed("in", value, keys.type)
    if not isinstance(sides, pa.Array):
        return None
    if op == "has_any":
        sets = RowSet.union(_sets(files, keys, sides))
    else:
        items = value.unique()[:_MAX_ITEMS]
        unions = (
            RowSet.union(_sets(files, keys, with_both_zeros(items[number : number + 1])))
            for number in range(len(items))
        )
        sets = RowSet.intersection(unions)
    return sets.row_keys() if sets.num_rows <= limit else TooMany(sets.num_rows)


def _sets(files: IndexFiles, keys: pa.Array, items: pa.Array) -> list[RowSet]:
    import pyarrow.compute as pc

    matches = pc.is_in(keys, value_set=items)
    rows = np.flatnonzero(matches.to_numpy(zero_copy_only=False))
    return list(bitmap.read_sets(files, rows))


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype))


def write(segment: SegmentWriter, lists: pa.Array, ids: UInt64Array) -> None:
    """Write the file of an index.

    - `ids` (uint64 array): Row id or address of each list, increasing.
    """
    import pyarrow.compute as pc

    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    writer = bitmap.write(segment, lists.flatten(), np.repeat(ids, lengths))
    is_null = lists.is_null().to_numpy(zero_copy_only=False)
    set_nulls(writer, RowSet.of(ids[is_null]))


def has_nulls(file: DataFileReader) -> bool:
    """Return whether a file says which rows have a null list. Those of old releases do not."""
    return NULLS in file.schema.metadata


def read_nulls(file: DataFileReader) -> RowSet:
    """Return the rows with a null list.

    Raises CorruptFileError, UnsupportedFeatureError, StorageError.
    """
    return RowSet.decode(buffer_in(file, NULLS), file.source.name)


def set_nulls(writer: FileWriter, rows: RowSet) -> None:
    """Write which rows have a null list."""
    writer.set_metadata(NULLS, str(writer.add_global_buffer(rows.encode())))


SEARCH = IndexSearch(OPS, search)
