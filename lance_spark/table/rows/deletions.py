"""Deletion files: a deletion file holds the offsets of all deleted rows of one fragment.

| suffix | content |
| --- | --- |
| `.arrow` | Arrow IPC file: one batch, one column `row_id: uint32 not null`, offsets in any order |
|  | int32, as the specification has it, is read, too; no client writes it |
| `.bin` | 32-bit Roaring bitmap, portable serialisation |

A file always holds all deleted rows of its fragment. Files of fewer than 5,000 rows are Arrow
files, others are bitmaps, as in pylance. Readers accept both. The name of a file consists of the
fragment id, the version that the deletion was planned on, and a random number, and is never reused.
The upper 40 bits of the number may be a tag, which identifies the files of one job.
"""

from __future__ import annotations

import array
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import distinct
from lance_spark.errors import CorruptFileError, CorruptTableError, StorageError
from lance_spark.storage.source import Bytes
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments.bitmaps import parse_bitmap
from lance_spark.table.fragments.files import DeletionFile, DeletionFileType
from lance_spark.table.fragments.fragment import MAX_PHYSICAL_ROWS, Fragment
from lance_spark.table.paths import TablePaths, deletion_path
from lance_spark.table.rows.ipc_size_check import check_decompressed_size

#: Row offsets within a fragment, strictly increasing.
Offsets = npt.NDArray[np.int64]

#: Bytes of an offset and its validity in an Arrow file, rounded up, and of the padding of both
#: buffers.
_WIDTH = 5
_PADDING = 128
#: The smallest number of deleted rows for which a bitmap is written.
BITMAP_FROM = 5_000
#: Most bytes of a file whose content is kept with its offsets, and most such files.
_SHORT = 2 * 1024
_KEPT = 1024
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_ID_BITS = 64
#: Bytes of a tag in the number of a file, and the bits that stay random.
_TAG_BYTES = 5
_RANDOM_BITS = _ID_BITS - 8 * _TAG_BYTES
#: Most deletion files that are requested before they are read.
_MOST_EXPECTED = 1024
#: Names of deletion files, and of their unfinished files on local disks.
_NAME = re.compile(r"\.?\d+-\d+-(\d+)\.(?:arrow|bin)(?:\.\w+\.tmp)?")


def read_deletions(paths: TablePaths, fragment: Fragment) -> Offsets:
    """Return the offsets of the deleted rows of a fragment.

    Returns row offsets, strictly increasing; empty if the fragment has no deletion file. Read-only,
    since `paths` caches it. Raises MissingFileError, StorageError. Raises CorruptFileError: the
    file is corrupt, or contradicts the manifest.
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, dtype=np.int64)
    key = fragment.id, file
    offsets = paths.deletions.get(key)
    if offsets is None:
        try:
            offsets = _read(paths, fragment, file)
        except CorruptFileError:
            # Its size is not known, so a cut answer that another reader got may have been kept.
            paths.forget_deletion_file(file, fragment.id)
            offsets = _read(paths, fragment, file)
        paths.deletions.put(key, offsets)
    return offsets


def expect_deletions(paths: TablePaths, fragments: Iterable[Fragment]) -> None:
    """Begin to read the deletion files of fragments, if they are remote.

    Otherwise `read_deletions` of the next one would be requested after the answer to the one
    before.
    """
    if paths.store.is_local:
        return
    with_file = (fragment for fragment in fragments if fragment.deletion_file is not None)
    for fragment in islice(with_file, _MOST_EXPECTED):
        assert fragment.deletion_file is not None
        paths.expect_deletion_file(fragment.deletion_file, fragment.id)


def _read(paths: TablePaths, fragment: Fragment, file: DeletionFile) -> Offsets:
    content, name = paths.read_deletion_file(file, fragment.id)
    data = np.frombuffer(content, np.uint8)
    # Manifests of early releases do not record the number of rows.
    max_rows = fragment.physical_rows or file.num_deleted_rows or MAX_PHYSICAL_ROWS
    if file.file_type is DeletionFileType.ARROW:
        try:
            offsets = _decoded(content, max_rows) if len(content) <= _SHORT else None
        except CorruptFileError:
            # Decoded again, so that the error names the file.
            offsets = None
        if offsets is None:
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


@lru_cache(maxsize=_KEPT)
def _decoded(content: bytes, max_rows: int) -> Offsets:
    """Return the offsets in a short `.arrow` file; errors do not name it.

    Many small changes read the same files, each time by a new handle.
    """
    offsets = decode_arrow(np.frombuffer(content, np.uint8), "", max_rows)
    offsets.flags.writeable = False
    return offsets


def decode_arrow(data: Bytes, name: str, max_rows: int = MAX_PHYSICAL_ROWS) -> Offsets:
    """Decode an `.arrow` deletion file.

    - `name`: Name of the file, for errors.
    - `max_rows`: Maximum number of deleted rows. Bounds allocations: few bytes can decompress to
      very many rows.

    Raises CorruptFileError.
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
    offsets = distinct(column.to_numpy()).astype(np.int64)
    if len(offsets) and offsets[0] < 0:
        raise CorruptFileError(f"{name}: the file deletes row {offsets[0]}, which does not exist")
    return offsets


