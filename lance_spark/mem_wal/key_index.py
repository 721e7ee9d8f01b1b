"""The index of the keys of an SSTable: a BTREE in the folder `_pk_index/`.

`page_data.lance` and `page_lookup.lance` are those of a BTREE (`indexes/btree/files`) of file
version 2.0, with pages of 8,192 rows. It has all rows: superseded ones and tombstones too. The
values are the keys; `ids` are the offsets of the rows. A key of several columns is a binary value
(`key_bytes.ordered_bytes`). The SSTable's manifest does not list the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.indexes.btree.files import (
    DATA_FILE,
    VALUES,
    BTreePages,
    BTreeWriter,
    cached_pages,
    open_data,
)
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.indexes.order import order_of
from lance_spark.mem_wal.keys import ordered_bytes
from lance_spark.proto import table_pb2

if TYPE_CHECKING:
    from lance_spark.encoding.rows import RowNumbers
    from lance_spark.storage.source import ByteSource
    from lance_spark.storage.store import ObjectStore
    from lance_spark.table.paths import TablePaths

FOLDER = "_pk_index"
_FILE_VERSION = (2, 0)
_PAGE_ROWS = 8192


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """The keys of rows in the order of the index.

    - `values`: The keys, sorted; see `key_values`.
    - `rows`: The offset of the row of each key. Rows of the same key are in their order.
    """

    values: pa.Array
    rows: RowNumbers

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> SortedKeys:
        """Sort the keys of rows; the columns of the key are given in its order."""
        values = key_values(columns)
        rows = order_of(values)
        return cls(values.take(pa.array(rows)), rows)

    def superseded(self) -> RowNumbers:
        """Return the offsets of rows that a later row of the same key follows, increasing."""
        import pyarrow.compute as pc

        if len(self.values) < 2:
            return np.empty(0, np.int64)
        is_same = pc.equal(self.values[:-1], self.values[1:]).to_numpy(zero_copy_only=False)
        return np.sort(self.rows[:-1][is_same])


def key_values(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the values that stand for keys in the index: the column, or bytes of several."""
    return columns[0] if len(columns) == 1 else ordered_bytes(columns).to_arrow()


@dataclass(frozen=True, slots=True)
class KeyIndexFiles(IndexFiles):
    """Opens the files of the index of an SSTable, of which `paths` are the paths."""

    def source(self, name: str) -> ByteSource:
        """Open the bytes of a file; the caller closes it."""
        return self.paths.store.open(f"{FOLDER}/{name}")

    def locate(self, name: str) -> tuple[ObjectStore, str]:
        """Return the store of a file, and its path there."""
        return self.paths.store, f"{FOLDER}/{name}"

    def _key(self, name: str) -> tuple[str, str]:
        return self.paths.store.uri, f"{FOLDER}/{name}"


@dataclass(frozen=True, slots=True)
class KeyPages:
    """The keys of all rows of an SSTable in order, in pages. The process keeps what was read."""

    files: KeyIndexFiles
    pages: BTreePages

    @classmethod
    def open(cls, paths: TablePaths, dtype: pa.DataType, num_rows: int) -> KeyPages | None:
        """Open the index of an SSTable; None if it is missing or of other keys.

        - `paths`: Of the SSTable.
        - `dtype`: Type of the values: that of the only column of the key, or binary.
        - `num_rows`: Rows of the SSTable, with superseded ones.

        Raises CorruptFileError, StorageError.
        """
        files = KeyIndexFiles(
            paths, table_pb2.IndexMetadata(name=f"{paths.store.display}/{FOLDER}")
        )
        pages = cached_pages(files)
        if pages is None or pages.low.type != dtype or pages.num_rows != num_rows:
            return None
        return None if pages.nulls.any() else cls(files, pages)

    def between(self, least: pa.Scalar, greatest: pa.Scalar) -> range:
        """Return the pages that may have keys from one key to another."""
        import pyarrow.compute as pc

        first = pc.sum(pc.less(self.pages.high, least)).as_py() or 0
        stop = pc.sum(pc.less_equal(self.pages.low, greatest)).as_py() or 0
        return range(first, max(first, stop))

    def read(self, numbers: range) -> list[pa.Array]:
        """Return the keys of some pages.

        Raises CorruptFileError, MissingFileError, StorageError.
        """

        def read(missing: Sequence[int]) -> list[pa.Array]:
            bounds = self.pages.bounds
            rows = np.concatenate([np.arange(*bounds[n : n + 2]) for n in missing])
            with open_data(self.files, self.pages.files) as data:
                (values,) = data.read([named(data, VALUES, self.pages.low.type)], rows)
            starts = np.append(0, np.cumsum(np.diff(bounds)[missing]))
            # Each page has buffers of its own, so that the cache counts its bytes.
            pages = [
                pa.concat_arrays([values[start:stop], values[:0]])
                for start, stop in pairwise(starts.tolist())
            ]
            self._check(missing, pages)
            return pages

        return self.files.cached_parts(DATA_FILE, numbers, read, lambda values: values.nbytes)

    def _check(self, numbers: Sequence[int], pages: Sequence[pa.Array]) -> None:
        """Raise an error if pages do not begin and end as the index says."""
        for number, values in zip(numbers, pages, strict=True):
            if values[0] != self.pages.low[number] or values[-1] != self.pages.high[number]:
                raise CorruptFileError(
                    f"{self.files.paths.store.name(FOLDER)}/{DATA_FILE}: page {number} has other "
                    "keys than the index says; create the SSTable again"
                )


def write_key_index(paths: TablePaths, keys: SortedKeys) -> None:
    """Write the index of an SSTable. Raises StorageError."""
    with SegmentWriter(paths, _FILE_VERSION, FOLDER) as segment:
        writer = BTreeWriter(segment, keys.values.type, _PAGE_ROWS)
        writer.write(keys.values, pa.array(keys.rows.astype(np.uint64)))
        writer.finish()
        segment.finish()
