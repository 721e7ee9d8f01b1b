"""Comparisons of values and matches of texts with Spark's results.

Java's regular expressions are translated to RE2, if both match the same strings. Supported are
characters, ``.``, classes without nested classes, ``\\d \\w \\s`` and their negations, groups,
``|``, ``^``, ``$`` at the end, and quantifiers. RE2 does not have, or reads differently:
lookaround, back references, possessive quantifiers, flags, boundaries and Unicode properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_short_decimal, unscaled
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.json.jsonb import to_text

Op = Literal["==", "!=", "<", "<=", ">", ">="]
TextMatch = Literal["starts", "ends", "contains", "like"]

#: Arrow's function for each comparison.
KERNELS: dict[str, str] = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
#: The operator after the two sides are exchanged.
FLIPPED: dict[Op, Op] = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
#: Arrow's function for each way to match a text.
_MATCHERS: dict[TextMatch, str] = {
    "starts": "starts_with",
    "ends": "ends_with",
    "contains": "match_substring",
    "like": "match_substring_regex",
}
#: Characters of the longest literal that is given to RE2, which limits the size of patterns.
_MAX_LITERAL = 1_000
#: Line ends of Java. `.` does not match them.
_LINE_ENDS = "\\n\\r\\x{85}\\x{2028}\\x{2029}"
#: `$`, which also matches before the last line end.
_TEXT_END = f"(?:\\r\\n|[{_LINE_ENDS}])?\\z"
_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\n\\x0b\\f\\r"}
#: Characters of Unicode 16 that the sets of RE2 may lack, as ranges of code points.
_NEW_DIGITS = "10d40-10d49 116d0-116e3 11bf0-11bf9 16130-16139 16d70-16d79 1ccf0-1ccf9 1e5f1-1e5fa"
_NEW_LETTERS = (
    "897-897 1c89-1c8a a7cb-a7cd a7da-a7dc 105c0-105f3 10d40-10d65 10d69-10d6d 10d6f-10d85 "
    "10ec2-10ec4 10efc-10efc 11380-11389 1138b-1138b 1138e-1138e 11390-113b5 113b7-113c0 "
    "113c2-113c2 113c5-113c5 113c7-113ca 113cc-113d3 113e1-113e2 116d0-116e3 11bc0-11be0 "
    "11bf0-11bf9 11f5a-11f5a 13460-143fa 16100-16139 16d40-16d6c 16d70-16d79 18cff-18cff "
    "1ccf0-1ccf9 1e5d0-1e5fa"
)


def _ranges(text: str) -> str:
    """Return ranges of code points as a part of a class of RE2."""
    return re.sub(r"[0-9a-f]+", r"\\x{\g<0>}", text).replace(" ", "")


#: The sets of Rust, which have the characters of all languages.
_RUST_SETS = {
    "d": "\\p{Nd}" + _ranges(_NEW_DIGITS),
    "w": "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}"
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}" + _ranges(_NEW_LETTERS),
    "s": " \\t\\n\\x0b\\f\\r\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}",
}
_CONTROLS = {"n": "\\n", "t": "\\t", "r": "\\r", "f": "\\f"}
#: What `like_regex` puts around a pattern, and what the pattern consists of.
_LIKE_START, _LIKE_END = "(?s)\\A", "\\z"
_LIKE_PIECE = re.compile(r"\.\*|\\.|.", re.DOTALL)
_REGEX_PIECE = re.compile(
    r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?:|\{[0-9]{1,4}(?:,[0-9]{0,4})?\}|.", re.DOTALL
)
_REPEATED = re.compile(r"[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\}")


def column_at(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Return a column of a batch, or a child of structs; null where a struct is null.

    - `path`: The names from the top-level column down.
    """
    array = batch.column(batch.schema.get_field_index(path[0]))
    for name in path[1:]:
        array = array.flatten()[array.type.get_field_index(name)]
    return array


def values_at(batch: pa.RecordBatch, path: Sequence[Field]) -> pa.Array:
    """Return a column of a batch, or a child of structs, with JSON as text; see `column_at`."""
    array = column_at(batch, [node.name for node in path])
    if path[-1].logical_type == "json" and pat.is_large_binary(array.type):
        return to_text(array)
    return array


