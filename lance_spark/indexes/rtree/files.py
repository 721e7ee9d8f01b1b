"""RTREE indexes: the bounding boxes of geometries, in pages of boxes that are near to one another.

`page_data.lance` has a row for each geometry that is not null and not empty, then a row for each of
these pages, then a row for each page of pages, and so on, up to the page that is the last:

| column | content |
| --- | --- |
| bbox | struct of xmin, ymin, xmax, ymax: double |
| id | u64; row id of the geometry, or number of the page |

The rows of the first level follow the Hilbert curve through the centres of the boxes. Pages are
numbered through all levels. The last page of a level may have fewer rows than the others.

| schema metadata | |
| --- | --- |
| page_size | rows of a page |
| num_items | rows of the first level |
| num_pages | pages of all levels |
| bbox | JSON of all boxes' box: minx, miny, maxx, maxy |

`nulls.lance` has one row with the rows whose geometry is null: `nulls`, a row address map
(`row_sets`). A search reads the second level, and the pages of the first level whose boxes
intersect.

Specification: table/index/scalar/rtree.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers, RowRanges
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named, number_in
from lance_spark.indexes.row_sets import Answer, RowSet, TooMany, limited
from lance_spark.indexes.search import IndexSearch
from lance_spark.spatial.geometries import Boxes
from lance_spark.table.rows.u64_segments import UInt64Array

FILE, NULLS_FILE = "page_data.lance", "nulls.lance"
BBOX, IDS, NULLS = "bbox", "id", "nulls"
OPS = frozenset({"intersects", "is_null"})
DEFAULT_PAGE_SIZE = 4096
MIN_PAGE_SIZE = 2
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_BBOX_TYPE = pa.struct([pa.field(name, pa.float64(), nullable=False) for name in _CORNERS])
_SCHEMA = pa.schema(
    [
        pa.field(BBOX, _BBOX_TYPE, False, metadata={"ARROW:extension:name": "geoarrow.box"}),
        pa.field(IDS, pa.uint64(), nullable=False),
    ]
)
_NULLS_SCHEMA = pa.schema([pa.field(NULLS, pa.binary(), nullable=False)])
_MAX_PAGE_SIZE = 1 << 24
#: Rows that are read or written at once.
_BATCH_ROWS = 1 << 18
#: Bits of a coordinate on the Hilbert curve.
_BITS = 16
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class RTreePages:
    """The pages of the first level.

    - `boxes`: The box of each page.
    - `bounds` (int64 array): First row of each page, and the number of rows.
    """

    boxes: Boxes
    bounds: RowNumbers

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.bounds.nbytes + sum(side.nbytes for side in self.boxes))


def search(files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int) -> Answer:
    """Return the row ids of geometries whose boxes intersect a box; see `search.Search`."""
    if op == "is_null":
        nulls = files.cached(NULLS_FILE, read_nulls, lambda rows: len(rows.encode()))
        return None if nulls is None else limited(nulls.row_keys(), limit)
    pages = cached_pages(files)
    if pages is None:
        return None
    box = pages.boxes
    possible = box.intersect(value)
    inside = possible & (box.xmin >= value.xmin) & (box.xmax <= value.xmax)
    inside &= (box.ymin >= value.ymin) & (box.ymax <= value.ymax)
    num_inside = int(np.diff(pages.bounds)[inside].sum())
    if num_inside > limit:
        return TooMany(num_inside)
    parts, count = [np.empty(0, np.uint64)], 0
    numbers = np.flatnonzero(possible)
    step = max(_BATCH_ROWS // max(int(np.diff(pages.bounds).max(initial=1)), 1), 1)
    for start in range(0, len(numbers), step):
        for boxes, ids in _cached_rows(files, pages, numbers[start : start + step]):
            parts.append(ids[boxes.intersect(value)])
            count += len(parts[-1])
        if count > limit:
            return TooMany(max(count, num_inside))
    return np.concatenate(parts)


def _cached_rows(
    files: IndexFiles, pages: RTreePages, numbers: RowNumbers
) -> list[tuple[Boxes, UInt64Array]]:
    """Return the boxes and ids of some pages of the first level."""

    def read(wanted: Sequence[int]) -> list[tuple[Boxes, UInt64Array]]:
        chosen = np.zeros(len(pages.bounds) - 1, np.bool_)
        chosen[list(wanted)] = True
        found = {}
        with closing(files.open(FILE)) as file:
            for rows in RowRanges.of_blocks(pages.bounds, chosen):
                boxes, ids = read_rows(file, rows)
                first, stop = np.searchsorted(pages.bounds, [rows.start, rows.stop])
                for number in range(int(first), int(stop)):
                    edges = pages.bounds[number : number + 2] - rows.start
                    part = slice(*edges.tolist())
                    sides = Boxes(*(side[part].copy() for side in boxes))
                    found[number] = sides, ids[part].copy()
        return [found[number] for number in wanted]

    return files.cached_parts(FILE, numbers.tolist(), read, lambda page: 5 * int(page[1].nbytes))


def page_size_of(file: DataFileReader) -> int:
    """Return the rows of a page.

    Raises CorruptFileError.
    """
    size = number_in(file, "page_size", DEFAULT_PAGE_SIZE)
    if not MIN_PAGE_SIZE <= size <= _MAX_PAGE_SIZE:
        raise CorruptFileError(
            f"{file.source.name}: page_size={size}, but a page has {MIN_PAGE_SIZE} to "
            f"{_MAX_PAGE_SIZE} rows; rebuild the index"
        )
    return size


def levels_of(file: DataFileReader) -> list[RowNumbers]:
    """Return the first row of each page, and the row after the last, for each level.

    Raises CorruptFileError: the pages do not match the rows of the file.
    """
    size, items = page_size_of(file), number_in(file, "num_items")
    num_rows, levels, start = len(all_rows(file)), [], 0
    while items and start + items <= num_rows:
        levels.append(np.append(np.arange(start, start + items, size), start + items))
        start += items
        items = -(-items // size) if items > size else 0
    if items or start != num_rows:
        raise CorruptFileError(
            f"{file.source.name}: {num_rows} rows do not match num_items and page_size; rebuild "
            "the index"
        )
    return levels


def cached_pages(files: IndexFiles) -> RTreePages | None:
    """Return the pages of a segment; None if the file is missing."""
    return files.cached(FILE, read_pages, lambda pages: pages.nbytes)


def read_pages(files: IndexFiles) -> RTreePages:
    """Return the pages of the first level of a segment.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with closing(files.open(FILE)) as file:
        levels = levels_of(file)
        if not levels:
            return RTreePages(Boxes(*np.empty((4, 0))), np.zeros(1, np.int64))
        bounds = levels[0]
        if len(levels) == 1:
            # The only page has no row that describes it.
            everywhere = Boxes(*np.array([[-np.inf], [-np.inf], [np.inf], [np.inf]]))
            return RTreePages(everywhere, bounds)
        boxes, numbers = read_rows(file, range(int(levels[1][0]), int(levels[1][-1])))
        if not np.array_equal(numbers, np.arange(len(bounds) - 1)):
            raise CorruptFileError(
                f"{file.source.name}: the pages of the second level are not those of the first; "
                "rebuild the index"
            )
    return RTreePages(boxes, bounds)


