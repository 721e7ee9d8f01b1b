"""NGRAM indexes: the rows of each trigram of texts, and the search in them."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.files import IndexFiles, SegmentWriter, binary_values, read_columns
from lance_spark.indexes.row_sets import Answer, TooMany
from lance_spark.indexes.search import IndexSearch
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The trigrams of texts in NGRAM indexes: numbers of three characters that follow one another.
#
# Each character is changed to lower case and folded to ASCII. A trigram is three letters or digits
# of ASCII in a row; other characters separate. Lance calls it a token. The trigram of characters
# with the codes a, b and c is ``(a * 37 + b) * 37 + c``:
#
# | character after folding | code |
# | --- | --- |
# | 0 to 9 | 1 to 10 |
# | a to z | 11 to 36 |
# | A to Z | (byte - 86) modulo 256 |
#
# A character is folded to the ASCII characters of its compatibility decomposition (NFKD), in which
# the letters of `_LETTERS` have replacements. Some capital letters appear only by the
# decomposition, and stay capital. A character without ASCII characters separates.

#: Bytes of texts whose trigrams are found at once.
CHUNK_BYTES = 4 * 1024 * 1024
_BASE = 37
#: The code of a character that separates.
_SEPARATOR = -1
#: Bytes before a chunk that hold the two last characters before it, and a part of another.
_OVERLAP = 11
#: Replacements of letters without decomposition. Old releases of Python lack some decompositions.
_LETTERS = {
    **{ord(letter): text for letter, text in zip("đðħıĸłŋøŧ", "ddhiklnot", strict=True)},
    **{ord(letter): text for letter, text in zip("ĐÐĦŁŊØŦ", "DDHLNOT", strict=True)},
    **dict(zip(range(0x1CCD6, 0x1CCFA), "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", strict=True)),
    ord("æ"): "ae",
    ord("Æ"): "AE",
    ord("œ"): "oe",
    ord("Œ"): "OE",
    ord("þ"): "th",
    ord("Þ"): "TH",
    ord("ß"): "ss",
    0xA7F1: "S",
}

_Codes = npt.NDArray[np.int16]
_Trigrams = npt.NDArray[np.uint32]


class TrigramFinder:
    """Finds the trigrams of texts. Remembers how characters are folded."""

    def __init__(self) -> None:
        # For each code point, the part of `_codes` with its codes. No codes: not yet known.
        self._starts = np.zeros(0x110000, np.int32)
        self._lengths = np.zeros(0x110000, np.uint8)
        self._codes = np.array([_ascii_code(chr(point)) for point in range(128)], np.int16)
        self._starts[:128] = np.arange(128)
        self._lengths[:128] = 1

    def trigrams(self, values: pa.Array) -> Iterator[tuple[_Trigrams, RowNumbers]]:
        """Yield the distinct trigrams of texts, with the number of the text; sorted by both.

        Each pair is of a part of the texts. A trigram of a text may occur in two pairs.

        - `values`: Strings; null has no trigrams.
        """
        texts = values.cast(pa.large_string()).fill_null("")
        _, offset_buffer, data_buffer = texts.buffers()
        if not len(texts) or data_buffer is None:
            return
        offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset :][: len(texts) + 1]
        data = np.frombuffer(data_buffer, np.uint8)
        first, end = int(offsets[0]), int(offsets[-1])
        for position in range(first, end, CHUNK_BYTES):
            # Three characters across the start of the chunk belong to the chunk.
            start = _whole_character(data, max(position - _OVERLAP, first))
            stop = _whole_character(data, min(position + CHUNK_BYTES, end))
            codes, rows = self._characters(data, offsets, start, stop)
            yield _distinct(*_windows(codes, rows))

    def _characters(
        self, data: npt.NDArray[np.uint8], offsets: RowNumbers, start: int, stop: int
    ) -> tuple[_Codes, RowNumbers]:
        """Return the codes of the folded characters of a range of bytes, and the text of each."""
        first = int(np.searchsorted(offsets, start, "right")) - 1
        last = int(np.searchsorted(offsets, stop, "left"))
        bounds = np.clip(offsets[first : last + 1], start, stop)
        rows = np.repeat(np.arange(first, last), bounds[1:] - bounds[:-1])
        part = data[start:stop]
        if part.max(initial=0) < 128:
            return self._codes[part], rows
        positions = np.flatnonzero((part & 0xC0) != 0x80)
        points = _code_points(part, positions)
        rows = rows[positions]
        self._learn(points)
        lengths = self._lengths[points].astype(np.int64)
        starts = self._starts[points]
        if lengths.max(initial=1) == 1:
            return self._codes[starts], rows
        ends = np.cumsum(lengths)
        indices = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        return self._codes[indices], np.repeat(rows, lengths)

    def _learn(self, points: npt.NDArray[np.uint32]) -> None:
        """Fold the code points that were not yet seen."""
        is_new = np.zeros(len(self._lengths), np.bool_)
        is_new[points] = True
        new = np.flatnonzero(is_new & (self._lengths == 0))
        codes: list[int] = []
        for point in new.tolist():
            folded = _folded_codes(point)
            self._starts[point], self._lengths[point] = len(self._codes) + len(codes), len(folded)
            codes += folded
        self._codes = np.concatenate([self._codes, np.array(codes, np.int16)])


def trigrams_of_text(text: str) -> list[int]:
    """Return the trigrams that an index has for each text with a part; none if it does not decide.

    Only letters of Latin-1 and Latin Extended-A are folded that consist of an ASCII letter and
    marks: all releases of Lance agree on these.
    """
    codes: list[int] = []
    for char in text:
        # The lower case of some capital letters is a letter and a mark, which separates.
        letter = unicodedata.normalize("NFD", char.lower())[0]
        is_plain = ord(char) < 0x180 and len(char.lower()) == 1 and letter.isascii()
        codes.append(_ascii_code(letter) if is_plain else _SEPARATOR)
    array = np.array(codes, np.int16)
    trigrams, _ = _windows(array, np.zeros(len(array), np.int64))
    return list(dict.fromkeys(trigrams.tolist()))


def _ascii_code(char: str) -> int:
    if not char.isalnum():
        return _SEPARATOR
    char = char.lower()
    return ord(char) - (47 if char.isdigit() else 86)


def _folded_codes(point: int) -> list[int]:
    codes: list[int] = []
    # Bytes that are not UTF-8 may give surrogates, and numbers past the last code point.
    for char in chr(point).lower():
        decomposed = unicodedata.normalize("NFKD", char)
        folded = [part if part.isascii() else _LETTERS.get(ord(part), "") for part in decomposed]
        codes += [_folded_code(letter) for letter in "".join(folded)] or [_SEPARATOR]
    return codes


def _folded_code(letter: str) -> int:
    if not letter.isalnum():
        return _SEPARATOR
    return ord(letter) - 47 if letter.isdigit() else (ord(letter) - 86) & 255


def _code_points(data: npt.NDArray[np.uint8], positions: RowNumbers) -> npt.NDArray[np.uint32]:
    """Return the code points of the UTF-8 characters that begin at some positions."""
    padded = np.concatenate([data, np.zeros(3, np.uint8)])
    first, *followers = (padded[positions + index].astype(np.uint32) for index in range(4))
    tails = [byte & 0x3F for byte in followers]
    two = (first & 0x1F) << 6 | tails[0]
    three = (first & 0x0F) << 12 | tails[0] << 6 | tails[1]
    four = (first & 0x07) << 18 | tails[0] << 12 | tails[1] << 6 | tails[2]
    conditions = [first < 0x80, first < 0xE0, first < 0xF0]
    points = np.select(conditions, [first, two, three], four)
    return np.minimum(points, 0x10FFFF)


def _whole_character(data: npt.NDArray[np.uint8], position: int) -> int:
    """Return a position, or the start of the character that it is inside of."""
    for start in range(position, max(position - 4, -1), -1):
        if start == len(data) or data[start] & 0xC0 != 0x80:
            return start
    return position


def _windows(codes: _Codes, rows: RowNumbers) -> tuple[npt.NDArray[np.int64], RowNumbers]:
    """Return the trigrams of characters with the text of each."""
    is_letter = codes >= 0
    is_trigram = is_letter[:-2] & is_letter[1:-1] & is_letter[2:] & (rows[:-2] == rows[2:])
    starts = np.flatnonzero(is_trigram)
    first, second, third = (codes[starts + index].astype(np.int64) for index in range(3))
    return (first * _BASE + second) * _BASE + third, rows[starts]


def _distinct(trigrams: npt.NDArray[np.int64], rows: RowNumbers) -> tuple[_Trigrams, RowNumbers]:
    keys = np.sort(trigrams << 40 | rows)
    keys = keys[np.diff(keys, prepend=-1) != 0]
    return (keys >> 40).astype(np.uint32), keys & ((1 << 40) - 1)


# --------------------------------------------------------------------------------------------------
# NGRAM indexes: the rows whose texts have three certain characters in a row.
#
# The only file, `ngram_postings.lance`, has a row for each trigram (`trigrams`), ascending:
#
# | column | content |
# | --- | --- |
# | tokens | uint32 |
# | posting_list | binary; the rows as a 64-bit Roaring bitmap in the portable form |
#
# Trigram 0 has the rows with null. A text with a certain part has all trigrams of that part. So the
# rows that have them all are candidates. A part without trigrams leaves all rows.
#
# Specification: table/index/scalar/ngram.md.

FILE = "ngram_postings.lance"
TOKENS, POSTINGS = "tokens", "posting_list"
OPS = frozenset({"contains"})
#: The trigram of rows with null.
NULL_TRIGRAM = 0
#: Most trigrams of a part that are looked up.
_MAX_TRIGRAMS = 64
#: Trigrams of a batch that is written.
_BATCH_ROWS = 512
SCHEMA = pa.schema(
    [
        pa.field(TOKENS, pa.uint32()),
        pa.field(
            POSTINGS, pa.binary(), nullable=False, metadata={"lance-encoding:compression": "none"}
        ),
    ]
)


def search(files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int) -> Answer:
    """Return the row ids whose text may have a part; see `search.Search`."""
    trigrams_of_part = trigrams_of_text(value) if isinstance(value, str) else []
    if not trigrams_of_part:
        return None
    trigrams = cached_trigrams(files)
    if trigrams is None:
        return None
    # With fewer trigrams, more rows are candidates, and no row is lost.
    step = -(-len(trigrams_of_part) // _MAX_TRIGRAMS)
    chosen = np.array(trigrams_of_part[::step], np.uint32)
    places = np.minimum(np.searchsorted(trigrams, chosen), max(len(trigrams) - 1, 0))
    if not len(trigrams) or (trigrams[places] != chosen).any():
        return np.empty(0, np.uint64)
    rows = BitMap64.intersection(*read_postings(files, np.sort(places)))
    if len(rows) > limit:
        return TooMany(len(rows))
    return np.frombuffer(rows.to_array(), np.uint64)


def cached_trigrams(files: IndexFiles) -> np.ndarray[Any, np.dtype[np.uint32]] | None:
    """Return the trigrams of a segment; None if the file is missing."""
    return files.cached(FILE, read_trigrams, lambda trigrams: int(trigrams.nbytes))


def read_trigrams(files: IndexFiles) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the trigrams of a segment, ascending.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with files.opened(FILE) as file:
        column = read_columns(file, {TOKENS: pa.uint32()}).column(0)
        name = file.source.name
    trigrams: np.ndarray[Any, np.dtype[np.uint32]] = column.fill_null(0).to_numpy()
    if column.null_count or (trigrams[1:] <= trigrams[:-1]).any():
        raise CorruptFileError(f"{name}: {TOKENS} must ascend, and not be null; rebuild the index")
    return trigrams


def read_postings(files: IndexFiles, rows: RowNumbers) -> Iterator[BitMap64]:
    """Yield the row ids of the trigrams in some rows of the file, which increase.

    Raises CorruptFileError, StorageError.
    """
    for data, name in binary_values(files, FILE, POSTINGS, rows):
        yield decode_posting(data, name)


def decode_posting(data: bytes, name: str) -> BitMap64:
    """Parse the rows of a trigram; errors call the file `name`.

    Raises CorruptFileError.
    """
    try:
        return BitMap64.deserialize(data)
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        raise CorruptFileError(
            f"{name}: a posting list is damaged ({error}); rebuild the index"
        ) from None


def create(segment: SegmentWriter) -> FileWriter:
    """Return the writer of a new file, which the segment finishes."""
    return segment.create(FILE, SCHEMA)


def write(segment: SegmentWriter, values: pa.Array, ids: UInt64Array) -> None:
    """Write the file of an index.

    - `values`: Strings.
    - `ids` (uint64 array): Row id or address of each value, increasing.
    """
    postings = postings_of(values, ids)
    writer = create(segment)
    ordered = sorted(postings)
    for first in range(0, len(ordered), _BATCH_ROWS):
        part = ordered[first : first + _BATCH_ROWS]
        lists = [postings.pop(trigram).serialize() for trigram in part]
        columns = [pa.array(part, pa.uint32()), pa.array(lists, pa.binary())]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def postings_of(values: pa.Array, ids: UInt64Array) -> dict[int, BitMap64]:
    """Return the row ids of each trigram.

    - `values`: Strings.
    - `ids` (uint64 array): Row id or address of each value, increasing.
    """
    postings: dict[int, BitMap64] = {}
    nulls = ids[values.is_null().to_numpy(zero_copy_only=False)]
    if len(nulls):
        postings[NULL_TRIGRAM] = BitMap64(nulls, optimize=False)
    for trigrams, rows in TrigramFinder().trigrams(values):
        starts = np.flatnonzero(np.diff(trigrams, prepend=np.uint32(0xFFFFFFFF)))
        bounds = itertools.pairwise([*starts.tolist(), len(trigrams)])
        row_keys = ids[rows]
        for key, (start, stop) in zip(trigrams[starts].tolist(), bounds, strict=True):
            postings.setdefault(key, BitMap64()).update(row_keys[start:stop])
    return postings


SEARCH = IndexSearch(OPS, search)
