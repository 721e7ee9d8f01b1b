"""Deletion files: a deletion file holds the offsets of all deleted rows of one fragment.

| suffix | content |
| --- | --- |
| `.arrow` | Arrow IPC file: one batch, one column `row_id: uint32 not null`, offsets in any order |
| `.bin` | 32-bit Roaring bitmap, portable serialisation |

Writers choose by the number of rows (pylance: a bitmap for 5,000 rows and more). Readers accept
both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import CorruptFileError, CorruptTableError
from lance_spark.storage.source import Bytes
from lance_spark.table.fragments.files import DeletionFile, DeletionFileType
from lance_spark.table.fragments.fragment import MAX_PHYSICAL_ROWS, Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.ipc_size_check import check_decompressed_size

#: Row offsets within a fragment, strictly increasing.
Offsets = npt.NDArray[np.int64]

#: Bytes of an offset and its validity in an Arrow file, rounded up, and of the padding of both
#: buffers.
_WIDTH = 5
_PADDING = 128


def read_deletions(paths: TablePaths, fragment: Fragment) -> Offsets:
    """Return the offsets of the deleted rows of a fragment.

    Returns
    -------
    int64 array
        Row offsets, strictly increasing; empty if the fragment has no deletion file. Read-only,
        since `paths` caches it.

    Raises
    ------
    CorruptFileError
        The file is corrupt, or contradicts the manifest.
    MissingFileError, StorageError
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, dtype=np.int64)
    key = fragment.id, file
    offsets = paths.deletions.get(key)
    if offsets is None:
        offsets = _read(paths, fragment, file)
        paths.deletions.put(key, offsets)
    return offsets


def _read(paths: TablePaths, fragment: Fragment, file: DeletionFile) -> Offsets:
    content, name = paths.read_deletion_file(file, fragment.id)
    data = np.frombuffer(content, np.uint8)
    # Manifests of early releases do not record the number of rows.
    max_rows = fragment.physical_rows or file.num_deleted_rows or MAX_PHYSICAL_ROWS
    if file.file_type is DeletionFileType.ARROW:
        offsets = decode_arrow(data, name, max_rows)
    else:
        offsets = decode_bitmap(data, name, fragment.physical_rows, max_rows)
    if file.num_deleted_rows and len(offsets) != file.num_deleted_rows:
        raise CorruptFileError(
            f"{name}: the file deletes {len(offsets)} rows, but the manifest says "
            f"{file.num_deleted_rows}"
        )
    if len(offsets) and fragment.physical_rows and offsets[-1] >= fragment.physical_rows:
        raise _out_of_range(name, int(offsets[-1]), fragment.physical_rows)
    return offsets


def decode_arrow(data: Bytes, name: str, max_rows: int = MAX_PHYSICAL_ROWS) -> Offsets:
    """Decode an `.arrow` deletion file.

    Parameters
    ----------
    data : uint8 array
    name : str
        Name of the file, for errors.
    max_rows : int
        Maximum number of deleted rows. Bounds allocations: few bytes can decompress to very many
        rows.

    Raises
    ------
    CorruptFileError
    """
    try:
        check_decompressed_size(data, max_rows * _WIDTH + _PADDING)
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            # Before any buffer is decoded.
            _check_types(reader.schema.types, name)
            batch = reader.get_batch(0)
        batch.validate(full=True)
        # By position: looking up a name that is not UTF-8 would fail.
        (column,) = batch.columns
    except (ValueError, pa.ArrowException, MemoryError, OSError) as error:
        raise CorruptFileError(f"{name}: the deletion file cannot be read: {error}") from error
    if column.null_count:
        raise CorruptFileError(f"{name}: column row_id has {column.null_count} nulls, not 0")
    if len(column) > max_rows:
        raise CorruptFileError(f"{name}: the file deletes {len(column)} rows of {max_rows}")
    return np.unique(column.to_numpy()).astype(np.int64)


def _check_types(types: Sequence[pa.DataType], name: str) -> None:
    if list(types) != [pa.uint32()]:
        raise CorruptFileError(
            f"{name}: a deletion file must have one column of type uint32, this one has "
            f"{[str(dtype) for dtype in types]}"
        )


def decode_bitmap(
    data: Bytes, name: str, num_rows: int = 0, max_rows: int = MAX_PHYSICAL_ROWS
) -> Offsets:
    """Decode a `.bin` deletion file.

    Parameters
    ----------
    data : uint8 array
    name : str
        Name of the file, for errors.
    num_rows : int
        Physical rows of the fragment; 0 if unknown.
    max_rows : int
        Maximum number of deleted rows.

    Raises
    ------
    CorruptFileError
    """
    try:
        bitmap = BitMap.deserialize(data.tobytes())
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptFileError(f"{name}: the Roaring bitmap cannot be read: {error}") from error
    # Checked before the conversion to an array: few bytes can stand for billions of rows.
    if num_rows and bitmap and bitmap.max() >= num_rows:
        raise _out_of_range(name, bitmap.max(), num_rows)
    if len(bitmap) > max_rows:
        raise CorruptFileError(f"{name}: the file deletes {len(bitmap)} rows of {max_rows}")
    return offsets_of(bitmap)


def decode_offsets(data: bytes, num_rows: int, name: str) -> Offsets:
    """Decode a Roaring bitmap of row offsets in a manifest to an array; see `decode_rows`."""
    return offsets_of(decode_rows(data, num_rows, name))


def decode_rows(data: bytes, num_rows: int, name: str) -> BitMap:
    """Decode a Roaring bitmap of row offsets in a manifest.

    Parameters
    ----------
    data : bytes
        Portable serialisation.
    num_rows : int
        Physical rows of the fragment.
    name : str
        Name of the fragment, for errors.

    Raises
    ------
    CorruptTableError
        The bitmap cannot be parsed, or has an offset out of range.
    """
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTableError(f"{name}: the Roaring bitmap cannot be read: {error}") from error
    check_rows(bitmap, num_rows, name)
    return bitmap


def check_rows(bitmap: BitMap, num_rows: int, name: str) -> None:
    """Raise an error if a bitmap has a row offset that is out of range.

    To be called before the bitmap becomes an array: few bytes can stand for billions of rows.

    Raises
    ------
    CorruptTableError
    """
    if bitmap and bitmap.max() >= num_rows:
        raise CorruptTableError(
            f"{name}: row {bitmap.max()} is out of range, the fragment has {num_rows} rows"
        )


def offsets_of(bitmap: BitMap) -> Offsets:
    """Return the numbers in a bitmap as an increasing int64 array."""
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)


def _out_of_range(name: str, row: int, num_rows: int) -> CorruptFileError:
    return CorruptFileError(
        f"{name}: the file deletes row {row}, but the fragment has {num_rows} rows"
    )
