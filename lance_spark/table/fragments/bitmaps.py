"""Sets of row offsets and fragment ids in manifests and transactions: Roaring bitmaps."""

from __future__ import annotations

from pyroaring import BitMap

from lance_spark.errors import CorruptTableError


def parse_bitmap(data: bytes, name: str) -> BitMap:
    """Parse a Roaring bitmap of a manifest or transaction; errors call it `name`.

    Raises CorruptTableError.
    """
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTableError(f"{name}: the Roaring bitmap cannot be read: {error}") from error
