"""Deletion files: the offsets of the deleted rows of a fragment, always all of them.

| suffix | content |
| --- | --- |
| `.arrow` | Arrow IPC file: one batch, one column `row_id: uint32 not null`, offsets in any order |
| `.bin` | 32-bit Roaring bitmap, portable serialisation |

Writers choose by number (pylance: a bitmap from 5,000 rows on); readers take either.
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
from lance_spark.table.rows.ipc_size_check import check_claims

#: Offsets within a fragment, increasing, without repeats.
Offsets = npt.NDArray[np.int64]

#: Bytes of an offset in an Arrow file with its validity, rounded up, and what both buffers are padded by.
_WIDTH = 5
_PADDING = 128


def read_deletions(paths: TablePaths, fragment: Fragment) -> Offsets:
    """Read which rows of a fragment are deleted.

    Returns
    -------
    int64 array
        Row offsets, strictly increasing; empty if the fragment has no deletion file. Not to be changed: `paths` keeps them for
        who asks next.

    Raises
    ------
    CorruptFileError
        The file is broken, or does not hold what the manifest says.
    MissingFileError, StorageError
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, dtype=np.int64)
    key = fragment.id, file
    known = paths.deletions.get(key)
    if known is None:
        known = _read(paths, fragment, file)
        paths.deletions.put(key, known)
    return known


def _read(paths: TablePaths, fragment: Fragment, file: DeletionFile) -> Offsets:
    content, name = paths.read_deletion_file(file, fragment.id)
    data = np.frombuffer(content, np.uint8)
    # Manifests of early releases do not say how many rows there are.
    most = fragment.physical_rows or file.num_deleted_rows or MAX_PHYSICAL_ROWS
    if file.file_type is DeletionFileType.ARROW:
        offsets = decode_arrow(data, name, most)
    else:
        offsets = decode_bitmap(data, name, fragment.physical_rows, most)
    if file.num_deleted_rows and len(offsets) != file.num_deleted_rows:
        raise CorruptFileError(
            f"{name}: it deletes {len(offsets)} rows, but the manifest says {file.num_deleted_rows}"
        )
    if len(offsets) and fragment.physical_rows and offsets[-1] >= fragment.physical_rows:
        raise _outside(name, int(offsets[-1]), fragment.physical_rows)
    return offsets


def decode_arrow(data: Bytes, name: str, most: int = MAX_PHYSICAL_ROWS) -> Offsets:
    """Decode a deletion file of the `.arrow` kind.

    Parameters
    ----------
    data : uint8 array
    name : str
        What errors call the file.
    most : int
        Rows that it deletes at most: few bytes can claim to hold many more.

    Raises
    ------
    CorruptFileError
    """
    try:
        check_claims(data, most * _WIDTH + _PADDING)
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            # Before any buffer is looked at.
            _check_types(reader.schema.types, name)
            batch = reader.get_batch(0)
        batch.validate(full=True)
        # Names that are no UTF-8 are found out by whoever looks at a column.
        (column,) = batch.columns
    except (ValueError, pa.ArrowException, MemoryError, OSError) as error:
        raise CorruptFileError(f"{name}: no readable deletion file: {error}") from error
    if column.null_count:
        raise CorruptFileError(f"{name}: column row_id has {column.null_count} nulls, not 0")
    if len(column) > most:
        raise CorruptFileError(f"{name}: it deletes {len(column)} rows of {most}")
    return np.unique(column.to_numpy()).astype(np.int64)


def _check_types(types: Sequence[pa.DataType], name: str) -> None:
    if list(types) != [pa.uint32()]:
        raise CorruptFileError(
            f"{name}: a deletion file has one column of uint32, this one has {[str(one) for one in types]}"
        )


def decode_bitmap(
    data: Bytes, name: str, num_rows: int = 0, most: int = MAX_PHYSICAL_ROWS
) -> Offsets:
    """Decode a deletion file of the `.bin` kind.

    Parameters
    ----------
    data : uint8 array
    name : str
        What errors call the file.
    num_rows : int
        Rows of the fragment; 0 if they are not known.
    most : int
        Rows that it deletes at most.

    Raises
    ------
    CorruptFileError
    """
    try:
        bitmap = BitMap.deserialize(data.tobytes())
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptFileError(f"{name}: no readable Roaring bitmap: {error}") from error
    # The greatest one first: a few bytes can stand for billions of rows.
    if num_rows and bitmap and bitmap.max() >= num_rows:
        raise _outside(name, bitmap.max(), num_rows)
    if len(bitmap) > most:
        raise CorruptFileError(f"{name}: it deletes {len(bitmap)} rows of {most}")
    return offsets_of(bitmap)


def decode_offsets(data: bytes, num_rows: int, name: str) -> Offsets:
    """Decode a Roaring bitmap of row offsets that stands in a manifest; see `decode_rows`."""
    return offsets_of(decode_rows(data, num_rows, name))


def decode_rows(data: bytes, num_rows: int, name: str) -> BitMap:
    """Decode a Roaring bitmap of row offsets that stands in a manifest, and leave it one.

    Parameters
    ----------
    data : bytes
        Portable serialisation.
    num_rows : int
        Rows that there are.
    name : str
        What errors call it.

    Raises
    ------
    CorruptTableError
        It cannot be read, or names rows that there are not.
    """
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTableError(f"{name}: no readable Roaring bitmap: {error}") from error
    check_rows(bitmap, num_rows, name)
    return bitmap


def check_rows(bitmap: BitMap, num_rows: int, name: str) -> None:
    """Refuse row offsets from a file that a fragment does not have, before they become an array.

    The greatest one tells: a few bytes can stand for billions of rows.

    Raises
    ------
    CorruptTableError
    """
    if bitmap and bitmap.max() >= num_rows:
        raise CorruptTableError(f"{name}: row {bitmap.max()} of a fragment of {num_rows} rows")


def offsets_of(bitmap: BitMap) -> Offsets:
    """Return the numbers in a bitmap, increasing."""
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)


def _outside(name: str, row: int, num_rows: int) -> CorruptFileError:
    return CorruptFileError(f"{name}: it deletes row {row} of a fragment of {num_rows} rows")
