"""Identifiers of namespaces and tables: tuples of names, and their text in the catalog table.

`("prod", "users")` is the table or namespace `users` in the namespace `prod`. Its text is
`prod$users`. The root namespace is `()`.
"""

from __future__ import annotations

from lance_spark.errors import InvalidInputError

Identifier = tuple[str, ...]
DELIMITER = "$"
#: Characters that a name must not contain: it would mean another object, or a folder outside of the
#: root.
_RESERVED = frozenset("$/\\\x00")


def text_of(identifier: Identifier) -> str:
    """Return the text of an identifier that is not the root.

    Raises InvalidInputError: a name is empty, or has a reserved character.
    """
    if not identifier:
        raise InvalidInputError("the root namespace has no name; name a table or a namespace")
    for name in identifier:
        if not name or name in (".", "..") or not _RESERVED.isdisjoint(name):
            raise InvalidInputError(
                f"{name!r} is not a name of a table or namespace: it must not be empty, '.' or "
                "'..', or contain '$', '/', '\\' or a zero byte; choose another name"
            )
    return DELIMITER.join(identifier)


def child_name(text: str, parent: Identifier) -> str | None:
    """Return the last name of a text that is directly in a parent; None for other texts."""
    prefix = "".join(f"{name}{DELIMITER}" for name in parent)
    name = text.removeprefix(prefix)
    return name if text.startswith(prefix) and name and DELIMITER not in name else None


def display(identifier: Identifier) -> str:
    """Return the identifier as errors show it."""
    return ".".join(identifier) or "(root)"
