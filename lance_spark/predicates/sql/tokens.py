"""The lexer of Spark's SQL, after its SqlBaseLexer.g4.

| token | text | value |
| --- | --- | --- |
| word | letters, digits and underscores: a keyword or a name | the text |
| name | a name in backticks; in double quotes, depending on settings | the name |
| string | a string in quotes, raw or not | the string |
| number | a number with its suffix | digits; the suffix in upper case |
| sign | operator, comma or bracket | the text |
| end | the end of the text | empty |

`TokenCursor` is the position of a parser in the tokens.

Letters outside of ASCII are refused in words: Spark's lexer accepts them, but its parser refuses
them without backticks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lance_spark.errors import InvalidInputError
from lance_spark.predicates.sql_settings import SqlSettings

#: Most characters of a text.
MAX_LENGTH = 16 * 1024 * 1024

Kind = Literal["word", "name", "string", "number", "sign", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    - `offset`: Its first character in the text.
    - `suffix`: Of a number: L, S, Y, F, D, BD or empty.
    """

    category: Kind
    value: str
    offset: int
    suffix: str = ""

    @property
    def upper(self) -> str:
        """The word in upper case; empty for tokens that are not words."""
        return self.value.upper() if self.category == "word" else ""

    def is_sign(self, *signs: str) -> bool:
        """Return whether the token is one of these signs."""
        return self.category == "sign" and self.value in signs


