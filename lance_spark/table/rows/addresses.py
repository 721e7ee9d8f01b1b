"""Row addresses: fragment id << 32 | offset among the physical rows of the fragment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lance_spark.errors import CorruptTableError
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.u64_segments import Offsets, UInt64Array

#: Bits of a row address below the fragment id.
OFFSET_BITS = 32
_OFFSET_MASK = np.uint64((1 << OFFSET_BITS) - 1)


def first_address(fragment: Fragment) -> int:
    """Return the row address of the first physical row of a fragment.

    Raises
    ------
    CorruptTableError
        The id of the fragment has more than 32 bits.
    """
    if fragment.id >> OFFSET_BITS:
        raise CorruptTableError(f"{fragment.name}: a fragment id must have at most 32 bits")
    return fragment.id << OFFSET_BITS


def split_addresses(addresses: UInt64Array) -> tuple[UInt64Array, Offsets]:
    """Return the fragment id and the row offset of each address."""
    fragment_ids: UInt64Array = addresses >> np.uint64(OFFSET_BITS)
    return fragment_ids, (addresses & _OFFSET_MASK).astype(np.int64)


def fragment_runs(addresses: UInt64Array) -> Iterator[tuple[int, slice, Offsets]]:
    """Yield each run of addresses in one fragment: fragment id, where in the array, row offsets."""
    fragment_ids, offsets = split_addresses(addresses)
    ends = [*(np.flatnonzero(np.diff(fragment_ids)) + 1).tolist(), len(addresses)]
    start = 0
    for end in ends if len(addresses) else ():
        yield int(fragment_ids[start]), slice(start, end), offsets[start:end]
        start = end


def offsets_by_fragment(addresses: UInt64Array) -> Iterator[tuple[int, Offsets]]:
    """Yield each fragment id with its row offsets, if the addresses of a fragment are together."""
    for number, _, offsets in fragment_runs(addresses):
        yield number, offsets
