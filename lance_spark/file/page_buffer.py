"""Buffers the rows of one column until they fill a page, and cuts pages.

A page is full when its Arrow bytes reach a limit. A dictionary that several batches share counts
once, as a page stores it once.

Rows are copied once, when the batches of a page are concatenated. Until then the columns borrow the
batches, and a batch stays in memory as long as one of its columns needs it. `BorrowedBatches`
bounds the unneeded memory of such batches: the columns with the oldest rows copy them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import fixed_width, is_plain, vector_items

#: Maximum rows of a page: a column of nulls has no bytes, but its levels take memory when encoded.
MAX_PAGE_ROWS = 64 * 1024 * 1024
#: Number of pieces that are concatenated to one, so that small batches do not accumulate as
#: objects.
_FAN_IN = 64
#: Maximum borrowed pieces of a column before they are concatenated.
_MAX_LENT = 1024
#: Maximum bytes of borrowed batches beyond their needed rows, in pages.
_HELD_PAGES = 4
#: Maximum memory of a borrowed batch, as a multiple of its rows, and of its remaining rows after
#: pages were written. Memory that is released early is reused for the next batches.
_MOST_HELD = 2
_MOST_LEFT = 4


class PageBuffer:
    """Collects arrays of one type until they fill a page.

    - `lent_bytes`: Bytes of the rows in borrowed batches.
    - `newest_bytes`: Bytes of the rows in the newest borrowed batch.
    - `oldest_loan`: Number of the oldest borrowed batch.
    """

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        # Every row is copied once for each level: 64 pieces of one level become one of the next.
        self._levels: list[list[pa.Array]] = [[]]
        self._lent: list[pa.Array] = []
        self.lent_bytes = self.newest_bytes = 0
        self.oldest_loan: int | None = None
        self._dictionaries: list[pa.Array] = []
        self._has_dictionary: bool | None = None
        self._bytes = 0
        self._rows = 0

    def add(self, array: pa.Array, loan: int | None = None) -> bool:
        """Add rows; return whether a page should be written now.

        - `loan`: Number of the batch that may be borrowed. Without it, the rows are copied unless
          they fill the page.
        """
        if self._has_dictionary is None:
            self._has_dictionary = _has_dictionary(array.type)
        size = value_bytes(array) if self._has_dictionary else _array_bytes(array)
        self._bytes += size
        if self._has_dictionary:
            self._bytes += self._new_dictionaries(array)
        self._rows += len(array)
        full = self._bytes >= self._page_bytes or self._rows >= MAX_PAGE_ROWS
        if full or loan is not None:
            self._lent.append(array)
            self.lent_bytes += size
            self.newest_bytes = size
            if self.oldest_loan is None:
                self.oldest_loan = loan
            if len(self._lent) >= _MAX_LENT and not full:
                self.keep()
        else:
            self.keep()
            # A slice can keep a whole message of many columns in memory, so its rows are copied.
            self._keep([array])
        return full

    def keep(self) -> None:
        """Copy the rows of borrowed batches."""
        lent = self._take_lent()
        if lent:
            self._keep(lent)

    def take(self) -> list[pa.Array]:
        """Return all rows as pages of about the page size, in order."""
        arrays = [array for level in reversed(self._levels) for array in level]
        arrays += self._take_lent()
        small = self._bytes <= self._page_bytes and self._rows <= MAX_PAGE_ROWS
        self._levels = [[]]
        self._dictionaries = []
        self._bytes = self._rows = 0
        joined = _joined(arrays)
        if small:
            return joined
        return [page for array in joined for page in cut(array, self._page_bytes)]

    def _take_lent(self) -> list[pa.Array]:
        lent, self._lent = self._lent, []
        self.lent_bytes = self.newest_bytes = 0
        self.oldest_loan = None
        return lent

    def _keep(self, arrays: list[pa.Array]) -> None:
        joined = _joined(arrays)
        num_levels = (
            joined if len(joined) < len(arrays) else [pa.concat_arrays([array]) for array in arrays]
        )
        self._levels[0] += num_levels
        self._join()

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
        new_dictionaries = dictionaries(array)
        existing = self._dictionaries
        self._dictionaries = new_dictionaries
        if len(existing) != len(new_dictionaries):
            existing = [None] * len(new_dictionaries)
        return sum(
            int(new.nbytes)
            for old, new in zip(existing, new_dictionaries, strict=True)
            if old is None or not _same_memory(old, new)
        )


class BorrowedBatches:
    """The batches that the columns of a file borrow."""

    def __init__(self, columns: Sequence[PageBuffer], page_bytes: int) -> None:
        self._columns = columns
        self._max_bytes = _HELD_PAGES * page_bytes
        self._allocations: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._count = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the borrowed batches."""
        return self._bytes

    def open(self, columns: Sequence[pa.Array]) -> int | None:
        """Return the number of a batch to borrow; None if its memory exceeds its rows by far."""
        size = _memory(columns)
        if size > _MOST_HELD * sum(map(_array_bytes, columns)):
            return None
        self._count += 1
        self._allocations.append((self._count, size))
        self._bytes += size
        return self._count

    def settle(self) -> None:
        """Release unneeded batches, and copy the rows of batches with few needed rows."""
        if self._allocations:
            needed_bytes = sum(column.newest_bytes for column in self._columns)
            if self._allocations[-1][1] > _MOST_LEFT * needed_bytes:
                for column in self._columns:
                    column.keep()
        while self._allocations:
            loans = [
                column.oldest_loan for column in self._columns if column.oldest_loan is not None
            ]
            oldest = min(loans, default=self._count + 1)
            while self._allocations and self._allocations[0][0] < oldest:
                self._bytes -= self._allocations.popleft()[1]
            if self._bytes - sum(column.lent_bytes for column in self._columns) <= self._max_bytes:
                return
            for column in self._columns:
                if column.oldest_loan == oldest:
                    column.keep()


