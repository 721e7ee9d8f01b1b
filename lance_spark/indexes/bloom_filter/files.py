"""BLOOMFILTER indexes: a Bloom filter of the values of each zone, and the search in it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers, RowRanges
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.bloom_filter.blocks import (
    BLOCK_BYTES,
    BLOCK_WORDS,
    add_values,
    block_of,
    hashes,
    masks_of,
)
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.files import INDEX_ERRORS, IndexFiles, SegmentWriter, named, read_columns
from lance_spark.indexes.order import typed, with_both_zeros
from lance_spark.indexes.search import ZoneSearch
from lance_spark.indexes.table_rows import value_fields
from lance_spark.indexes.zones import (
    PLACE_COLUMNS,
    PLACE_FIELDS,
    PlacedZones,
    ZonedRows,
    ZonePlacer,
    add_null_bitmap,
    with_integers,
)
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# BLOOMFILTER indexes: a Bloom filter of the values of each zone.
#
# The only file, `bloomfilter.lance`, has a row for each zone:
#
# | column | content |
# | --- | --- |
# | fragment_id, zone_start, zone_length | see `zones` |
# | has_null | bool |
# | bloom_filter_data | binary; the filter |
#
# No column is null. The schema metadata `bloomfilter_item` is the number of live rows of a zone,
# and `bloomfilter_probability` the share of other values that a filter seems to have. `VALUE_TYPE`
# is the Arrow type of the values, which only this package writes. Indexes of JSON documents need
# it: a value has other bytes in each type.
#
# A filter is a split block Bloom filter (`split_blocks`), whose size is a power of two of bytes.
# Nulls set no bits. The bytes of a value are hashed (`xxhash`) as Arrow has them. So both zeros are
# values of their own.
#
# Specification: table/index/scalar/bloom_filter.md.

FILE = "bloomfilter.lance"
HAS_NULL, FILTER = "has_null", "bloom_filter_data"
VALUE_TYPE = "lance_spark:value_type"
SCHEMA = pa.schema(
    [
        *PLACE_FIELDS,
        pa.field(HAS_NULL, pa.bool_(), nullable=False),
        pa.field(FILTER, pa.binary(), nullable=False),
    ]
)
DEFAULT_PROBABILITY = 0.00057
_SUPPORTED = (
    pat.is_integer,
    pat.is_float32,
    pat.is_float64,
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_date,
    pat.is_time,
    pat.is_timestamp,
)
_MIN_BYTES, _MAX_BYTES = BLOCK_BYTES, 128 * 1024 * 1024
#: Values of a block that set nearly all of its bits.
_FULL_BLOCK = 1024
#: Bytes of filters that are made, or read, at once, unless one filter is larger.
_BATCH_BYTES = 1024 * 1024
_WINDOW_BYTES = 16 * 1024 * 1024
#: Filters of a file up to this size are kept with its zones.
_KEPT_BYTES = 8 * 1024 * 1024
#: Values that are added to filters at once.
_HASHED_VALUES = 1 << 18
#: Blocks that are compared at once.
_COMPARED_BLOCKS = 1 << 18

_Flags = npt.NDArray[np.bool_]


def supports(dtype: pa.DataType) -> bool:
    """Return whether values of a type can be hashed."""
    return any(test(dtype) for test in _SUPPORTED)


def filter_bytes(number_of_items: int, probability: float) -> int:
    """Return the size of a filter: the least with the probability, as pylance computes it.

    Specification: Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters".

    - `number_of_items`: Most values.
    - `probability`: Share of other values that the filter seems to have, at most.
    """
    size = _MIN_BYTES
    while size < _MAX_BYTES and _false_share(number_of_items, size) > probability:
        size *= 2
    return size


def _false_share(number_of_items: int, size: int) -> float:
    """Return the expected share of other values that a filter of some bytes seems to have."""
    mean = number_of_items * BLOCK_BYTES / size
    if mean > _FULL_BLOCK:
        return 1.0
    # The number of values in a block has a Poisson distribution.
    count = np.arange(int(mean + 12 * math.sqrt(mean)) + 50)
    log_factorials = np.cumsum(np.log(np.maximum(count, 1)))
    chance = np.exp(count * math.log(mean) - mean - log_factorials)
    is_set = 1 - (1 - 1 / 32) ** count
    return float((chance * is_set**BLOCK_WORDS).sum())


def write(
    segment: SegmentWriter,
    values: pa.Array,
    addresses: UInt64Array,
    number_of_items: int,
    probability: float,
) -> None:
    """Write the file of an index.

    - `addresses` (uint64 array): Row address of each value, increasing.
    - `number_of_items`: Live rows of a zone.
    - `probability`: See `filter_bytes`.
    """
    zones = ZonedRows.of(addresses, number_of_items)
    size = filter_bytes(number_of_items, probability)
    writer = segment.create(FILE, SCHEMA)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    has_null = pa.array(zones.counts(is_null) > 0)
    columns = [*zones.place_columns(), has_null]
    batch_zones = max(_BATCH_BYTES // size, 1)
    for first in range(0, zones.num_zones, batch_zones):
        bounds = zones.bounds[first : first + batch_zones + 1]
        filters = _filters_of(values.slice(bounds[0], bounds[-1] - bounds[0]), bounds, size)
        batch = [column.slice(first, len(filters)) for column in columns]
        writer.write(pa.RecordBatch.from_arrays([*batch, filters], schema=SCHEMA))
    set_parameters(writer, number_of_items, probability)
    writer.set_metadata(VALUE_TYPE, str(values.type))
    add_null_bitmap(writer, values, addresses)


def set_parameters(writer: FileWriter, number_of_items: int, probability: float) -> None:
    """Write the metadata of the file."""
    writer.set_metadata("bloomfilter_item", str(number_of_items))
    # Without an exponent, as other clients write it.
    text = np.format_float_positional(probability, trim="-")
    writer.set_metadata("bloomfilter_probability", text)


def _filters_of(values: pa.Array, bounds: RowNumbers, size: int) -> pa.Array:
    """Return the filters of some zones.

    - `values`: The values of all zones.
    - `bounds` (int64 array): First row of each zone, and the row after the last zone, counted from
      any row.
    - `size`: Bytes of each filter.
    """
    count = len(bounds) - 1
    zone = np.repeat(np.arange(count), np.diff(bounds))
    if values.null_count:
        zone = zone[values.is_valid().to_numpy(zero_copy_only=False)]
        values = values.drop_null()
    num_blocks = size // BLOCK_BYTES
    words = np.zeros((count * num_blocks, BLOCK_WORDS), np.uint32)
    for start in range(0, len(values), _HASHED_VALUES):
        value_hashes = hashes(values.slice(start, _HASHED_VALUES))
        blocks = block_of(value_hashes, np.uint64(num_blocks)).astype(np.int64)
        blocks += zone[start : start + _HASHED_VALUES] * num_blocks
        add_values(words, value_hashes, blocks)
    offsets = np.arange(count + 1, dtype=np.int32) * size
    data = words.astype("<u4", copy=False)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


@dataclass(frozen=True, slots=True)
class FilterFile:
    """The zones of an index, and their filters if they are few.

    - `zones`: The columns of the file without the filters.
    - `filter_size`: Bytes of the first filter.
    - `filters`: None if they are read when they are needed.
    - `value_type`: The Arrow type of the values, if the file says it.
    """

    zones: pa.Table
    filter_size: int
    filters: pa.Array | None
    value_type: str | None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        filters = 0 if self.filters is None else self.filters.nbytes
        return int(self.zones.nbytes + filters)


def cached_file(files: IndexFiles) -> FilterFile | None:
    """Return the content of a segment's file; None if the file is missing.

    Raises CorruptFileError, StorageError.
    """
    return files.cached(FILE, read_file, lambda content: content.nbytes)


def read_file(files: IndexFiles) -> FilterFile:
    """Return the content of a segment's file.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with closing(files.open(FILE)) as file:
        places = dict.fromkeys(PLACE_COLUMNS)
        zones = pa.Table.from_batches([read_columns(file, {**places, HAS_NULL: pa.bool_()})])
        if zones[HAS_NULL].null_count:
            raise CorruptFileError(
                f"{file.source.name}: {HAS_NULL} must not be null; rebuild the index"
            )
        zones = with_integers(zones, PLACE_COLUMNS, file.source.name)
        text = file.schema.metadata.get(VALUE_TYPE)
        value_type = None if text is None else text[:40].decode(errors="replace")
        num_zones = len(all_rows(file))
        first = _read_filters(file, np.arange(min(num_zones, 1)))
        size = first.nbytes if num_zones else _MIN_BYTES
        if num_zones * size > _KEPT_BYTES:
            return FilterFile(zones, size, None, value_type)
        return FilterFile(zones, size, _read_filters(file, np.arange(num_zones)), value_type)


