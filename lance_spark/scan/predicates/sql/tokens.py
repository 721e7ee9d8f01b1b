"""The words, literals and signs of a text in Spark's SQL, after its lexer (SqlBaseLexer.g4).

| kind | what it is | its value |
| --- | --- | --- |
| word | letters, digits and underscores: a keyword or a name | as it is written |
| name | a name in backticks; in double quotes, if the settings say so | without its quotes |
| string | in quotes, raw or not | what the literal stands for |
| number | with its suffix | digits, and the suffix in capitals |
| sign | operators, commas, brackets | |
| end | after the last token | |

Letters outside of ASCII begin no word: Spark's lexer takes them, and its parser refuses them without backticks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lance_spark.errors import InvalidInputError
from lance_spark.scan.predicates.sql_settings import SqlSettings

#: Longer texts are refused before they are looked at.
LONGEST = 16 * 1024 * 1024

Kind = Literal["word", "name", "string", "number", "sign", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes
    ----------
    kind : str
    value : str
    at : int
        Where it begins in the text.
    suffix : str
        Of a number: L, S, Y, F, D, BD or nothing.
    """

    kind: Kind
    value: str
    at: int
    suffix: str = ""

    @property
    def upper(self) -> str:
        """The word in capitals; empty for tokens that are not words."""
        return self.value.upper() if self.kind == "word" else ""

    def is_sign(self, *signs: str) -> bool:
        """Tell whether it is one of some signs."""
        return self.kind == "sign" and self.value in signs


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

    Raises
    ------
    InvalidInputError
        The text has something that is no token, or a literal without an end.
    """
    if len(text) > LONGEST:
        raise InvalidInputError(
            f"filter {shown(text)}: it has {len(text)} characters, and at most {LONGEST} are read"
        )
    if settings.variable_substitution and "${" in text:
        raise error(
            text,
            text.index("${"),
            "Spark replaces ${...} by a variable of the session before it reads the text, which "
            "is not known here; set spark.sql.variable.substitute=false to mean these characters",
        )
    return list(_Lexer(text, settings).all())


def error(text: str, at: int, what: str) -> InvalidInputError:
    """Return the error of a text that cannot be read, with the place."""
    rest = text[at : at + 20]
    place = f"character {at + 1}, before {rest!r}" if rest else "its end"
    return InvalidInputError(f"filter {shown(text)}, {place}: {what}")


def shown(text: str) -> str:
    """Return a text as errors show it."""
    return repr(text if len(text) < 200 else f"{text[:200]}...")


class _Lexer:
    def __init__(self, text: str, settings: SqlSettings) -> None:
        self._text = text
        self._settings = settings

    def all(self) -> list[Token]:
        text, at, found = self._text, 0, []
        while True:
            at = self._after_space(at)
            if at >= len(text):
                found.append(Token("end", "", len(text)))
                return found
            token, at = self._token(at)
            found.append(token)

    def _after_space(self, at: int) -> int:
        """Return where the next token begins, after white space and comments."""
        text = self._text
        while True:
            match = _SPACE.match(text, at)
            at = match.end() if match else at
            if not text.startswith("/*", at) or text.startswith("/*+", at):
                return at
            depth, end = 0, at
            while depth or end == at:
                mark = _COMMENT.search(text, end)
                if mark is None:
                    raise error(text, at, "the comment has no end; expected */")
                # What looks like a hint begins no comment inside of a comment either.
                hint = mark.group() == "/*" and text.startswith("+", mark.end())
                depth += 0 if hint else 1 if mark.group() == "/*" else -1
                end = mark.end()
            at = end

    def _token(self, at: int) -> tuple[Token, int]:
        text = self._text
        char = text[at]
        if char == "'":
            return self._string(_SINGLE, at)
        if char == '"':
            names = self._settings.ansi and self._settings.double_quoted_identifiers
            return self._quoted_name(at) if names else self._string(_DOUBLE, at)
        if char == "`":
            match = _BACKTICKS.match(text, at)
            if match is None:
                raise error(text, at, "the name has no end; expected another backtick")
            return Token("name", match.group()[1:-1].replace("``", "`"), at), match.end()
        if char in "rR" and (match := _RAW.match(text, at)):
            # With escaped literals Spark takes one character off both ends, and no prefix.
            start = 1 if self._settings.escaped_string_literals else 2
            return Token("string", match.group()[start:-1], at), match.end()
        if match := _POINT.match(text, at):
            return self._number(match, at)
        word, whole = _WORD.match(text, at), _WHOLE.match(text, at)
        if whole and whole.group(2) and whole.group(2) in "LSYlsy" and not whole[1].isdigit():
            whole = re.compile(r"([0-9]++[eE][+-]?[0-9]++)()").match(text, at)
        if whole and (word is None or whole.end() >= word.end()):
            return self._number(whole, at)
        if word is not None:
            self._check_letter(word.end(), at)
            return Token("word", word.group(), at), word.end()
        if match := _SIGN.match(text, at):
            if match.group() == "/*+":
                raise error(text, at, "hints are not read in a predicate")
            return Token("sign", match.group(), at), match.end()
        self._check_letter(at, at)
        raise error(text, at, f"{char!r} begins nothing that Spark's SQL has")

    def _check_letter(self, at: int, start: int) -> None:
        if self._text[at : at + 1].isalpha():
            raise error(
                self._text,
                start,
                "names with letters other than A to Z are written in backticks",
            )

    def _number(self, match: re.Match[str], at: int) -> tuple[Token, int]:
        return Token("number", match[1], at, (match[2] or "").upper()), match.end()

    def _quoted_name(self, at: int) -> tuple[Token, int]:
        match = _DOUBLE.match(self._text, at)
        if match is None:
            raise error(self._text, at, "the name has no end; expected another double quote")
        return Token("name", match.group()[1:-1].replace('""', '"'), at), match.end()

    def _string(self, pattern: re.Pattern[str], at: int) -> tuple[Token, int]:
        match = pattern.match(self._text, at)
        if match is None:
            raise error(self._text, at, f"the string has no end; expected {self._text[at]}")
        body = match.group()[1:-1]
        if not self._settings.escaped_string_literals:
            body = self._unescaped(body, self._text[at], at)
        if not body.isascii() and any("\ud800" <= char < "\ue000" for char in body):
            raise error(self._text, at, "the string has half of a character (a lone surrogate)")
        return Token("string", body, at), match.end()

    def _unescaped(self, body: str, quote: str, at: int) -> str:
        doubled = "" if self._settings.consecutive_string_literals else quote
        if "\\" not in body:
            return body.replace(quote * 2, doubled)
        parts: list[str] = []
        place = 0
        while place < len(body):
            mark = re.compile(f"\\\\|{quote}{quote}").search(body, place)
            if mark is None:
                parts.append(body[place:])
                break
            parts.append(body[place : mark.start()])
            place = mark.end()
            if mark.group() != "\\":
                parts.append(doubled)
                continue
            part, place = self._escape(body, place, at)
            parts.append(part)
        joined = "".join(parts)
        # Two halves of a character are one, as in Java.
        return joined if joined.isascii() else _with_pairs(joined)

    def _escape(self, body: str, place: int, at: int) -> tuple[str, int]:
        """Return what stands after a backslash, and where it ends."""
        char = body[place]
        for letter, size in (("u", 4), ("U", 8)):
            digits = body[place + 1 : place + 1 + size]
            if char == letter and len(digits) == size and _HEX.issuperset(digits):
                code = int(digits, 16)
                if code > 0x10FFFF:
                    raise error(self._text, at, f"\\U{digits} is not a character of Unicode")
                return chr(code), place + 1 + size
        octal = body[place : place + 3]
        if len(octal) == 3 and octal[0] in "01" and set(octal[1:]) <= set("01234567"):
            return chr(int(octal, 8)), place + 3
        if char in "%_":
            return f"\\{char}", place + 1
        return _ESCAPES.get(char, char), place + 1


def _with_pairs(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
