"""The syntax tree of a predicate: names, literals, and operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_spark.scan.predicates.typed_values import Typed


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the text.

    Attributes
    ----------
    offset : int
        Its first character in the text.
    depth : int
        Levels of the tree below the node, itself included.
    """

    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A column, or a child of a struct: the names from the top-level column down."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value(Node):
    """A literal."""

    typed: Typed


@dataclass(frozen=True, slots=True)
class Apply(Node):
    """An operator or a function.

    Attributes
    ----------
    op : str
        `and or not = <=> != < <= > >= + - * / % div | ^ & << >> >>> || negative positive ~ in
        between is cast try_cast like ilike rlike literal interval case`, or `call`.
    args : tuple of Node
    detail : object
        For `cast` the type; for `like` and `ilike` the escape character; for `is` the word after
        IS; for `call` the name in lower case; for `literal` a value of `words.LITERAL_TYPES`; for
        `interval` the text, whether it is negative, and its units or None; for `case` whether it
        has a value and an ELSE.
    """

    op: str
    args: tuple[Node, ...]
    detail: Any = None


@dataclass(frozen=True, slots=True)
class TypeName:
    """The type of a cast."""

    dtype: pa.DataType
