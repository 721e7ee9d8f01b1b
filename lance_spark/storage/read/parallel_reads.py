"""Many small files: read one after the other on local disks, several at once where each request
takes its time.

Results come in the order asked for. The error of the first that fails is raised, and those not yet
begun are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Asked = TypeVar("_Asked")
_Read = TypeVar("_Read")

AT_ONCE = 16


def read_all(
    read: Callable[[_Asked], _Read], asked: Sequence[_Asked], *, local: bool
) -> list[_Read]:
    """Return what `read` makes of each.

    Parameters
    ----------
    read : callable
        Called by several threads, unless `local`.
    asked : sequence
    local : bool
        Whether the files are on a local disk.
    """
    if local or len(asked) < 2:
        return [read(one) for one in asked]
    with ThreadPoolExecutor(min(len(asked), AT_ONCE)) as pool:
        return list(pool.map(read, asked))


def read_each(
    read: Callable[[_Asked], _Read], asked: Sequence[_Asked], *, local: bool
) -> Iterator[_Read]:
    """Yield what `read` makes of each; whoever stops early has asked for less than `AT_ONCE` too
    many. Parameters as in `read_all`.
    """
    if local:
        yield from map(read, asked)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for at in range(0, len(asked), AT_ONCE):
            yield from pool.map(read, asked[at : at + AT_ONCE])