def kernel_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type in which values are compared: Arrow has no kernels for float16."""
    return pa.float32() if pat.is_float16(dtype) else dtype


def in_64_bits(values: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    """Return the unscaled values of short decimals as int64, and other values as they are.

    Arrow compares 64 bits in a fifth of the time.
    """
    if not is_short_decimal(values.type):
        return values
    if isinstance(values, pa.Scalar):
        return unscaled(pa.array([values.as_py()], values.type))[0]
    return unscaled(values)


def compared(left: pa.Array, op: Op, right: pa.Array | pa.Scalar) -> pa.BooleanArray:
    """Compare values as Spark does: NaN equals NaN and is the greatest value, both zeros are equal.

    - `left`: May be the unscaled values of decimals, as int64.
    - `right`: Of the same type.

    The result is null where either side is null.
    """
    import pyarrow.compute as pc

    if pat.is_fixed_size_binary(left.type):
        left, right = left.cast(pa.binary()), right.cast(pa.binary())
    left, right = in_64_bits(left), in_64_bits(right)
    result = pc.call_function(KERNELS[op], [left, right])
    if not pat.is_floating(left.type):
        return result
    if isinstance(right, pa.Scalar) and not is_nan(right):
        # NaN is greater than a number, and not equal to it.
        return pc.or_(result, pc.is_nan(left)) if op in (">", ">=") else result
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if op in ("==", "!="):
        both_nan = pc.and_(left_nan, right_nan)
        return pc.or_(result, both_nan) if op == "==" else pc.and_(result, pc.invert(both_nan))
    if op in (">", "<="):
        greater = pc.or_(pc.greater(left, right), pc.and_(left_nan, pc.invert(right_nan)))
        return greater if op == ">" else pc.invert(greater)
    less = pc.or_(pc.less(left, right), pc.and_(pc.invert(left_nan), right_nan))
    return less if op == "<" else pc.invert(less)


def widened(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Cast values to a wider type; decimals to the nearest double.

    Raises InvalidInputError: a date or timestamp is out of range for the other type.
    """
    if pat.is_decimal(array.type) and pat.is_floating(dtype):
        # Arrow divides doubles and can be off by one unit; its parser of text rounds correctly.
        return array.cast(pa.string()).cast(dtype)
    if not pat.is_temporal(dtype):
        return array.cast(dtype, safe=False)
    try:
        return array.cast(dtype)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"filter: a value of {array.type} cannot be compared as {dtype}: {error}"
        ) from None


def exact_ticks(array: pa.Array) -> pa.Array:
    """Return dates or timestamps as nanoseconds since 1970, in a decimal type that fits all."""
    import pyarrow.compute as pc

    if pat.is_date(array.type):
        array = array.cast(pa.timestamp("s"))
    factor = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[array.type.unit]
    ticks = array.cast(pa.int64()).cast(pa.decimal128(19, 0))
    return pc.multiply(ticks, pa.scalar(factor, pa.decimal128(10, 0)))


def text_matches(array: pa.Array, match: TextMatch, text: str | bytes) -> pa.BooleanArray:
    """Return which strings or bytes match a text; see `like_regex`. Null stays null."""
    import pyarrow.compute as pc

    if match == "contains" and isinstance(text, str) and len(text) <= _MAX_LITERAL:
        # RE2 looks for a literal in half of the time of Arrow's own search.
        match, text = "like", re.escape(text)
    return pc.call_function(_MATCHERS[match], [array], pc.MatchSubstringOptions(text))