def read_rows(file: DataFileReader, rows: range) -> tuple[Boxes, UInt64Array]:
    """Return the boxes and ids of some rows of `page_data.lance`.

    Raises CorruptFileError, StorageError.
    """
    boxes, ids = file.read([named(file, BBOX), named(file, IDS, pa.uint64())], rows)
    boxes = boxes.storage if isinstance(boxes.type, pa.BaseExtensionType) else boxes
    if (
        not pa.types.is_struct(boxes.type)
        or [(child.name, child.type) for child in boxes.type]
        != [(name, pa.float64()) for name in _CORNERS]
        or boxes.null_count
        or ids.null_count
        or any(side.null_count for side in boxes.flatten())
    ):
        raise CorruptFileError(
            f"{file.source.name}: {BBOX} must be boxes, and {BBOX} and {IDS} not null; rebuild the "
            "index"
        )
    return Boxes(*(side.to_numpy() for side in boxes.flatten())), ids.to_numpy()


def read_nulls(files: IndexFiles) -> RowSet:
    """Return the rows of a segment whose geometry is null.

    Raises CorruptFileError, UnsupportedFeatureError, MissingFileError, StorageError.
    """
    with closing(files.open(NULLS_FILE)) as file:
        name = file.source.name
        if file.num_rows != 1:
            raise CorruptFileError(f"{name}: {file.num_rows} rows, not one; rebuild the index")
        (data,) = file.read([named(file, NULLS, pa.binary())], range(1))
    if data.null_count:
        raise CorruptFileError(f"{name}: {NULLS} must not be null; rebuild the index")
    return RowSet.decode(data[0].as_py(), name)


