"""Rows of one column that wait for their page, and where pages are cut.

A page is worth writing when its Arrow bytes reach a limit. The bytes of dictionaries are counted once for all batches that
share them, because a page stores them once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as pat

#: Rows of a page at most: columns of nulls have no bytes, but their levels take memory while they are encoded.
MAX_PAGE_ROWS = 64 * 1024 * 1024
#: How many pieces are joined to one, so that batches of few rows do not pile up as objects.
_FAN_IN = 64


class PendingRows:
    """Collects arrays of one type until they are worth a page.

    Parameters
    ----------
    page_bytes : int
    """

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        # Every row is copied once for each level: 64 pieces of one level are joined to one of the next.
        self._levels: list[list[pa.Array]] = [[]]
        self._dictionaries: list[pa.Array] = []
        self._bytes = 0
        self._rows = 0

    def add(self, array: pa.Array) -> bool:
        """Add rows; return whether a page should be written now."""
        self._bytes += value_bytes(array) + self._new_dictionaries(array)
        self._rows += len(array)
        full = self._bytes >= self._page_bytes or self._rows >= MAX_PAGE_ROWS
        # A slice may hold the memory of a whole message of many columns; what has to wait is copied out of it.
        self._levels[0].append(array if full else pa.concat_arrays([array]))
        if not full:
            self._join()
        return full

    def take(self) -> list[pa.Array]:
        """Hand over all rows as pages of about the size wanted, in order."""
        arrays = [array for level in reversed(self._levels) for array in level]
        self._levels = [[]]
        self._dictionaries = []
        self._bytes = self._rows = 0
        return [page for array in _joined(arrays) for page in cut(array, self._page_bytes)]

    def _join(self) -> None:
        for depth, level in enumerate(self._levels):
            if len(level) < _FAN_IN:
                return
            joined = _joined(level)
            if len(joined) > 1:
                return
            if depth + 1 == len(self._levels):
                self._levels.append([])
            self._levels[depth + 1] += joined
            self._levels[depth] = []

    def _new_dictionaries(self, array: pa.Array) -> int:
        found = dictionaries(array)
        known = self._dictionaries
        self._dictionaries = found
        if len(known) != len(found):
            known = [None] * len(found)
        return sum(
            int(new.nbytes)
            for old, new in zip(known, found, strict=True)
            if old is None or not _same_memory(old, new)
        )


def cut(array: pa.Array, page_bytes: int) -> Iterator[pa.Array]:
    """Yield slices of about `page_bytes`; rows may differ much in size, so that slices are measured again."""
    size, rows = value_bytes(array), len(array)
    pieces = max(round(size / page_bytes), math.ceil(rows / MAX_PAGE_ROWS))
    if pieces <= 1 or rows <= 1:
        yield array
        return
    step = math.ceil(rows / min(pieces, rows))
    for start in range(0, rows, step):
        piece = array.slice(start, step)
        if len(piece) > 1 and value_bytes(piece) > 2 * page_bytes:
            yield from cut(piece, page_bytes)
        else:
            yield piece


def value_bytes(array: pa.Array) -> int:
    """Return the bytes of an array's values, lists and validity, without its dictionaries."""
    if not _has_dictionary(array.type):
        return int(array.nbytes)
    if pat.is_dictionary(array.type):
        return int(array.indices.nbytes)
    return len(array) * 8 + sum(value_bytes(child) for child in _children(array))


def dictionaries(array: pa.Array) -> list[pa.Array]:
    """Return the dictionaries in an array, depth-first."""
    if not _has_dictionary(array.type):
        return []
    if pat.is_dictionary(array.type):
        return [array.dictionary]
    return [found for child in _children(array) for found in dictionaries(child)]


def _children(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pat.is_struct(kind):
        return [array.field(at) for at in range(kind.num_fields)]
    if pat.is_fixed_size_list(kind):
        size = kind.list_size
        return [array.values.slice(array.offset * size, len(array) * size)]
    offsets = array.offsets
    start = offsets[0].as_py()
    length = offsets[-1].as_py() - start
    if pat.is_map(kind):
        return [array.keys.slice(start, length), array.items.slice(start, length)]
    return [array.values.slice(start, length)]


def _has_dictionary(kind: pa.DataType) -> bool:
    if pat.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _same_memory(one: pa.Array, other: pa.Array) -> bool:
    places = [
        [(array.offset, len(array))]
        + [
            (0, 0) if buffer is None else (buffer.address, buffer.size)
            for buffer in array.buffers()
        ]
        for array in (one, other)
    ]
    return places[0] == places[1]


def _joined(arrays: list[pa.Array]) -> list[pa.Array]:
    if len(arrays) <= 1:
        return arrays
    try:
        return [pa.concat_arrays(arrays)]
    except pa.ArrowInvalid:
        # Dictionaries that do not fit one index type, or 2 GiB of strings: each keeps its own page.
        return arrays
