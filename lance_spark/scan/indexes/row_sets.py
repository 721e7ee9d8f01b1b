"""Sets of row ids or addresses in index files.

A row address map is a set of 64-bit row keys: one Roaring bitmap for each of their high halves,
which are fragment ids if the row keys are addresses. Little-endian:

| bytes | content |
| --- | --- |
| 4 | number of entries |
| 4 | of each entry: high half, ascending |
| 4 | size of its bitmap; 0 stands for all row keys with the high half |
| size | 32-bit Roaring bitmap of the low halves, in the portable form |

Specification: table/index/scalar/bitmap.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap

from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.table.rows.deletions import offsets_of
from lance_spark.table.rows.index import OFFSET_BITS, offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array

_ENTRY = struct.Struct("<II")
_COUNT = struct.Struct("<I")


class TooMany(NamedTuple):
    """The rows that a search finds exceed its limit.

    Attributes
    ----------
    num_rows : int
        The rows that are known to exceed it: all, or fewer.
    sample : uint64 array, optional
        Ids or addresses of some of them, which follow one another in the index.
    """

    num_rows: int
    sample: UInt64Array | None = None


#: The result of a search: row ids or addresses; None if the index does not decide.
Answer = UInt64Array | TooMany | None


def limited(row_keys: UInt64Array, limit: int) -> UInt64Array | TooMany:
    """Return the rows that a search has found, if they do not exceed its limit."""
    return row_keys if len(row_keys) <= limit else TooMany(len(row_keys))


@dataclass(frozen=True, slots=True)
class RowSet:
    """A set of row ids or addresses.

    Attributes
    ----------
    bitmaps : mapping of int to BitMap
        The low halves by their high half.
    """

    bitmaps: Mapping[int, BitMap]

    @classmethod
    def of(cls, row_keys: UInt64Array) -> RowSet:
        """Return a set of row keys, given in increasing order; equal row keys may repeat."""
        return cls(
            {
                high: BitMap(low.astype(np.uint32), optimize=False)
                for high, low in offsets_by_fragment(row_keys)
            }
        )

    @classmethod
    def decode(cls, data: bytes, name: str) -> RowSet:
        """Parse a row address map.

        Parameters
        ----------
        data : bytes
        name : str
            What errors call the file.

        Raises
        ------
        CorruptFileError
            The bytes are truncated, or are no bitmaps.
        UnsupportedFeatureError
            An entry stands for all row keys of a fragment.
        """
        bitmaps: dict[int, BitMap] = {}
        try:
            (count,) = _COUNT.unpack_from(data)
            position = _COUNT.size
            for _ in range(count):
                high, size = _ENTRY.unpack_from(data, position)
                position += _ENTRY.size
                if not size:
                    raise UnsupportedFeatureError(
                        f"{name}: a set has all rows of fragment {high}; rebuild the index"
                    )
                if position + size > len(data):
                    raise ValueError("a bitmap ends after the set")
                bitmaps[high] = BitMap.deserialize(data[position : position + size])
                position += size
        except (struct.error, ValueError, IndexError, MemoryError) as error:
            raise CorruptFileError(
                f"{name}: a set of rows is damaged ({error}); rebuild the index"
            ) from None
        return cls(bitmaps)

    @classmethod
    def union(cls, sets: Iterable[RowSet]) -> RowSet:
        """Return the row keys that are in any of several sets."""
        by_high: dict[int, list[BitMap]] = {}
        for rows in sets:
            for high, bitmap in rows.bitmaps.items():
                by_high.setdefault(high, []).append(bitmap)
        return cls({high: BitMap.union(*bitmaps) for high, bitmaps in by_high.items()})

    @classmethod
    def intersection(cls, sets: Iterable[RowSet]) -> RowSet:
        """Return the row keys that are in each of several sets, of which there is at least one."""
        first, *further = sets
        common = {high for high in first.bitmaps if all(high in rows.bitmaps for rows in further)}
        return cls(
            {
                high: BitMap.intersection(
                    first.bitmaps[high], *(rows.bitmaps[high] for rows in further)
                )
                for high in common
            }
        )

    def of_fragments(self, fragments: BitMap) -> RowSet:
        """Return the addresses in some fragments."""
        return RowSet({high: rows for high, rows in self.bitmaps.items() if high in fragments})

    @property
    def num_rows(self) -> int:
        """The number of row keys. A set of few bytes can have billions."""
        return sum(map(len, self.bitmaps.values()))

    def encode(self) -> bytes:
        """Return the bytes of a row address map."""
        parts = []
        for high, bitmap in sorted(self.bitmaps.items()):
            data = bitmap.serialize()
            parts.append(_ENTRY.pack(high, len(data)) + data)
        return _COUNT.pack(len(parts)) + b"".join(parts)

    def row_keys(self) -> UInt64Array:
        """Return the row keys in increasing order."""
        parts = [
            (np.uint64(high) << np.uint64(OFFSET_BITS)) | offsets_of(bitmap).astype(np.uint64)
            for high, bitmap in sorted(self.bitmaps.items())
        ]
        return np.concatenate([np.empty(0, np.uint64), *parts])
