"""Regular expressions of Java as RE2 has them, as far as both find the same.

Taken are characters, ``.``, classes without classes in them, ``\\d \\w \\s`` and their opposites,
groups, ``|``, ``^``, ``$`` at the end, and quantifiers. Others are refused: what looks around or
back, possessive quantifiers, flags, boundaries and Unicode's properties mean something else to RE2,
or nothing.
"""

from __future__ import annotations

import re

import pyarrow as pa

#: Where a line ends in Java: `.` takes none of these.
_LINE_ENDS = "\\n\\r\\x{85}\\x{2028}\\x{2029}"
_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\n\\x0b\\f\\r"}
_CONTROLS = {"n": "\\n", "t": "\\t", "r": "\\r", "f": "\\f"}
_REPEATED = re.compile(r"[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\}")


def to_re2(pattern: str) -> str:
    """Return a pattern of RE2 that is found in the same strings as a pattern of Java.

    Raises
    ------
    ValueError
        There is none, or none that is known.
    """
    found = _Translator(pattern).all()
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), found)
    except pa.ArrowInvalid:
        raise ValueError(f"the pattern {pattern!r} is not one of Java and of RE2") from None
    return found


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        #: Whether something can take a carriage return, which ends a line in two ways.
        self._takes_returns = False
        self._ends = False

    def all(self) -> str:
        parts: list[str] = []
        while self._at < len(self._pattern):
            part, repeatable = self._part()
            parts.append(part)
            mark = _REPEATED.match(self._pattern, self._at)
            if mark is None or not repeatable:
                if mark is not None and part not in ("(", "(?:", "|"):
                    raise self._refused("a quantifier after what is not repeated")
                continue
            self._at = mark.end()
            parts.append(mark.group())
            if self._pattern.startswith("?", self._at):
                # Which of several places is found makes no difference.
                self._at += 1
            if _REPEATED.match(self._pattern, self._at):
                raise self._refused("a quantifier after a quantifier")
        if self._ends and self._takes_returns:
            raise self._refused("$ after what can be a carriage return")
        return "".join(parts)

    def _refused(self, what: str) -> ValueError:
        return ValueError(f"the pattern {self._pattern!r} has {what}, which is not read here")

    def _part(self) -> tuple[str, bool]:
        """Return the next part, and whether it can be repeated."""
        pattern, char = self._pattern, self._pattern[self._at]
        self._at += 1
        if char == "\\":
            return self._escape(inside=False), True
        if char == ".":
            return f"[^{_LINE_ENDS}]", True
        if char == "[":
            return self._class(), True
        if char == "(":
            if pattern.startswith("?:", self._at):
                self._at += 2
                return "(?:", False
            if pattern.startswith("?", self._at):
                raise self._refused("a group of a special kind")
            return "(", False
        if char == ")":
            return ")", True
        if char in "|^":
            return "\\A" if char == "^" else "|", False
        if char == "$":
            if set(pattern[self._at :]) - {")"}:
                raise self._refused("$ before its end")
            self._ends = True
            return f"(?:\\r\\n|[{_LINE_ENDS}])?\\z", False
        if char in "*+?{":
            raise self._refused(f"{char} without anything before it")
        self._takes_returns |= char == "\r"
        return re.escape(char), True

    def _escape(self, inside: bool) -> str:
        char = self._pattern[self._at : self._at + 1]
        self._at += 1
        if char and char in "dws":
            self._takes_returns |= char == "s"
            return _SETS[char] if inside else f"[{_SETS[char]}]"
        if char and char in "DWS" and not inside:
            self._takes_returns |= char != "S"
            return f"[^{_SETS[char.lower()]}]"
        if char in _CONTROLS:
            self._takes_returns |= char == "r"
            return _CONTROLS[char]
        if not char or not char.isascii() or char.isalnum():
            raise self._refused(f"\\{char}")
        return f"\\{char}" if char.isprintable() and char != " " else re.escape(char)

    def _class(self) -> str:
        parts = ["["]
        if self._pattern.startswith("^", self._at):
            self._at += 1
            parts.append("^")
            self._takes_returns = True
        first = len(parts)
        while True:
            char = self._pattern[self._at : self._at + 1]
            self._at += 1
            if not char or char == "[" or self._pattern.startswith("&&", self._at - 1):
                raise self._refused("a class without an end, or in another one")
            if char == "]":
                break
            if char == "-":
                parts.append("-" if self._is_range(len(parts) > first) else "\\-")
            elif char == "\\":
                parts.append(self._escape(inside=True))
            else:
                self._takes_returns |= char == "\r"
                parts.append(
                    f"\\{char}"
                    if char.isascii() and not char.isalnum() and char.isprintable() and char != " "
                    else char
                )
        if len(parts) == first:
            raise self._refused("a class that begins with ]")
        return "".join([*parts, "]"])

    def _is_range(self, after_something: bool) -> bool:
        return after_something and not self._pattern.startswith("]", self._at)
