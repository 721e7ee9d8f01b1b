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

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.scan.text.characters import (
    alphanumeric,
    ascii_folding,
    identifier,
    lower_case,
    not_white_space,
    stop_words,
)
from lance_spark.scan.text.parameters import TextParameters
from lance_spark.scan.text.splitting import (
    Text,
    Words,
    joined_items,
    runs,
    steps,
    substrings,
    whole,
)

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


class DocumentTokenizer(ABC):
    """Splits documents, and numbers the distinct tokens in the order in which they occur.

    Parameters
    ----------
    parameters : TextParameters

    Attributes
    ----------
    vocabulary : list of str
        The tokens by their numbers.
    """

    def __init__(self, parameters: TextParameters) -> None:
        self.parameters = parameters
        self.vocabulary: list[str] = []
        self._numbers: dict[str, int] = {}

    @abstractmethod
    def split(self, texts: pa.Array) -> Tokens:
        """Return the tokens of documents. Rows are numbered from 0 on; nulls have no tokens.

        Raises
        ------
        InvalidInputError, CorruptFileError, UnsupportedEncodingError
            A document cannot be read.
        """

    @abstractmethod
    def split_query(self, text: str) -> Tokens:
        """Return the tokens of a query.

        Raises
        ------
        InvalidInputError
            The query does not have the form that the documents need.
        """

    @abstractmethod
    def pieces(self, texts: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield parts of documents whose tokens take little memory, with the number of the first.

        Raises
        ------
        InvalidInputError
            The documents have another type.
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

    Parameters
    ----------
    parameters : TextParameters

    Raises
    ------
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.
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

        Parameters
        ----------
        texts : pa.Array
            Strings, or lists of strings: their items are one text, separated by spaces.

        Raises
        ------
        InvalidInputError
            A text is not UTF-8.
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

        Raises
        ------
        InvalidInputError
            The texts are neither strings nor lists of strings.
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
