"""The tree of a text as a predicate on a table's columns, with the meaning that Spark's analyzer gives it.

An operand is a column, a literal or a condition. Whatever is made of literals alone is computed here; a condition beside a column
of booleans is compared by its truth value. Expressions of columns other than these are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema import Schema
from lance_spark.scan import coercion
from lance_spark.scan.arithmetic import NoValueError, arithmetic, inverse, negative, positive
from lance_spark.scan.casts import CastError, cast
from lance_spark.scan.common_types import NoCommonTypeError, comparison_type, list_type
from lance_spark.scan.comparing import Op, compared, like_regex
from lance_spark.scan.java_regex import to_re2
from lance_spark.scan.predicates import (
    And,
    Column,
    CompareTruths,
    Constant,
    IsNan,
    IsNull,
    Known,
    Match,
    Or,
    Predicate,
    SameTruth,
)
from lance_spark.scan.settings import SqlSettings
from lance_spark.scan.sql.grammar import TYPES
from lance_spark.scan.sql.tokens import error
from lance_spark.scan.sql.tree import Apply, Name, Node, TypeName, Value
from lance_spark.scan.sql.words import CURRENT
from lance_spark.scan.times import has_zone
from lance_spark.scan.typed import CLOCK, INSTANT, Typed, is_number, is_text, type_name

Operand = Column | Typed | Predicate

_OPS: dict[str, Op] = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_UNARY = {"negative": negative, "positive": positive, "~": inverse}
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
        raise error(text, tree.at, "null is not a condition for Spark; write false")
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
            raise self._failed(node, f"column {operand} is {dtype}, which is not a condition")
        if pat.is_null(operand.dtype) or pat.is_boolean(operand.dtype):
            return Constant(operand.value)
        raise self._failed(node, f"a literal of type {type_name(operand.dtype)} is not a condition")

    def operand(self, node: Node) -> Operand:
        """Return a node as a column, a literal or a condition."""
        if isinstance(node, Value):
            return node.typed
        try:
            if isinstance(node, Name):
                return self._column(node)
            assert isinstance(node, Apply)
            return self._applied(node)
        except (NoCommonTypeError, CastError, NoValueError) as reason:
            raise self._failed(node, str(reason)) from None

    def _applied(self, node: Apply) -> Operand:
        if node.op in _OPS:
            return self._compare(node, _OPS[node.op], *map(self.operand, node.args))
        if node.op in self._conditions:
            return self._conditions[node.op](node)
        if node.op in ("cast", "try_cast", "literal"):
            return self._cast(node)
        if node.op == "call":
            return self._call(node)
        operands = [self.operand(one) for one in node.args]
        literals = [one for one in operands if isinstance(one, Typed)]
        if len(literals) < len(operands):
            raise self._failed(
                node,
                "an expression of columns is not computed here; leave it to DataFrame.where",
            )
        if node.op in _UNARY:
            return _UNARY[node.op](literals[0])
        left, right = literals
        return arithmetic(node.op, left, right, self._settings)

    def _failed(self, node: Node, why: str) -> InvalidInputError:
        return error(self._text, node.at, why)

    def _column(self, node: Name) -> Column:
        try:
            return coercion.column(self._schema, node.parts, self._settings.case_sensitive)
        except InvalidInputError as reason:
            if len(node.parts) == 1 and node.parts[0].upper() in CURRENT:
                raise self._failed(
                    node, f"{node.parts[0]} has no value here; write the literal"
                ) from None
            why = str(reason).removeprefix("filter: ")
            raise self._failed(node, why) from None

    # Comparisons

    def _compare(self, node: Apply, op: Op, left: Operand, right: Operand) -> Predicate:
        if isinstance(left, Typed) and isinstance(right, Typed):
            return Constant(self._compare_literals(op, left, right))
        if isinstance(left, Predicate) or isinstance(right, Predicate):
            one, other = self._truth(node, left), self._truth(node, right)
            if one is None or other is None:
                return Constant(None)
            return CompareTruths(one, op, other)
        if isinstance(left, Column):
            if isinstance(right, Column):
                return coercion.compare_columns(left, op, right, self._settings)
            return coercion.compare(left, op, right, self._settings)
        assert isinstance(right, Column)
        return coercion.compare(right, coercion.FLIPPED[op], left, self._settings)

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
                raise self._failed(
                    node, f"a condition is not compared with {operand}, which is {dtype}"
                )
            return coercion.compare(operand, "==", True)
        if operand.value is None:
            return None
        if is_text(operand.dtype):
            operand = cast(operand, pa.bool_(), self._settings)
        if not pat.is_boolean(operand.dtype):
            raise self._failed(
                node,
                f"a condition is not compared with a literal of type {type_name(operand.dtype)}",
            )
        return Constant(operand.value)

    def _null_safe(self, node: Apply, left: Operand, right: Operand) -> Predicate:
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
        assert isinstance(left, Column)
        if isinstance(right, Column):
            return coercion.null_safe_equal_columns(left, right, self._settings)
        return coercion.null_safe_equal(left, right, self._settings)

    def _between(self, node: Apply) -> Predicate:
        value, low, high = map(self.operand, node.args)
        return And((self._compare(node, ">=", value, low), self._compare(node, "<=", value, high)))

    def _in(self, node: Apply) -> Predicate:
        value, *others = map(self.operand, node.args)
        if isinstance(value, Column) and not any(isinstance(one, Predicate) for one in others):
            return coercion.is_in(value, others, self._settings)
        if isinstance(value, Predicate) or not all(isinstance(one, Typed) for one in others):
            return Or(tuple(self._compare_in_list(node, value, one, others) for one in others))
        literals = [one for one in others if isinstance(one, Typed)]
        assert isinstance(value, Typed)
        common = list_type([one.dtype for one in (value, *literals)], self._settings)
        if value.value is None:
            return Constant(None)
        found = [
            None if one.value is None else self._compare_in("==", value, one, common)
            for one in literals
        ]
        return Constant(True if True in found else None if None in found else False)

    def _compare_in_list(
        self, node: Apply, value: Operand, one: Operand, others: Sequence[Operand]
    ) -> Predicate:
        """Return the comparison with one value of a list that is made of several kinds."""
        if not all(self._is_truth(each) for each in (value, *others)):
            raise self._failed(
                node, "a list of columns and literals is compared with a column only; write OR"
            )
        left, right = self._truth(node, value), self._truth(node, one)
        return Constant(None) if left is None or right is None else CompareTruths(left, "==", right)

    def _is_truth(self, operand: Operand) -> bool:
        if isinstance(operand, Predicate):
            return True
        if isinstance(operand, Typed):
            return bool(pat.is_boolean(operand.dtype) or pat.is_null(operand.dtype))
        return bool(pat.is_boolean(operand.kind or coercion.kind_of(operand.field)))

    # Null, true, false

    def _is(self, node: Apply) -> Predicate:
        if node.detail in ("NULL", "UNKNOWN"):
            operand = self.operand(node.args[0])
            if node.detail == "UNKNOWN" and not self._is_truth(operand):
                raise self._failed(node, "IS UNKNOWN is about conditions; write IS NULL")
            return self._is_null(operand)
        truth = self.predicate(node.args[0])
        # Null is neither.
        return Known(truth if node.detail == "TRUE" else truth.negated())

    def _is_null(self, operand: Operand) -> Predicate:
        if isinstance(operand, Typed):
            return Constant(operand.value is None)
        if isinstance(operand, Column):
            return IsNull(Column(operand.path))
        return SameTruth(operand, Constant(None))

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
        raise self._failed(node, "isnan is about columns of numbers")

    # Strings

    def _like(self, node: Apply) -> Predicate:
        escape = node.detail if node.op != "call" else "\\"
        if len(node.args) == 3:
            third = self.operand(node.args[2])
            escape = third.value if isinstance(third, Typed) else None
            if not isinstance(escape, str) or len(escape) != 1:
                raise self._failed(node, "the escape of LIKE is a string of one character")
        ignore_case = "ilike" in (node.op, node.detail)
        left, pattern = self.operand(node.args[0]), self.operand(node.args[1])
        text = self._pattern(node, left, pattern)
        if text is None:
            return Constant(None)
        try:
            how, regex = like_regex(text, escape)
        except ValueError as reason:
            raise self._failed(node, str(reason)) from None
        if isinstance(left, Typed) or ignore_case:
            raise self._failed(
                node,
                "ILIKE is not answered here; leave it to DataFrame.where"
                if ignore_case
                else "LIKE is about a column here",
            )
        assert isinstance(left, Column)
        return Match(left, how, regex)

    def _rlike(self, node: Apply) -> Predicate:
        left, pattern = self.operand(node.args[0]), self.operand(node.args[1])
        text = self._pattern(node, left, pattern)
        if text is None:
            return Constant(None)
        if not isinstance(left, Column):
            raise self._failed(node, "RLIKE is about a column here")
        try:
            return Match(left, "like", to_re2(text))
        except ValueError as reason:
            raise self._failed(node, f"{reason}; leave it to DataFrame.where") from None

    def _pattern(self, node: Apply, left: Operand, pattern: Operand) -> str | None:
        """Return the pattern that a string is matched with; None if it is null."""
        if isinstance(left, Column) and not is_text(coercion.kind_of(left.field)):
            raise self._failed(
                node, f"column {left} is {left.field.arrow_field.type}; only strings are matched"
            )
        if isinstance(left, Predicate) or not isinstance(pattern, Typed):
            raise self._failed(node, "a column is matched with a literal only")
        if pattern.value is None:
            return None
        if not is_text(pattern.dtype):
            raise self._failed(node, "the pattern has to be a string")
        return str(pattern.value)

    def _match(self, node: Apply) -> Predicate:
        left, text = self.operand(node.args[0]), self.operand(node.args[1])
        if not isinstance(left, Column) or not isinstance(text, Typed):
            raise self._failed(node, f"{node.detail} is about a column and a literal")
        return coercion.match(Column(left.path), _MATCHED[node.detail], text.value)

    # Casts and functions

    def _call(self, node: Apply) -> Operand:
        name = _ALIASES.get(node.detail, node.detail)
        counts = {"isnull": 1, "isnotnull": 1, "isnan": 1, "like": (2, 3), "ilike": (2, 3)}
        if name in self._functions:
            wanted = counts.get(name, 2)
            if len(node.args) not in (wanted if isinstance(wanted, tuple) else (wanted,)):
                raise self._failed(node, f"{node.detail} takes another number of arguments")
            return self._functions[name](node)
        if name in _CASTS and name not in _NOT_FUNCTIONS and len(node.args) == 1:
            dtype = _CASTS[name]
            if name == "timestamp" and self._settings.timestamp_type == "TIMESTAMP_NTZ":
                dtype = CLOCK
            return self._cast_to(node, self.operand(node.args[0]), dtype)
        known = ", ".join(sorted(self._functions))
        raise self._failed(
            node,
            f"the function {node.detail} is not known here; known are {known} and casts; leave "
            "others to DataFrame.where",
        )

    def _cast(self, node: Apply) -> Operand:
        operand = self.operand(node.args[0])
        if node.op != "literal":
            assert isinstance(node.detail, TypeName)
            return self._cast_to(node, operand, node.detail.dtype)
        assert isinstance(operand, Typed)
        text = operand.value
        if node.detail == "x":
            return self._bytes(node, text)
        dtype = {"date": pa.date32(), "timestamp_ntz": CLOCK}.get(node.detail, INSTANT)
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
                raise self._failed(node, "X'...' has to have hexadecimal digits") from None
            data = b""
        return Typed(data, pa.binary(), True)

    def _cast_to(self, node: Apply, operand: Operand, dtype: pa.DataType) -> Operand:
        if isinstance(operand, Typed):
            return cast(operand, dtype, self._settings)
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
            raise self._failed(
                node,
                f"column {operand} is not cast from {type_name(own)} to {type_name(dtype)} here; "
                "leave it to DataFrame.where",
            )
        if pat.is_boolean(dtype):
            return operand
        raise self._failed(node, "a condition is not cast")
