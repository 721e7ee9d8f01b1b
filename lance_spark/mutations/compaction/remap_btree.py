"""BTREE indexes rewritten with the row addresses after a compaction.

`lance_spark.scan.indexes.btree` has the layout of the files. Deleted rows are left out, so all
pages from the first one of them on change. Memory is bounded by a window of rows.

Specification: table/index/scalar/btree.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.mutations.compaction.address_map import WRITTEN, AddressMap, Remapping, rewritten
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.btree import (
    DATA_COLUMNS,
    DATA_FILE,
    LOOKUP_FILE,
    BTreeWriter,
    is_known_layout,
    rows_of_page,
)
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths

#: Number of rows that are read at once.
_WINDOW_ROWS = 1 << 18


def remap_btree(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[object],
) -> RewrittenIndex | None:
    """Write the files of a segment with new row addresses.

    Parameters
    ----------
    index : table_pb2.IndexMetadata
        A segment of type BTREE.

    Returns
    -------
    RewrittenIndex or None
        None if this release does not know the layout of the segment.

    Raises
    ------
    CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
    """
    files = IndexFiles(paths, index)
    with closing(files.open(LOOKUP_FILE)) as lookup:
        if not is_known_layout(lookup):
            return None
        batch_size = rows_of_page(lookup)
    with closing(files.open(DATA_FILE)) as data:
        if data.schema.names != DATA_COLUMNS or data.version not in WRITTEN:
            return None
        with SegmentWriter(paths, data.version) as segment:
            dtype = data.schema.fields[0].arrow_field.type
            writer = BTreeWriter(segment, dtype, batch_size)
            for values, ids in _remapped(data, address_map, batch_size):
                writer.write(values, ids)
            writer.finish()
            written = segment.finish()
    return rewritten(index, segment, written)


def _remapped(
    data: DataFileReader, address_map: AddressMap, batch_size: int
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the values and new addresses of the live rows."""
    window = batch_size * max(_WINDOW_ROWS // batch_size, 1)
    for start in range(0, data.num_rows, window):
        rows = range(start, min(start + window, data.num_rows))
        values, ids = data.read(data.schema.fields, rows)
        if ids.type != pa.uint64() or ids.null_count:
            raise CorruptFileError(
                f"{data.source.name}: ids must be uint64 without nulls, not {ids.type} with "
                f"{ids.null_count} nulls"
            )
        addresses, is_live = address_map.new_addresses(ids.to_numpy())
        mask = pa.array(is_live)
        yield values.filter(mask), pa.array(addresses).filter(mask)


REMAPPING = Remapping(remap_btree)
