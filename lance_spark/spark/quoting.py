"""Names in Spark's SQL."""

from __future__ import annotations


def quoted(*path: str) -> str:
    """Return the path of a table, column or child in backticks, so that it can have any characters.

    Examples
    --------
    >>> quoted("a", "b.c")
    '`a`.`b.c`'
    """
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)
