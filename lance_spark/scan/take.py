"""Rows by their position in a table: of the fragments that hold some, those of remote stores are read side by side.

A file takes a few requests one after the other; so would every fragment, if they had to wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from lance_spark.file.schema import Schema
from lance_spark.scan.fragment import FragmentReader
from lance_spark.scan.open_files import OpenFiles
from lance_spark.scan.positions import Numbers, by_fragment
from lance_spark.table.fragment import Fragment
from lance_spark.table.paths import TablePaths

#: Fragments of a remote store that are read at the same time.
_AT_ONCE = 16


def take_rows(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    positions: Numbers,
    open_files: OpenFiles,
) -> list[pa.RecordBatch]:
    """Return the rows at strictly increasing positions, deleted rows not counted; a batch for each fragment that has some.

    Raises
    ------
    CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
    """

    def take(piece: tuple[Fragment, Numbers]) -> pa.RecordBatch:
        fragment, rows = piece
        reader = FragmentReader(paths, fragment, schema, open_files=open_files)
        try:
            batch = reader.take(rows)
        except BaseException:
            reader.close()
            raise
        reader.release()
        return batch

    pieces = list(by_fragment(fragments, positions))
    if paths.store.is_local or len(pieces) < 2:
        return [take(piece) for piece in pieces]
    pool = ThreadPoolExecutor(min(len(pieces), _AT_ONCE))
    try:
        return list(pool.map(take, pieces))
    finally:
        pool.shutdown(cancel_futures=True)
