"""Writer of deletion files; `lance_spark.table.rows.deletions` describes their layouts.

A file always holds all deleted rows of its fragment. Files of fewer than 5,000 rows are Arrow
files, others are bitmaps, as in pylance. The name of a file consists of the fragment id, the
version that the deletion was planned on, and a random number, and is never reused. The upper 40
bits of the number may be a tag, which identifies the files of one job.
"""

from __future__ import annotations

import array
import re
import secrets
from contextlib import suppress

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import StorageError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments.files import DeletionFile, DeletionFileType
from lance_spark.table.paths import deletion_path
from lance_spark.table.rows.deletions import Offsets, offsets_of

#: The smallest number of deleted rows for which a bitmap is written.
BITMAP_FROM = 5_000
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_ID_BITS = 64
#: Bytes of a tag in the number of a file, and the bits that stay random.
_TAG_BYTES = 5
_RANDOM_BITS = _ID_BITS - 8 * _TAG_BYTES
#: Names of deletion files, and of their unfinished files on local disks.
_NAME = re.compile(r"\.?\d+-\d+-(\d+)\.(?:arrow|bin)(?:\.\w+\.tmp)?")


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

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    fragment_id : int
    read_version : int
        The version that the deletion was planned on.
    offsets : int64 array or BitMap
        Offsets of all deleted rows, increasing; at least one.
    bitmap : bool, optional
        Whether to write a bitmap; by default, the number of rows decides.
    tag : bytes
        Tag of the job; its first five bytes become part of the name. See `has_tag`.

    Raises
    ------
    StorageError
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