def like_regex(pattern: str, escape: str = "\\") -> tuple[TextMatch, str]:
    """Translate a pattern of ``LIKE``.

    - `pattern`: ``_`` is any character, ``%`` any number of characters.
    - `escape`: One character. Before itself, ``_`` or ``%`` it removes the special meaning.

    Returns for `text_matches`. For "like" the text is a regular expression of RE2. Raises
    ValueError: the escape character ends the pattern, or is before another character.
    """
    # None is any number of characters, and "" is any character.
    parts: list[str | None] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == escape:
            index += 1
            if index == len(pattern) or pattern[index] not in ("_", "%", escape):
                raise ValueError(f"{escape!r} must be before _, % or itself in {pattern!r}")
            parts.append(pattern[index])
        else:
            parts.append(None if char == "%" else "" if char == "_" else char)
        index += 1
    inner = parts[1:-1] if len(parts) > 1 else []
    if all(inner) or not inner:
        text = "".join(part for part in parts if part)
        first, last = (parts[0], parts[-1]) if parts else ("x", "x")
        if first is None and last is None and len(parts) > 1:
            return "contains", text
        if last is None and first:
            return "starts", text
        if first is None and last:
            return "ends", text
    regex = [".*" if part is None else re.escape(part) if part else "." for part in parts]
    return "like", f"{_LIKE_START}{''.join(regex)}{_LIKE_END}"


def regex_parts(regex: str) -> list[str]:
    """Return texts that every text has that matches a regular expression.

    - `regex`: Of `like_regex` or `to_re2`.
    """
    if regex.startswith(_LIKE_START):
        inner = regex[len(_LIKE_START) : -len(_LIKE_END)]
        pieces = _LIKE_PIECE.findall(inner)
        # A dot is any character, so that it ends a part.
        chars = ["\0" if piece in (".", ".*") else piece[-1] for piece in pieces]
    else:
        chars = [] if regex.startswith("(?") else _fixed_chars(regex)
    return [part for part in "".join(chars).split("\0") if part]


def _fixed_chars(regex: str) -> list[str]:
    """Return the characters that are in every match, and zeros between those that may be apart."""
    chars: list[str] = []
    depth = 0
    for piece in _REGEX_PIECE.findall(regex.replace(_TEXT_END, "")):
        if piece == "|":
            # A match has the characters of one side only.
            return []
        depth += (piece in ("(", "(?:")) - (piece == ")")
        if _REPEATED.fullmatch(piece):
            if piece in "*?" or piece.startswith("{0"):
                chars.pop()
            chars.append("\0")
        elif depth or piece[0] in "()[." or (len(piece) > 1 and piece[1].isalnum()):
            chars.append("\0")
        else:
            chars.append(piece[-1])
    return chars


def is_nan(value: Any) -> bool:
    """Return whether a scalar is NaN."""
    return bool(pat.is_floating(value.type) and value.is_valid and value.as_py() != value.as_py())


def has_nan(array: pa.Array) -> bool:
    """Return whether an array has NaN."""
    if not pat.is_floating(array.type):
        return False
    import pyarrow.compute as pc

    return bool(pc.any(pc.is_nan(array)).as_py())


def with_one_zero(array: pa.Array) -> pa.Array:
    """Return floats with one zero and one NaN, because hash kernels distinguish their bits."""
    if not pat.is_floating(array.type):
        return array
    import pyarrow.compute as pc

    array = pc.if_else(pc.equal(array, 0.0), pa.scalar(0.0, array.type), array)
    return pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)


def to_re2(pattern: str) -> str:
    """Translate a pattern of Java to a pattern of RE2 that matches the same strings.

    Raises ValueError: the pattern is not valid, or not supported.
    """
    return _valid(_Translator(pattern).all(), pattern)


def rust_to_re2(pattern: str, *, ignore_case: bool = False) -> str:
    """Translate a pattern of Rust, which pylance uses, to one of RE2 that matches the same strings.

    Raises ValueError: the pattern is not valid, or not supported.
    """
    regex = _RustTranslator(pattern).all()
    return _valid(f"(?i){regex}" if ignore_case else regex, pattern)


def _valid(regex: str, pattern: str) -> str:
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), regex)
    except pa.ArrowInvalid:
        raise ValueError(f"the pattern {pattern!r} is not valid in RE2") from None
    return regex


