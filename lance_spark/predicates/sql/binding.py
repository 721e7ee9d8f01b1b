"""The binder: it turns a syntax tree into a predicate on columns, as Spark's analyzer does.

An operand is a column, a literal, a condition or another expression. A comparison of a column with
literals becomes bounds on the values of the column (`coercion`), so that statistics apply. Other
values are computed for each row (`computed`), and values of literals once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import SPARK_TYPE
from lance_spark.predicates import coercion
from lance_spark.predicates.coercion import NoCommonTypeError, comparison_type
from lance_spark.predicates.columns import ColumnMatch, HasItems, IsNan, IsNull, any_of, item_column
from lance_spark.predicates.comparison import FLIPPED, Op, compared
from lance_spark.predicates.expressions import functions
from lance_spark.predicates.expressions.functions import (
    CompareValues,
    Interval,
    ValueIsNull,
    choice,
    interval,
    interval_between,
    nullif,
)
from lance_spark.predicates.expressions.node import Document, Expression, Literal, Truth, folded
from lance_spark.predicates.sql import computed
from lance_spark.predicates.sql import pylance_dialect as local
from lance_spark.predicates.sql.computed import Operand
from lance_spark.predicates.sql.grammar import (
    CAST_FUNCTIONS,
    CURRENT,
    Apply,
    Name,
    SqlNode,
    Value,
    cast_to,
    typed_literal,
)
from lance_spark.predicates.sql.tokens import error
from lance_spark.predicates.sql_settings import DEFAULTS, SqlSettings
from lance_spark.predicates.tree import And, Column, Constant, IsTrue, Or, Predicate, SameTruth
from lance_spark.predicates.typed_literals import (
    CastError,
    Typed,
    cast,
    is_number,
    is_text,
    type_name,
)
from lance_spark.subjects import SPATIAL_FUNCTIONS, load

# --------------------------------------------------------------------------------------------------
# Functions that search lists.
#
# | function | as in | result, if no item equals |
# | --- | --- | --- |
# | `array_contains(list, value)` | Spark | null if the list has a null, else false |
# | `arrays_overlap(list, array(...))` | Spark | null if one of both has a null and none is empty |
# | `array_has(list, value)` | pylance | false |
# | `array_has_any(list, [...])`, `array_has_all(list, [...])` | pylance | false; null equals null |
#
# The result for a null list is null, but pylance decides empty arrays without the list.

#: Spark types whose values Spark does not compare by their bytes.
_OTHER_ORDER = re.compile(r"collate|\bchar\(")

#: Builds a condition from a column of lists and literals.
Build = Callable[[Column, Sequence[Typed], SqlSettings], Predicate]


def array_contains(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has an item that equals a literal.

    Raises InvalidInputError, NoCommonTypeError.
    """
    (value,) = items
    if pat.is_null(value.dtype):
        raise NoCommonTypeError("array_contains does not take NULL; write CAST(NULL AS type)")
    test = _equals_any(column, items, settings)
    return Constant(None) if value.value is None else HasItems(column, (test,), unknown=True)


