"""Split text into tokens.

A base tokenizer splits the text of many rows at once. Most words occur often, so that the steps
after it (lower case, stems, stop words and folding) work on each distinct word once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.scan.text.characters import (
    alphanumeric,
    ascii_folding,
    lower_case,
    not_white_space,
    stop_words,
)
from lance_spark.scan.text.parameters import TextParameters

#: Bytes of text that are split in one step.
_STEP_BYTES = 4 * 1024 * 1024
#: Most bytes of substrings that are made in one step.
_STEP_SUBSTRING_BYTES = 64 * 1024 * 1024
#: Distinct words whose tokens are remembered.
_MAX_KNOWN = 1_000_000
#: Stands for a word that is left out.
_NONE = -1


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of some rows, in the order of the text.

    Attributes
    ----------
    rows : int64 array
        Row of each token.
    ids : int64 array
        Number of each token in the vocabulary.
    positions : int64 array
        Number of tokens of the base tokenizer before it in its row. Zero for substrings.
    """

    rows: RowNumbers
    ids: RowNumbers
    positions: RowNumbers


class Tokenizer:
    """Splits text, and numbers the distinct tokens in the order in which they occur.

    Parameters
    ----------
    parameters : TextParameters

    Attributes
    ----------
    vocabulary : list of str
        The tokens by their numbers.

    Raises
    ------
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.
    """

    def __init__(self, parameters: TextParameters) -> None:
        self.parameters = parameters
        self.vocabulary: list[str] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[str, int] = {}
        self._stems = _stemmer(parameters.language) if parameters.stem else None

    def words(self, text: str) -> list[str]:
        """Return the tokens of one text."""
        return [self.vocabulary[number] for number in self.split(pa.array([text])).ids.tolist()]

    def split(self, texts: pa.Array) -> Tokens:
        """Return the tokens of texts. Rows are numbered from 0 on; nulls have no tokens.

        Parameters
        ----------
        texts : pa.Array
            Of type string or large string.

        Raises
        ------
        InvalidInputError
            A text is not UTF-8.
        """
        parts = [self._split(piece, first) for first, piece in _steps(texts, self._step_bytes)]
        empty = np.empty(0, np.int64)
        return Tokens(
            *(
                np.concatenate([empty, *(getattr(part, name) for part in parts)])
                for name in ("rows", "ids", "positions")
            )
        )

    @property
    def _step_bytes(self) -> int:
        parameters = self.parameters
        if parameters.base_tokenizer != "ngram":
            return _STEP_BYTES
        lengths = range(parameters.min_ngram_length, parameters.max_ngram_length + 1)
        of_character = len(lengths) * (lengths.start + lengths.stop) // 2
        return max(1, min(_STEP_BYTES, _STEP_SUBSTRING_BYTES // max(1, of_character)))

    def _split(self, texts: pa.Array, first_row: int) -> Tokens:
        words, rows, positions = self._base(_Text.of(texts))
        encoded = words.dictionary_encode()
        tokens = self._tokens(encoded.dictionary)
        ids = tokens[encoded.indices.to_numpy()]
        kept = ids != _NONE
        return Tokens(rows[kept] + first_row, ids[kept], positions[kept])

    def _base(self, text: _Text) -> tuple[pa.Array, RowNumbers, RowNumbers]:
        """Return the words of the base tokenizer, with rows and positions."""
        match self.parameters.base_tokenizer:
            case "simple":
                return _runs(text, alphanumeric())
            case "whitespace":
                return _runs(text, not_white_space())
            case "raw":
                rows = np.flatnonzero(text.is_valid)
                offsets = np.append(text.byte_bounds[:-1][text.is_valid], len(text.data))
                return _binary(offsets, text.data), rows, np.zeros(len(rows), np.int64)
            case _:
                return _substrings(text, self.parameters)

    def _tokens(self, dictionary: pa.Array) -> RowNumbers:
        """Return the number of the token of each word; `_NONE` for words that are left out."""
        words = [word.decode() for word in dictionary.to_pylist()]
        new = [word for word in words if word not in self._known]
        if len(self._known) + len(new) > _MAX_KNOWN:
            self._known.clear()
            new = words
        self._known.update(zip(new, self._finished(new), strict=True))
        return np.fromiter(map(self._known.__getitem__, words), np.int64, len(words))

    def _finished(self, words: list[str]) -> Iterator[int]:
        parameters = self.parameters
        tokens = words
        if parameters.lower_case:
            tokens = [_translated(token, lower_case(), str.lower) for token in tokens]
        if self._stems is not None:
            tokens = self._stems(tokens)
        removed = self._removed
        limit = parameters.max_token_length
        for word, token in zip(words, tokens, strict=True):
            if token in removed or (limit is not None and len(word.encode()) >= limit):
                yield _NONE
                continue
            folded = token
            if parameters.ascii_folding and not token.isascii():
                folded = token.translate(ascii_folding())
            number = self._numbers.setdefault(folded, len(self.vocabulary))
            if number == len(self.vocabulary):
                self.vocabulary.append(folded)
            yield number

    @cached_property
    def _removed(self) -> frozenset[str]:
        parameters = self.parameters
        if not parameters.remove_stop_words:
            return frozenset()
        if parameters.custom_stop_words is not None:
            return frozenset(parameters.custom_stop_words)
        return stop_words()[parameters.language]


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of some rows as one array of characters.

    Attributes
    ----------
    data : uint8 array
        In UTF-8.
    characters : unsigned array
        Code points.
    widths : uint8 array or None
        Bytes of each character; None if each has one.
    byte_bounds, bounds : int64 array
        First byte and first character of each row, and their numbers.
    is_valid : bool array
        Which rows are not null. Null rows have no bytes.
    """

    data: npt.NDArray[np.uint8]
    characters: npt.NDArray[Any]
    widths: npt.NDArray[np.uint8] | None
    byte_bounds: RowNumbers
    bounds: RowNumbers
    is_valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, texts: pa.Array) -> _Text:
        is_valid = texts.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
        binary = texts.cast(pa.large_string()).fill_null("")
        _, offset_buffer, data_buffer = binary.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)
        offsets = offsets[binary.offset : binary.offset + len(binary) + 1]
        data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
        data = data[offsets[0] : offsets[-1]]
        byte_bounds = offsets - offsets[0]
        if not (data >= 0x80).any():
            return cls(data, data, None, byte_bounds, byte_bounds, is_valid)
        try:
            encoded = data.tobytes().decode().encode("utf-32-le")
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"a text is not UTF-8: {error.reason}") from None
        characters = np.frombuffer(encoded, np.uint32)
        widths = np.ones(len(characters), np.uint8)
        for limit in (0x80, 0x800, 0x10000):
            widths += characters >= limit
        # A character begins with a byte that continues none.
        starts = np.append(0, np.cumsum((data & 0xC0) != 0x80))
        return cls(data, characters, widths, byte_bounds, starts[byte_bounds], is_valid)


def _runs(text: _Text, is_part: npt.NDArray[np.bool_]) -> tuple[pa.Array, RowNumbers, RowNumbers]:
    """Return the longest runs of characters of a class in each row."""
    part = is_part[text.characters]
    count = len(part)
    is_start = part.copy()
    is_start[1:] &= ~part[:-1]
    # A row begins with a new run.
    row_starts = text.bounds[:-1][text.bounds[:-1] < count]
    is_start[row_starts] = part[row_starts]
    starts = np.flatnonzero(is_start)
    kept = part if text.widths is None else np.repeat(part, text.widths)
    # The run of each character that is part of one, and with it the bytes of each run.
    sizes = text.widths if text.widths is not None else np.ones(count, np.uint8)
    before = np.append(0, np.cumsum(np.where(part, sizes, 0), dtype=np.int64))
    offsets = np.append(before[starts], before[-1])
    rows = np.searchsorted(text.bounds, starts, "right") - 1
    first = np.searchsorted(rows, rows)
    return _binary(offsets, text.data[kept]), rows, np.arange(len(rows)) - first


def _substrings(text: _Text, parameters: TextParameters) -> tuple[pa.Array, RowNumbers, RowNumbers]:
    """Return the substrings of each row, by start and length."""
    bounds = text.bounds
    starts = np.arange(len(text.characters))
    row = np.searchsorted(bounds, starts, "right") - 1
    if parameters.prefix_only:
        row = np.flatnonzero(np.diff(bounds))
        starts = bounds[row]
    remaining = bounds[row + 1] - starts
    longest = min(parameters.max_ngram_length, int(remaining.max(initial=0)))
    lengths = np.arange(parameters.min_ngram_length, longest + 1)
    fits = lengths[None, :] <= remaining[:, None]
    which, length = np.nonzero(fits)
    ends = starts[which] + lengths[length]
    starts, rows = starts[which], row[which]
    if text.widths is not None:
        byte_of = np.append(0, np.cumsum(text.widths, dtype=np.int64))
        starts, ends = byte_of[starts], byte_of[ends]
    sizes = ends - starts
    offsets = np.append(0, np.cumsum(sizes))
    gathered = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    return _binary(offsets, text.data[gathered]), rows, np.zeros(len(rows), np.int64)


def _binary(offsets: RowNumbers, data: npt.NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data.tobytes())]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _steps(texts: pa.Array, step_bytes: int) -> Iterator[tuple[int, pa.Array]]:
    """Yield parts of texts of about some bytes, each with the number of its first row."""
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


def _translated(text: str, table: Any, of_ascii: Callable[[str], str]) -> str:
    return of_ascii(text) if text.isascii() else text.translate(table)


def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    try:
        import Stemmer
    except ImportError:
        raise UnsupportedFeatureError(
            "stems need the package PyStemmer: install lance-spark[text], or create the index with "
            "stem=False"
        ) from None
    stem_words: Callable[[list[str]], list[str]] = Stemmer.Stemmer(language.lower()).stemWords
    return stem_words
