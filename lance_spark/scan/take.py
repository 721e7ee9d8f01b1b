"""The take: rows by their position in a table, their address or their id.

Callers pass row numbers as lists, numpy arrays or Arrow arrays. Few rows
of several fragments of a local store are decoded together. The fragments of a remote store are read
in parallel: each file takes a few requests one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import InvalidInputError, error_context
from lance_spark.file.blobs.fields import has_bytes, paged
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import Lengths, sum_blobs
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blobs import EXTERNAL, MAX_COUNTED, BlobDescriptors
from lance_spark.scan.fragment.column_reader import cuts, halved, rows_without_columns
from lance_spark.scan.fragment.reader import FragmentReader, live_to_physical
from lance_spark.scan.fragment.row_meta import ROW_OFFSET, first_positions, needs
from lance_spark.scan.fragment.small_fragments import read_scattered
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.storage.parallel import read_all
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.row_counts import by_id, row_ends
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from lance_spark.table.rows.addresses import RowIndex


Numbers = npt.NDArray[np.int64]
#: Row ids or addresses.
Words = npt.NDArray[np.uint64]
_Pieces = Sequence[tuple[Fragment, Numbers]]


def parse_row_ids(row_ids: Any) -> npt.NDArray[np.uint64]:
    """Return the row ids that a caller passed. Unlike in `parse_numbers` they may exceed int64."""
    if isinstance(row_ids, np.ndarray) and row_ids.dtype == np.uint64 and row_ids.ndim == 1:
        return row_ids
    if isinstance(row_ids, pa.Array | pa.ChunkedArray) and row_ids.type == pa.uint64():
        if row_ids.null_count:
            raise InvalidInputError("row ids must be integers, not null")
        ids: npt.NDArray[np.uint64] = row_ids.to_numpy()
        return ids
    return parse_numbers(row_ids, "row ids").astype(np.uint64)


def parse_numbers(data: Any, name: str) -> Numbers:
    """Return the row numbers that a caller passed as a list, numpy array or Arrow array.

    - `name`: What errors call the numbers.

    Raises InvalidInputError: a number is not an integer, or is negative.
    """
    values = data
    if isinstance(data, pa.Array | pa.ChunkedArray):
        values = data.to_numpy()
    try:
        numbers = np.asarray(values if len(values) else np.zeros(0, np.int64))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must be integers: {error}") from None
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InvalidInputError(f"{name} must be integers, not {numbers.dtype}")
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) > np.iinfo(np.int64).max):
        bad = int(numbers.min()) if int(numbers.min()) < 0 else int(numbers.max())
        raise InvalidInputError(f"{name}: row {bad} is out of range")
    return numbers.astype(np.int64)


def parse_positions(data: Any, num_rows: int) -> Numbers:
    """Return the positions of rows that a caller passed.

    Raises InvalidInputError: a position is not an integer, or is out of range in a table of
    `num_rows` rows.
    """
    positions = parse_numbers(data, "positions of rows")
    if len(positions) and int(positions.max()) >= num_rows:
        raise InvalidInputError(
            f"row {int(positions.max())} is out of range: the table has {num_rows} rows"
        )
    return positions


def by_fragment(
    fragments: Sequence[Fragment], positions: Numbers
) -> Iterator[tuple[Fragment, Numbers]]:
    """Yield the fragments that hold increasing positions, and numbers among their live rows."""
    ends = row_ends(fragments)
    holders = np.searchsorted(ends, positions, side="right")
    numbers, cuts = np.unique(holders, return_index=True)
    bounds = [*cuts.tolist(), len(positions)]
    for i, number in enumerate(numbers.tolist()):
        fragment = fragments[number]
        yield (
            fragment,
            positions[bounds[i] : bounds[i + 1]] - (int(ends[number]) - fragment.num_rows),
        )


class RowFinder:
    """Finds the rows of one version of a table by their ids. It reads the row index once.

    - `fragments`: The table's, with their rows counted.

    Raises CorruptTableError: a fragment id occurs twice, so that an address names two rows.
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
        from lance_spark.table.rows.addresses import RowIndex, live_addresses

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

    Positions do not count deleted rows. Raises CorruptFileError, CorruptTableError,
    UnsupportedEncodingError, StorageError.
    """
    pieces = list(by_fragment(fragments, positions))
    return _take(paths, fragments, pieces, schema, open_files, is_live=True)


def take_addresses(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: Words,
    open_files: OpenFiles | None,
    metrics: ScanMetrics | None = None,
) -> pa.Table:
    """Return the rows at addresses, in the order of the addresses. All rows must exist.

    - `metrics`: Counts what is read.

    Raises CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError.
    """
    from lance_spark.table.rows.addresses import offsets_by_fragment

    unique, inverse = np.unique(addresses, return_inverse=True)
    numbered = by_id(fragments)
    pieces = [(numbered[number], offsets) for number, offsets in offsets_by_fragment(unique)]
    batches = _take(paths, fragments, pieces, schema, open_files, metrics)
    table = pa.Table.from_batches(batches, schema.to_arrow())
    return in_order(table, inverse)


def in_order(table: pa.Table, places: Numbers) -> pa.Table:
    """Return rows of a table by their places in it."""
    if np.array_equal(places, np.arange(table.num_rows)):
        return table
    if not table.num_columns:
        # Arrow takes no rows of a table without columns.
        return pa.Table.from_batches([rows_without_columns(len(places))])
    return table.take(pa.array(places))


def _take(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    pieces: _Pieces,
    schema: Schema,
    open_files: OpenFiles | None,
    metrics: ScanMetrics | None = None,
    *,
    is_live: bool = False,
) -> list[pa.RecordBatch]:
    """Return rows of fragments by their physical offsets, or by their numbers among live rows."""
    starts = first_positions(fragments) if needs(schema.fields, ROW_OFFSET) else {}
    if open_files is not None and paths.store.is_local:
        counts = ScanMetrics() if metrics is None else metrics
        with error_context(paths.store.display):
            physical = [
                (part, live_to_physical(rows, read_deletions(paths, part)) if is_live else rows)
                for part, rows in pieces
            ]
        batch = read_scattered(paths, physical, schema, open_files, starts, counts)
        if batch is not None:
            return [batch]

    def take(piece: tuple[Fragment, Numbers]) -> tuple[pa.RecordBatch, ScanMetrics]:
        fragment, rows = piece
        # Of one thread.
        counts = ScanMetrics()
        reader = FragmentReader(
            paths,
            fragment,
            schema,
            open_files=open_files,
            first_position=starts.get(fragment.id),
            metrics=counts,
        )
        try:
            with error_context(paths.store.display):
                batch = reader.take(rows) if is_live else reader.read(rows)
        except BaseException:
            reader.close()
            raise
        if open_files is None:
            reader.close()
        else:
            reader.release()
        return batch, counts

    results = read_all(take, pieces, local=paths.store.is_local)
    if metrics is not None:
        for _, counts in results:
            metrics += counts
    return [batch for batch, _ in results]


# --------------------------------------------------------------------------------------------------
# Sizes of blobs by their descriptors, without a read of the bytes.


def loads_blobs(schema: Schema) -> bool:
    """Return whether a read of columns loads the bytes of blobs."""
    return any(map(_loads_blobs, schema.fields))


def described_schema(schema: Schema, version: tuple[int, int]) -> Schema:
    """Return the columns of a read with descriptors in place of the bytes of blobs.

    - `version`: Version of the table's data files.
    """
    return replace(schema, fields=tuple(paged(field, version) for field in schema.fields))


def blob_bytes(rows: pa.RecordBatch, schema: Schema) -> Lengths:
    """Return the bytes of the blobs of each row; a whole object elsewhere counts for the most.

    - `rows`: Rows of a `described_schema`.
    """
    total = np.zeros(rows.num_rows, np.int64)
    for column, field in zip(rows.columns, schema.fields, strict=True):
        total += sum_blobs(column, field, _measured)
    return total


def bytes_at(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: UInt64Array,
    open_files: OpenFiles | None,
) -> Lengths:
    """Return the bytes of the blobs of the rows at addresses; 0 if no blobs are loaded.

    - `schema`: Columns that will be read, and maybe computed columns.
    """
    fields = tuple(filter(_loads_blobs, schema.fields))
    if not fields or not len(addresses):
        return np.zeros(len(addresses), np.int64)
    version = next(file.version for fragment in fragments for file in fragment.files)
    described = described_schema(Schema(fields), version)
    taken = take_addresses(paths, fragments, described, addresses, open_files)
    (rows,) = taken.combine_chunks().to_batches()
    return blob_bytes(rows, described)


def cut_by_bytes(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: UInt64Array,
    open_files: OpenFiles | None,
) -> Iterator[slice]:
    """Yield slices of addresses whose rows can be read at once; see `bytes_at` and `cuts`."""
    return cuts(bytes_at(paths, fragments, schema, addresses, open_files))


def _loads_blobs(field: Field) -> bool:
    return any(node.is_blob and not node.children and has_bytes(node) for node in field.walk())


def _measured(array: pa.Array, field: Field) -> Lengths:
    blobs = BlobDescriptors.of(array, field.name)
    is_whole = blobs.live & (blobs.storage_modes == EXTERNAL) & (blobs.sizes == 0)
    return np.where(is_whole, MAX_COUNTED, np.minimum(blobs.sizes, MAX_COUNTED))


# --------------------------------------------------------------------------------------------------
# Rows at addresses, in parts that fit into memory and into arrays of Arrow.

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
