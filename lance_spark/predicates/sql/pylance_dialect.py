"""Functions of pylance's filters, in texts that are read without a Spark session.

| function | meaning |
| --- | --- |
| `json_get`, `json_extract`, ... | see `expressions.json_functions` |
| `regexp_match(text, pattern)` | whether a part matches; `IS NULL` if none does |
| `regexp_like(text, pattern, "i")` | whether a part matches in any case of letters |
| `current_date`, `today`, `now`, `current_timestamp` | of the moment of planning, in UTC |
| `is_valid(value)` | whether a value is not null |
| `array_length`, `list_length`, `cardinality`, `empty`, `array_empty`, `list_empty` | of a list |

Patterns are those of Rust's regular expressions. Spark has none of these functions, or has them
with another meaning, so that texts of a Spark session do not have them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lance_spark.predicates import coercion
from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.predicates.columns import ColumnMatch, item_column
from lance_spark.predicates.expressions import functions
from lance_spark.predicates.expressions.node import Document, Expression, Literal
from lance_spark.predicates.sql import computed
from lance_spark.predicates.sql.computed import Operand
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.tree import Column, IsTrue, Predicate
from lance_spark.predicates.typed_literals import INSTANT, Typed, is_text
from lance_spark.subjects import JSON_FUNCTIONS, load

#: Other names of functions that texts of Spark have, too.
ALIASES = {
    "starts_with": "startswith",
    "ends_with": "endswith",
    "list_has": "array_has",
    "list_contains": "array_has",
    "list_has_any": "array_has_any",
    "list_has_all": "array_has_all",
}
#: Functions that can be written without brackets.
WORDS = ("current_date", "current_timestamp")
_DATES, _TIMES = ("current_date", "today"), ("current_timestamp", "now")
_LENGTHS = ("array_length", "list_length", "cardinality")
_EMPTY = ("empty", "array_empty", "list_empty")
#: The first letters of the functions of JSON documents.
_JSON = "json_"
#: Functions of values that are operands.
_NAMES = frozenset({"regexp_match", *_DATES, *_TIMES, *_LENGTHS, *_EMPTY})


@dataclass(frozen=True, slots=True)
class Matches(IsTrue):
    """The result of ``regexp_match``: true if there are matches; otherwise null, if asked for."""


@dataclass(frozen=True, slots=True)
class ListLength(Expression):
    """The number of items of a list; null for a null list."""

    column: Column

    @property
    def dtype(self) -> pa.DataType:
        """A bigint."""
        return pa.int64()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        import pyarrow.compute as pc

        return pc.list_value_length(self.column.values(batch)).cast(pa.int64())

    def columns(self) -> Iterator[Column]:
        yield self.column


def is_function(name: str) -> bool:
    """Return whether `call` knows a function."""
    return name in _NAMES or (name.startswith(_JSON) and name in load(JSON_FUNCTIONS))


def call(name: str, operands: Sequence[Operand], settings: SqlSettings) -> Operand:
    """Return the result of a function of `is_function`, or of `regexp_like` with three arguments.

    Raises NoCommonTypeError: the number or the types of the arguments are wrong. Raises ValueError:
    a pattern is not valid, or not supported.
    """
    if name in (*_DATES, *_TIMES):
        _check_count(name, operands, 0)
        if name in _TIMES:
            return Typed(time.time_ns() // 1000, INSTANT)
        return Typed(int(time.time() // 86_400), pa.date32())
    if name.startswith(_JSON):
        _check_count(name, operands, 3 if name == "json_array_contains" else 2)
        result: Expression = load(JSON_FUNCTIONS)[name](name, operands[0], operands[1:])
        return result if isinstance(result, Document) else computed.operand_of(result)
    if name in (*_LENGTHS, *_EMPTY):
        return _length(name, operands, settings)
    return _matches(name, operands, settings)


def _check_count(name: str, operands: Sequence[Operand], *counts: int) -> None:
    if len(operands) not in counts:
        raise NoCommonTypeError(f"wrong number of arguments of {name}")


def _length(name: str, operands: Sequence[Operand], settings: SqlSettings) -> Operand:
    _check_count(name, operands, 1)
    (column,) = operands
    if not isinstance(column, Column):
        raise NoCommonTypeError(f"{name} takes a column of lists here")
    item_column(column)
    length = ListLength(column)
    if name in _LENGTHS:
        return length
    return computed.compare("==", length, Typed(0, pa.int64(), True), settings)


def _matches(name: str, operands: Sequence[Operand], settings: SqlSettings) -> Predicate:
    _check_count(name, operands, 2, 3)
    value, pattern, *flags = map(computed.value_of, operands)
    flag = flags[0].typed.value if flags and isinstance(flags[0], Literal) else ""
    if flag not in ("", "i") or (flags and not isinstance(flags[0], Literal)):
        raise NoCommonTypeError(f"the flags of {name} must be the literal 'i' here")
    op = "rust_i" if flag else "rust"
    column, text = operands[0], pattern.typed.value if isinstance(pattern, Literal) else None
    condition: Predicate
    if isinstance(column, Column) and is_text(coercion.type_of(column)) and isinstance(text, str):
        # Indexes answer this, but not conditions on computed values.
        condition = ColumnMatch(column, *functions.pattern_match(op, text, ""))
    else:
        condition = computed.as_predicate(functions.matched(op, value, pattern, "", settings))
    return Matches(condition) if name == "regexp_match" else condition
