"""Searches in BTREE indexes, and the minimum, maximum and null count of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import NO_ROWS, RowRanges, Rows, distinct, in_any
from lance_spark.errors import CorruptFileError, MissingFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.indexes.btree.files import (
    DATA_FILE,
    IDS,
    VALUES,
    BTreePages,
    DataParts,
    cached_pages,
    ids_field,
    open_data,
)
from lance_spark.indexes.files import IndexFiles, named
from lance_spark.indexes.order import filled, holds, matching, typed
from lance_spark.indexes.row_sets import Answer, TooMany, limited
from lance_spark.indexes.search import Bounds, IndexSearch, min_max
from lance_spark.proto import table_pb2
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Searches in BTREE indexes.
#
# The pages that may have matching values come from `page_lookup.lance`, which is cached. Of these
# pages the values are compared, and the ids of matching rows returned.

OPS = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "between", "in", "not_in", "is_null", "is_not_null"}
)
#: Most rows of the index that a search reads.
_MAX_READ = 8 * 1024 * 1024
#: A search in at most as many pages keeps them in the cache.
_FEW_PAGES = 4
#: A search for many values reads one row in this number of each range, and repeats this with the
#: blocks that may have a value, down to blocks of some rows or few rows in all.
_DIVISION = 16
_LEAST_BLOCK = 16
_FEW_ROWS = 16 * 1024

_Flags = npt.NDArray[np.bool_]


def search(files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int) -> Answer:
    """Return the row ids for which a comparison holds; see `search.Search`."""
    pages = cached_pages(files)
    if pages is None or pages.low.type != dtype:
        return None
    if op in ("is_null", "is_not_null"):
        nulls = int(pages.nulls.sum())
        of_op = range(nulls) if op == "is_null" else range(nulls, pages.num_rows)
        return _ids(files, pages, of_op) if len(of_op) <= limit else TooMany(len(of_op))
    value = typed(op, value, dtype)
    if value is None:
        return None
    possible = _possible(pages, op, value)
    if int(np.count_nonzero(possible)) <= _FEW_PAGES:
        # Few pages are compared, also those of which all values match.
        full = np.zeros(len(possible), np.bool_)
    else:
        full = _full(pages, op, value)
    in_full = int(np.diff(pages.bounds)[full].sum())
    if op != "in" and in_full > limit:
        page = int(np.flatnonzero(full)[0])
        return TooMany(in_full, _ids(files, pages, range(*pages.bounds[page : page + 2].tolist())))
    edges = np.flatnonzero(possible & ~full)
    if len(edges) <= _FEW_PAGES:
        parts = [_of_page(files, pages, number, op, value) for number in edges.tolist()]
    else:
        rows = RowRanges.of_blocks(pages.bounds, possible & ~full)
        # The first and the last page of a range may have few matching rows.
        in_edges = 2 * int(np.diff(pages.bounds).max(initial=0)) * rows.num_ranges
        if op != "in" and rows.num_rows > min(limit + in_edges, _MAX_READ):
            return TooMany(rows.num_rows - in_edges)
        ids = _matching_ids(files, pages, rows, op, value)
        if ids is None:
            return None
        parts = [ids]
    for rows_of_pages in RowRanges.of_blocks(pages.bounds, full):
        parts.append(_ids(files, pages, rows_of_pages))
    return limited(np.concatenate([np.empty(0, np.uint64), *parts]), limit)


def _possible(pages: BTreePages, op: str, value: Any) -> _Flags:
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


def _full(pages: BTreePages, op: str, value: Any) -> _Flags:
    """Return which pages have only values for which a comparison holds."""
    full: _Flags = pages.nulls == 0
    if op in ("in", "!=", "not_in") or pat.is_floating(pages.low.type):
        return np.zeros_like(full)
    for bound_op, bound in value:
        for side in (pages.low, pages.high):
            full = full & filled(holds(side, bound_op, bound), unknown=False)
    return full


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
    last, value_ranks = ranks[count : 2 * count], np.sort(ranks[2 * count :])
    flags: _Flags = np.searchsorted(value_ranks, last, "right") > np.searchsorted(
        value_ranks, first, "left"
    )
    return flags


def _of_page(files: IndexFiles, pages: BTreePages, number: int, op: str, value: Any) -> UInt64Array:
    """Return the ids of a page for whose values a comparison holds."""
    values, ids = page_of(files, pages, number)
    return ids[filled(matching(values, op, value), unknown=False)]


def page_of(files: IndexFiles, pages: BTreePages, number: int) -> tuple[pa.Array, UInt64Array]:
    """Return the values and the ids of a page, from the cache if possible."""
    dtype, rows = pages.low.type, range(*pages.bounds[number : number + 2].tolist())

    def read(_: IndexFiles) -> tuple[pa.Array, UInt64Array]:
        with open_data(files, pages.files) as data:
            fields = [named(data, VALUES, dtype), ids_field(data)]
            if isinstance(data, FileReader):
                # Otherwise the tables of chunks are read first, and then the rows.
                data.expect(fields, rows)
            values, ids = data.read(fields, rows)
            return values, _checked(ids, data.source.name)

    name = pages.files[0]
    page = files.cached(name, read, lambda page: int(page[0].nbytes + page[1].nbytes), number)
    if page is None:
        raise MissingFileError(f"index {files.segment.name!r}: {name} is missing")
    return page


def _matching_ids(
    files: IndexFiles, pages: BTreePages, rows: RowRanges, op: str, value: Any
) -> UInt64Array | None:
    """Return the ids of some rows for whose values a comparison holds; None if they are many."""
    with open_data(files, pages.files) as data:
        field = named(data, VALUES, pages.low.type)
        if op == "in":
            rows = _narrowed(data, field, rows, value)
        if rows.num_rows > _MAX_READ:
            return None
        numbers: Rows = next(iter(rows)) if rows.num_ranges == 1 else rows.numbers()
        (values,) = data.read([field], numbers)
        places = np.flatnonzero(filled(matching(values, op, value), unknown=False))
        matches = places + rows.starts[0] if isinstance(numbers, range) else numbers[places]
        (ids,) = data.read([ids_field(data)], matches)
        return _checked(ids, data.source.name)


def _narrowed(
    data: DataFileReader | DataParts, field: Field, rows: RowRanges, values: pa.Array
) -> RowRanges:
    """Return the rows that may have one of some values, by reading a part of the rows.

    Each step divides the ranges into blocks, and compares the first value of a block and of the
    next with the values.
    """
    step = int((rows.stops - rows.starts).min())
    while rows.num_rows > _FEW_ROWS and step > _LEAST_BLOCK:
        step = max(step // _DIVISION, _LEAST_BLOCK)
        counts = -((rows.starts - rows.stops) // step)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        firsts = np.repeat(rows.starts, counts) + step * numbers
        stops = np.minimum(firsts + step, np.repeat(rows.stops, counts))
        # A block ends before the first row of the next, or with the last row of its range.
        lasts = np.where(stops == np.repeat(rows.stops, counts), stops - 1, stops)
        read = distinct(np.concatenate([firsts, lasts]))
        (bounds,) = data.read([field], read)
        low, high = (bounds.take(pa.array(np.searchsorted(read, part))) for part in (firsts, lasts))
        has_values = high.is_valid().to_numpy(zero_copy_only=False)
        chosen = has_values & _pages_with(_lower_bounds(low), high, values)
        rows = in_any([RowRanges(firsts[chosen], stops[chosen])]) or NO_ROWS
    return rows


def _ids(files: IndexFiles, pages: BTreePages, rows: range) -> UInt64Array:
    if not rows:
        return np.empty(0, np.uint64)
    with open_data(files, pages.files) as data:
        (ids,) = data.read([ids_field(data)], rows)
        return _checked(ids, data.source.name)


def _checked(ids: pa.Array, name: str) -> UInt64Array:
    if ids.null_count:
        raise CorruptFileError(f"{name}: {IDS} must not be null; rebuild the index")
    row_keys: UInt64Array = ids.to_numpy()
    return row_keys


def prewarm(files: IndexFiles) -> None:
    """Read all pages of a segment into the cache."""
    pages = cached_pages(files)
    if pages is None:
        return
    for number in range(len(pages.low)):
        page_of(files, pages, number)


SEARCH = IndexSearch(OPS, search, is_exact=True)


# --------------------------------------------------------------------------------------------------
# The minimum, maximum and null count of the rows in a BTREE index.
#
# They come from the pages of the index (`lance_spark.indexes.btree.files`). The first value of a
# page is not its minimum if nulls and values share the page, or if it is a NaN of negative sign.
# The values of such a page are read.

#: Most rows that are read of pages whose first value is not their minimum.
_MAX_ROWS = 1 << 18


def read_bounds(paths: TablePaths, index: table_pb2.IndexMetadata) -> Bounds | None:
    """Return the statistics of a segment; None if this release does not know its layout.

    Raises CorruptTableError, CorruptFileError, StorageError.
    """
    return IndexFiles(paths, index).cached(DATA_FILE, _read, _size)


def _read(files: IndexFiles) -> Bounds | None:
    pages = cached_pages(files)
    if pages is None:
        return None
    low, high, rows = pages.low, pages.high, np.diff(pages.bounds)
    # Pages that have values, but whose first value is null or a NaN of negative sign.
    is_null = low.is_null().to_numpy(zero_copy_only=False)
    mixed = np.flatnonzero(is_null & (pages.nulls < rows) | _is_negative_nan(low))
    if rows[mixed].sum() > _MAX_ROWS:
        return None
    arrays = [low, high]
    if len(mixed):
        with open_data(files, pages.files) as data:
            values = named(data, VALUES, low.type)
            for index in mixed.tolist():
                arrays += data.read([values], range(*pages.bounds[index : index + 2].tolist()))
    bounds = min_max(pa.chunked_array(arrays, low.type))
    if bounds is None:
        return None
    return Bounds(pages.num_rows, int(pages.nulls.sum()), *bounds)


def _is_negative_nan(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not pat.is_floating(values.type):
        return np.zeros(len(values), np.bool_)
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    is_negative: npt.NDArray[np.bool_] = np.isnan(numbers) & np.signbit(numbers)
    return is_negative


def _size(bounds: Bounds | None) -> int:
    if bounds is None:
        return 64
    arrays = [pa.array([value], value.type) for value in (bounds.minimum, bounds.maximum)]
    return 256 + sum(int(array.nbytes) for array in arrays)