_SPACE = re.compile(
    "(?:[ \\t\\n\\f\\r\\v\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u202F\\u205F\\u3000]"
    "|--(?:\\\\\\n|[^\\r\\n])*+\\r?\\n?)*+"
)
_SINGLE = re.compile(r"'(?:[^'\\]|\\.|'')*+'", re.DOTALL)
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.|"")*+"', re.DOTALL)
_RAW = re.compile(r"""[rR](?:'[^']*+'|"[^"]*+")""")
_BACKTICKS = re.compile(r"`(?:[^`]|``)*+`")
_WORD = re.compile(r"[A-Za-z0-9_]++")
_WHOLE = re.compile(r"([0-9]++(?:[eE][+-]?[0-9]++)?)(BD|bd|Bd|bD|[LSYFDlsyfd])?")
_POINT = re.compile(
    r"((?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)(BD|bd|Bd|bD|[FDfd])?(?![A-Za-z0-9_])"
)
_SIGN = re.compile(
    r"<=>|>>>|/\*\+|<=|>=|<>|!=|==|!>|!<|<<|>>|\|\||\|>|::|->|=>|[()\[\],.!<>=+\-*/%~&|^:?;]"
)
_COMMENT = re.compile(r"/\*|\*/")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def tokens(text: str, settings: SqlSettings) -> list[Token]:
    """Return the tokens of a text, and one for its end.

    Raises InvalidInputError: the text has something that is not a token, or a literal without an
    end.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidInputError(
            f"filter {shown(text)}: the text has {len(text)} characters, at most {MAX_LENGTH} are "
            "supported"
        )
    if settings.variable_substitution and "${" in text:
        raise error(
            text,
            text.index("${"),
            "Spark replaces ${...} by a variable of the session before it reads the text, which "
            "is not known here; set spark.sql.variable.substitute=false to mean these characters",
        )
    return list(_Lexer(text, settings).all())


def error(text: str, offset: int, message: str) -> InvalidInputError:
    """Return an error with the position in the text."""
    following = text[offset : offset + 20]
    position = f"character {offset + 1}, before {following!r}" if following else "its end"
    return InvalidInputError(f"filter {shown(text)}, {position}: {message}")


def shown(text: str) -> str:
    """Return a text as errors show it: quoted and not too long."""
    return repr(text if len(text) < 200 else f"{text[:200]}...")


class _Lexer:
    def __init__(self, text: str, settings: SqlSettings) -> None:
        self._text = text
        self._settings = settings

    def all(self) -> list[Token]:
        text, offset, result = self._text, 0, []
        while True:
            offset = self._after_space(offset)
            if offset >= len(text):
                result.append(Token("end", "", len(text)))
                return result
            token, offset = self._token(offset)
            result.append(token)

    def _after_space(self, offset: int) -> int:
        """Return the offset of the next token, after white space and comments."""
        text = self._text
        while True:
            match = _SPACE.match(text, offset)
            offset = match.end() if match else offset
            if not text.startswith("/*", offset) or text.startswith("/*+", offset):
                return offset
            depth, end = 0, offset
            while depth or end == offset:
                mark = _COMMENT.search(text, end)
                if mark is None:
                    raise error(text, offset, "the comment has no end; expected */")
                # `/*+` does not begin a nested comment.
                is_hint = mark.group() == "/*" and text.startswith("+", mark.end())
                depth += 0 if is_hint else 1 if mark.group() == "/*" else -1
                end = mark.end()
            offset = end

    def _token(self, offset: int) -> tuple[Token, int]:
        text = self._text
        char = text[offset]
        if char == "'":
            return self._string(_SINGLE, offset)
        if char == '"':
            is_name = self._settings.ansi and self._settings.double_quoted_identifiers
            return self._quoted_name(offset) if is_name else self._string(_DOUBLE, offset)
        if char == "`":
            match = _BACKTICKS.match(text, offset)
            if match is None:
                raise error(text, offset, "the name has no end; expected another backtick")
            return Token("name", match.group()[1:-1].replace("``", "`"), offset), match.end()
        if char in "rR" and (match := _RAW.match(text, offset)):
            # With escaped string literals Spark removes one character at both ends, but not the
            # prefix.
            start = 1 if self._settings.escaped_string_literals else 2
            return Token("string", match.group()[start:-1], offset), match.end()
        if match := _POINT.match(text, offset):
            return self._number(match, offset)
        word, number = _WORD.match(text, offset), _WHOLE.match(text, offset)
        if number and number.group(2) and number.group(2) in "LSYlsy" and not number[1].isdigit():
            number = re.compile(r"([0-9]++[eE][+-]?[0-9]++)()").match(text, offset)
        if number and (word is None or number.end() >= word.end()):
            return self._number(number, offset)
        if word is not None:
            self._check_letter(word.end(), offset)
            return Token("word", word.group(), offset), word.end()
        if match := _SIGN.match(text, offset):
            if match.group() == "/*+":
                raise error(text, offset, "hints are not supported in a predicate")
            return Token("sign", match.group(), offset), match.end()
        self._check_letter(offset, offset)
        raise error(text, offset, f"{char!r} does not begin a token of Spark's SQL")

    def _check_letter(self, offset: int, start: int) -> None:
        if self._text[offset : offset + 1].isalpha():
            raise error(
                self._text, start, "names with letters other than A to Z must be in backticks"
            )

    def _number(self, match: re.Match[str], offset: int) -> tuple[Token, int]:
        return Token("number", match[1], offset, (match[2] or "").upper()), match.end()

    def _quoted_name(self, offset: int) -> tuple[Token, int]:
        match = _DOUBLE.match(self._text, offset)
        if match is None:
            raise error(self._text, offset, "the name has no end; expected another double quote")
        return Token("name", match.group()[1:-1].replace('""', '"'), offset), match.end()

    def _string(self, pattern: re.Pattern[str], offset: int) -> tuple[Token, int]:
        match = pattern.match(self._text, offset)
        if match is None:
            raise error(self._text, offset, f"the string has no end; expected {self._text[offset]}")
        body = match.group()[1:-1]
        if not self._settings.escaped_string_literals:
            body = self._unescaped(body, self._text[offset], offset)
        if not body.isascii() and any("\ud800" <= char < "\ue000" for char in body):
            raise error(self._text, offset, "the string has half of a character (a lone surrogate)")
        return Token("string", body, offset), match.end()

    def _unescaped(self, body: str, quote: str, offset: int) -> str:
        doubled = "" if self._settings.consecutive_string_literals else quote
        if "\\" not in body:
            return body.replace(quote * 2, doubled)
        parts: list[str] = []
        position = 0
        while position < len(body):
            mark = re.compile(f"\\\\|{quote}{quote}").search(body, position)
            if mark is None:
                parts.append(body[position:])
                break
            parts.append(body[position : mark.start()])
            position = mark.end()
            if mark.group() != "\\":
                parts.append(doubled)
                continue
            part, position = self._escape(body, position, offset)
            parts.append(part)
        joined = "".join(parts)
        # Two surrogates in a row are one character, as in Java.
        if joined.isascii():
            return joined
        return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def _escape(self, body: str, position: int, offset: int) -> tuple[str, int]:
        """Return the value of the escape after a backslash, and the position after it."""
        char = body[position]
        for letter, size in (("u", 4), ("U", 8)):
            digits = body[position + 1 : position + 1 + size]
            if char == letter and len(digits) == size and _HEX.issuperset(digits):
                code = int(digits, 16)
                if code > 0x10FFFF:
                    raise error(self._text, offset, f"\\U{digits} is not a character of Unicode")
                return chr(code), position + 1 + size
        octal = body[position : position + 3]
        if len(octal) == 3 and octal[0] in "01" and set(octal[1:]) <= set("01234567"):
            return chr(int(octal, 8)), position + 3
        if char in "%_":
            return f"\\{char}", position + 1
        return _ESCAPES.get(char, char), position + 1


class TokenCursor:
    """Base class of the parser: it reads the tokens one after the other, and makes errors."""

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