class _Translator:
    _sets: Mapping[str, str] = _SETS
    _dot, _end = f"[^{_LINE_ENDS}]", _TEXT_END
    #: What classes cannot have.
    _set_operators: tuple[str, ...] = ("&&",)

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._index = 0
        #: Whether a part can match a carriage return: Java's `$` also matches before "\\r\\n".
        self._matches_returns = False
        self._has_end = False

    def all(self) -> str:
        parts: list[str] = []
        while self._index < len(self._pattern):
            part, repeatable = self._part()
            parts.append(part)
            mark = _REPEATED.match(self._pattern, self._index)
            if mark is None or not repeatable:
                if mark is not None and part not in ("(", "(?:", "|"):
                    raise self._refused("a quantifier after a part that cannot be repeated")
                continue
            self._index = mark.end()
            parts.append(mark.group())
            if self._pattern.startswith("?", self._index):
                # A lazy quantifier finds another match, but in the same strings.
                self._index += 1
            if _REPEATED.match(self._pattern, self._index):
                raise self._refused("a quantifier after a quantifier")
        if self._has_end and self._matches_returns:
            raise self._refused("$ after a part that can match a carriage return")
        return "".join(parts)

    def _refused(self, construct: str) -> ValueError:
        return ValueError(f"the pattern {self._pattern!r} has {construct}, which is not supported")

    def _part(self) -> tuple[str, bool]:
        """Translate the next part; return it, and whether a quantifier may follow."""
        pattern, char = self._pattern, self._pattern[self._index]
        self._index += 1
        if char == "\\":
            return self._escape(inside=False), True
        if char == ".":
            return self._dot, True
        if char == "[":
            return self._class(), True
        if char == "(":
            if pattern.startswith("?:", self._index):
                self._index += 2
                return "(?:", False
            if pattern.startswith("?", self._index):
                raise self._refused("a group of a special kind")
            return "(", False
        if char == ")":
            return ")", True
        if char in "|^":
            return "\\A" if char == "^" else "|", False
        if char == "$":
            if set(pattern[self._index :]) - {")"}:
                raise self._refused("$ before its end")
            self._has_end = self._end == _TEXT_END
            return self._end, False
        if char in "*+?{":
            raise self._refused(f"{char} without anything before it")
        self._matches_returns |= char == "\r"
        return re.escape(char), True

    def _escape(self, inside: bool) -> str:
        char = self._pattern[self._index : self._index + 1]
        self._index += 1
        if char and char in "dws":
            self._matches_returns |= char == "s"
            return self._sets[char] if inside else f"[{self._sets[char]}]"
        if char and char in "DWS" and not inside:
            self._matches_returns |= char != "S"
            return f"[^{self._sets[char.lower()]}]"
        if char in _CONTROLS:
            self._matches_returns |= char == "r"
            return _CONTROLS[char]
        if not char or not char.isascii() or char.isalnum():
            raise self._refused(f"\\{char}")
        return f"\\{char}" if char.isprintable() and char != " " else re.escape(char)

    def _class(self) -> str:
        parts = ["["]
        if self._pattern.startswith("^", self._index):
            self._index += 1
            parts.append("^")
            self._matches_returns = True
        first = len(parts)
        while True:
            char = self._pattern[self._index : self._index + 1]
            self._index += 1
            if (
                not char
                or char == "["
                or self._pattern.startswith(self._set_operators, self._index - 1)
            ):
                raise self._refused("a class without an end, or inside another class")
            if char == "]":
                break
            if char == "-":
                is_range = len(parts) > first and not self._pattern.startswith("]", self._index)
                parts.append("-" if is_range else "\\-")
            elif char == "\\":
                parts.append(self._escape(inside=True))
            else:
                self._matches_returns |= char == "\r"
                parts.append(
                    f"\\{char}"
                    if char.isascii() and not char.isalnum() and char.isprintable() and char != " "
                    else char
                )
        if len(parts) == first:
            raise self._refused("a class that begins with ]")
        return "".join([*parts, "]"])


class _RustTranslator(_Translator):
    _sets = _RUST_SETS
    _dot, _end = "[^\\n]", "\\z"
    _set_operators = ("&&", "--", "~~")
