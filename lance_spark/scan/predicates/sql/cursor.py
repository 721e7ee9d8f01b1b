"""The position of a parser in the tokens of a text, and its errors."""

from __future__ import annotations

from lance_spark.errors import InvalidInputError
from lance_spark.scan.predicates.sql.tokens import Token, error, tokens
from lance_spark.scan.predicates.sql_settings import SqlSettings


class TokenCursor:
    """Base class of the parser: it reads the tokens one after the other."""

    def __init__(self, text: str, settings: SqlSettings) -> None:
        self._text = text
        self._settings = settings
        self._tokens = tokens(text, settings)
        self._index = 0

    @property
    def _current(self) -> Token:
        return self._tokens[self._index]

    def _peek(self, count: int = 1) -> Token:
        return self._tokens[min(self._index + count, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._tokens[self._index]
        self._index += token.category != "end"
        return token

    def _accept(self, *signs: str) -> bool:
        """Advance if the current token is one of the signs; return whether it is."""
        is_accepted = self._current.is_sign(*signs)
        self._index += is_accepted
        return is_accepted

    def _accept_word(self, *words: str) -> bool:
        """Advance if the current token is one of the words; return whether it is."""
        is_accepted = self._current.upper in words
        self._index += is_accepted
        return is_accepted

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._error(f"expected {sign}", word_hint=True)

    def _expect_word(self, word: str) -> None:
        if not self._accept_word(word):
            raise self._error(f"expected {word}", word_hint=True)

    def _error(
        self, message: str, offset: int | None = None, word_hint: bool = False
    ) -> InvalidInputError:
        """Return an error at an offset, or at the current token.

        `word_hint`: say how to write a word as a column. A word that is read as an operator, or the
        second of two words in a row, may be meant as the name of a column.
        """
        before = self._tokens[self._index - 1] if self._index else self._current
        word = (
            self._current
            if self._current.category == "word" and offset != before.offset
            else before
        )
        if word_hint and word.category == "word":
            message += f"; if {word.value} is a column, write `{word.value}` with backticks"
        return error(self._text, self._current.offset if offset is None else offset, message)
