"""Base tokenizers: split the text of many rows at once into words.

Words are cut from the bytes of all rows together. Only characters that are not of ASCII are decoded
to find their class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import InvalidInputError
from lance_spark.scan.text.files.packing import Bytes, joined

_ASCII_STOP = 0x80
#: First of the bytes that begin a character of 2, 3 and 4 bytes.
_LEADS = np.array([0xC0, 0xE0, 0xF0], np.uint8)

#: Words as large binary, and the row and position of each.
Words = tuple[pa.Array, RowNumbers, RowNumbers]


@dataclass(frozen=True, slots=True)
class Text:
    """The text of some rows as one array of bytes.

    Attributes
    ----------
    data : uint8 array
        In UTF-8.
    bounds : int64 array
        First byte of each row, and the number of bytes. Null rows have no bytes.
    is_valid : bool array
        Which rows are not null.
    """

    data: Bytes
    bounds: RowNumbers
    is_valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, texts: pa.Array, *, lower_ascii: bool) -> Text:
        """Return the text of rows, with letters of ASCII in lower case if wanted.

        Raises
        ------
        InvalidInputError
            A text is not UTF-8.
        """
        is_valid = texts.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
        binary = texts.cast(pa.large_string()).fill_null("")
        _, offset_buffer, data_buffer = binary.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)
        offsets = offsets[binary.offset : binary.offset + len(binary) + 1]
        data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
        data = data[offsets[0] : offsets[-1]]
        if data.max(initial=0) >= _ASCII_STOP:
            try:
                data.tobytes().decode()
            except UnicodeDecodeError as error:
                raise InvalidInputError(f"a text is not UTF-8: {error.reason}") from None
        return cls(_lowered(data) if lower_ascii else data, offsets - offsets[0], is_valid)


def whole(text: Text) -> Words:
    """Return the text of each row that is not null."""
    rows = np.flatnonzero(text.is_valid)
    offsets = np.append(text.bounds[:-1][text.is_valid], len(text.data))
    return _binary(offsets, text.data), rows, np.zeros(len(rows), np.int64)


def runs(text: Text, is_part: npt.NDArray[np.bool_]) -> Words:
    """Return the longest runs of characters of a class in each row.

    Parameters
    ----------
    text : Text
    is_part : bool array
        For each code point whether a character is part of a word.
    """
    part = _bytes_of_class(text.data, is_part)
    # Words begin and end where the class changes, and at the bounds of rows.
    is_edge = np.empty(len(part) + 1, np.bool_)
    np.not_equal(part[1:], part[:-1], out=is_edge[1:-1])
    is_edge[text.bounds] = True
    edges = np.flatnonzero(is_edge)
    is_word = part[edges[:-1]]
    starts, sizes = edges[:-1][is_word], np.diff(edges)[is_word]
    offsets = np.append(0, np.cumsum(sizes))
    words_before = np.searchsorted(starts, text.bounds)
    counts = np.diff(words_before)
    rows = np.repeat(np.arange(len(counts)), counts)
    positions = np.arange(len(starts)) - np.repeat(words_before[:-1], counts)
    return _binary(offsets, text.data[part]), rows, positions


def substrings(text: Text, least: int, most: int, *, prefix_only: bool) -> Words:
    """Return the substrings of each row, by start and length.

    Parameters
    ----------
    text : Text
    least, most : int
        Numbers of characters.
    prefix_only : bool
        Whether all begin with the row.
    """
    # A character begins with a byte that continues none.
    is_start = (text.data & 0xC0) != 0x80
    byte_of = np.append(np.flatnonzero(is_start), len(text.data))
    bounds = np.searchsorted(byte_of, text.bounds)
    starts = np.arange(len(byte_of) - 1)
    row = np.searchsorted(bounds, starts, "right") - 1
    if prefix_only:
        row = np.flatnonzero(np.diff(bounds))
        starts = bounds[row]
    remaining = bounds[row + 1] - starts
    longest = min(most, int(remaining.max(initial=0)))
    lengths = np.arange(least, longest + 1)
    fits = lengths[None, :] <= remaining[:, None]
    which, length = np.nonzero(fits)
    first, stop = byte_of[starts[which]], byte_of[starts[which] + lengths[length]]
    data, offsets = joined(text.data, first, stop - first)
    rows = row[which]
    return _binary(offsets, data), rows, np.zeros(len(rows), np.int64)


def joined_items(lists: pa.Array) -> pa.Array:
    """Return the items of each list as one string: separated by spaces, as in pylance.

    Nulls are left out, and so are empty strings before the first other one. A null list is an empty
    text, as in pylance: the whole text is a token of ``raw``.
    """
    import pyarrow.compute as pc

    def large(text: str) -> pa.Scalar:
        return pa.scalar(text, pa.large_string())

    items, rows = lists.flatten(), pc.list_parent_indices(lists).to_numpy()
    lengths = pc.binary_length(items)
    before = np.cumsum(lengths.fill_null(0).to_numpy().astype(np.int64))
    bounds = np.searchsorted(rows, np.arange(len(lists) + 1))
    before_row = np.append(0, before)[bounds[:-1]]
    kept = (before > before_row[rows]) & items.is_valid().to_numpy(zero_copy_only=False)
    bounds = np.append(0, np.cumsum(kept))[bounds]
    kept_rows = rows[kept]
    is_first = np.diff(kept_rows, prepend=-1) > 0
    separators = pc.if_else(pa.array(is_first), large(""), large(" "))
    kept_items = items.filter(pa.array(kept)).cast(pa.large_string())
    pieces = pc.binary_join_element_wise(separators, kept_items, large(""))
    _, offsets, data = pieces.buffers()
    return pa.LargeStringArray.from_buffers(
        len(lists), pa.py_buffer(np.frombuffer(offsets, np.int64)[bounds]), data
    )


def steps(texts: pa.Array, step_bytes: int) -> Iterator[tuple[int, pa.Array]]:
    """Yield parts of strings or bytes of about some size, each with the number of its first row."""
    import pyarrow.compute as pc

    sizes = pc.binary_length(texts).fill_null(0).to_numpy().astype(np.int64)
    # Nulls and empty texts count, too.
    before = np.append(0, np.cumsum(sizes + 1))
    start = 0
    while start < len(texts):
        stop = int(np.searchsorted(before, before[start] + step_bytes, "right")) - 1
        stop = max(stop, start + 1)
        yield start, texts.slice(start, stop - start)
        start = stop


def _lowered(data: Bytes) -> Bytes:
    import pyarrow.compute as pc

    # As one text: pyarrow 26 makes wrong offsets for some slices.
    bounds = pa.py_buffer(np.array([0, len(data)], np.int64))
    text = pa.LargeStringArray.from_buffers(1, bounds, pa.py_buffer(data))
    lowered = pc.ascii_lower(text)
    return np.frombuffer(lowered.buffers()[2] or b"", np.uint8)


def _bytes_of_class(data: Bytes, is_part: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return for each byte of UTF-8 whether it is part of a character of a class."""
    of_byte = is_part[:0x100].copy()
    of_byte[_ASCII_STOP:] = False
    part: npt.NDArray[np.bool_] = of_byte[data]
    starts = np.flatnonzero(data >= _LEADS[0])
    if not len(starts):
        return part
    lead = data[starts]
    width = np.searchsorted(_LEADS, lead, "right") + 1
    points = lead.astype(np.int64) & (0x7F >> width)
    for number in range(1, int(width.max())):
        longer = width > number
        points[longer] = points[longer] << 6 | (data[starts[longer] + number] & 0x3F)
    of_class = is_part[points]
    starts, width = starts[of_class], width[of_class]
    for number in range(int(width.max(initial=0))):
        part[starts[width > number] + number] = True
    return part


def _binary(offsets: RowNumbers, data: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data.tobytes())]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
