"""The tree of an expression of Arrow.

pyarrow shows no part of an expression, but pickles it as an Arrow IPC file: one row with the
literals and the options of functions as columns, and the tree as metadata of the schema, in
prefix order:

| key | value |
| --- | --- |
| `field_ref` | name of a column |
| `nested_field_ref` | number of `field_ref` that follow, the path to a child |
| `literal` | number of the column with the value |
| `call` | name of a function; its arguments follow |
| `options` | number of the column with the options of the function, after the arguments |
| `end` | name of the function |
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_spark.file.schema.arrow_fields import ArrowSchema, metadata_items


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A column: its name, and the names of children below it."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value."""

    value: pa.Scalar[Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of other nodes; its options are null if it has none."""

    function: str
    args: tuple[Node, ...]
    options: pa.Scalar[Any] | None = None


Node = FieldRef | Literal | Call


def tree_of(serialized: pa.Buffer) -> Node | None:
    """Return the tree of an expression; None if it has nodes that are not known here.

    Parameters
    ----------
    serialized : pa.Buffer
        The argument of `Expression.__reduce__`.
    """
    try:
        with pa.ipc.open_file(serialized) as reader:
            batch = reader.get_batch(0)
    except (pa.ArrowException, ValueError):
        return None
    items = iter(_items(batch.schema))
    try:
        return _node(*next(items), items, batch)
    except (StopIteration, ValueError, KeyError, IndexError, RecursionError):
        return None


def _items(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return all keys and values of a schema's metadata.

    `Schema.metadata` is a dictionary, which has each key once.
    """
    exported = ArrowSchema()
    address = ctypes.addressof(exported)
    schema._export_to_c(address)
    try:
        items = metadata_items(exported.metadata)
        return [(key.decode(), value.decode()) for key, value in items]
    finally:
        # Takes the struct over, and so frees it.
        pa.Schema._import_from_c(address)


def _node(key: str, value: str, items: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    if key == "field_ref":
        return FieldRef((value,))
    if key == "nested_field_ref":
        return FieldRef(tuple(_name(*next(items)) for _ in range(int(value))))
    if key == "literal":
        return Literal(batch.column(int(value))[0])
    if key != "call":
        raise KeyError(key)
    args: list[Node] = []
    options = None
    for inner, text in items:
        if inner == "end":
            return Call(value, tuple(args), options)
        if inner == "options":
            options = batch.column(int(text))[0]
        else:
            args.append(_node(inner, text, items, batch))
    raise ValueError("no end")


def _name(key: str, value: str) -> str:
    if key != "field_ref":
        raise KeyError(key)
    return value
