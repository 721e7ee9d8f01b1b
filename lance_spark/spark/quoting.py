"""Names and texts in Spark's SQL."""

from __future__ import annotations

import re
from itertools import zip_longest

from lance_spark.errors import InvalidInputError

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|`[^`]*+`", re.DOTALL)
#: A name in backticks or without, a path of such names, and a list of paths.
_NAME = re.compile(r"`((?:[^`]|``)++)`|[^`.,]++")
_NAMES = re.compile(rf"(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*+")
_PARTS = re.compile(r"(?:`(?:[^`]|``)++`|[^`,])++")
_LIST = re.compile(rf"(?:{_PARTS.pattern})(?:,(?:{_PARTS.pattern}))*+")
_COMMENT = re.compile(r"--[^\n]*+|/\*.*?\*/", re.DOTALL)
#: A number comes before words, because its point is not that of a name.
_TOKEN = re.compile(r"[0-9]++\.[0-9]*+|\w++|\S")
_QUERY_WORDS = frozenset({"select", "with", "from", "values"})
#: What is before a star that stands for columns. Anything else is a factor.
_BEFORE_STAR = frozenset({"", "(", ",", ".", "distinct"})


def quoted(*path: str) -> str:
    """Return the path of a table, column or child in backticks, so that it can have any characters.

    Examples
    --------
    >>> quoted("a", "b.c")
    '`a`.`b.c`'
    """
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def string_literal(text: str, *, is_raw: bool = False) -> str:
    r"""Return a literal of SQL in quotes, for places that take no other expression.

    - `is_raw`: Whether the session takes backslashes of literals as they are
      (``spark.sql.parser.escapedStringLiterals``).

    Raises InvalidInputError: the text has a quote, and `is_raw` is true.

    Examples
    --------
    >>> print(string_literal("it's 5$"))
    'it\'s 5\u0024'
    """
    if is_raw:
        if "'" in text:
            raise InvalidInputError(
                f"{text!r} cannot be written in SQL while the setting "
                "spark.sql.parser.escapedStringLiterals is true; set it to false"
            )
        return f"'{text}'"
    # A dollar could begin the name of a variable, which the session would replace.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def unquoted(text: str) -> str:
    """Return the path of a column without the backticks around its names.

    Examples
    --------
    >>> unquoted("`s`.`a b`"), unquoted("a``b")
    ('s.a b', 'a``b')
    """
    if not _NAMES.fullmatch(text):
        return text
    return _NAME.sub(lambda name: name[1].replace("``", "`") if name[1] else name[0], text)


def split_names(text: str) -> list[str]:
    """Return the names of a text with commas between them; a comma in backticks parts none.

    Examples
    --------
    >>> split_names("a, `b,c`.d")
    ['a', ' `b,c`.d']
    """
    return _PARTS.findall(text) if _LIST.fullmatch(text) else text.split(",")


def has_star(text: str) -> bool:
    """Return whether an expression has a star that stands for all columns, as in ``hash(t.*)``.

    The stars of ``count(*)`` and of subqueries do not count: these are not columns of the rows for
    which the expression is evaluated.

    Examples
    --------
    >>> has_star("to_json(struct(*))"), has_star("a * 2 IN (SELECT * FROM v)")
    (True, False)
    """
    if "*" not in text:
        return False
    # Whether the open brackets are within a subquery, outermost first.
    in_query = [False]
    earlier = before = ""
    parts = _TOKEN.findall(_COMMENT.sub(" ", _QUOTED.sub("x", text)).lower())
    for part, after in zip_longest(parts, parts[1:], fillvalue=""):
        if before == "(" and part in _QUERY_WORDS:
            in_query[-1] = True
        if part == "(":
            in_query.append(in_query[-1])
        elif part == ")" and len(in_query) > 1:
            in_query.pop()
        elif (
            # A Column writes a product as a call: *(a, 10).
            part == "*" and after != "(" and before in _BEFORE_STAR and not in_query[-1]
        ):
            is_count = (earlier, before) == ("count", "(")
            if not is_count:
                return True
        earlier, before = before, part
    return False
