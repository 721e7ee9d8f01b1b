"""Sets of fragments as indexes have them: some kilobytes can stand for millions, so they stay
bitmaps.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Set

from pyroaring import BitMap

from lance_spark.table.fragments.fragment import MAX_ID

#: Ids that `repr` shows.
_SHOWN = 20


class FragmentIds(Set[int]):
    """Ids of fragments, which cannot be changed: equal to a set of the same numbers, in the memory
    of a Roaring bitmap.

    Iteration is in increasing order. What is made of two sets by ``&``, ``|``, ``-`` and ``^`` is a
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
        # The other set may hold what is no id.
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
        # That of a frozenset of the same numbers.
        return self._hash()

    def __repr__(self) -> str:
        shown = ", ".join(str(item) for item in itertools.islice(self._ids, _SHOWN))
        more = f", ... {len(self)} in all" if len(self) > _SHOWN else ""
        return f"{{{shown}{more}}}" if self else "FragmentIds()"
