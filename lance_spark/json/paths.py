"""Paths in JSON documents, and the values that they find, as pylance reads them.

| step | of | finds |
| --- | --- | --- |
| `Key` | ``json_get`` and its kin | a child of an object; an item of an array |
| `Member` | ``.name``, ``:name``, ``."name"``, ``["name"]`` in a path | a child of an object |
| `Item` | ``[0]`` in a path | an item of an array |

A path is a JSONPath of these steps, with or without ``$`` at its start. Wildcards, ranges, filters
and functions of JSONPath are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from lance_spark.json.search import Located

_INDEX = re.compile(r"\+?[0-9]+", re.ASCII)
_SPACE = " \t\r\n"
_NAME = re.compile(r"\w+")
_STEP = re.compile(r'\s*(?:[.:](?:(\w+)|"([^"\\]*)")|\[\s*(?:"([^"\\]*)"|([0-9]{1,9}))\s*\])')
#: Words that are not names at the start of a path without ``$``.
_LITERALS = ("true", "false", "null", "exists")
_MAX_INDEX = (1 << 64) - 1

#: No value: the path finds nothing. Not the same as null in a document.
MISSING = object()


class Key(NamedTuple):
    """A child by name, or an item if the value is an array."""

    name: str


class Member(NamedTuple):
    """A child of an object."""

    name: str


class Item(NamedTuple):
    """An item of an array, counted from 0."""

    number: int


Step = Key | Member | Item


def parse_path(text: str) -> tuple[Member | Item, ...]:
    """Return the steps of a path. Raises ValueError: the path is not valid, or not supported."""
    rest = text.strip(_SPACE)
    steps: list[Member | Item] = []
    if rest.startswith("$"):
        position = 1
    else:
        first = _NAME.match(rest)
        position = first.end() if first else 0
        if first:
            steps.append(Member(first.group()))
        if first and first.group().lower() in _LITERALS:
            raise ValueError(f"the path {text!r} must begin with $")
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise ValueError(
                f"the path {text!r} is not supported; write children as $.name, and items as [0]"
            )
        name, quoted, bracketed, index = match.groups()
        names = [part for part in (name, quoted, bracketed) if part is not None]
        steps.append(Member(names[0]) if names else Item(int(index)))
        position = match.end()
    return tuple(steps)


def same_steps(keys: Sequence[Step], path: Sequence[Step]) -> bool:
    """Return whether keys of ``json_get`` find the values of a path in every document."""
    return [step[0] for step in keys] == [step[0] for step in path] and not any(
        isinstance(step, Item) or _INDEX.fullmatch(step.name) for step in path
    )


def find(value: Any, steps: Sequence[Step]) -> Any:
    """Return the value that steps find in a document, as the json module reads it, or `MISSING`."""
    for step in steps:
        if type(value) is dict and not isinstance(step, Item):
            value = value.get(step.name, MISSING)
        elif type(value) is list and not isinstance(step, Member):
            index = step.number if isinstance(step, Item) else _index(step.name)
            value = value[index] if index is not None and index < len(value) else MISSING
        else:
            return MISSING
    return value


def located(documents: Located, steps: Sequence[Step]) -> Located:
    """Return the places of the values that steps find in JSONB: `find` for many documents."""
    for step in steps:
        if isinstance(step, Item):
            documents = documents.child(None, step.number)
            continue
        number = _index(step.name) if isinstance(step, Key) else None
        # A lone surrogate is in no key.
        documents = documents.child(step.name.encode("utf-8", "surrogatepass"), number)
    return documents


def _index(name: str) -> int | None:
    """Return a key as the number of an item; None if it is not one."""
    if not _INDEX.fullmatch(name) or len(name) > 40:
        return None
    number = int(name)
    return number if number <= _MAX_INDEX else None
