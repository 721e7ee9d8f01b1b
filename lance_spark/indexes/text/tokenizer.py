"""Split text into tokens.

A base tokenizer splits the text of many rows at once. Most words occur often, so that the steps
after it (lower case, stems, stop words and folding) work on each distinct word once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.text.packing import Bytes, joined
from lance_spark.indexes.text.parameters import (
    JSON,
    TextParameters,
    alphanumeric,
    ascii_folding,
    identifier,
    lower_case,
    not_white_space,
    stop_words,
)
from lance_spark.json.search import Leaves

# --------------------------------------------------------------------------------------------------
# Base tokenizers: split the text of many rows at once into words.
#
# Words are cut from the bytes of all rows together. Only characters that are not of ASCII are
# decoded to find their class.

_ASCII_STOP = 0x80
#: First of the bytes that begin a character of 2, 3 and 4 bytes.
_LEADS = np.array([0xC0, 0xE0, 0xF0], np.uint8)

#: Words as large binary, and the row and position of each.
Words = tuple[pa.Array, RowNumbers, RowNumbers]


@dataclass(frozen=True, slots=True)
class Text:
    """The text of some rows as one array of bytes.

    - `data` (uint8 array): In UTF-8.
    - `bounds` (int64 array): First byte of each row, and the number of bytes. Null rows have no
      bytes.
    - `is_valid` (bool array): Which rows are not null.
    """

    data: Bytes
    bounds: RowNumbers
    is_valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, texts: pa.Array, *, lower_ascii: bool) -> Text:
        """Return the text of rows, with letters of ASCII in lower case if wanted.

        Raises InvalidInputError: a text is not UTF-8.
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

    - `is_part` (bool array): For each code point whether a character is part of a word.
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

    - `least`, `most`: Numbers of characters.
    - `prefix_only`: Whether all begin with the row.
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


# --------------------------------------------------------------------------------------------------
# Split text into tokens.

#: Bytes of text that are split in one step.
STEP_BYTES = 4 * 1024 * 1024
#: Most bytes of substrings that are made in one step.
_STEP_SUBSTRING_BYTES = 64 * 1024 * 1024
#: Distinct words whose tokens are remembered.
_MAX_KNOWN = 1_000_000
#: Stand for a word that is left out, and for one that is not known.
_NONE, _NEW = -1, -2


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of some rows, in the order of the text.

    - `rows` (int64 array): Row of each token.
    - `ids` (int64 array): Number of each token in the vocabulary.
    - `positions` (int64 array): Number of tokens of the base tokenizer before it in its row. Zero
      for substrings.
    """

    rows: RowNumbers
    ids: RowNumbers
    positions: RowNumbers


class DocumentTokenizer(ABC):
    """Splits documents, and numbers the distinct tokens in the order in which they occur.

    - `vocabulary`: The tokens by their numbers.
    """

    def __init__(self, parameters: TextParameters) -> None:
        self.parameters = parameters
        self.vocabulary: list[str] = []
        self._numbers: dict[str, int] = {}

    @abstractmethod
    def split(self, texts: pa.Array) -> Tokens:
        """Return the tokens of documents. Rows are numbered from 0 on; nulls have no tokens.

        Raises InvalidInputError, CorruptFileError, UnsupportedEncodingError: a document cannot be
        read.
        """

    @abstractmethod
    def split_query(self, text: str) -> Tokens:
        """Return the tokens of a query.

        Raises InvalidInputError: the query does not have the form that the documents need.
        """

    @abstractmethod
    def pieces(self, texts: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield parts of documents whose tokens take little memory, with the number of the first.

        Raises InvalidInputError: the documents have another type.
        """

    def words(self, text: str) -> list[str]:
        """Return the tokens of a query."""
        return [self.vocabulary[number] for number in self.split_query(text).ids.tolist()]

    def add(self, tokens: Sequence[str]) -> RowNumbers:
        """Return the numbers of tokens, and give new ones a number."""
        for token in tokens:
            if self._numbers.setdefault(token, len(self.vocabulary)) == len(self.vocabulary):
                self.vocabulary.append(token)
        return np.fromiter(map(self._numbers.__getitem__, tokens), np.int64)