def _check_types(types: Sequence[pa.DataType], name: str) -> None:
    if list(types) not in ([pa.uint32()], [pa.int32()]):
        raise CorruptFileError(
            f"{name}: a deletion file must have one column of type uint32, this one has "
            f"{[str(dtype) for dtype in types]}"
        )


def decode_bitmap(
    data: Bytes, name: str, num_rows: int = 0, max_rows: int = MAX_PHYSICAL_ROWS
) -> Offsets:
    """Decode a `.bin` deletion file.

    - `name`: Name of the file, for errors.
    - `num_rows`: Physical rows of the fragment; 0 if unknown.
    - `max_rows`: Maximum number of deleted rows.

    Raises CorruptFileError.
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

    - `data`: Portable serialisation.
    - `num_rows`: Physical rows of the fragment.
    - `name`: Name of the fragment, for errors.

    Raises CorruptTableError: the bitmap cannot be parsed, or has an offset out of range.
    """
    bitmap = parse_bitmap(data, name)
    check_rows(bitmap, num_rows, name)
    return bitmap


def check_rows(bitmap: BitMap, num_rows: int, name: str) -> None:
    """Raise an error if a bitmap has a row offset that is out of range.

    To be called before the bitmap becomes an array: few bytes can stand for billions of rows.
    Raises CorruptTableError.
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


def write_deletions(
    store: ObjectStore,
    fragment_id: int,
    read_version: int,
    offsets: Offsets | BitMap,
    *,
    bitmap: bool | None = None,
    tag: bytes = b"",
) -> DeletionFile:
    """Write the deletion file of a fragment.

    - `read_version`: The version that the deletion was planned on.
    - `offsets`: Offsets of all deleted rows, increasing; at least one.
    - `bitmap`: Whether to write a bitmap; by default, the number of rows decides.
    - `tag`: Tag of the job; its first five bytes become part of the name. See `has_tag`.

    Raises StorageError.
    """
    if bitmap is None:
        bitmap = len(offsets) >= BITMAP_FROM
    file = DeletionFile(
        DeletionFileType.BITMAP if bitmap else DeletionFileType.ARROW,
        read_version,
        _number(tag),
        len(offsets),
    )
    if bitmap:
        data = encode_bitmap(offsets)
    else:
        data = encode_arrow(offsets_of(offsets) if isinstance(offsets, BitMap) else offsets)
    path = deletion_path(file, fragment_id)
    try:
        store.write_bytes(path, data)
    except StorageError:
        # The file may exist: possibly only the answer was lost.
        with suppress(StorageError):
            store.delete([path])
        raise
    return file


def has_tag(name: str, tag: bytes) -> bool:
    """Return whether a deletion file was written with this tag, by its name."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match[1]) >> _RANDOM_BITS == _tag_bits(tag)


def _number(tag: bytes) -> int:
    if not tag:
        return secrets.randbits(_ID_BITS)
    return _tag_bits(tag) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def _tag_bits(tag: bytes) -> int:
    return int.from_bytes(tag[:_TAG_BYTES], "big")


def encode_arrow(offsets: Offsets) -> bytes:
    """Return the bytes of an `.arrow` deletion file."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        column = pa.array(offsets.astype(np.uint32))
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))
    return bytes(sink.getvalue())


def encode_bitmap(offsets: Offsets | BitMap) -> bytes:
    """Return the bytes of a `.bin` deletion file."""
    bitmap = offsets if isinstance(offsets, BitMap) else bitmap_of(offsets)
    data: bytes = bitmap.serialize()
    return data


def bitmap_of(offsets: Offsets) -> BitMap:
    """Return the bitmap of increasing row offsets."""
    if len(offsets) and int(offsets[-1]) - int(offsets[0]) + 1 == len(offsets):
        return BitMap(range(int(offsets[0]), int(offsets[-1]) + 1))
    # BitMap takes a whole `array.array` at once, but a numpy array number by number.
    return BitMap(array.array("I", offsets.astype(np.uint32).tobytes()))
