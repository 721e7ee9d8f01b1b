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
import pyarrow.types as pat

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


def steps(texts: pa.Array, step_bytes: int) -> Iterator[tuple[int, pa.Array]]:
    """Yield parts of texts of about some bytes, each with the number of its first row.

    Raises
    ------
    InvalidInputError
        The texts are not strings.
    """
    import pyarrow.compute as pc

    if not (pat.is_string(texts.type) or pat.is_large_string(texts.type)):
        raise InvalidInputError(f"text must be strings, not {texts.type}")
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
