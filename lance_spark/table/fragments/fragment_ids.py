"""Sets of fragment ids, held as Roaring bitmaps: an index can cover millions of fragments."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Set

from pyroaring import BitMap

from lance_spark.table.fragments.fragment import MAX_ID

#: Ids that `repr` shows.
_SHOWN = 20


class FragmentIds(Set[int]):
    """An immutable set of fragment ids. It is equal to a set of the same numbers.

    Iteration is in increasing order. The operators ``&``, ``|``, ``-`` and ``^`` return a
    `frozenset`.

    Parameters
    ----------
    ids : iterable of int or BitMap
        A bitmap is not copied.
    """

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[int] | BitMap = ()) -> None:
        self._ids = ids if isinstance(ids, BitMap) else BitMap(ids)

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> frozenset[int]:  # type: ignore[override]
        # The other operand may contain numbers that are not fragment ids.
        return frozenset(it)

    def __contains__(self, value: object) -> bool:
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            return False
        return 0 <= number <= MAX_ID and number in self._ids

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __hash__(self) -> int:
        # Equal to the hash of a frozenset of the same numbers.
        return self._hash()

    def __repr__(self) -> str:
        shown = ", ".join(str(fragment_id) for fragment_id in itertools.islice(self._ids, _SHOWN))
        suffix = f", ... {len(self)} in all" if len(self) > _SHOWN else ""
        return f"{{{shown}{suffix}}}" if self else "FragmentIds()"