def _read_filters(file: DataFileReader, rows: RowNumbers) -> pa.Array:
    (filters,) = file.read([named(file, FILTER, pa.binary())], rows)
    sizes = np.diff(_offsets_of(filters))
    is_power = (sizes & (sizes - 1)) == 0
    if filters.null_count or not (is_power & (sizes >= _MIN_BYTES) & (sizes <= _MAX_BYTES)).all():
        raise CorruptFileError(
            f"{file.source.name}: a Bloom filter must not be null, and its size must be a power of "
            f"two from {_MIN_BYTES} to {_MAX_BYTES} bytes; rebuild the index"
        )
    return filters


def _offsets_of(filters: pa.Array) -> RowNumbers:
    offsets = np.frombuffer(filters.buffers()[1], np.int32)
    return offsets[filters.offset : filters.offset + len(filters) + 1].astype(np.int64)


def may_have(files: IndexFiles, content: FilterFile, rows: RowNumbers, values: pa.Array) -> _Flags:
    """Return which zones may have one of some values.

    - `content`: The content of the file.
    - `rows` (int64 array): Rows of the zones in the file, increasing.
    - `values`: Without nulls; of the type of the column.

    Raises CorruptFileError, StorageError.
    """
    value_hashes = hashes(values)
    parts = [_may_have(filters, value_hashes) for filters in _windows(files, content, rows)]
    return np.concatenate([np.zeros(0, np.bool_), *parts])


