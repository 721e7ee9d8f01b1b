"""The tree of a text: names, values, and operators on them."""

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
    at : int
        Where it begins.
    depth : int
        How deep the tree below it is.
    """

    at: int
    depth: int


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A column, or a child of a struct: the names from the top down."""

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
        `and or not = <=> != < <= > >= + - * / % div negative positive in between is cast try_cast
        like ilike rlike`, or `call`.
    args : tuple of Node
    detail : object
        Of `cast` the type, of `like` and `ilike` the escape character, of `is` what it asks for, of
        `call` the name in lower case.
    """

    op: str
    args: tuple[Node, ...]
    detail: Any = None


@dataclass(frozen=True, slots=True)
class TypeName:
    """The type that a cast names."""

    dtype: pa.DataType
