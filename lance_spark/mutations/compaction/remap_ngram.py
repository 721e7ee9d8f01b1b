"""NGRAM indexes rewritten with the row addresses after a compaction.

`lance_spark.scan.indexes.ngram` has the layout of the file. Deleted rows are left out, and so are
trigrams without rows. The rows of a trigram are in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from lance_spark.file.open import DataFileReader
from lance_spark.mutations.compaction.address_map import WRITTEN, AddressMap, Remapping, rewritten
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes import ngram
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths

#: Trigrams that are read at once.
_WINDOW_ROWS = 256


def remap_ngram(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[object],
) -> RewrittenIndex | None:
    """Write the file of a segment with new row addresses.

    Parameters
    ----------
    index : table_pb2.IndexMetadata
        A segment of type NGRAM.

    Returns
    -------
    RewrittenIndex or None
        None if this release does not write the file version of the segment.

    Raises
    ------
    CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
    """
    files = IndexFiles(paths, index)
    with closing(files.open(ngram.FILE)) as data:
        if data.version not in WRITTEN:
            return None
        with SegmentWriter(paths, data.version) as segment:
            writer = ngram.create(segment)
            for batch in _remapped(data, address_map):
                writer.write(batch)
            written = segment.finish()
    return rewritten(index, segment, written)


def _remapped(data: DataFileReader, address_map: AddressMap) -> Iterator[pa.RecordBatch]:
    """Yield the trigrams, and the new addresses of their live rows."""
    moved = address_map.old_rows()
    fields = [named(data, ngram.TOKENS, pa.uint32()), named(data, ngram.POSTINGS, pa.binary())]
    for start in range(0, data.num_rows, _WINDOW_ROWS):
        rows = range(start, min(start + _WINDOW_ROWS, data.num_rows))
        trigrams, postings = data.read(fields, rows)
        lists: list[bytes | None] = []
        for item in postings:
            rows_of_trigram = ngram.decode_posting(item.as_py(), data.source.name)
            # A damaged set of few bytes can have billions of rows.
            old = np.array((rows_of_trigram & moved).to_array(), np.uint64)
            addresses, is_live = address_map.new_addresses(old)
            rows_of_trigram -= moved
            rows_of_trigram.update(addresses[is_live])
            lists.append(rows_of_trigram.serialize() if rows_of_trigram else None)
        columns = [trigrams, pa.array(lists, pa.binary())]
        kept = columns[1].is_valid()
        yield pa.RecordBatch.from_arrays(
            [column.filter(kept) for column in columns], schema=ngram.SCHEMA
        )


REMAPPING = Remapping(remap_ngram)
