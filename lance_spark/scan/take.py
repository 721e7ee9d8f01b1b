"""The take: rows by their position in a table, their address or their id.

The fragments of a remote store are read in parallel: each file takes a few requests one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import naming
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.fragment.row_meta import ROW_OFFSET, first_positions, needs
from lance_spark.scan.open_files import OpenFiles
from lance_spark.scan.positions import Numbers, by_fragment, parse_row_ids
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths

if TYPE_CHECKING:
    from lance_spark.table.rows.index import RowIndex

#: Fragments of a remote store that are read at the same time.
_MAX_PARALLEL = 16

#: Row ids or addresses.
Words = npt.NDArray[np.uint64]
_Pieces = Sequence[tuple[Fragment, Numbers]]


class RowFinder:
    """Finds the rows of one version of a table by their ids. It reads the row index once.

    Parameters
    ----------
    table : OpenTable
    fragments : sequence of Fragment
        The table's, with their rows counted.

    Raises
    ------
    CorruptTableError
        A fragment id occurs twice, so that an address names two rows.
    """

    def __init__(self, table: OpenTable, fragments: Sequence[Fragment]) -> None:
        check_unique(fragments, table.manifest.name)
        self._table = table
        self._fragments = fragments
        self._index: RowIndex | None = None

    def find(self, row_ids: Any) -> tuple[npt.NDArray[np.bool_], Words]:
        """Look up row ids.

        Returns
        -------
        bool array
            Whether a live row has the id, for each id.
        uint64 array
            The address of the row; without meaning where no row has the id.

        Raises
        ------
        InvalidInputError
            An id is not an integer, or is negative.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.table.rows.index import RowIndex, live_addresses

        parsed_ids = parse_row_ids(row_ids)
        if not self._table.manifest.flags.stable_row_ids:
            return live_addresses(self._table.paths, self._fragments, parsed_ids)
        if self._index is None:
            self._index = RowIndex.build(self._table.paths, self._fragments)
        return self._index.addresses(parsed_ids)


def take_rows(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    positions: Numbers,
    open_files: OpenFiles,
) -> list[pa.RecordBatch]:
    """Return the rows at strictly increasing positions: a batch for each fragment that holds some.

    Positions do not count deleted rows.

    Raises
    ------
    CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
    """
    pieces = list(by_fragment(fragments, positions))
    return _take(paths, fragments, pieces, schema, open_files, FragmentReader.take)


def take_addresses(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: Words,
    open_files: OpenFiles,
) -> pa.Table:
    """Return the rows at addresses, in the order of the addresses. All rows must exist.

    Raises
    ------
    CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
    """
    from lance_spark.table.rows.index import offsets_by_fragment

    unique, inverse = np.unique(addresses, return_inverse=True)
    by_id = {fragment.id: fragment for fragment in fragments}
    pieces = [(by_id[number], offsets) for number, offsets in offsets_by_fragment(unique)]
    batches = _take(paths, fragments, pieces, schema, open_files, FragmentReader.read)
    table = pa.Table.from_batches(batches, schema.to_arrow())
    if np.array_equal(inverse, np.arange(len(unique))):
        return table
    return table.take(pa.array(inverse))


def _take(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    pieces: _Pieces,
    schema: Schema,
    open_files: OpenFiles,
    read: Callable[[FragmentReader, Numbers], pa.RecordBatch],
) -> list[pa.RecordBatch]:
    starts = first_positions(fragments) if needs(schema.fields, ROW_OFFSET) else {}

    def take(piece: tuple[Fragment, Numbers]) -> pa.RecordBatch:
        fragment, rows = piece
        start = starts.get(fragment.id)
        reader = FragmentReader(
            paths, fragment, schema, open_files=open_files, first_position=start
        )
        try:
            with naming(paths.store.display):
                batch = read(reader, rows)
        except BaseException:
            reader.close()
            raise
        reader.release()
        return batch

    if paths.store.is_local or len(pieces) < 2:
        return [take(piece) for piece in pieces]
    pool = ThreadPoolExecutor(min(len(pieces), _MAX_PARALLEL))
    try:
        return list(pool.map(take, pieces))
    finally:
        pool.shutdown(cancel_futures=True)
