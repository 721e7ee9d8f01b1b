"""How RTREE indexes are built, checked, and rewritten after a compaction."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.file.open import DataFileReader
from lance_spark.indexes.address_map import WRITTEN, AddressMap, Remapping, rewritten
from lance_spark.indexes.builds import Builder, local_folder
from lance_spark.indexes.checks import MAX_PROBLEMS, ColumnCheck, CoveredRows, Findings
from lance_spark.indexes.files import IndexFiles, SegmentWriter, number_in
from lance_spark.indexes.row_sets import RowSet
from lance_spark.indexes.rtree import files as rtree
from lance_spark.proto import table_pb2
from lance_spark.spatial.geometries import (
    Boxes,
    Flags,
    bounding_boxes,
    encoding_of,
    encoding_of_storage,
)
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Bounding boxes of geometries, which a temporary folder keeps until all have been read.
#
# The order of boxes on a curve depends on the box of all. So geometries are read once, a batch at a
# time, and their boxes are written to the local disk.

_ROW = np.dtype([("box", "<f8", 4), ("id", "<u8")])


@contextmanager
def boxes_of(
    batches: Iterable[tuple[pa.Array, UInt64Array]],
) -> Iterator[tuple[Boxes, UInt64Array, RowSet]]:
    """Lend the boxes of the geometries that have a point, the id of each, and the rows of nulls.

    Raises InvalidInputError: a value is not a geometry.
    """
    nulls = [np.empty(0, np.uint64)]

    def parts() -> Iterator[tuple[Boxes, UInt64Array]]:
        for values, ids in batches:
            encoding = encoding_of_storage(values.type)
            assert encoding is not None
            try:
                boxes = bounding_boxes(values, encoding)
            except ValueError as error:
                raise InvalidInputError(f"RTREE index: {error}") from None
            is_null = values.is_null().to_numpy(zero_copy_only=False)
            nulls.append(ids[is_null])
            kept = np.flatnonzero(~is_null & boxes.not_empty)
            yield boxes.take(kept), ids[kept]

    with _kept(parts()) as (boxes, ids):
        yield boxes, ids, RowSet.of(np.sort(np.concatenate(nulls)))


@contextmanager
def _kept(
    parts: Iterable[tuple[Boxes, UInt64Array]],
) -> Iterator[tuple[Boxes, UInt64Array]]:
    """Lend the boxes of all parts, and their ids, from a temporary folder."""
    count = 0
    with tempfile.TemporaryDirectory(prefix="lance-boxes-", dir=local_folder()) as folder:
        file = Path(folder) / "boxes"
        with file.open("wb") as sink:
            for boxes, ids in parts:
                rows = np.empty(len(ids), _ROW)
                rows["box"] = np.stack(boxes, axis=1)
                rows["id"] = ids
                sink.write(rows.tobytes())
                count += len(ids)
        mapped = np.memmap(file, _ROW, "r") if count else np.empty(0, _ROW)
        yield Boxes(*mapped["box"].T), mapped["id"]


# --------------------------------------------------------------------------------------------------
# How RTREE indexes are built.


def _is_geometry(dtype: pa.DataType) -> bool:
    return encoding_of_storage(dtype) is not None


def _write_batches(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    stored: Iterable[Any],
) -> None:
    with boxes_of(batches) as (boxes, ids, null_rows):
        rtree.write(segment, boxes, ids, null_rows, parameters["page_size"])


def _existing(files: IndexFiles) -> dict[str, Any]:
    with closing(files.open(rtree.FILE)) as file:
        return {"page_size": rtree.page_size_of(file)}


def _cannot_merge(files: IndexFiles, parameters: Mapping[str, Any]) -> bool:
    return False


BUILDER = Builder(
    "RTREE",
    None,
    _is_geometry,
    lambda field: encoding_of(field) is not None,
    defaults={"page_size": rtree.DEFAULT_PAGE_SIZE},
    least=rtree.MIN_PAGE_SIZE,
    existing=_existing,
    write_batches=_write_batches,
    can_merge=_cannot_merge,
    # The order of the boxes is in memory.
    max_rows=16 << 20,
)


# --------------------------------------------------------------------------------------------------
# RTREE indexes rewritten with the row addresses after a compaction: boxes of deleted rows are left
# out, so that the pages are made anew.


def remap_boxes(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[object],
) -> RewrittenIndex | None:
    """Write the files of a segment with new row addresses.

    Returns None if this release does not write the file version of the segment. Raises
    CorruptFileError, MissingFileError, UnsupportedError, StorageError.
    """
    files = IndexFiles(paths, index)
    with closing(files.open(rtree.FILE)) as file:
        if file.version not in WRITTEN:
            return None
        null_rows = address_map.of_set(rtree.read_nulls(files))
        with (
            _kept(_remapped(file, address_map)) as (boxes, ids),
            SegmentWriter(paths, file.version) as segment,
        ):
            rtree.write(segment, boxes, ids, null_rows, rtree.page_size_of(file))
            written = segment.finish()
    return rewritten(index, segment, written)


def _remapped(file: DataFileReader, address_map: AddressMap) -> Iterator[tuple[Boxes, UInt64Array]]:
    """Yield the boxes of live rows, and the new addresses of these rows."""
    levels = rtree.levels_of(file)
    num_items = int(levels[0][-1]) if levels else 0
    for start in range(0, num_items, _BATCH_ROWS):
        part = range(start, min(start + _BATCH_ROWS, num_items))
        boxes, ids = rtree.read_rows(file, part)
        addresses, is_live = address_map.new_addresses(ids)
        yield boxes.take(is_live), addresses[is_live]


REMAPPING = Remapping(remap_boxes)


# --------------------------------------------------------------------------------------------------
# Checks RTREE indexes: the box of each row, and the boxes of pages.

#: Rows that are compared at once.
_BATCH_ROWS = 1 << 18


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment with its rows.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError. Raises
    InvalidInputError: a package is missing.
    """
    name = f"index {files.segment.name!r}"
    encoding = encoding_of_storage(rows.values.type)
    if encoding is None:
        raise CorruptFileError(
            f"{name}: the column is {rows.values.type}, and has no geometries; drop the index"
        )
    try:
        boxes = bounding_boxes(rows.values, encoding)
    except ValueError as error:
        raise CorruptFileError(f"{name}: the column: {error}") from None
    except UnsupportedFeatureError as error:
        # Without the package, the check cannot know whether the index is right.
        raise InvalidInputError(f"{name} cannot be checked: {error}") from None
    is_null = rows.values.is_null().to_numpy(zero_copy_only=False)
    missing, wrong = ~is_null & boxes.not_empty, np.zeros(len(rows), np.bool_)
    with closing(files.open(rtree.FILE)) as file:
        levels = rtree.levels_of(file)
        num_items = int(levels[0][-1]) if levels else 0
        for start in range(0, num_items, _BATCH_ROWS):
            part = range(start, min(start + _BATCH_ROWS, num_items))
            _check_items(*rtree.read_rows(file, part), boxes, rows, (missing, wrong), findings)
        _check_pages(file, levels, findings)
    positions, num_stale = rows.find_set(rtree.read_nulls(files))
    findings.stale += num_stale
    missing |= is_null
    missing[positions] &= ~is_null[positions]
    more = np.zeros(len(rows), np.bool_)
    more[positions] = ~is_null[positions]
    _describe(rows, more, "the index has the row as null", findings)
    wrong |= more
    _describe(rows, missing & ~wrong, "the index does not have the row", findings)
    findings.wrong += int(np.count_nonzero(wrong))
    findings.missing += int(np.count_nonzero(missing & ~wrong))


