"""Translation of Java's regular expressions to RE2, if both match the same strings.

Supported are characters, ``.``, classes without nested classes, ``\\d \\w \\s`` and their
negations, groups, ``|``, ``^``, ``$`` at the end, and quantifiers. RE2 does not have, or reads
differently: lookaround, back references, possessive quantifiers, flags, boundaries and Unicode
properties.
"""

from __future__ import annotations

import re

import pyarrow as pa

#: Line ends of Java. `.` does not match them.
_LINE_ENDS = "\\n\\r\\x{85}\\x{2028}\\x{2029}"
_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\n\\x0b\\f\\r"}
_CONTROLS = {"n": "\\n", "t": "\\t", "r": "\\r", "f": "\\f"}
_REPEATED = re.compile(r"[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\}")


def to_re2(pattern: str) -> str:
    """Translate a pattern of Java to a pattern of RE2 that matches the same strings.

    Raises
    ------
    ValueError
        The pattern is not valid, or not supported.
    """
    regex = _Translator(pattern).all()
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), regex)
    except pa.ArrowInvalid:
        raise ValueError(f"the pattern {pattern!r} is not valid in RE2") from None
    return regex


class _Translator:
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
            return f"[^{_LINE_ENDS}]", True
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
            self._has_end = True
            return f"(?:\\r\\n|[{_LINE_ENDS}])?\\z", False
        if char in "*+?{":
            raise self._refused(f"{char} without anything before it")
        self._matches_returns |= char == "\r"
        return re.escape(char), True

    def _escape(self, inside: bool) -> str:
        char = self._pattern[self._index : self._index + 1]
        self._index += 1
        if char and char in "dws":
            self._matches_returns |= char == "s"
            return _SETS[char] if inside else f"[{_SETS[char]}]"
        if char and char in "DWS" and not inside:
            self._matches_returns |= char != "S"
            return f"[^{_SETS[char.lower()]}]"
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
            if not char or char == "[" or self._pattern.startswith("&&", self._index - 1):
                raise self._refused("a class without an end, or inside another class")
            if char == "]":
                break
            if char == "-":
                parts.append("-" if self._is_range(len(parts) > first) else "\\-")
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

    def _is_range(self, is_after_char: bool) -> bool:
        return is_after_char and not self._pattern.startswith("]", self._index)
