"""Writing deletion files; the layouts are told in `deletions`.

Files that stand for fewer than 5,000 rows are Arrow, others bitmaps, as pylance has it. A file always holds every deleted row of
its fragment, and its name, made of the fragment, the version that the deletion was planned on and a random number, is never used
again. The number's upper 40 bits can be those of a tag, which tells the files of one job.
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

#: Deleted rows from which on a bitmap is written.
BITMAP_FROM = 5_000
_SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_ID_BITS = 64
#: Of a tag in a file's number, and the bits that stay random.
_TAG_BYTES = 5
_OWN_BITS = _ID_BITS - 8 * _TAG_BYTES
#: Also of a file that is not whole yet, on local disks.
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
        All deleted rows, increasing; at least one.
    bitmap : bool, optional
        Which layout; by the number of rows if it is not given.
    tag : bytes
        Whose first five bytes begin the file's number; see `has_tag`.

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
        # It can be there: the answer alone was lost.
        with suppress(StorageError):
            store.delete([path])
        raise
    return file


def has_tag(name: str, tag: bytes) -> bool:
    """Tell whether the name of a deletion file carries a tag."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match[1]) >> _OWN_BITS == _upper(tag)


def _number(tag: bytes) -> int:
    if not tag:
        return secrets.randbits(_ID_BITS)
    return _upper(tag) << _OWN_BITS | secrets.randbits(_OWN_BITS)


def _upper(tag: bytes) -> int:
    return int.from_bytes(tag[:_TAG_BYTES], "big")


def encode_arrow(offsets: Offsets) -> bytes:
    """Return the bytes of a deletion file of the `.arrow` kind."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        column = pa.array(offsets.astype(np.uint32))
        writer.write_batch(pa.record_batch([column], schema=_SCHEMA))
    return bytes(sink.getvalue())


def encode_bitmap(offsets: Offsets | BitMap) -> bytes:
    """Return the bytes of a deletion file of the `.bin` kind."""
    bitmap = offsets if isinstance(offsets, BitMap) else bitmap_of(offsets)
    data: bytes = bitmap.serialize()
    return data


def bitmap_of(offsets: Offsets) -> BitMap:
    """Return a bitmap of row offsets, which increase."""
    if len(offsets) and int(offsets[-1]) - int(offsets[0]) + 1 == len(offsets):
        return BitMap(range(int(offsets[0]), int(offsets[-1]) + 1))
    # It takes arrays of Python's own at once, those of numpy number by number.
    return BitMap(array.array("I", offsets.astype(np.uint32).tobytes()))