def _check_items(
    stored: Boxes,
    ids: np.ndarray,
    boxes: Boxes,
    rows: CoveredRows,
    flags: tuple[Flags, Flags],
    findings: Findings,
) -> None:
    """Note rows of the first level: those that are not missing, and those that are wrong."""
    missing, wrong = flags
    position, is_live = rows.find(ids)
    findings.stale += len(ids) - int(np.count_nonzero(is_live))
    position, stored = position[is_live], stored.take(is_live)
    is_different = np.zeros(len(rows), np.bool_)
    for side, expected in zip(stored, boxes, strict=True):
        is_different[position[side != expected[position]]] = True
    first = np.unique(position, return_index=True)[1]
    is_again = np.ones(len(position), np.bool_)
    is_again[first] = False
    # Rows with a box are missing until they are found, the others are never.
    is_different[position[is_again | ~missing[position]]] = True
    missing[position] = False
    _describe(
        rows, is_different & ~wrong, "the index has the row with another box, or twice", findings
    )
    wrong |= is_different


def _check_pages(file: DataFileReader, levels: list[np.ndarray], findings: Findings) -> None:
    """Compare the box of each page with the boxes of its rows."""
    problems = []
    number = 0
    total = Boxes(*np.empty((4, 0)))
    for level, bounds in enumerate(levels):
        total = _boxes_of_pages(file, bounds)
        if level + 1 < len(levels):
            after = levels[level + 1]
            boxes, ids = rtree.read_rows(file, range(int(after[0]), int(after[-1])))
            is_wrong = ids != np.arange(number, number + len(ids), dtype=np.uint64)
            for side, expected in zip(boxes, total, strict=True):
                is_wrong |= side != expected
            problems += [
                f"the row of page {number + page} has another box or number"
                for page in np.flatnonzero(is_wrong)[:MAX_PROBLEMS].tolist()
            ]
            findings.wrong += int(np.count_nonzero(is_wrong))
        number += len(bounds) - 1
    if number_in(file, "num_pages") != number:
        findings.wrong += 1
        problems.append(f"num_pages must be {number}: the last page is that of all boxes")
    if levels and not _contains(file.schema.metadata.get("bbox", b""), total):
        findings.wrong += 1
        problems.append("bbox does not contain all boxes: pylance does not find all rows")
    findings.add(problems)


def _boxes_of_pages(file: DataFileReader, bounds: np.ndarray) -> Boxes:
    """Return the box of the rows of each page."""
    parts = []
    step = max(_BATCH_ROWS // max(int(bounds[1] - bounds[0]), 1), 1)
    for first in range(0, len(bounds) - 1, step):
        part = bounds[first : first + step + 1]
        boxes, _ = rtree.read_rows(file, range(int(part[0]), int(part[-1])))
        parts.append(rtree.union(boxes, part[:-1] - part[0]))
    return Boxes(*map(np.concatenate, zip(*parts, strict=True)))


def _contains(data: bytes | str, total: Boxes) -> bool:
    try:
        box = json.loads(data)
        low, high = (box["minx"], box["miny"]), (box["maxx"], box["maxy"])
        limit = np.finfo(np.float64).max
        x, y = (np.clip(sides, -limit, limit) for sides in (total[::2], total[1::2]))
        return bool(
            low[0] <= x[0].min() <= x[1].max() <= high[0]
            and low[1] <= y[0].min() <= y[1].max() <= high[1]
        )
    except (ValueError, KeyError, TypeError):
        return False


def _describe(rows: CoveredRows, chosen: Flags, text: str, findings: Findings) -> None:
    findings.add(rows.problem(position, text) for position in np.flatnonzero(chosen).tolist())


CHECK = ColumnCheck(check)
