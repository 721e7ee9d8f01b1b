"""Rows at addresses, in parts that fit into memory and into arrays of Arrow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.nested import Lengths
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blob_sizes import cut_by_bytes
from lance_spark.scan.fragment.column_reader import cuts, halved
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.take import take_addresses
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

#: Bytes of rows that are taken together, and most rows. Each part reads pages of all fragments.
PART_BYTES = 128 * 1024 * 1024
_PART_ROWS = 1 << 20


def take_parts(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: UInt64Array,
    open_files: OpenFiles | None,
    metrics: ScanMetrics | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of `take_addresses` in tables of about `PART_BYTES` bytes, or of one row.

    The blobs of a table have at most the bytes of a window. Raises CorruptFileError,
    CorruptTableError, UnsupportedEncodingError, StorageError.
    """

    def take(rows: slice) -> pa.Table:
        taken = take_addresses(paths, fragments, schema, addresses[rows], open_files, metrics)
        return taken.combine_chunks()

    sizes = _row_sizes(paths, fragments, schema, addresses, open_files)
    for window in cut_by_bytes(paths, fragments, schema, addresses, open_files):
        for part in cuts(sizes[window], PART_BYTES, _PART_ROWS):
            rows = slice(window.start + part.start, window.start + part.stop)
            for _, table in halved(take, rows):
                yield table


def _row_sizes(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: UInt64Array,
    open_files: OpenFiles | None,
) -> Lengths:
    """Return about how many bytes each row has without blobs, by the rows of its fragment."""
    numbers, inverse = np.unique(addresses >> np.uint64(32), return_inverse=True)
    by_id = {fragment.id: fragment for fragment in fragments}
    sizes = np.empty(len(numbers), np.int64)
    for place, number in enumerate(numbers.tolist()):
        fragment = by_id[number]
        reader = FragmentReader(paths, fragment, schema, open_files=open_files, first_position=0)
        try:
            size = reader.row_bytes()
        finally:
            if open_files is None:
                reader.close()
            else:
                reader.release()
        sizes[place] = math.ceil(size)
    return sizes[inverse]
