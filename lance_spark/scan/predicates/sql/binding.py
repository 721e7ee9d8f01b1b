"""The tree of a text as a predicate on a table's columns, with the meaning that Spark's analyzer gives it.

An operand is a column, a literal, a condition or another expression. Comparisons of a column with
literals become bounds on the column's own values (`coercion`), which statistics serve. All others
are computed for each row (`computed`), and of literals at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates import coercion
from lance_spark.scan.predicates.common_types import NoCommonTypeError, comparison_type
from lance_spark.scan.predicates.comparison import Op, compared, like_regex
from lance_spark.scan.predicates.expressions import strings
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.conditionals import choice, nullif
from lance_spark.scan.predicates.expressions.functions import FUNCTIONS
from lance_spark.scan.predicates.expressions.intervals import Interval, interval, interval_between
from lance_spark.scan.predicates.expressions.node import Expression, Literal, Truth, folded
from lance_spark.scan.predicates.expressions.value_predicates import CompareValues, ValueIsNull
from lance_spark.scan.predicates.java_regex import to_re2
from lance_spark.scan.predicates.literal_casts import CastError, cast
from lance_spark.scan.predicates.sql import computed
from lance_spark.scan.predicates.sql.computed import Operand
from lance_spark.scan.predicates.sql.numbers import TYPES
from lance_spark.scan.predicates.sql.syntax_tree import Apply, Name, Node, TypeName, Value
from lance_spark.scan.predicates.sql.tokens import error
from lance_spark.scan.predicates.sql.words import CURRENT
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.times import has_zone
from lance_spark.scan.predicates.tree import (
    And,
    Column,
    Constant,
    IsNan,
    IsNull,
    Known,
    Match,
    Or,
    Predicate,
    SameTruth,
)
from lance_spark.scan.predicates.typed_values import (
    CLOCK,
    INSTANT,
    TIME,
    Typed,
    is_number,
    is_text,
    type_name,
)

_OPS: dict[str, Op] = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MATCHED = {"startswith": "starts", "endswith": "ends", "contains": "contains"}
_ALIASES = {"regexp": "rlike", "regexp_like": "rlike"}
#: Functions that cast, and those of a string that are the same.
_CASTS = {
    **{name.lower(): dtype for name, dtype in TYPES.items()},
    "timestamp": INSTANT,
    "decimal": pa.decimal128(10, 0),
}
_NOT_FUNCTIONS = (
    "byte",
    "short",
    "integer",
    "long",
    "real",
    "void",
    "timestamp_ltz",
    "timestamp_ntz",
)
_FINE_TIME = re.compile(r"\.[0-9]{7}")
#: Casts of columns that keep every value as it is.
_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.int64(): (pa.float64(),),
    pa.float32(): (pa.float64(),),
    pa.date32(): (CLOCK,),
}


def bind(tree: Node, text: str, schema: Schema, settings: SqlSettings) -> Predicate:
    """Return the predicate of a tree.

    Raises
    ------
    InvalidInputError
        The tree is not a condition, its columns are not those of the table, or it has what is not
        understood here.
    """
    if isinstance(tree, Value) and tree.typed.value is None:
        raise error(text, tree.offset, "null is not a condition for Spark; write false")
    return _Binder(text, schema, settings).predicate(tree)


class _Binder:
    def __init__(self, text: str, schema: Schema, settings: SqlSettings) -> None:
        self._text = text
        self._schema = schema
        self._settings = settings
        self._conditions: dict[str, Callable[[Apply], Predicate]] = {
            "and": lambda node: And(tuple(self.predicate(one) for one in node.args)),
            "or": lambda node: Or(tuple(self.predicate(one) for one in node.args)),
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
            "isnull": lambda node: self._is_null(self.operand(*node.args)),
            "isnotnull": lambda node: self._is_null(self.operand(*node.args)).negated(),
            "isnan": self._is_nan,
            "equal_null": lambda node: self._null_safe(node, *map(self.operand, node.args)),
            "like": self._like,
            "ilike": self._like,
            "rlike": self._rlike,
            **dict.fromkeys(_MATCHED, self._match),
        }

    def predicate(self, node: Node) -> Predicate:
        """Return a node as a condition."""
        operand = self.operand(node)
        if isinstance(operand, Predicate):
            return operand
        if isinstance(operand, Column):
            dtype = operand.kind or coercion.kind_of(operand.field)
            if pat.is_boolean(dtype):
                return coercion.compare(operand, "==", True)
            raise self._error(node, f"column {operand} is {dtype}, which is not a condition")
        if isinstance(operand, Typed) and self._is_truth(operand):
            return Constant(operand.value)
        if isinstance(operand, Interval):
            raise self._error(node, "an interval is not a condition")
        what = "literal" if isinstance(operand, Typed) else "value"
        raise self._error(node, f"a {what} of type {type_name(operand.dtype)} is not a condition")

    def operand(self, node: Node) -> Operand:
        """Return a node as a column, a literal or a condition."""
        if isinstance(node, Value):
            return node.typed
        try:
            if isinstance(node, Name):
                return self._column(node)
            assert isinstance(node, Apply)
            return self._applied(node)
        except (NoCommonTypeError, CastError, EvaluationError) as reason:
            why = str(reason).removeprefix("filter: ")
            raise self._error(node, why) from None

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
        operands = [self.operand(one) for one in node.args]
        return computed.operate(node.op, operands, self._settings)

    def _interval(self, node: Apply) -> Interval:
        text, negative, units = node.detail
        try:
            found = interval_between(text, *units) if units else interval(text)
            return found.negated() if negative else found
        except ValueError as reason:
            raise self._error(node, str(reason)) from None

    def _error(self, node: Node, why: str) -> InvalidInputError:
        return error(self._text, node.offset, why)

    def _column(self, node: Name) -> Column:
        try:
            return coercion.column(self._schema, node.parts, self._settings.case_sensitive)
        except InvalidInputError as reason:
            if len(node.parts) == 1 and node.parts[0].upper() in CURRENT:
                raise self._error(
                    node, f"{node.parts[0]} has no value here; write the literal"
                ) from None
            why = str(reason).removeprefix("filter: ")
            raise self._error(node, why) from None

    # Comparisons

    def _compare(self, node: Apply, op: Op, left: Operand, right: Operand) -> Predicate:
        left, right = _of_type(left), _of_type(right)
        if isinstance(left, Typed) and isinstance(right, Typed):
            return Constant(self._compare_literals(op, left, right))
        if isinstance(left, Predicate) or isinstance(right, Predicate):
            one, other = self._truth(node, left), self._truth(node, right)
            if one is None or other is None:
                return Constant(None)
            return CompareValues(Truth(one), op, Truth(other))
        try:
            if isinstance(left, Column):
                if isinstance(right, Column):
                    return coercion.compare_columns(left, op, right, self._settings)
                if isinstance(right, Typed):
                    return coercion.compare(left, op, right, self._settings)
            elif isinstance(right, Column) and isinstance(left, Typed):
                return coercion.compare(right, coercion.FLIPPED[op], left, self._settings)
        except InvalidInputError as reason:
            return self._or_computed(reason, computed.compare, op, left, right)
        return computed.compare(op, left, right, self._settings)

    def _or_computed(
        self, reason: InvalidInputError, build: Callable[..., Predicate], *args: Any
    ) -> Predicate:
        """Return a condition that is computed row by row where no bound on the column says the same."""
        try:
            return build(*args, self._settings)
        except (NoCommonTypeError, CastError, InvalidInputError):
            raise reason from None

    def _compare_literals(self, op: Op, left: Typed, right: Typed) -> bool | None:
        common = comparison_type(left, right, self._settings)
        if left.value is None or right.value is None:
            return None
        return self._compare_in(op, left, right, common)

    def _compare_in(self, op: Op, left: Typed, right: Typed, common: pa.DataType) -> bool | None:
        one, other = (
            pa.array([cast(side, common, self._settings).value], common) for side in (left, right)
        )
        found: bool | None = compared(one, op, other)[0].as_py()
        return found

    def _truth(self, node: Node, operand: Operand) -> Predicate | None:
        """Return an operand beside a condition as a condition; None for null."""
        if isinstance(operand, Predicate):
            return operand
        if isinstance(operand, Column):
            dtype = operand.kind or coercion.kind_of(operand.field)
            if not pat.is_boolean(dtype):
                raise self._error(
                    node, f"a condition is not compared with {operand}, which is {dtype}"
                )
            return coercion.compare(operand, "==", True)
        if not isinstance(operand, Typed):
            raise self._error(node, "a condition is compared with conditions only; cast the value")
        if not self._is_truth(operand) and not is_text(operand.dtype):
            raise self._error(
                node,
                f"a condition is not compared with a literal of type {type_name(operand.dtype)}",
            )
        if operand.value is None:
            return None
        return Constant(cast(operand, pa.bool_(), self._settings).value)

    def _null_safe(self, node: Apply, left: Operand, right: Operand) -> Predicate:
        left, right = _of_type(left), _of_type(right)
        if isinstance(left, Typed) and isinstance(right, Typed):
            if left.value is None or right.value is None:
                comparison_type(left, right, self._settings)
                return Constant(left.value is right.value)
            return Constant(self._compare_literals("==", left, right))
        if isinstance(left, Predicate) or isinstance(right, Predicate):
            one, other = self._truth(node, left), self._truth(node, right)
            null = Constant(None)
            return SameTruth(one or null, other or null)
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
            # Spark evaluates it once, apart from both comparisons, which see no literal.
            value = replace(value, written=False)
        return And((self._compare(node, ">=", value, low), self._compare(node, "<=", value, high)))

    def _in(self, node: Apply) -> Predicate:
        value, *others = (_of_type(self.operand(one)) for one in node.args)
        if any(isinstance(one, Predicate) for one in (value, *others)):
            return Or(tuple(self._compare_in_list(node, value, one, others) for one in others))
        try:
            if isinstance(value, Column) and all(isinstance(one, Column | Typed) for one in others):
                return coercion.is_in(value, others, self._settings)
        except InvalidInputError as reason:
            return self._or_computed(reason, computed.is_in, value, others)
        met = computed.is_in(value, others, self._settings)
        return (
            self._constant(met) if all(isinstance(one, Typed) for one in (value, *others)) else met
        )

    def _constant(self, predicate: Predicate) -> Constant:
        """Return a condition on literals as its value."""
        if isinstance(predicate, Constant):
            return predicate
        answer = folded(Truth(predicate))
        assert isinstance(answer, Literal)
        return Constant(answer.typed.value)

    def _compare_in_list(
        self, node: Apply, value: Operand, one: Operand, others: Sequence[Operand]
    ) -> Predicate:
        """Return the comparison with one value of a list that is made of several kinds."""
        if not all(self._is_truth(each) for each in (value, *others)):
            raise self._error(node, "conditions and other values are in one list; write OR")
        left, right = self._truth(node, value), self._truth(node, one)
        if left is None or right is None:
            return Constant(None)
        return CompareValues(Truth(left), "==", Truth(right))

    def _is_truth(self, operand: Operand) -> bool:
        if isinstance(operand, Predicate):
            return True
        if isinstance(operand, Typed):
            return bool(pat.is_boolean(operand.dtype) or pat.is_null(operand.dtype))
        if not isinstance(operand, Column):
            return False
        return bool(pat.is_boolean(operand.kind or coercion.kind_of(operand.field)))

    # Null, true, false

    def _is(self, node: Apply) -> Predicate:
        if node.detail in ("NULL", "UNKNOWN"):
            operand = self.operand(node.args[0])
            if node.detail == "UNKNOWN" and not self._is_truth(operand):
                raise self._error(node, "IS UNKNOWN is about conditions; write IS NULL")
            return self._is_null(operand)
        truth = self.predicate(node.args[0])
        # Null is neither.
        return Known(truth if node.detail == "TRUE" else truth.negated())

    def _is_null(self, operand: Operand) -> Predicate:
        if isinstance(operand, Typed):
            return Constant(operand.value is None)
        if isinstance(operand, Column):
            return IsNull(Column(operand.path))
        if isinstance(operand, Predicate):
            return SameTruth(operand, Constant(None))
        return ValueIsNull(computed.value_of(operand))

    def _is_nan(self, node: Apply) -> Predicate:
        operand = self.operand(*node.args)
        if isinstance(operand, Typed):
            if operand.value is None:
                return Constant(False)
            number = cast(operand, pa.float64(), self._settings).value
            return Constant(math.isnan(number))
        if isinstance(operand, Column):
            dtype = coercion.kind_of(operand.field)
            if pat.is_floating(dtype):
                return IsNan(Column(operand.path))
            if is_number(dtype):
                # A null is not NaN, nor is any other value.
                return IsNan(Column(operand.path, pa.float64()))
        return computed.is_nan(operand, self._settings)

    # Strings

    def _like(self, node: Apply) -> Predicate:
        escape = node.detail if node.op != "call" else "\\"
        if len(node.args) == 3:
            third = self.operand(node.args[2])
            escape = third.value if isinstance(third, Typed) else None
            if not isinstance(escape, str) or len(escape) != 1:
                raise self._error(node, "the escape of LIKE is a string of one character")
        op = "ilike" if "ilike" in (node.op, node.detail) else "like"
        return self._matched(node, op, escape)

    def _rlike(self, node: Apply) -> Predicate:
        return self._matched(node, "rlike", "")

    def _matched(self, node: Apply, op: str, escape: str) -> Predicate:
        left, pattern = self.operand(node.args[0]), self.operand(node.args[1])
        try:
            if isinstance(left, Column) and isinstance(pattern, Typed) and op != "ilike":
                plain = is_text(coercion.type_of(left)) and isinstance(pattern.value, str)
                if plain and op == "like":
                    return Match(left, *like_regex(pattern.value, escape))
                if plain:
                    return Match(left, "like", to_re2(pattern.value))
            values = computed.value_of(left), computed.value_of(pattern)
            return self.condition(strings.matched(op, *values, escape, self._settings))
        except NoCommonTypeError:
            raise
        except ValueError as reason:
            hint = "; leave it to DataFrame.where" if op == "rlike" else ""
            raise self._error(node, f"{reason}{hint}") from None

    def condition(self, value: Expression) -> Predicate:
        """Return a computed boolean as a condition."""
        operand = computed.operand_of(value)
        if isinstance(operand, Typed):
            return Constant(operand.value)
        assert isinstance(operand, Predicate)
        return operand

    def _match(self, node: Apply) -> Predicate:
        left, text = self.operand(node.args[0]), self.operand(node.args[1])
        if isinstance(left, Column) and isinstance(text, Typed):
            return coercion.match(Column(left.path), _MATCHED[node.detail], text.value)
        values = [computed.value_of(one) for one in (left, text)]
        return self.condition(FUNCTIONS[node.detail][1](values, self._settings))

    # Casts and functions

    def _call(self, node: Apply) -> Operand:
        name = _ALIASES.get(node.detail, node.detail)
        if name in ("if", "nullif"):
            return self._if(node) if name == "if" else self._nullif(node)
        counts = {"isnull": 1, "isnotnull": 1, "isnan": 1, "like": (2, 3), "ilike": (2, 3)}
        if name in self._functions:
            wanted = counts.get(name, 2)
            if len(node.args) not in (wanted if isinstance(wanted, tuple) else (wanted,)):
                raise self._error(node, f"{node.detail} takes another number of arguments")
            return self._functions[name](node)
        if name in _CASTS and name not in _NOT_FUNCTIONS and len(node.args) == 1:
            # The function `timestamp` has a zone under every setting; the type of a cast has not.
            return self._cast_to(node, self.operand(node.args[0]), _CASTS[name])
        if name in FUNCTIONS:
            return computed.call(name, [self.operand(one) for one in node.args], self._settings)
        raise self._error(
            node,
            f"the function {node.detail} is not known here; leave it to DataFrame.where "
            "(docs/reference/options.md has those that are)",
        )

    def _if(self, node: Apply) -> Operand:
        if len(node.args) != 3:
            raise self._error(node, "if takes a condition and two values")
        condition, *values = node.args
        met, other = (computed.value_of(self.operand(one)) for one in values)
        branches = [(self.predicate(condition), met)]
        return computed.operand_of(choice(branches, other, self._settings))

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
                met = self._compare(node, "==", value, case)
            elif isinstance(case, Typed) and pat.is_null(case.dtype):
                # Spark takes NULL for a condition in IF and WHERE, not in CASE.
                raise self._error(
                    node, "NULL is not a condition of CASE; write CAST(NULL AS BOOLEAN)"
                )
            else:
                met = self.predicate(condition)
            branches.append((met, computed.value_of(self.operand(result))))
        return computed.operand_of(choice(branches, computed.value_of(otherwise), self._settings))

    def _cast(self, node: Apply) -> Operand:
        operand = self.operand(node.args[0])
        if node.op != "literal":
            assert isinstance(node.detail, TypeName)
            return self._cast_to(node, operand, node.detail.dtype, node.op == "try_cast")
        assert isinstance(operand, Typed)
        text = operand.value
        if node.detail == "x":
            return self._bytes(node, text)
        if node.detail == "time" and _FINE_TIME.search(text):
            # Releases of Spark give such a literal other types.
            raise self._error(node, "write at most six digits after the second of a TIME")
        dtypes = {"date": pa.date32(), "time": TIME, "timestamp_ntz": CLOCK}
        dtype = dtypes.get(node.detail, INSTANT)
        if node.detail == "timestamp" and self._settings.timestamp_type == "TIMESTAMP_NTZ":
            dtype = INSTANT if has_zone(text) else CLOCK
        return cast(operand, dtype, self._settings)

    def _bytes(self, node: Apply, text: str) -> Typed:
        try:
            if not text.isalnum():
                raise ValueError(text)
            data = bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}")
        except ValueError:
            if text:
                raise self._error(node, "X'...' has to have hexadecimal digits") from None
            data = b""
        return Typed(data, pa.binary(), True)

    def _cast_to(
        self, node: Apply, operand: Operand, dtype: pa.DataType, null_if_failed: bool = False
    ) -> Operand:
        if isinstance(operand, Column):
            own = coercion.type_of(operand)
            if own.equals(dtype):
                return operand
            if dtype in _WIDER.get(own, ()) or (
                pat.is_decimal(own)
                and pat.is_decimal(dtype)
                and own.scale <= dtype.scale
                and own.precision - own.scale <= dtype.precision - dtype.scale
            ):
                return Column(operand.path, dtype)
        value = casted(
            computed.value_of(operand), dtype, self._settings, null_if_failed=null_if_failed
        )
        return computed.operand_of(value)


def _of_type(operand: Operand) -> Operand:
    """Return an interval as a literal that is compared, and other operands as they are.

    Raises
    ------
    NoCommonTypeError
        It is an interval of years or months.
    """
    return operand.typed() if isinstance(operand, Interval) else operand