def has_each(files: IndexFiles, content: FilterFile, zone: RowNumbers, values: pa.Array) -> _Flags:
    """Return for each value whether the filter of its zone has it.

    - `content`: The content of the file.
    - `zone` (int64 array): Row of each value's zone in the file, not decreasing.
    - `values`: Without nulls; of the type of the column.

    Raises CorruptFileError, StorageError.
    """
    result = np.zeros(len(values), np.bool_)
    rows, first = np.unique(zone, return_index=True)
    bounds = np.append(first, len(zone))
    first_filter = 0
    for filters in _windows(files, content, rows):
        words, starts, num_blocks = _words_of(filters)
        stop = first_filter + len(filters)
        for start in range(bounds[first_filter], bounds[stop], _HASHED_VALUES):
            part = slice(start, min(start + _HASHED_VALUES, bounds[stop]))
            value_hashes = hashes(values[part])
            number = np.searchsorted(rows[first_filter:stop], zone[part])
            blocks = starts[number] + block_of(value_hashes, num_blocks[number]).astype(np.int64)
            masks = masks_of(value_hashes)
            result[part] = ((words[blocks] & masks) == masks).all(axis=1)
        first_filter = stop
    return result


def _windows(files: IndexFiles, content: FilterFile, rows: RowNumbers) -> Iterator[pa.Array]:
    filters = content.filters
    if filters is not None:
        yield filters if len(rows) == len(filters) else filters.take(pa.array(rows))
        return
    count = max(_WINDOW_BYTES // content.filter_size, 1)
    with closing(files.open(FILE)) as file:
        for start in range(0, len(rows), count):
            yield _read_filters(file, rows[start : start + count])


def _may_have(filters: pa.Array, value_hashes: UInt64Array) -> _Flags:
    words, starts, num_blocks = _words_of(filters)
    first, num_blocks = starts[:, None], num_blocks[:, None]
    masks = masks_of(value_hashes)
    possible = np.zeros(len(filters), np.bool_)
    count = max(_COMPARED_BLOCKS // max(len(filters), 1), 1)
    for start in range(0, len(value_hashes), count):
        part = slice(start, start + count)
        blocks = first + block_of(value_hashes[part], num_blocks).astype(np.int64)
        possible |= ((words[blocks] & masks[part]) == masks[part]).all(axis=2).any(axis=1)
    return possible


def _words_of(filters: pa.Array) -> tuple[npt.NDArray[np.uint32], RowNumbers, UInt64Array]:
    """Return the blocks of filters, and the first block and the number of blocks of each."""
    offsets = _offsets_of(filters)
    data = np.frombuffer(filters.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    words = data.view("<u4").reshape(-1, BLOCK_WORDS)
    starts = (offsets[:-1] - offsets[0]) // BLOCK_BYTES
    return words, starts, (np.diff(offsets) // BLOCK_BYTES).astype(np.uint64)


# --------------------------------------------------------------------------------------------------
# The zones of a table that may have certain values, by a BLOOMFILTER index.
#
# `lance_spark.indexes.zones` says which rows of the table a zone has.
#
# Nulls are found by `has_null` of each zone. The null bitmap of the index is not used: after a
# compaction that kept the addresses in the index, pylance merges null bitmaps with old addresses.
# Zones with old addresses do not have all live rows of a fragment, so that they are ignored.

_LOG = logging.getLogger(__name__)

OPS = frozenset({"==", "in", "is_null"})
#: A set of more values is not looked up: most zones seem to have one of them.
_MAX_VALUES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class ZoneFilters:
    """Bloom filters of one column by zone. The zones together hold all rows of the table.

    - `dtype`: Type of the column.
    - `placed`: Its columns `segment` and `row` say which row of which file has the filter.
    - `files` (list of (IndexFiles, FilterFile)): By the number of the segment.
    """

    dtype: pa.DataType
    placed: PlacedZones
    files: list[tuple[IndexFiles, FilterFile]]

    def candidates(self, op: str, value: Any) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if unknown."""
        if op == "is_null":
            possible = self._column(HAS_NULL, True).astype(np.bool_)
        elif op in ("==", "in"):
            values = _values(op, value, self.dtype)
            if values is None or len(values) > _MAX_VALUES:
                return None
            possible = self._may_have(values)
        else:
            return None
        return RowRanges.of_blocks(self.placed.bounds, possible)

    def _may_have(self, values: pa.Array) -> _Flags:
        possible = np.ones(len(self.placed.is_zone), np.bool_)
        segment, row = self._column("segment", -1), self._column("row", -1)
        for number, (files, content) in enumerate(self.files):
            parts = np.flatnonzero(segment == number)
            parts = parts[np.argsort(row[parts])]
            try:
                possible[parts] = may_have(files, content, row[parts], values)
            except INDEX_ERRORS as error:
                _LOG.warning("index %r is ignored: %s", files.segment.name, error)
        return possible

    def _column(self, name: str, default: int | bool) -> RowNumbers:
        """Return a column of the zones; `default` for fragments without zones."""
        column: RowNumbers = self.placed.columns[name].fill_null(default).to_numpy()
        return column


def read_filters(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    starts: RowNumbers,
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
) -> ZoneFilters | None:
    """Return the Bloom filters of a column; see `search.ReadZonesOfColumn`."""
    dtype = path[-1].arrow_field.type
    if not supports(dtype):
        return None
    sources: list[tuple[IndexFiles, FilterFile]] = []

    def read(segment: table_pb2.IndexMetadata) -> pa.Table | None:
        files = IndexFiles(paths, segment)
        content = cached_file(files)
        if content is None:
            return None
        zones = content.zones
        number = pa.array(np.full(len(zones), len(sources)))
        sources.append((files, content))
        return zones.append_column("segment", number).append_column(
            "row", pa.array(np.arange(len(zones)))
        )

    placer = ZonePlacer(paths, fragments, starts, value_fields(path))
    placed = placer.place(segments, read)
    return None if placed is None else ZoneFilters(dtype, placed, sources)


def has_values_of(files: IndexFiles, dtype: pa.DataType) -> bool:
    """Return whether the file of a segment says that its values have a type.

    Raises CorruptFileError, StorageError.
    """
    content = cached_file(files)
    return content is not None and content.value_type == str(dtype)


def _values(op: str, value: Any, dtype: pa.DataType) -> pa.Array | None:
    """Return the values of a comparison; None if one is not of the column's type, or is NaN."""
    sides = typed(op, value, dtype)
    if sides is None or isinstance(sides, pa.Array):
        return sides
    return with_both_zeros(pa.array([bound.value for bound in sides], dtype))


SEARCH = ZoneSearch(OPS, read_filters, has_values_of)
