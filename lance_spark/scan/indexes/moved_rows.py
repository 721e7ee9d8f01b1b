"""Addresses of rows that compactions moved, by the fragment reuse index.

Indexes that were not remapped hold the old addresses. `lance_spark.table.indexes.fragment_reuse`
has the layout of the fragment reuse index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap, BitMap64

from lance_spark.errors import CorruptTableError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.index import OFFSET_BITS, split_addresses
from lance_spark.table.rows.u64_segments import UInt64Array

_Digests = Sequence[table_pb2.FragmentReuseIndexDetails.FragmentDigest]


@dataclass(frozen=True, slots=True)
class MovedRows:
    """The rows that the compactions of a fragment reuse index moved.

    Attributes
    ----------
    content : table_pb2.FragmentReuseIndexDetails.InlineContent
    """

    content: table_pb2.FragmentReuseIndexDetails.InlineContent

    @classmethod
    def read(cls, paths: TablePaths, section: table_pb2.IndexSection) -> MovedRows | None:
        """Read the fragment reuse index of a version; None if it has none.

        Raises
        ------
        UnsupportedFeatureError
            The entry has transitions that this release does not know.
        CorruptTableError, MissingFileError, StorageError
        """
        entry = fragment_reuse.find_entry(section)
        if entry is None:
            return None
        if fragment_reuse.is_tagged(entry):
            raise UnsupportedFeatureError(
                f"the fragment reuse index has version {entry.index_version}, which is unknown"
            )
        return cls(fragment_reuse.read_content(paths, entry))

    def covered(self, bitmap: BitMap) -> BitMap:
        """Return the fragments that now hold the rows of some fragments."""
        return fragment_reuse.remap_fragments(bitmap, self.content)

    def old_fragments(self) -> Iterator[table_pb2.FragmentReuseIndexDetails.FragmentDigest]:
        """Yield the fragments whose rows were moved."""
        for version in self.content.legacy_versions:
            for group in version.groups:
                yield from group.old_fragments

    def new_addresses(self, addresses: UInt64Array) -> UInt64Array:
        """Return the new addresses of rows. Deleted rows may keep an old address.

        Raises
        ------
        CorruptTableError
            The record of a compaction is damaged.
        """
        result = addresses.copy()
        for version in self.content.legacy_versions:
            for group in version.groups:
                _move(result, group)
        return result


def _move(addresses: UInt64Array, group: table_pb2.FragmentReuseIndexDetails.Group) -> None:
    """Replace the addresses of the rows that one group of fragments moved."""
    fragment_ids, _ = split_addresses(addresses)
    old = np.array([digest.id for digest in group.old_fragments], np.uint64)
    hits = np.unique(fragment_ids[np.isin(fragment_ids, old)]).tolist()
    if not hits:
        return
    try:
        moved = BitMap64.deserialize(group.changed_row_addrs)
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        raise CorruptTableError(f"the fragment reuse index cannot be read: {error}") from None
    rows = {digest.id: digest.physical_rows for digest in group.old_fragments}
    targets = {}
    for number in hits:
        first = number << OFFSET_BITS
        of_fragment = BitMap64()
        of_fragment.add_range(first, first + rows[number])
        live = np.frombuffer((moved & of_fragment).to_array(), np.uint64)
        before = moved.rank(first) - (first in moved)
        targets[number] = live, before
    new_ids = np.array([digest.id for digest in group.new_fragments], np.uint64)
    ends = np.cumsum([digest.physical_rows for digest in group.new_fragments], dtype=np.int64)
    for number, (live, before) in targets.items():
        places = np.flatnonzero(fragment_ids == number)
        index = np.searchsorted(live, addresses[places])
        is_live = index < len(live)
        is_live[is_live] &= live[index[is_live]] == addresses[places][is_live]
        position = before + index[is_live]
        fragment = np.searchsorted(ends, position, "right")
        if len(fragment) and int(fragment.max()) >= len(new_ids):
            raise CorruptTableError(
                "the fragment reuse index moves more rows than its new fragments have"
            )
        starts = np.concatenate([[0], ends[:-1]])
        offset = (position - starts[fragment]).astype(np.uint64)
        addresses[places[is_live]] = (new_ids[fragment] << np.uint64(OFFSET_BITS)) | offset
