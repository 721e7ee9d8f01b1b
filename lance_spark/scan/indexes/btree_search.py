"""Searches in BTREE indexes.

The pages that may have matching values come from `page_lookup.lance`, which is cached. Of these
pages the values are compared, and the ids of matching rows returned.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import CorruptFileError
from lance_spark.scan.indexes.btree import DATA_FILE, IDS, VALUES, Pages, cached_pages, ids_field
from lance_spark.scan.indexes.comparing import filled, holds, matching, typed
from lance_spark.scan.indexes.files import IndexFiles, named
from lance_spark.table.rows.u64_segments import UInt64Array

OPS = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "between", "in", "not_in", "is_null", "is_not_null"}
)
#: Most rows of the index that a search reads.
_MAX_READ = 8 * 1024 * 1024

_Flags = npt.NDArray[np.bool_]


def search(
    files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int
) -> UInt64Array | None:
    """Return the row ids for which a comparison holds; see `search.Search`."""
    pages = cached_pages(files)
    if pages is None or pages.low.type != dtype:
        return None
    if op in ("is_null", "is_not_null"):
        nulls = int(pages.nulls.sum())
        rows = range(nulls) if op == "is_null" else range(nulls, pages.num_rows)
        return _ids(files, rows) if len(rows) <= limit else None
    value = typed(op, value, dtype)
    if value is None:
        return None
    ranges = RowRanges.of_blocks(pages.bounds, _possible(pages, op, value))
    # The first and the last page of a range may have few matching rows.
    edges = 2 * int(np.diff(pages.bounds).max(initial=0)) * ranges.num_ranges
    if ranges.num_rows > _MAX_READ or (op != "in" and ranges.num_rows > limit + edges):
        return None
    if not ranges.num_rows:
        return np.empty(0, np.uint64)
    read: Rows = next(iter(ranges)) if ranges.num_ranges == 1 else _numbers(ranges)
    ids = _matching_ids(files, dtype, read, op, value)
    return ids if len(ids) <= limit else None


def _possible(pages: Pages, op: str, value: Any) -> _Flags:
    """Return which pages may have values for which a comparison holds."""
    low, high = _lower_bounds(pages.low), pages.high
    if op in ("!=", "not_in"):
        return (pages.nulls < np.diff(pages.bounds)) & _has_others(low, high, op, value)
    has_values: _Flags = pages.nulls < np.diff(pages.bounds)
    if op == "in":
        return has_values & _pages_with(low, high, value)
    possible = has_values
    for bound_op, bound in value:
        if bound_op in ("==", "<", "<="):
            possible = possible & filled(holds(low, "<" if bound_op == "<" else "<=", bound))
        if bound_op in ("==", ">", ">="):
            reaches = filled(holds(high, ">" if bound_op == ">" else ">=", bound))
            if pat.is_floating(low.type) and bound_op != "==":
                # The page may begin with a NaN, which is greater than all other values.
                reaches = reaches | ~filled(holds(low, "<=", bound), unknown=False)
            possible = possible & reaches
    return possible


def _has_others(low: pa.Array, high: pa.Array, op: str, value: Any) -> _Flags:
    """Return which pages may have values for which ``!=`` or ``not_in`` holds."""
    import pyarrow.compute as pc

    has_others: _Flags = filled(matching(low, op, value))
    if pat.is_float16(low.type):
        low, high = low.cast(pa.float32()), high.cast(pa.float32())
    return has_others | ~filled(pc.equal(low, high), unknown=False)


def _lower_bounds(low: pa.Array) -> pa.Array:
    """Return the least value of each page; null for pages that begin with null or NaN."""
    if not pat.is_floating(low.type):
        return low
    import pyarrow.compute as pc

    return pc.if_else(pc.is_nan(low), pa.scalar(None, low.type), low)


def _pages_with(low: pa.Array, high: pa.Array, values: pa.Array) -> _Flags:
    """Return which pages may have one of some values: all between the least and the greatest."""
    import pyarrow.compute as pc

    # Ranks in the order of all bounds and values. Both zeros have the same rank.
    count = len(low)
    ranks = pc.rank(pa.concat_arrays([low, high, values]), tiebreaker="dense").to_numpy()
    # Unknown lower bounds have the greatest rank.
    first = np.where(low.is_null().to_numpy(zero_copy_only=False), 0, ranks[:count])
    last, wanted = ranks[count : 2 * count], np.sort(ranks[2 * count :])
    found: _Flags = np.searchsorted(wanted, last, "right") > np.searchsorted(wanted, first, "left")
    return found


def _matching_ids(
    files: IndexFiles, dtype: pa.DataType, rows: Rows, op: str, value: Any
) -> UInt64Array:

    with closing(files.open(DATA_FILE)) as data:
        fields = [named(data, VALUES, dtype), ids_field(data)]
        values, ids = data.read(fields, rows)
        name = data.source.name
    return _checked(ids.filter(matching(values, op, value).fill_null(False)), name)


def _ids(files: IndexFiles, rows: range) -> UInt64Array:
    if not rows:
        return np.empty(0, np.uint64)
    with closing(files.open(DATA_FILE)) as data:
        (ids,) = data.read([ids_field(data)], rows)
        return _checked(ids, data.source.name)


def _checked(ids: pa.Array, name: str) -> UInt64Array:
    if ids.null_count:
        raise CorruptFileError(f"{name}: {IDS} must not be null; rebuild the index")
    words: UInt64Array = ids.to_numpy()
    return words


def _numbers(ranges: RowRanges) -> RowNumbers:
    return np.concatenate([np.arange(rows.start, rows.stop) for rows in ranges])
