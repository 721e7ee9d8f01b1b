"""Bounding boxes of geometries, which a temporary folder keeps until all have been read.

The order of boxes on a curve depends on the box of all. So geometries are read once, a batch at a
time, and their boxes are written to the local disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.indexes.segment_files import local_folder
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.scan.predicates.spatial.boxes import Boxes, bounding_boxes
from lance_spark.scan.predicates.spatial.columns import encoding_of_storage
from lance_spark.table.rows.u64_segments import UInt64Array

_ROW = np.dtype([("box", "<f8", 4), ("id", "<u8")])


@contextmanager
def boxes_of(
    batches: Iterable[tuple[pa.Array, UInt64Array]],
) -> Iterator[tuple[Boxes, UInt64Array, RowSet]]:
    """Lend the boxes of the geometries that have a point, the id of each, and the rows of nulls.

    Raises
    ------
    InvalidInputError
        A value is not a geometry.
    """
    nulls = [np.empty(0, np.uint64)]
    count = 0
    with tempfile.TemporaryDirectory(prefix="lance-boxes-", dir=local_folder()) as folder:
        file = Path(folder) / "boxes"
        with file.open("wb") as sink:
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
                rows = np.empty(len(kept), _ROW)
                rows["box"] = np.stack(boxes.take(kept), axis=1)
                rows["id"] = ids[kept]
                sink.write(rows.tobytes())
                count += len(kept)
        mapped = np.memmap(file, _ROW, "r") if count else np.empty(0, _ROW)
        null_rows = RowSet.of(np.sort(np.concatenate(nulls)))
        yield Boxes(*mapped["box"].T), mapped["id"], null_rows