def arrays_overlap(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has an item that equals one of some literals.

    Raises InvalidInputError, NoCommonTypeError.
    """
    item_type = coercion.type_of(item_column(column))
    for item in items:
        if not pat.is_null(item.dtype) and (
            pat.is_decimal(item.dtype) != pat.is_decimal(item_type)
        ):
            raise NoCommonTypeError(
                f"arrays_overlap does not compare {type_name(item_type)} with "
                f"{type_name(item.dtype)}; cast the literal"
            )
    if not items:
        return Constant(False, where_valid=column)
    return HasItems(column, (_equals_any(column, items, settings),), unknown=True)


def array_has(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has an item that equals a literal; a null item does not.

    Raises InvalidInputError, NoCommonTypeError.
    """
    test = _equals_any(column, items, settings)
    if items[0].value is None:
        return Constant(None)
    return HasItems(column, (test,), unknown=False)


def array_has_any(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has one of some items, which may be null.

    Raises InvalidInputError, NoCommonTypeError.
    """
    item = item_column(column)
    if not items:
        return Constant(False)
    values = [literal for literal in items if literal.value is not None]
    tests: list[Predicate] = [_equals_any(column, values, settings)] if values else []
    if len(values) < len(items):
        tests.append(IsNull(item))
    test = tests[0] if len(tests) == 1 else Or(tuple(tests))
    return HasItems(column, (test,), unknown=False)


def array_has_all(
    column: Column, items: Sequence[Typed], settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that a list has all of some items, which may be null.

    Raises InvalidInputError, NoCommonTypeError.
    """
    item = item_column(column)
    tests: list[Predicate] = [
        IsNull(item) if literal.value is None else _equals_any(column, [literal], settings)
        for literal in dict.fromkeys(items)
    ]
    return HasItems(column, tuple(tests), unknown=False) if tests else Constant(True)


#: Functions of a list and a value, and of a list and an array.
OF_VALUE: Mapping[str, Build] = {"array_contains": array_contains, "array_has": array_has}
OF_ARRAY: Mapping[str, Build] = {
    "arrays_overlap": arrays_overlap,
    "array_has_any": array_has_any,
    "array_has_all": array_has_all,
}


def _equals_any(column: Column, items: Sequence[Typed], settings: SqlSettings) -> Predicate:
    item = item_column(column)
    for field in (column.field, item.field):
        dtype = field.metadata.get(SPARK_TYPE, b"").decode(errors="replace")
        if _OTHER_ORDER.search(dtype):
            raise InvalidInputError(
                f"filter: column {column} is {dtype}, which Spark does not compare by bytes; "
                "filter by DataFrame.where or by SQL"
            )
    item_type = coercion.type_of(item)
    for literal in items:
        if not pat.is_null(literal.dtype) and is_text(literal.dtype) != is_text(item_type):
            raise NoCommonTypeError(
                f"a list of {type_name(item_type)} is not searched for "
                f"{type_name(literal.dtype)}; cast the literal"
            )
    return coercion.is_in(item, items, settings)


# --------------------------------------------------------------------------------------------------
# The binder: it turns a syntax tree into a predicate on columns, as Spark's analyzer does.

_OPS: dict[str, Op] = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
#: The way to match of each function; see `comparison.TextMatch`.
_MATCHERS = {"startswith": "starts", "endswith": "ends", "contains": "contains"}
_ALIASES = {"regexp": "rlike", "regexp_like": "rlike"}
#: The first letters of the functions of geometries.
_SPATIAL = "st_"


def bind(
    tree: SqlNode,
    text: str,
    schema: Schema,
    settings: SqlSettings,
    *,
    pylance_dialect: bool = False,
) -> Predicate:
    """Return the predicate of a syntax tree; if `pylance_dialect`, with functions of pylance.

    Raises InvalidInputError: the tree is not a condition, a column is not found, or an operation is
    not supported.
    """
    if isinstance(tree, Value) and tree.typed.value is None:
        raise error(text, tree.offset, "null is not a condition for Spark; write false")
    return _Binder(text, schema, settings, pylance_dialect).predicate(tree)


def bind_value(
    tree: SqlNode,
    text: str,
    schema: Schema,
    settings: SqlSettings,
    *,
    pylance_dialect: bool = False,
) -> Expression | Column:
    """Return the value of a syntax tree for each row: a column, or an expression.

    Raises InvalidInputError: a column is not found, or an operation or the type of the value is not
    supported.
    """
    operand = _Binder(text, schema, settings, pylance_dialect).operand(tree)
    if isinstance(operand, Column):
        return operand
    try:
        return computed.value_of(operand)
    except NoCommonTypeError as reason:
        raise error(text, 0, str(reason)) from None


class _Binder:
    def __init__(
        self, text: str, schema: Schema, settings: SqlSettings, pylance_dialect: bool = False
    ) -> None:
        self._text = text
        self._schema = schema
        self._settings = settings
        self._pylance_dialect = pylance_dialect
        self._conditions: dict[str, Callable[[Apply], Predicate]] = {
            "and": lambda node: And(tuple(map(self.predicate, node.args))),
            "or": lambda node: any_of(list(map(self.predicate, node.args))),
            "not": lambda node: self.predicate(node.args[0]).negated(),
            "<=>": lambda node: self._null_safe(node, *map(self.operand, node.args)),
            "between": self._between,
            "in": self._in,
            "is": self._is,
            "like": self._like,
            "ilike": self._like,
            "rlike": self._rlike,
        }
        self._functions: dict[str, Callable[[Apply], Predicate]] = {
            "isnull": lambda node: self._is_null(self._tested(*node.args)),
            "isnotnull": lambda node: self._is_null(self._tested(*node.args)).negated(),
            "isnan": self._is_nan,
            "equal_null": lambda node: self._null_safe(node, *map(self.operand, node.args)),
            "like": self._like,
            "ilike": self._like,
            "rlike": self._rlike,
            **dict.fromkeys(_MATCHERS, self._match),
            **dict.fromkeys((*OF_VALUE, *OF_ARRAY), self._list_search),
        }

    def predicate(self, node: SqlNode) -> Predicate:
        """Return a node as a condition."""
        operand = self.operand(node)
        if isinstance(operand, Predicate):
            return operand
        if isinstance(operand, Column):
            dtype = computed.dtype_of(operand)
            if pat.is_boolean(dtype):
                return coercion.compare(operand, "==", True)
            raise self._error(node, f"column {operand} is {dtype}, which is not a condition")
        if isinstance(operand, Typed) and computed.is_condition(operand):
            return Constant(operand.value)
        if isinstance(operand, Interval):
            raise self._error(node, "an interval is not a condition")
        noun = "literal" if isinstance(operand, Typed) else "value"
        raise self._error(node, f"a {noun} of type {type_name(operand.dtype)} is not a condition")

    def operand(self, node: SqlNode) -> Operand:
        """Return a node as an operand. Errors get the position of the node."""
        if isinstance(node, Value):
            return node.typed
        try:
            if isinstance(node, Name):
                return self._column(node)
            assert isinstance(node, Apply)
            return self._applied(node)
        except (NoCommonTypeError, CastError, EvaluationError) as reason:
            raise self._error(node, str(reason).removeprefix("filter: ")) from None

    def _applied(self, node: Apply) -> Operand:
        if node.op in _OPS:
            return self._compare(node, _OPS[node.op], *map(self.operand, node.args))
        if node.op in self._conditions:
            return self._conditions[node.op](node)
        if node.op in ("cast", "try_cast", "literal"):
            return self._cast(node)
        if node.op == "call":
            return self._call(node)
        if node.op == "interval":
            return self._interval(node)
        if node.op == "case":
            return self._case(node)
        return computed.operate(node.op, list(map(self.operand, node.args)), self._settings)

    def _interval(self, node: Apply) -> Interval:
        text, negative, units = node.detail
        try:
            result = interval_between(text, *units) if units else interval(text)
            return result.negated() if negative else result
        except ValueError as reason:
            raise self._error(node, str(reason)) from None

    def _error(self, node: SqlNode, message: str) -> InvalidInputError:
        return error(self._text, node.offset, message)

    def _column(self, node: Name, *, takes_blobs: bool = False) -> Operand:
        exact = self._settings.case_sensitive
        try:
            column = coercion.column(self._schema, node.parts, exact, takes_blobs=takes_blobs)
            coercion.check_compared_by_bytes(column)
            return column
        except InvalidInputError as reason:
            name = node.parts[0].lower()
            if self._pylance_dialect and len(node.parts) == 1 and name in local.WORDS:
                return local.call(name, [], self._settings)
            if len(node.parts) == 1 and name.upper() in CURRENT:
                raise self._error(
                    node, f"{node.parts[0]} is not supported; write the literal"
                ) from None
            raise self._error(node, str(reason).removeprefix("filter: ")) from None

    # Comparisons

    def _compare(self, node: Apply, op: Op, left: Operand, right: Operand) -> Predicate:
        left, right = computed.as_typed(left), computed.as_typed(right)
        if isinstance(left, Typed) and isinstance(right, Typed):
            return Constant(self._compare_literals(op, left, right))
        if isinstance(left, Predicate) or isinstance(right, Predicate):
            return self._compare_conditions(node, op, left, right)
        try:
            if isinstance(left, Column):
                if isinstance(right, Column):
                    return coercion.compare_columns(left, op, right, self._settings)
                if isinstance(right, Typed):
                    return coercion.compare(left, op, right, self._settings)
            elif isinstance(right, Column) and isinstance(left, Typed):
                return coercion.compare(right, FLIPPED[op], left, self._settings)
        except InvalidInputError as reason:
            return self._or_computed(reason, computed.compare, op, left, right)
        return computed.compare(op, left, right, self._settings)

    def _or_computed(
        self, reason: InvalidInputError, build: Callable[..., Predicate], *args: Any
    ) -> Predicate:
        """Build a condition that is computed for each row, after bounds on the column failed."""
        try:
            return build(*args, self._settings)
        except (NoCommonTypeError, CastError, InvalidInputError):
            raise reason from None

    def _compare_literals(self, op: Op, left: Typed, right: Typed) -> bool | None:
        common = comparison_type(left, right, self._settings)
        if left.value is None or right.value is None:
            return None
        a, b = (
            pa.array([cast(side, common, self._settings).value], common) for side in (left, right)
        )
        result: bool | None = compared(a, op, b)[0].as_py()
        return result

    def _compare_conditions(
        self, node: SqlNode, op: Op, left: Operand, right: Operand
    ) -> Predicate:
        a, b = self._condition(node, left), self._condition(node, right)
        if a is None or b is None:
            return Constant(None)
        for condition, constant in ((a, b), (b, a)) if op in ("==", "!=") else ():
            if constant in (Constant(True), Constant(False)):
                is_same = constant == Constant(op == "==")
                return condition if is_same else condition.negated()
        return CompareValues(Truth(a), op, Truth(b))

    def _condition(self, node: SqlNode, operand: Operand) -> Predicate | None:
        """Return an operand that is compared with a condition as a condition; None for null."""
        if isinstance(operand, Predicate):
            return operand
        if isinstance(operand, Column):
            dtype = computed.dtype_of(operand)
            if not pat.is_boolean(dtype):
                raise self._error(
                    node, f"a condition cannot be compared with {operand}, which is {dtype}"
                )
            return coercion.compare(operand, "==", True)
        if not isinstance(operand, Typed):
            raise self._error(
                node, "a condition can be compared only with conditions; cast the value"
            )
        if not computed.is_condition(operand) and not is_text(operand.dtype):
            raise self._error(
                node,
                f"a condition cannot be compared with a literal of type {type_name(operand.dtype)}",
            )
        if operand.value is None:
            return None
        return Constant(cast(operand, pa.bool_(), self._settings).value)

    def _null_safe(self, node: Apply, left: Operand, right: Operand) -> Predicate:
        left, right = computed.as_typed(left), computed.as_typed(right)
        if isinstance(left, Typed) and isinstance(right, Typed):
            if left.value is None or right.value is None:
                comparison_type(left, right, self._settings)
                return Constant(left.value is right.value)
            return Constant(self._compare_literals("==", left, right))
        if isinstance(left, Predicate) or isinstance(right, Predicate):
            null = Constant(None)
            a, b = (self._condition(node, side) or null for side in (left, right))
            return SameTruth(a, b)
        if isinstance(left, Typed):
            left, right = right, left
        try:
            if isinstance(left, Column) and isinstance(right, Column):
                return coercion.null_safe_equal_columns(left, right, self._settings)
            if isinstance(left, Column) and isinstance(right, Typed):
                return coercion.null_safe_equal(left, right, self._settings)
        except InvalidInputError as reason:
            return self._or_computed(reason, computed.null_safe_equal, left, right)
        return computed.null_safe_equal(left, right, self._settings)

    def _between(self, node: Apply) -> Predicate:
        value, low, high = map(self.operand, node.args)
        if isinstance(value, Typed):
            # Spark evaluates it once before both comparisons, so that it is not a literal there.
            value = replace(value, written=False)
        return And((self._compare(node, ">=", value, low), self._compare(node, "<=", value, high)))

    def _in(self, node: Apply) -> Predicate:
        operands = [computed.as_typed(self.operand(arg)) for arg in node.args]
        value, *items = operands
        if any(isinstance(operand, Predicate) for operand in operands):
            if not all(map(computed.is_condition, operands)):
                raise self._error(node, "a list mixes conditions and other values; write OR")
            return Or(tuple(self._compare_conditions(node, "==", value, item) for item in items))
        try:
            if isinstance(value, Column) and all(isinstance(i, Column | Typed) for i in items):
                return coercion.is_in(value, items, self._settings)
        except InvalidInputError as reason:
            return self._or_computed(reason, computed.is_in, value, items)
        result = computed.is_in(value, items, self._settings)
        return self._constant(result) if all(isinstance(o, Typed) for o in operands) else result

    def _constant(self, predicate: Predicate) -> Constant:
        """Evaluate a condition on literals."""
        if isinstance(predicate, Constant):
            return predicate
        result = folded(Truth(predicate))
        assert isinstance(result, Literal)
        return Constant(result.typed.value)

    # Null, true, false

    def _is(self, node: Apply) -> Predicate:
        if node.detail in ("NULL", "UNKNOWN"):
            operand = self._tested(node.args[0])
            if node.detail == "UNKNOWN" and not computed.is_condition(operand):
                raise self._error(node, "IS UNKNOWN takes a condition; write IS NULL")
            return self._is_null(operand)
        predicate = self.predicate(node.args[0])
        return IsTrue(predicate if node.detail == "TRUE" else predicate.negated())

    def _tested(self, node: SqlNode) -> Operand:
        """Return a node as the operand of a test for null, which may be a blob."""
        if isinstance(node, Name):
            return self._column(node, takes_blobs=True)
        return self.operand(node)

    def _is_null(self, operand: Operand) -> Predicate:
        if isinstance(operand, Typed):
            return Constant(operand.value is None)
        if isinstance(operand, Column):
            return IsNull(Column(operand.path))
        if isinstance(operand, local.Matches):
            return operand.negated()
        if isinstance(operand, Predicate):
            return SameTruth(operand, Constant(None))
        if isinstance(operand, Document):
            return ValueIsNull(operand.exists())
        return ValueIsNull(computed.value_of(operand))

    def _is_nan(self, node: Apply) -> Predicate:
        operand = self.operand(*node.args)
        if isinstance(operand, Typed):
            if operand.value is None:
                return Constant(False)
            number = cast(operand, pa.float64(), self._settings).value
            return Constant(math.isnan(number))
        if isinstance(operand, Column):
            dtype = coercion.dtype_of(operand.field)
            if pat.is_floating(dtype):
                return IsNan(Column(operand.path))
            if is_number(dtype):
                # Never NaN: the cast makes the predicate apply to all numbers.
                return IsNan(Column(operand.path, pa.float64()))
        return computed.is_nan(operand, self._settings)

    # Strings

    def _like(self, node: Apply) -> Predicate:
        escape = node.detail if node.op != "call" else "\\"
        if len(node.args) == 3:
            operand = self.operand(node.args[2])
            escape = operand.value if isinstance(operand, Typed) else None
            if not isinstance(escape, str) or len(escape) != 1:
                raise self._error(node, "the escape of LIKE must be a string of one character")
        op = "ilike" if "ilike" in (node.op, node.detail) else "like"
        return self._pattern(node, op, escape)

    def _rlike(self, node: Apply) -> Predicate:
        return self._pattern(node, "rlike", "")

    def _pattern(self, node: Apply, op: str, escape: str) -> Predicate:
        left, pattern = self.operand(node.args[0]), self.operand(node.args[1])
        try:
            if (
                op != "ilike"
                and isinstance(left, Column)
                and is_text(coercion.type_of(left))
                and isinstance(pattern, Typed)
                and isinstance(pattern.value, str)
            ):
                return ColumnMatch(left, *functions.pattern_match(op, pattern.value, escape))
            values = computed.value_of(left), computed.value_of(pattern)
            return computed.as_predicate(functions.matched(op, *values, escape, self._settings))
        except NoCommonTypeError:
            raise
        except ValueError as reason:
            hint = "; leave it to DataFrame.where" if op == "rlike" else ""
            raise self._error(node, f"{reason}{hint}") from None

    def _match(self, node: Apply) -> Predicate:
        left, text = self.operand(node.args[0]), self.operand(node.args[1])
        if isinstance(left, Column) and isinstance(text, Typed):
            return coercion.match(Column(left.path), _MATCHERS[node.detail], text.value)
        values = [computed.value_of(left), computed.value_of(text)]
        return computed.as_predicate(computed.FUNCTIONS[node.detail][1](values, self._settings))

    # Lists

    def _list_search(self, node: Apply) -> Predicate:
        name, (first, second) = node.detail, node.args
        if name == "arrays_overlap" and _is_array(first):
            first, second = second, first
        column = self.operand(first)
        if not isinstance(column, Column):
            raise self._error(node, f"{name} takes a column of lists; leave it to DataFrame.where")
        if name in OF_VALUE:
            return OF_VALUE[name](column, [self._literal(second)], self._settings)
        if isinstance(second, Apply) and _is_array(second):
            items = list(map(self._literal, second.args))
            return OF_ARRAY[name](column, items, self._settings)
        if name != "arrays_overlap" and self._literal(second).value is None:
            return Constant(None)
        raise self._error(second, f"{name} takes an array of literals, such as array(1, 2)")

    def _literal(self, node: SqlNode) -> Typed:
        operand = computed.as_typed(self.operand(node))
        if not isinstance(operand, Typed):
            raise self._error(node, "lists are searched only for literals; use DataFrame.where")
        return operand

    # Casts and functions

    def _call(self, node: Apply) -> Operand:
        name = _ALIASES.get(node.detail, node.detail)
        if self._pylance_dialect:
            name = local.ALIASES.get(name, name)
            node = replace(node, detail=name)
            if name == "is_valid" and len(node.args) == 1:
                return self._is_null(self.operand(*node.args)).negated()
            if local.is_function(name) or (name == "rlike" and len(node.args) == 3):
                return self._pylance_function(name, node)
        if name in ("if", "nullif"):
            return self._if(node) if name == "if" else self._nullif(node)
        counts = {"isnull": 1, "isnotnull": 1, "isnan": 1, "like": (2, 3), "ilike": (2, 3)}
        related = load(SPATIAL_FUNCTIONS).get(name) if name.startswith(_SPATIAL) else None
        if related is not None:
            self._functions[name] = lambda node: related(node, self.operand)
        if name in self._functions:
            count = counts.get(name, 2)
            if len(node.args) not in (count if isinstance(count, tuple) else (count,)):
                raise self._error(node, f"wrong number of arguments of {node.detail}")
            return self._functions[name](node)
        if name in CAST_FUNCTIONS and len(node.args) == 1:
            return cast_to(self.operand(node.args[0]), CAST_FUNCTIONS[name], self._settings)
        if name in computed.FUNCTIONS:
            return computed.call(name, list(map(self.operand, node.args)), self._settings)
        raise self._error(
            node,
            f"the function {node.detail} is not supported; leave it to DataFrame.where "
            "(docs/reference/predicates.md lists the supported functions)",
        )

    def _pylance_function(self, name: str, node: Apply) -> Operand:
        """Return the result of a function of pylance."""
        operands = list(map(self.operand, node.args))
        try:
            return local.call(name, operands, self._settings)
        except ValueError as reason:
            raise self._error(node, str(reason)) from None

    def _if(self, node: Apply) -> Operand:
        if len(node.args) != 3:
            raise self._error(node, "if takes a condition and two values")
        condition, *args = node.args
        value, otherwise = (computed.value_of(self.operand(arg)) for arg in args)
        branches = [(self.predicate(condition), value)]
        return computed.operand_of(choice(branches, otherwise, self._settings))

    def _nullif(self, node: Apply) -> Operand:
        if len(node.args) != 2:
            raise self._error(node, "nullif takes two values")
        left, right = map(self.operand, node.args)
        equal = self._compare(node, "==", left, right)
        return computed.operand_of(nullif(computed.value_of(left), equal))

    def _case(self, node: Apply) -> Operand:
        has_value, has_otherwise = node.detail
        parts = list(node.args)
        value = self.operand(parts.pop(0)) if has_value else None
        otherwise = self.operand(parts.pop()) if has_otherwise else Typed(None, pa.null())
        branches = []
        for condition, result in zip(parts[::2], parts[1::2], strict=True):
            case = self.operand(condition)
            if value is not None:
                condition_met = self._compare(node, "==", value, case)
            elif isinstance(case, Typed) and pat.is_null(case.dtype):
                # Spark accepts NULL as a condition in IF and WHERE, but not in CASE.
                raise self._error(
                    node, "NULL is not a condition of CASE; write CAST(NULL AS BOOLEAN)"
                )
            else:
                condition_met = self.predicate(condition)
            branches.append((condition_met, computed.value_of(self.operand(result))))
        return computed.operand_of(choice(branches, computed.value_of(otherwise), self._settings))

    def _cast(self, node: Apply) -> Operand:
        operand = self.operand(node.args[0])
        if isinstance(node.detail, pa.DataType):
            is_try = node.op == "try_cast"
            return cast_to(operand, node.detail, self._settings, null_if_failed=is_try)
        assert isinstance(operand, Typed)
        return typed_literal(node.detail, operand.value, self._settings)


def _is_array(node: SqlNode) -> bool:
    return isinstance(node, Apply) and node.op == "call" and node.detail in ("array", "make_array")
