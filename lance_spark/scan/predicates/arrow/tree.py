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

Programs build disjunctions of thousands of comparisons one by one, each a level deeper than the
last one. Arrow's functions call themselves for each level, and some thousand levels end the process
by an overflow of the stack. So no function here calls itself, and the tree has each chain of one
function as one call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_spark._forks import ForkLock
from lance_spark.file.schema.arrow_fields import ArrowSchema, metadata_items

#: Functions for which only the order of the operands counts, not their grouping.
ASSOCIATIVE = frozenset({"and_kleene", "or_kleene", "and", "or"})
#: Bytes of the stack on which Arrow pickles an expression. A level takes about 200 bytes.
_STACK_BYTES = 64 * 1024 * 1024
_STACK_LOCK = ForkLock()


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A column: its name, and the names of children below it."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrowLiteral:
    """A value, and the number of its column in the pickle."""

    value: pa.Scalar[Any]
    number: int = -1


@dataclass(frozen=True, slots=True)
class ArrowCall:
    """A function of other nodes.

    - `args`: Two and more of a function of `ASSOCIATIVE`, which has two in the pickle.
    - `number`: The column of the options in the pickle; -1 if the function has none.
    - `depth`: Levels of calls for Arrow, which nests a chain of one function call by call.
    """

    function: str
    args: tuple[ArrowNode, ...]
    options: pa.Scalar[Any] | None = None
    number: int = -1
    depth: int = 1


ArrowNode = FieldRef | ArrowLiteral | ArrowCall


def call(
    function: str,
    args: Sequence[ArrowNode],
    options: pa.Scalar[Any] | None = None,
    number: int = -1,
) -> ArrowCall:
    """Return a call with its depth."""
    levels = len(args) - 1 if function in ASSOCIATIVE else 1
    depth = levels + max((depth_of(arg) for arg in args), default=0)
    return ArrowCall(function, tuple(args), options, number, depth)


def depth_of(node: ArrowNode) -> int:
    """Return the levels of calls of a node for Arrow."""
    return node.depth if isinstance(node, ArrowCall) else 0


class _OpenCall:
    """A call whose arguments are read, and how many calls in it are parts of its chain."""

    __slots__ = ("args", "function", "joined", "number", "options")

    def __init__(self, function: str) -> None:
        self.function = function
        self.args: list[ArrowNode] = []
        self.options: pa.Scalar[Any] | None = None
        self.number = -1
        self.joined = 0


@dataclass(frozen=True, slots=True, eq=False)
class ExpressionTree:
    """The tree of an expression."""

    root: ArrowNode
    _batch: pa.RecordBatch
    _unpickle: Callable[[pa.Buffer], pc.Expression]

    def columns(self, *, tests_null: bool = True) -> Iterator[str]:
        """Yield the top-level columns, maybe more than once.

        - `tests_null`: Whether to yield columns that are only tested for null.
        """
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, FieldRef):
                yield node.path[0]
            elif isinstance(node, ArrowCall) and (tests_null or not _tests_column(node)):
                waiting.extend(reversed(node.args))

    def expression(self, node: ArrowNode) -> pc.Expression:
        """Return the expression of a node."""
        items: list[tuple[str, str]] = []
        columns: list[pa.Array] = []
        for key, value in _pickled(node):
            if isinstance(value, int):
                items.append((key, str(len(columns))))
                columns.append(self._batch.column(value))
            else:
                items.append((key, value))
        # Arrow reads one row, also if there is no column.
        columns = columns or [pa.nulls(1)]
        names = [str(number) for number in range(len(columns))]
        batch = pa.RecordBatch.from_arrays(columns, names)
        schema = batch.schema.with_metadata(pa.KeyValueMetadata(items))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return self._unpickle(sink.getvalue())


def _tests_column(call: ArrowCall) -> bool:
    """Return whether a call tests a top-level column for null."""
    (operand, *_) = call.args or (None,)
    is_test = call.function in ("is_null", "is_valid")
    return is_test and isinstance(operand, FieldRef) and len(operand.path) == 1


def tree_of(expression: pc.Expression) -> ExpressionTree | None:
    """Return the tree of an expression; None if it has nodes that are not known here."""
    unpickle, (serialized, *_) = _on_large_stack(expression.__reduce__)
    try:
        with pa.ipc.open_file(serialized) as reader:
            batch = reader.get_batch(0)
    except (pa.ArrowException, ValueError):
        return None
    try:
        root = _read(iter(_items(batch.schema)), batch)
    except (StopIteration, ValueError, KeyError, IndexError):
        return None
    return ExpressionTree(root, batch, unpickle)


def _on_large_stack(function: Callable[[], Any]) -> Any:
    """Return the result of a function that is called in a thread with a large stack."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    with _STACK_LOCK:
        size = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        except RuntimeError:
            # No memory for the stack, for example because of a limit of the process.
            return function()
        finally:
            threading.stack_size(size)
    thread.join()
    return results[0]


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


def _read(items: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> ArrowNode:
    """Return the node of some items."""
    frames: list[_OpenCall] = []
    for key, value in items:
        node: ArrowNode
        if key == "call":
            if frames and frames[-1].function == value and value in ASSOCIATIVE:
                frames[-1].joined += 1
            else:
                frames.append(_OpenCall(value))
            continue
        if key == "options":
            frames[-1].number = int(value)
            frames[-1].options = batch.column(int(value))[0]
            continue
        if key == "end":
            frame = frames[-1]
            if frame.joined:
                frame.joined -= 1
                continue
            frames.pop()
            node = call(frame.function, frame.args, frame.options, frame.number)
        elif key == "field_ref":
            node = FieldRef((value,))
        elif key == "nested_field_ref":
            node = FieldRef(tuple(_name(*next(items)) for _ in range(int(value))))
        elif key == "literal":
            node = ArrowLiteral(batch.column(int(value))[0], int(value))
        else:
            raise KeyError(key)
        if not frames:
            return node
        frames[-1].args.append(node)
    raise ValueError("no end")


def _name(key: str, value: str) -> str:
    if key != "field_ref":
        raise KeyError(key)
    return value


def _pickled(root: ArrowNode) -> Iterator[tuple[str, str | int]]:
    """Yield the items of a node, with calls of two arguments for chains.

    The number of a column is an integer.
    """
    # Nodes, and items that follow them.
    waiting: list[ArrowNode | tuple[str, str | int]] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            yield node
        elif isinstance(node, FieldRef):
            if len(node.path) > 1:
                yield "nested_field_ref", str(len(node.path))
            yield from (("field_ref", name) for name in node.path)
        elif isinstance(node, ArrowLiteral):
            yield "literal", node.number
        else:
            yield "call", node.function
            waiting.append(("end", node.function))
            if node.number >= 0:
                waiting.append(("options", node.number))
            first, rest = node.args[:1], node.args[1:]
            if node.function in ASSOCIATIVE and len(rest) > 1:
                rest = (ArrowCall(node.function, rest),)
            waiting.extend(reversed((*first, *rest)))
