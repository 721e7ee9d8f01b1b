"""Conditions that are given as expressions of Arrow (`pyarrow.compute.Expression`)."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark._forks import ForkLock
from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.file.dictionaries import in_form
from lance_spark.file.json_columns import read_json
from lance_spark.file.schema.field import ArrowSchema, Field, metadata_items
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import EXTENSION_NAME
from lance_spark.predicates.columns import Compare, In, IsNull, any_of
from lance_spark.predicates.comparison import FLIPPED, Op
from lance_spark.predicates.conditions import ColumnBound, Condition, RangePruner
from lance_spark.predicates.tree import And, Column, Predicate

# --------------------------------------------------------------------------------------------------
# The tree of an expression of Arrow.
#
# pyarrow shows no part of an expression, but pickles it as an Arrow IPC file: one row with the
# literals and the options of functions as columns, and the tree as metadata of the schema, in
# prefix order:
#
# | key | value |
# | --- | --- |
# | `field_ref` | name of a column |
# | `nested_field_ref` | number of `field_ref` that follow, the path to a child |
# | `literal` | number of the column with the value |
# | `call` | name of a function; its arguments follow |
# | `options` | number of the column with the options of the function, after the arguments |
# | `end` | name of the function |
#
# Programs build disjunctions of thousands of comparisons one by one, each a level deeper than the
# last one. Arrow's functions call themselves for each level, and some thousand levels end the
# process by an overflow of the stack. So no function here calls itself, and the tree has each chain
# of one function as one call.

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


# --------------------------------------------------------------------------------------------------
# A predicate that indexes and statistics understand, for an expression of Arrow.
#
# The predicate holds for all rows for which the expression holds, and maybe for more. Where Arrow
# casts a column before it compares, or a function is not known here, there is no predicate. Arrow
# compares NaN with nothing, and a predicate takes it for the greatest value; so a comparison of a
# predicate keeps more rows than Arrow's, but not its negation.

#: Most levels of a predicate, as of one that is parsed.
MAX_LEVELS = 100
_OPS: dict[str, Op] = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


def bounds_of(
    node: ArrowNode, fields: Sequence[Field], levels: int = MAX_LEVELS
) -> Predicate | None:
    """Return a predicate that keeps all rows of a boolean expression; None if there is none.

    - `fields`: The table's top-level fields, with those of row metadata.
    - `levels`: Most levels of the predicate. Deeper parts of the expression have none.
    """
    if not isinstance(node, ArrowCall) or not levels:
        return None
    if node.function in ("and_kleene", "and"):
        parts = [
            part for arg in node.args if (part := bounds_of(arg, fields, levels - 1)) is not None
        ]
        return And(tuple(parts)) if parts else None
    if node.function in ("or_kleene", "or"):
        branches: list[Predicate] = []
        for arg in node.args:
            branch = bounds_of(arg, fields, levels - 1)
            if branch is None:
                return None
            branches.append(branch)
        return any_of(branches)
    if node.function == "invert" and isinstance(node.args[0], ArrowCall):
        inner = node.args[0]
        if inner.function not in ("is_null", "is_valid"):
            return None
        part = bounds_of(inner, fields, levels)
        return None if part is None else part.negated()
    column = _column(node.args[0], fields) if node.args else None
    if node.function in _OPS:
        left, right = node.args
        return _comparison(_OPS[node.function], left, right, fields)
    if column is None:
        return None
    if node.function == "is_valid":
        return IsNull(column, inverted=True)
    if node.function == "is_null":
        takes_nan = _option(node, "nan_is_null")
        return None if takes_nan or takes_nan is None else IsNull(column)
    return _is_in(column, node) if node.function == "is_in" else None


def exact_equality(node: ArrowNode, fields: Sequence[Field]) -> Predicate | None:
    """Return the predicate of a comparison for equality; None if it is not one, or not exact."""
    if not isinstance(node, ArrowCall) or node.function != "equal":
        return None
    left, right = node.args
    return _comparison("==", left, right, fields)


def _option(node: ArrowCall, name: str) -> object:
    """Return an option of a function; None if it is not known."""
    try:
        return None if node.options is None else node.options[name].as_py()
    except (KeyError, TypeError, AttributeError):
        return None


def _column(node: ArrowNode, fields: Sequence[Field]) -> Column | None:
    """Return a column that predicates compare as Arrow does; None for other columns and nodes."""
    if not isinstance(node, FieldRef):
        return None
    path: list[Field] = []
    for name in node.path:
        named = [field for field in fields if field.name == name]
        if len(named) != 1:
            return None
        path += named
        fields = named[0].children
    last = path[-1]
    dtype = last.to_arrow().type
    if any(not pat.is_struct(field.to_arrow().type) for field in path[:-1]):
        return None
    if last.is_blob or EXTENSION_NAME in last.metadata or isinstance(dtype, pa.BaseExtensionType):
        return None
    return None if pat.is_nested(dtype) or pat.is_dictionary(dtype) else Column(tuple(path))


def _comparison(
    op: Op, left: ArrowNode, right: ArrowNode, fields: Sequence[Field]
) -> Predicate | None:
    if isinstance(left, ArrowLiteral):
        left, right, op = right, left, FLIPPED[op]
    column = _column(left, fields)
    if column is None or not isinstance(right, ArrowLiteral) or not right.value.is_valid:
        return None
    values = _as_column(pa.array([right.value.as_py()], right.value.type), column)
    if values is None or _has_nan(values):
        return None
    return Compare(column, op, values[0])


def _is_in(column: Column, node: ArrowCall) -> Predicate | None:
    try:
        values = None if node.options is None else node.options["value_set"].values
    except (KeyError, TypeError, AttributeError):
        return None
    # A null in the set may equal the nulls of the column.
    if values is None or values.null_count:
        return None
    values = _as_column(values, column)
    return None if values is None or _has_nan(values) else In(column, values)


def _as_column(values: pa.Array, column: Column) -> pa.Array | None:
    """Return literals in the type of a column, if Arrow compares their values as they are."""
    dtype = column.field.to_arrow().type
    same = (
        values.type.equals(dtype)
        or (pat.is_integer(values.type) and pat.is_integer(dtype))
        or (pat.is_float32(dtype) and pat.is_float64(values.type))
        or (_is_text(values.type) and _is_text(dtype))
    )
    if not same or pat.is_float16(dtype):
        return None
    try:
        cast = values.cast(dtype)
        # A float that the column cannot have.
        return cast if cast.cast(values.type).equals(values) or _has_nan(values) else None
    except pa.ArrowException:
        return None


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pat.is_string(dtype) or pat.is_large_string(dtype))


def _has_nan(values: pa.Array) -> bool:
    return pat.is_floating(values.type) and any(math.isnan(value) for value in values.to_pylist())


# --------------------------------------------------------------------------------------------------
# The evaluation of an expression of Arrow, whole or in parts.
#
# Arrow nests a disjunction of thousands of comparisons call by call. This takes time that grows
# with the square of their number, and overflows the stack of the process. So such a chain is
# evaluated in parts, whose results are combined here: sets of values that one column is compared
# with, and expressions of few comparisons each. The result is the same, with the same nulls.

#: Deeper expressions are evaluated in parts.
_WHOLE = 50
#: Levels that are taken apart, and most levels of a part. A level takes up to 3 KB of the stack.
_MAX_SPLIT = 100
_MAX_DEPTH = 1000
_DISJUNCTIONS = ("or_kleene", "or")


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """A function of conditions: the numbers of expressions, predicates, and other functions."""

    function: str
    parts: tuple[int | Predicate | Combined, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """How an expression is evaluated.

    - `expressions`: Evaluated by Arrow.
    - `combined`: The function of them; None for one expression that is the whole.
    """

    expressions: tuple[pc.Expression, ...]
    combined: Combined | None = None

    def __str__(self) -> str:
        if self.combined is None:
            return str(self.expressions[0])
        function = self.combined.function.removesuffix("_kleene")
        shown = [str(self.expressions[0])] if self.expressions else []
        shown += [str(part) for part in self.combined.parts if isinstance(part, Predicate)][:1]
        return f" {function} ".join([*shown, "..."])

    def of(self, rows: pa.RecordBatch | pa.Table) -> Any:
        """Return the value of each row. Raises pa.ArrowException, ValueError, TypeError."""
        values = _evaluated(self.expressions, rows) if self.expressions else []
        if self.combined is None:
            return values[0]
        if isinstance(rows, pa.Table):
            rows = rows.combine_chunks().to_batches()[0] if rows.num_rows else _no_rows(rows)
        return _value(self.combined, values, rows)


def evaluation_of(
    expression: pc.Expression, tree: ExpressionTree | None, fields: Sequence[Field]
) -> Evaluation:
    """Return how an expression is evaluated.

    - `tree`: Its tree, if it is known.
    - `fields`: The top-level fields of the table.

    Raises InvalidInputError: Arrow would overflow the stack.
    """
    if tree is None or depth_of(tree.root) <= _WHOLE:
        return Evaluation((expression,))
    splitter = _Splitter(tree, fields)
    combined = splitter.split(tree.root, 0)
    if isinstance(combined, Combined):
        return Evaluation(tuple(splitter.expressions), combined)
    return Evaluation(tuple(splitter.expressions))


class _Splitter:
    def __init__(self, tree: ExpressionTree, fields: Sequence[Field]) -> None:
        self._tree = tree
        self._fields = fields
        self.expressions: list[pc.Expression] = []

    def split(self, node: ArrowNode, level: int) -> int | Combined:
        """Return the number of the expression of a node, or a function of its parts."""
        if depth_of(node) > _WHOLE and isinstance(node, ArrowCall) and level < _MAX_SPLIT:
            if node.function == "invert":
                return Combined(node.function, (self.split(node.args[0], level + 1),))
            if node.function in ASSOCIATIVE:
                return self._chain(node, level)
        if depth_of(node) > _MAX_DEPTH:
            raise InvalidInputError(
                f"filter: the expression has {depth_of(node)} levels, and at most {_MAX_DEPTH} are "
                "possible; a chain of & or of | is no level, and isin takes many values"
            )
        self.expressions.append(self._tree.expression(node))
        return len(self.expressions) - 1

    def _chain(self, node: ArrowCall, level: int) -> Combined:
        parts: list[int | Predicate | Combined] = []
        equalities: list[Predicate] = []
        small: list[ArrowNode] = []
        for arg in node.args:
            equality = None
            if node.function in _DISJUNCTIONS:
                equality = exact_equality(arg, self._fields)
            if equality is not None:
                equalities.append(equality)
            elif depth_of(arg) > _WHOLE:
                parts.append(self.split(arg, level + 1))
            else:
                small.append(arg)
        if equalities:
            parts.append(any_of(equalities))
        for start in range(0, len(small), _WHOLE):
            args = small[start : start + _WHOLE]
            whole = args[0] if len(args) == 1 else call(node.function, args)
            self.expressions.append(self._tree.expression(whole))
            parts.append(len(self.expressions) - 1)
        return Combined(node.function, tuple(parts))


def _value(
    part: int | Predicate | Combined, values: Sequence[pa.Array], rows: pa.RecordBatch
) -> pa.Array:
    if isinstance(part, int):
        return values[part]
    if isinstance(part, Predicate):
        return part.evaluate(rows)
    result = _value(part.parts[0], values, rows)
    if part.function == "invert":
        return pc.invert(result)
    for other in part.parts[1:]:
        result = pc.call_function(part.function, [result, _value(other, values, rows)])
    return result


def _evaluated(
    expressions: Sequence[pc.Expression], rows: pa.RecordBatch | pa.Table
) -> list[pa.Array]:
    """Return the value of each expression for each row."""
    # Takes a quarter of a second, which other filters are spared.
    from pyarrow import acero

    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if not table.num_columns:
        # A table without columns has no rows for Arrow.
        table = table.append_column("rows", pa.nulls(table.num_rows))
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    names = [str(number) for number in range(len(expressions))]
    project = acero.ProjectNodeOptions(list(expressions), names)
    plan = acero.Declaration("project", project, inputs=[source])
    # Threads would change the order of the rows.
    columns = plan.to_table(use_threads=False).columns
    return [
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in columns
    ]


def _no_rows(table: pa.Table) -> pa.RecordBatch:
    arrays = [pa.array([], field.type) for field in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


# --------------------------------------------------------------------------------------------------
# The condition of an expression of Arrow: Arrow itself evaluates it.

#: Most characters of an expression in errors.
_SHOWN = 200


# Expressions have no truth value, so that two of them cannot be compared.
@dataclass(frozen=True, slots=True, eq=False)
class ArrowCondition:
    """A condition that holds for the rows for which an expression is true.

    - `fields`: The top-level columns that it reads.
    - `bounds`: Holds for all of these rows, and maybe for more.
    """

    evaluation: Evaluation
    fields: tuple[Field, ...]
    bounds: Predicate | None

    def __str__(self) -> str:
        return str(self.evaluation)

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns, whole."""
        return tuple((field,) for field in self.fields)

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null.

        Raises EvaluationError: Arrow cannot compute the expression for a row.
        """
        rows = _as_declared(batch, self.fields) if self.fields else batch
        try:
            return self.evaluation.of(rows).fill_null(False)
        except pa.ArrowException as error:
            raise EvaluationError(f"filter {_shown(self.evaluation)}: {error}") from None

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the rows for which it can hold by statistics; None if they do not decide."""
        return None if self.bounds is None else self.bounds.candidates(statistics)

    @property
    def is_decided(self) -> bool:
        """False: other rows may be among the candidates."""
        return False

    @property
    def can_fail(self) -> bool:
        """True: Arrow may not compute the expression for a row."""
        return True

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the condition itself."""
        yield self

    def column_bound(self) -> ColumnBound | None:
        """Return None: it is not one comparison of a column."""
        return None


def arrow_condition(expression: pc.Expression, schema: Schema) -> ArrowCondition:
    """Return the condition of an expression.

    - `schema`: Of the table, with the columns of row metadata.

    Raises InvalidInputError: a column does not exist or is a blob column, or the expression is not
    a condition.
    """
    tree = tree_of(expression)
    evaluation = evaluation_of(expression, tree, schema.fields)
    # The columns of row metadata are not columns of the table.
    fields = tuple(field for field in schema.fields if field.id >= 0 and not field.is_blob)
    if tree is not None:
        names = dict.fromkeys(tree.columns())
        by_name = {field.name: field for field in schema.fields}
        for name in names:
            if name not in by_name:
                raise _error(evaluation, f"column {name!r} not found")
        fields = tuple(by_name[name] for name in names)
        compared = set(tree.columns(tests_null=False))
        blobs = [field.name for field in fields if field.is_blob and field.name in compared]
        if blobs:
            raise _error(
                evaluation,
                f"column {blobs[0]!r} has blobs, which a filter tests only by is_null and is_valid",
            )
    no_rows = Schema(fields).to_arrow().empty_table()
    try:
        dtype = evaluation.of(no_rows).type
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _error(evaluation, str(error)) from None
    if not pat.is_boolean(dtype):
        raise _error(evaluation, f"must be boolean, not {dtype}")
    bounds = None if tree is None else bounds_of(tree.root, schema.fields)
    return ArrowCondition(evaluation, fields, bounds)


def _error(evaluation: Evaluation, message: str) -> InvalidInputError:
    return InvalidInputError(f"filter {_shown(evaluation)}: {message}")


def _shown(evaluation: Evaluation) -> str:
    text = str(evaluation)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _as_declared(batch: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
    """Return columns with the types of a table, for which the expression was checked.

    Filters read some columns in another form, see `file.dictionaries`, and JSON as JSONB. Arrow
    compares the bytes of JSONB, and has functions of texts that do not take dictionaries.
    """
    columns = []
    for field in fields:
        array = in_form(batch.column(batch.schema.get_field_index(field.name)), field)
        if field.has_json and not array.type.equals(field.arrow_field.type):
            array = read_json(array, field, "filter")
        columns.append(array)
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])
