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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from lance_spark.errors import CorruptFileError, CorruptTableError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import (
    OFFSET_BITS,
    FindRows,
    offsets_by_fragment,
    split_addresses,
)
from lance_spark.table.rows.deletions import offsets_of
from lance_spark.table.rows.u64_segments import UInt64Array

_ENTRY = struct.Struct("<II")
_COUNT = struct.Struct("<I")


class TooMany(NamedTuple):
    """The rows that a search finds exceed its limit.

    - `num_rows`: The rows that are known to exceed it: all, or fewer.
    - `sample` (uint64 array): Ids or addresses of some of them, which follow one another in the
      index.
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

    - `bitmaps`: The low halves by their high half.
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

        - `name`: What errors call the file.

        Raises CorruptFileError: the bytes are truncated, or are no bitmaps. Raises
        UnsupportedFeatureError: an entry stands for all row keys of a fragment.
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


# --------------------------------------------------------------------------------------------------
# Rows that compactions moved after an index was built: their new addresses.
#
# An index that was not remapped holds the old addresses. The fragment reuse index has the moves;
# see `lance_spark.table.indexes.fragment_reuse`.

_Group = table_pb2.FragmentReuseIndexDetails.Group
#: Most rows of a group of fragments that one compaction rewrote together.
_MAX_ROWS = 1 << 32


class MovedRows:
    """The moves of a version.

    - `content`: Of the fragment reuse index; None if no row moved.
    """

    def __init__(
        self, content: table_pb2.FragmentReuseIndexDetails.InlineContent | None = None
    ) -> None:
        self._content = content
        self._old_fragments: list[list[BitMap]] = []
        self._old_addresses: dict[tuple[int, int], UInt64Array] = {}

    @classmethod
    def of(cls, paths: TablePaths, section: table_pb2.IndexSection) -> MovedRows:
        """Return the moves that an index section records.

        Raises CorruptTableError, MissingFileError, StorageError.
        """
        entry = fragment_reuse.find_entry(section)
        if entry is None:
            return cls()
        if fragment_reuse.is_tagged(entry):
            raise UnsupportedFeatureError(
                f"{paths.store.display}: the fragment reuse index has version "
                f"{entry.index_version}, which this release cannot read; create the index again"
            )
        return cls(fragment_reuse.read_content(paths, entry))

    def __bool__(self) -> bool:
        """Whether a row moved."""
        return self._content is not None

    def fragments(self, bitmap: BitMap) -> BitMap:
        """Return the fragments that have the rows of some fragments."""
        if self._content is None:
            return bitmap
        return fragment_reuse.remap_fragments(bitmap, self._content)

    def origins(self, bitmap: BitMap) -> BitMap:
        """Return the fragments from which compactions moved the rows of some fragments.

        Fragments that a later compaction made are left out.
        """
        origins = BitMap()
        if self._content is None:
            return origins
        current = bitmap.copy()
        for version in reversed(self._content.legacy_versions):
            for group in version.groups:
                new = BitMap(digest.id for digest in group.new_fragments)
                if not current.isdisjoint(new):
                    old = BitMap(digest.id for digest in group.old_fragments)
                    current = (current - new) | old
                    origins = (origins - new) | old
        return origins

    def old_fragments(self) -> Iterator[table_pb2.FragmentReuseIndexDetails.FragmentDigest]:
        """Yield the fragments whose rows were moved."""
        for version in () if self._content is None else self._content.legacy_versions:
            for group in version.groups:
                yield from group.old_fragments

    def old_rows(self) -> RowSet:
        """Return the addresses that the moved rows had, and those of their deleted neighbours."""
        bitmaps = {}
        for digest in self.old_fragments():
            bitmaps[digest.id] = BitMap()
            bitmaps[digest.id].add_range(0, min(digest.physical_rows, 1 << OFFSET_BITS))
        return RowSet(bitmaps)

    def new_addresses(self, addresses: UInt64Array) -> UInt64Array:
        """Return the new addresses of rows; those of deleted rows stay.

        Raises CorruptTableError: the moved rows do not match their fragments.
        """
        return self.addresses(addresses, BitMap())[0]

    def addresses(
        self, addresses: UInt64Array, bitmap: BitMap
    ) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the new addresses of rows of a segment, and which rows it covers.

        - `addresses` (uint64 array): As the segment has them.
        - `bitmap`: The fragments of the segment. They may have been replaced by those of a later
          move, although the segment still has the old addresses.

        Raises CorruptTableError: the moved rows do not match their fragments.
        """
        covered = in_fragments(addresses, bitmap)
        if self._content is None or not len(addresses):
            return addresses, covered
        moved, exists = addresses.copy(), np.ones(len(addresses), np.bool_)
        present = _fragments_of(moved)
        for number, groups in enumerate(self._groups()):
            is_new = False
            for place, old in enumerate(groups):
                # Most compactions moved none of the rows.
                if present.isdisjoint(old):
                    continue
                is_old = in_fragments(moved, old) & exists
                places = np.flatnonzero(is_old)
                new, is_live = self._moved(number, place, moved[places])
                moved[places[is_live]] = new[is_live]
                exists[places[~is_live]] = False
                is_new = True
            if is_new:
                present |= _fragments_of(moved)
                covered |= in_fragments(moved, bitmap)
        return moved, covered & exists

    def live_addresses(
        self,
        find: FindRows,
        ids: UInt64Array,
        fragments: BitMap,
        covered: BitMap,
        *,
        stable_row_ids: bool,
    ) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the addresses of rows of a segment, and which of them are live and covered.

        A row that moved to a fragment that the segment does not cover has another value.

        - `find`: Finds rows by their ids.
        - `ids` (uint64 array): Row ids or addresses, as the segment has them.
        - `fragments`: The fragments of the segment.
        - `covered`: The fragments of the version that the index covers.
        - `stable_row_ids`: Whether the table has them.

        Raises CorruptTableError: the moved rows do not match their fragments.
        """
        # Of a fragment that has rows of others, too, another segment may have all rows.
        covered = self.fragments(fragments) & covered
        if stable_row_ids:
            is_live, addresses = find(ids)
            return addresses, is_live & in_fragments(addresses, covered)
        moved, is_own = self.addresses(ids, fragments)
        is_live, addresses = find(moved)
        return addresses, is_own & is_live & in_fragments(addresses, covered)

    def _groups(self) -> list[list[BitMap]]:
        """Return the old fragments of each group of each compaction."""
        if not self._old_fragments and self._content is not None:
            self._old_fragments = [
                [BitMap(digest.id for digest in group.old_fragments) for group in version.groups]
                for version in self._content.legacy_versions
            ]
        return self._old_fragments

    def _moved(
        self, number: int, place: int, addresses: UInt64Array
    ) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the new addresses of rows of a group, and which rows were not deleted."""
        assert self._content is not None
        group = self._content.legacy_versions[number].groups[place]
        key = number, place
        if key not in self._old_addresses:
            self._old_addresses[key] = _old_addresses(group)
        return _new_addresses(group, self._old_addresses[key], addresses)