def _memory(columns: Sequence[pa.Array]) -> int:
    """Return the bytes that arrays keep in memory, including messages that their buffers slice."""
    buffers = [buffer for array in columns for buffer in array.buffers()]
    wholes = [_root_buffer(buffer) for buffer in buffers if buffer is not None]
    return sum({buffer.address: int(buffer.size) for buffer in wholes}.values())


def _root_buffer(buffer: pa.Buffer) -> pa.Buffer:
    while buffer.parent is not None:
        buffer = buffer.parent
    return buffer


def cut(array: pa.Array, page_bytes: int) -> Iterator[pa.Array]:
    """Yield slices of about `page_bytes`. Slices are measured again, as rows can differ in size."""
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
    """Return the bytes of the values, lists and validity of an array, without dictionaries."""
    if not _has_dictionary(array.type):
        return _array_bytes(array)
    if pat.is_dictionary(array.type):
        return int(array.indices.nbytes)
    return len(array) * 8 + sum(value_bytes(child) for child in _children(array))


def _array_bytes(array: pa.Array) -> int:
    """Return `nbytes` of an array, computed faster than by Arrow for the common types."""
    dtype = array.type
    # Types without fields have short keys.
    bits = 0 if dtype.num_fields else _value_bits(dtype)
    if not bits or array.null_count:
        return int(array.nbytes)
    return (len(array) * bits + 7) // 8


@lru_cache(maxsize=256)
def _value_bits(dtype: pa.DataType) -> int:
    """Return the bits of a value; 0 for nested types and types of variable size."""
    return fixed_width(dtype) if is_plain(dtype) else 0


def dictionaries(array: pa.Array) -> list[pa.Array]:
    """Return the dictionaries in an array, depth-first."""
    if not _has_dictionary(array.type):
        return []
    if pat.is_dictionary(array.type):
        return [array.dictionary]
    return [result for child in _children(array) for result in dictionaries(child)]


def _children(array: pa.Array) -> list[pa.Array]:
    dtype = array.type
    if pat.is_struct(dtype):
        return [array.field(index) for index in range(dtype.num_fields)]
    if pat.is_fixed_size_list(dtype):
        return [vector_items(array)]
    offsets = array.offsets
    start = offsets[0].as_py()
    length = offsets[-1].as_py() - start
    if pat.is_map(dtype):
        return [array.keys.slice(start, length), array.items.slice(start, length)]
    return [array.values.slice(start, length)]


def _has_dictionary(dtype: pa.DataType) -> bool:
    if not dtype.num_fields:
        return bool(pat.is_dictionary(dtype))
    return any(_has_dictionary(dtype.field(index).type) for index in range(dtype.num_fields))


def _same_memory(array_a: pa.Array, array_b: pa.Array) -> bool:
    addresses = [
        [(array.offset, len(array))]
        + [
            (0, 0) if buffer is None else (buffer.address, buffer.size)
            for buffer in array.buffers()
        ]
        for array in (array_a, array_b)
    ]
    return addresses[0] == addresses[1]


def _joined(arrays: list[pa.Array]) -> list[pa.Array]:
    if len(arrays) <= 1:
        return arrays
    try:
        return [pa.concat_arrays(arrays)]
    except pa.ArrowInvalid:
        # Dictionaries that do not fit one index type, or more than 2 GiB of strings, stay separate
        # pages.
        return arrays