def write(
    segment: SegmentWriter, boxes: Boxes, ids: UInt64Array, null_rows: RowSet, page_size: int
) -> None:
    """Write the files of an index.

    - `boxes`: The bounding box of each geometry that has a point. They can be on the disk: a part
      of them is read at a time.
    - `ids` (uint64 array): Row id or address of each geometry.
    - `null_rows`: The rows without a geometry.
    - `page_size`: Rows of a page.
    """
    nulls = segment.create(NULLS_FILE, _NULLS_SCHEMA)
    data = pa.array([null_rows.encode()], pa.binary())
    nulls.write(pa.RecordBatch.from_arrays([data], schema=_NULLS_SCHEMA))
    order = _hilbert_order(boxes)
    writer = segment.create(FILE, _SCHEMA)
    pages = _write_rows(writer, boxes, ids, order, page_size)
    total = union(pages, np.zeros(min(len(order), 1), np.int64))
    num_pages = 0
    while len(pages.xmin) > 1:
        numbers = np.arange(num_pages, num_pages + len(pages.xmin), dtype=np.uint64)
        num_pages += len(numbers)
        pages = _write_rows(writer, pages, numbers, np.arange(len(numbers)), page_size)
    num_pages += len(pages.xmin)
    # pylance takes an infinite bound for that of no geometry.
    sides = [np.clip(side, -_LARGEST, _LARGEST).tolist() or [None] for side in total]
    names = ("minx", "miny", "maxx", "maxy")
    extent = {name: side[0] for name, side in zip(names, sides, strict=True)}
    for name, value in (
        ("page_size", str(page_size)),
        ("num_items", str(len(order))),
        ("num_pages", str(num_pages)),
        ("bbox", json.dumps(extent, separators=(",", ":"))),
    ):
        writer.set_metadata(name, value)


def _write_rows(
    writer: FileWriter, boxes: Boxes, ids: UInt64Array, order: RowNumbers, page_size: int
) -> Boxes:
    """Write the rows of a level in an order; return the box of each page."""
    pages = [Boxes(*np.empty((4, 0)))]
    step = page_size * max(_BATCH_ROWS // page_size, 1)
    for start in range(0, len(order), step):
        part = order[start : start + step]
        sorted_boxes = boxes.take(part)
        structs = pa.StructArray.from_arrays(
            [pa.array(side) for side in sorted_boxes], fields=list(_BBOX_TYPE)
        )
        columns = [structs, pa.array(ids[part], pa.uint64())]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        pages.append(union(sorted_boxes, np.arange(0, len(part), page_size)))
    return Boxes(*map(np.concatenate, zip(*pages, strict=True)))


def union(boxes: Boxes, starts: RowNumbers) -> Boxes:
    """Return the box of each run of boxes, given the first of each."""
    if not len(starts):
        return Boxes(*np.empty((4, 0)))
    low = (np.minimum.reduceat(side, starts) for side in (boxes.xmin, boxes.ymin))
    high = (np.maximum.reduceat(side, starts) for side in (boxes.xmax, boxes.ymax))
    return Boxes(*low, *high)


def _hilbert_order(boxes: Boxes) -> RowNumbers:
    """Return the order of the centres of boxes on a Hilbert curve."""
    count = len(boxes.xmin)
    if not count:
        return np.empty(0, np.int64)
    parts = [slice(start, start + _BATCH_ROWS) for start in range(0, count, _BATCH_ROWS)]
    sides = (boxes.xmin, boxes.xmax), (boxes.ymin, boxes.ymax)
    grids = []
    for low, high in sides:
        centres = (_centres(low[part], high[part]) for part in parts)
        edges = [(centre.min(), centre.max()) for centre in centres]
        firsts, lasts = zip(*edges, strict=True)
        grids.append((min(firsts), max(lasts)))
    places = np.empty(count, np.uint32)
    for part in parts:
        x, y = (
            _cells(_centres(low[part], high[part]), *grid)
            for (low, high), grid in zip(sides, grids, strict=True)
        )
        places[part] = _hilbert_places(x, y)
    return np.argsort(places, kind="stable")


def _hilbert_places(x: Any, y: Any) -> Any:
    """Return the place of each cell of a grid on a Hilbert curve."""
    place = np.zeros(len(x), np.uint32)
    for bit in range(_BITS - 1, -1, -1):
        # The quadrants of a square are visited in the order 0, 1, 3, 2 of their bits y and x.
        right, up = (x >> bit) & 1, (y >> bit) & 1
        place = (place << 2) | ((3 * right) ^ up).astype(np.uint32)
        # In the two lower quadrants the curve is mirrored at a diagonal.
        low = up == 0
        flip = low & (right == 1)
        mask = np.uint32((1 << _BITS) - 1)
        x, y = np.where(flip, mask - x, x), np.where(flip, mask - y, y)
        x, y = np.where(low, y, x), np.where(low, x, y)
    return place


def _centres(low: Any, high: Any) -> Any:
    # Halves first, because a sum can overflow.
    return np.clip(low, -_LARGEST, _LARGEST) / 2 + np.clip(high, -_LARGEST, _LARGEST) / 2


def _cells(centres: Any, first: float, last: float) -> Any:
    """Return the column or row of each centre in a grid from the first to the last of them."""
    width = last / 2 - first / 2
    scaled = (centres / 2 - first / 2) / width if width > 0 else np.zeros(len(centres))
    return np.floor(scaled * ((1 << _BITS) - 1)).astype(np.uint32)


SEARCH = IndexSearch(OPS, search)