def in_fragments(addresses: UInt64Array, fragments: BitMap) -> npt.NDArray[np.bool_]:
    """Return which addresses are in some fragments."""
    if not fragments:
        return np.zeros(len(addresses), np.bool_)
    # Of a bitmap, the numbers increase.
    numbers = np.frombuffer(fragments.to_array(), np.uint32).astype(np.uint64)
    own = split_addresses(addresses)[0]
    place = np.minimum(np.searchsorted(numbers, own), len(numbers) - 1)
    is_in: npt.NDArray[np.bool_] = numbers[place] == own
    return is_in


def _fragments_of(addresses: UInt64Array) -> BitMap:
    return BitMap(np.unique(split_addresses(addresses)[0]).astype(np.uint32))


def _old_addresses(group: _Group) -> UInt64Array:
    """Return the old addresses of the rows of a group.

    Raises CorruptTableError: they are not as many as the rows of the new fragments.
    """
    try:
        bitmap = BitMap64.deserialize(group.changed_row_addrs)
        count = len(bitmap)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTableError(f"the fragment reuse index: moved rows: {error}") from None
    num_rows = sum(digest.physical_rows for digest in group.new_fragments)
    if count != num_rows or count > _MAX_ROWS:
        raise CorruptTableError(
            f"the fragment reuse index: {count} rows moved to fragments of {num_rows} rows"
        )
    return np.array(bitmap.to_array(), np.uint64)


def _new_addresses(
    group: _Group, old: UInt64Array, addresses: UInt64Array
) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
    """Return the new addresses of rows of a group, and which rows were not deleted."""
    rows = [digest.physical_rows for digest in group.new_fragments]
    count = len(old)
    place = np.searchsorted(old, addresses)
    exists = old[np.minimum(place, max(count - 1, 0))] == addresses if count else place < 0
    place = np.where(exists, place, 0)
    ends = np.cumsum(np.array(rows, np.int64))
    number = np.searchsorted(ends, place, "right")
    number = np.minimum(number, max(len(rows) - 1, 0))
    ids = np.array([digest.id for digest in group.new_fragments] or [0], np.uint64)
    starts = np.append(0, ends)[number]
    moved = (ids[number] << np.uint64(OFFSET_BITS)) | (place - starts).astype(np.uint64)
    return moved, exists
