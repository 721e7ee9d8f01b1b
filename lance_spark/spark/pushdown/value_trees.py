"""Parsing of value trees, the form in which the rule of Spark's optimizer sends computed columns.

| tree | value |
| --- | --- |
| `{"col": [name]}`, `{"lit": text or null, "type": name}` | as in filter trees |
| `{"op": "case", "args": [condition, value, ..., value]}` | of the first condition that is true |
| `{"op": "+", "args": [value, value]}`, also `-`, `*`, `%` | of integers of one type, in this |
| | type; the result wraps around as Java's |
| `{"op": "+", "args": [value, value], "type": decimal, "fails": F}`, also `-`, `*` | of decimals; |
| | a result that does not fit the type is an error if F is true, and else null |
| `{"op": "cast", "args": [value], "type": name}` | in another type |
| `{"op": "unscaled", "args": [value]}` | the integer of a decimal without its point |
| `{"op": "call", "function": name, "args": [values]}` | of a function of SQL (`_FUNCTIONS`) |
| a filter tree (`filter_trees`) | the truth of a condition |

The conditions of a `case` are filter trees. `cast` and `call` have a `zone` if the result depends
on a time zone. They have `offsets` and `repeats` in place of a zone of several offsets: the first
offset, and then each change and the offset after it, in seconds (`ZoneOffsets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql.types import StructType

from lance_spark.encoding.blocks import is_short_decimal
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates import coercion
from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.predicates.comparison import widened
from lance_spark.predicates.expressions import functions
from lance_spark.predicates.expressions.decimals import DecimalResult, UnscaledValue
from lance_spark.predicates.expressions.kernels import ZoneOffsets
from lance_spark.predicates.expressions.node import (
    Call,
    Choice,
    Expression,
    Literal,
    as_expression,
    casted,
)
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.typed_literals import INSTANT
from lance_spark.spark.pushdown.filter_trees import literal, to_predicate, type_of
from lance_spark.spark.pushdown.request import ComputedColumn, column_path, refused

_ARITHMETIC = ("+", "-", "*", "%")
_OF_DECIMALS = ("+", "-", "*")
_CLOCK = ("hour", "minute", "second")
_FUNCTIONS = {
    name: builder
    for group in (functions.DATE_FUNCTIONS, functions.STRING_FUNCTIONS)
    for name, (_, builder) in group.items()
    if name
    in (
        *("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekday"),
        *_CLOCK,
        *("date_trunc", "trunc", "length", "substring"),
    )
}
_MAX_DEPTH = 50


def to_value(tree: object, schema: Schema, depth: int = 0) -> Expression:
    """Return the expression of a tree.

    - `schema`: The columns, as Spark has them.

    Raises UnsupportedError: the tree is malformed, or this release does not know a part of it.
    """
    if not isinstance(tree, dict) or depth > _MAX_DEPTH:
        raise refused("a value is malformed, or nested too deep", tree)
    try:
        if "col" in tree:
            return as_expression(coercion.column(schema, column_path(tree["col"], tree)))
        if "lit" in tree:
            return Literal(literal(tree))
        op, args = tree.get("op"), tree.get("args")
        if not isinstance(args, list):
            raise refused("a value is malformed", tree)
        settings = SqlSettings(ansi=False, time_zone=tree.get("zone"))
        if op == "case":
            return _choice(tree, args, schema, depth)
        if op not in (*_ARITHMETIC, "cast", "call", "unscaled"):
            return as_expression(to_predicate(tree, schema))
        values = [to_value(arg, schema, depth + 1) for arg in args]
        if "offsets" in tree:
            return _local(tree, values)
        if op == "cast":
            (value,) = values
            dtype = type_of(tree)
            if pat.is_decimal(dtype):
                return _decimal("cast", (value,), dtype, tree)
            return casted(value, dtype, settings)
        if op == "unscaled":
            (value,) = values
            if not is_short_decimal(value.dtype):
                raise refused("the value is not a decimal of at most 18 digits", tree)
            return UnscaledValue(value)
        if op == "call":
            if tree.get("function") not in _FUNCTIONS:
                raise refused("a function is not known", tree)
            return _FUNCTIONS[tree["function"]](values, settings)
        left, right = values
        if "type" in tree:
            return _decimal(op, (left, right), type_of(tree), tree)
        if not pat.is_integer(left.dtype) or not left.dtype.equals(right.dtype):
            raise refused("the values are not integers of one type", tree)
        return functions.operation(op, left, right, settings)
    except (NoCommonTypeError, InvalidInputError, ValueError, IndexError) as error:
        raise refused(str(error), tree) from None


def _local(tree: dict[str, Any], values: list[Expression]) -> Expression:
    """Return the date, part of a clock, or start of a unit in a zone of several offsets."""
    *units, value = values
    seconds, repeats = tree["offsets"], tree.get("repeats")
    is_list = isinstance(seconds, list) and len(seconds) % 2 == 1
    if not is_list or any(type(item) is not int for item in seconds) or type(repeats) is not bool:
        raise refused("the offsets of a zone are malformed", tree)
    zone = ZoneOffsets(tuple(seconds[1::2]), tuple(seconds[::2]), repeats)
    if not value.dtype.equals(INSTANT) or (repeats and not zone.changes):
        raise refused("the value is not a timestamp", tree)
    function = tree.get("function") if tree["op"] == "call" else None
    if tree["op"] == "cast" and tree.get("type") == "date" and not units:
        return Call("cast", (value,), pa.date32(), ("java", zone))
    if function in _CLOCK and not units:
        return Call("time_part", (value,), pa.int32(), (function, zone))
    if function == "date_trunc" and len(units) == 1:
        return Call(function, (value,), INSTANT, (functions.unit_of(units[0], function), zone))
    raise refused("a function of local times is not known", tree)


def _decimal(
    op: str, values: tuple[Expression, ...], dtype: pa.DataType, tree: dict[str, Any]
) -> DecimalResult:
    are_exact = all(pat.is_integer(item.dtype) or pat.is_decimal(item.dtype) for item in values)
    fails = tree.get("fails", True)
    if not are_exact or not pat.is_decimal(dtype) or not isinstance(fails, bool):
        raise refused("the values are not decimals", tree)
    if op not in (*_OF_DECIMALS, "cast"):
        raise refused("an operation of decimals is not known", tree)
    return DecimalResult(op, values, dtype, fails)


def _choice(tree: object, args: list[Any], schema: Schema, depth: int) -> Expression:
    if len(args) < 3 or len(args) % 2 == 0:
        raise refused("a choice is malformed", tree)
    conditions = [to_predicate(arg, schema) for arg in args[:-1:2]]
    values = [to_value(arg, schema, depth + 1) for arg in (*args[1::2], args[-1])]
    if any(not value.dtype.equals(values[0].dtype) for value in values):
        raise refused("the values have several types", tree)
    return Choice(tuple(zip(conditions, values[:-1], strict=True)), values[-1])


# --------------------------------------------------------------------------------------------------
# Computed columns of batches.


def with_sources(columns: StructType, computed: Sequence[ComputedColumn]) -> StructType:
    """Return columns with those that computed columns are computed from, without the latter."""
    names = {item.name for item in computed}
    fields = {field.name: field for field in columns if field.name not in names}
    for item in computed:
        fields.update((field.name, field) for field in item.sources)
    return StructType(list(fields.values()))


class ValueColumns:
    """Adds computed columns to batches.

    - `columns`: Of the batches, as Spark has them. Strings may be dictionary arrays, and decimals
      their unscaled values.

    Raises UnsupportedError: as `to_value`.
    """

    def __init__(self, computed: Sequence[ComputedColumn], columns: StructType) -> None:
        from lance_spark.spark.types.mapping import batch_schema

        #: All columns, with the types of their values.
        self.schema = batch_schema(columns)
        known = Schema.from_arrow(self.schema)
        self._values = [to_value(item.value, known) for item in computed]
        for item, value in zip(computed, self._values, strict=True):
            self.schema = self.schema.append(pa.field(item.name, value.dtype))

    def added(
        self, batches: Iterable[pa.RecordBatch], *, unscaled: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches with computed columns after their own.

        - `unscaled`: Whether decimals may be their unscaled values.
        """
        for batch in batches:
            values = [_evaluated(value, batch, unscaled) for value in self._values]
            yield pa.RecordBatch.from_arrays([*batch.columns, *values], self.schema.names)


def _evaluated(value: Expression, batch: pa.RecordBatch, unscaled: bool) -> pa.Array:
    """Return the values of an expression, computed once for each value of a dictionary."""
    if unscaled and isinstance(value, DecimalResult):
        return value.compact(batch)
    names = {column.path[0].name for column in value.columns()}
    if len(names) == 1:
        (name,) = names
        array = batch.column(name)
        is_small = pat.is_dictionary(array.type) and len(array.dictionary) < len(array)
        if is_small and not array.null_count:
            return value.evaluate(pa.record_batch([array.dictionary], [name])).take(array.indices)
    return value.evaluate(batch)


def selected(batches: Iterator[pa.RecordBatch], output: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield columns of batches, in types that hold their values."""
    for batch in batches:
        arrays = []
        for field in output:
            array = batch.column(batch.schema.get_field_index(field.name))
            if pat.is_floating(field.type) and not array.type.equals(field.type):
                array = widened(array, field.type)
            arrays.append(array)
        fields = [field.with_type(array.type) for field, array in zip(output, arrays, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