class Tokenizer(DocumentTokenizer):
    """Splits text.

    Raises UnsupportedFeatureError: stems are needed, and the package PyStemmer is missing.
    """

    def __init__(self, parameters: TextParameters) -> None:
        super().__init__(parameters)
        self._known: dict[bytes, int] = {}
        self._stems = _stemmer(parameters.language) if parameters.stem else None

    def split_query(self, text: str) -> Tokens:
        """Return the tokens of a query; all text is one."""
        return self.split(pa.array([text], pa.string()))

    def split(self, texts: pa.Array) -> Tokens:
        """Return the tokens of texts; see `DocumentTokenizer.split`.

        - `texts`: Strings, or lists of strings: their items are one text, separated by spaces.

        Raises InvalidInputError: a text is not UTF-8.
        """
        parts = [self._split(piece, first) for first, piece in self.pieces(texts)]
        empty = np.empty(0, np.int64)
        return Tokens(
            *(
                np.concatenate([empty, *(getattr(part, name) for part in parts)])
                for name in ("rows", "ids", "positions")
            )
        )

    def pieces(self, texts: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield parts of texts; see `DocumentTokenizer.pieces`.

        Raises InvalidInputError: the texts are neither strings nor lists of strings.
        """
        if pat.is_list(texts.type) or pat.is_large_list(texts.type):
            texts = joined_items(texts)
        if not (pat.is_string(texts.type) or pat.is_large_string(texts.type)):
            raise InvalidInputError(f"text must be strings, not {texts.type}")
        return steps(texts, self._step_bytes)

    def _split(self, piece: pa.Array, first_row: int) -> Tokens:
        words, rows, positions = self._base(piece)
        encoded = words.dictionary_encode()
        ids = self._tokens(encoded.dictionary)[encoded.indices.to_numpy()]
        kept = ids != _NONE
        if not kept.all():
            rows, ids, positions = rows[kept], ids[kept], positions[kept]
        return Tokens(rows + first_row, ids, positions)

    @property
    def _step_bytes(self) -> int:
        parameters = self.parameters
        if parameters.base_tokenizer != "ngram":
            return STEP_BYTES
        lengths = range(parameters.min_ngram_length, parameters.max_ngram_length + 1)
        of_character = len(lengths) * (lengths.start + lengths.stop) // 2
        return max(1, min(STEP_BYTES, _STEP_SUBSTRING_BYTES // max(1, of_character)))

    def _base(self, texts: pa.Array) -> Words:
        """Return the words of the base tokenizer."""
        parameters = self.parameters
        # Fewer words are distinct without upper case. Other letters are changed word by word.
        text = Text.of(texts, lower_ascii=parameters.lower_case)
        match parameters.base_tokenizer:
            case "simple":
                return runs(text, alphanumeric())
            case "code":
                return runs(text, identifier())
            case "whitespace":
                return runs(text, not_white_space())
            case "raw":
                return whole(text)
            case _:
                least, most = parameters.min_ngram_length, parameters.max_ngram_length
                return substrings(text, least, most, prefix_only=parameters.prefix_only)

    def _tokens(self, dictionary: pa.Array) -> RowNumbers:
        """Return the number of the token of each word; `_NONE` for words that are left out."""
        words: list[bytes] = dictionary.to_pylist()
        numbers = self._known_numbers(words)
        places = np.flatnonzero(numbers == _NEW).tolist()
        if len(self._known) + len(places) > _MAX_KNOWN:
            self._known.clear()
            places = list(range(len(words)))
        new = [words[place] for place in places]
        self._known.update(zip(new, self._finished(new), strict=True))
        return self._known_numbers(words) if new else numbers

    def _known_numbers(self, words: list[bytes]) -> RowNumbers:
        return np.fromiter(map(self._known.get, words, repeat(_NEW)), np.int64, len(words))

    def _finished(self, words: list[bytes]) -> Iterator[int]:
        parameters = self.parameters
        limit = parameters.max_token_length
        # Words that are left out need no stem.
        tokens = [word.decode() if limit is None or len(word) < limit else "" for word in words]
        if parameters.lower_case:
            tokens = [token if token.isascii() else _lower(token) for token in tokens]
        if self._stems is not None:
            tokens = self._stems(tokens)
        removed = self._removed
        for word, token in zip(words, tokens, strict=True):
            if token in removed or (limit is not None and len(word) >= limit):
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


def _lower(text: str) -> str:
    # The letters of ASCII are in lower case already.
    return text.translate(lower_case())


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


# --------------------------------------------------------------------------------------------------
# Tokens of JSON documents, and of queries about them.
#
# Each leaf of a document has tokens of the form ``path,type,value``:
#
# | leaf | type | value |
# | --- | --- | --- |
# | string | ``str`` | a token of the string; one token for each |
# | number, boolean, null | ``number``, ``bool``, ``null`` | the text that JSON writes |
#
# The path has keys, joined by points. The items of an array have the path of the array.
#
# A query has one or more parts of the same form, separated by ``;``, for example
# ``user.name,str,Ada Lovelace;age,number,36``. The value of a string is split as in documents.

_STRING, _NUMBER = "str", "number"
_OTHERS = (_NUMBER, "bool", "null")
#: Types of the texts that are no numbers.
_TYPES = {"true": "bool", "false": "bool", "null": "null"}


class JsonTokenizer(DocumentTokenizer):
    """Splits JSON documents.

    - `parameters`: How strings are split.

    Raises UnsupportedFeatureError: stems are needed, and the package PyStemmer is missing.
    """

    def __init__(self, parameters: TextParameters) -> None:
        super().__init__(parameters)
        self._strings = Tokenizer(parameters)

    def split(self, texts: pa.Array) -> Tokens:
        """Return the tokens of documents. Positions count the tokens of a document.

        - `texts`: JSONB of type large_binary. Nulls have no tokens.

        Raises CorruptFileError, UnsupportedEncodingError: a document is damaged.
        """
        leaves = Leaves.of(texts)
        words = self._strings.split(leaves.strings())
        vocabulary = self._strings.vocabulary
        word_ids = self._ids(
            leaves, words.rows, words.ids, lambda number: f"{_STRING},{vocabulary[number]}"
        )
        others = leaves.texts().dictionary_encode()
        other_rows = np.flatnonzero(others.is_valid().to_numpy(zero_copy_only=False))
        values = others.dictionary.to_pylist()
        other_ids = self._ids(
            leaves,
            other_rows,
            others.indices.drop_null().to_numpy(),
            lambda number: f"{_TYPES.get(values[number], _NUMBER)},{values[number]}",
        )
        of_leaves = np.concatenate([words.rows, other_rows])
        order = np.argsort(of_leaves, kind="stable")
        rows = leaves.rows[of_leaves[order]]
        starts = np.searchsorted(rows, np.arange(len(texts)))
        ids = np.concatenate([word_ids, other_ids])[order]
        return Tokens(rows, ids, np.arange(len(rows)) - starts[rows])

    def pieces(self, texts: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield parts of documents; see `DocumentTokenizer.pieces`."""
        return steps(texts, STEP_BYTES)

    def split_query(self, text: str) -> Tokens:
        """Return the tokens of a query.

        Raises InvalidInputError: a part of the query is not of the form ``path,type,value``.
        """
        tokens: list[str] = []
        for part in text.split(";"):
            path, *others = part.split(",", 2)
            if len(others) < 2 or others[0] not in (_STRING, *_OTHERS):
                raise InvalidInputError(
                    f"query {text!r}: a part for a JSON column must be path,type,value, where type "
                    f"is one of {', '.join((_STRING, *_OTHERS))}, not {part!r}"
                )
            type_name, value = others
            values = self._strings.words(value) if type_name == _STRING else [value]
            tokens += [f"{path},{type_name},{word}" for word in values]
        return Tokens(np.zeros(len(tokens), np.int64), self.add(tokens), np.arange(len(tokens)))

    def _ids(
        self,
        leaves: Leaves,
        rows: RowNumbers,
        values: RowNumbers,
        shown: Callable[[int], str],
    ) -> RowNumbers:
        """Return the number of the token of each leaf.

        - `rows`, `values` (int64 array): The leaves, and the number of the value of each.
        - `shown`: Returns the type and the text of a value.
        """
        count = int(values.max(initial=0)) + 1
        pairs = leaves.paths[rows] * count + values
        distinct, places = np.unique(pairs, return_inverse=True)
        paths, numbers = np.divmod(distinct, count)
        names = leaves.names
        tokens = [
            f"{names[path]},{shown(number)}"
            for path, number in zip(paths.tolist(), numbers.tolist(), strict=True)
        ]
        return self.add(tokens)[places]


def tokenizer_of(parameters: TextParameters) -> DocumentTokenizer:
    """Return the tokenizer of an index.

    Raises UnsupportedFeatureError: stems are needed, and the package PyStemmer is missing.
    """
    is_json = parameters.lance_tokenizer == JSON
    return JsonTokenizer(parameters) if is_json else Tokenizer(parameters)


def value_start(token: str, parameters: TextParameters) -> int:
    """Return where the value of a token begins: 0 for text."""
    if parameters.lance_tokenizer != JSON:
        return 0
    path, type_name, _ = token.split(",", 2)
    return len(path) + len(type_name) + 2
