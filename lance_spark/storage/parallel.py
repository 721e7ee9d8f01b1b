"""Requests that do not depend on each other, several at the same time.

Small files are read in sequence on local disks, in parallel on other stores. Results come in the
order of the requests. The first error is raised, and reads that have not begun are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

AT_ONCE = 16


def read_all(
    read: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    local: bool,
    at_once: int = AT_ONCE,
) -> list[_Result]:
    """Return the result of `read` for each item.

    - `read`: Called by several threads, unless `local`.
    - `local`: Whether the files are on a local disk.
    - `at_once`: Most calls at the same time.
    """
    if local or len(items) < 2 or at_once < 2:
        return [read(item) for item in items]
    with ThreadPoolExecutor(min(len(items), at_once)) as pool:
        return list(pool.map(read, items))


def read_each(
    read: Callable[[_Item], _Result], items: Sequence[_Item], *, local: bool
) -> Iterator[_Result]:
    """Yield the result of `read` for each item; see `read_all`.

    At most `AT_ONCE` items are read at a time, so a caller that stops early wastes fewer reads.
    """
    if local:
        yield from map(read, items)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(0, len(items), AT_ONCE):
            yield from pool.map(read, items[start : start + AT_ONCE])


def call_all(calls: Sequence[Callable[[], Any]], *, local: bool) -> list[Any]:
    """Return the results of calls that do not depend on each other; see `read_all`."""
    return read_all(lambda call: call(), calls, local=local)
