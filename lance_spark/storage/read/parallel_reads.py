"""Reads many small files: in sequence on local disks, in parallel on other stores.

Results come in the order of the requests. The first error is raised, and reads that have not begun
are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

AT_ONCE = 16


def read_all(
    read: Callable[[_Item], _Result], items: Sequence[_Item], *, local: bool
) -> list[_Result]:
    """Return the result of `read` for each item.

    Parameters
    ----------
    read : callable
        Called by several threads, unless `local`.
    items : sequence
    local : bool
        Whether the files are on a local disk.
    """
    if local or len(items) < 2:
        return [read(item) for item in items]
    with ThreadPoolExecutor(min(len(items), AT_ONCE)) as pool:
        return list(pool.map(read, items))


def read_each(
    read: Callable[[_Item], _Result], items: Sequence[_Item], *, local: bool
) -> Iterator[_Result]:
    """Yield what `read` makes of each; whoever stops early has items for less than `AT_ONCE` too
    many. Parameters as in `read_all`.
    """
    if local:
        yield from map(read, items)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(0, len(items), AT_ONCE):
            yield from pool.map(read, items[start : start + AT_ONCE])
