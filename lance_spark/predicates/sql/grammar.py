"""The parser of Spark's boolean expressions, after the rules of its SqlBaseParser.g4.

Operators by precedence, the lowest first::

    OR AND NOT, ! IS [NOT] NULL | TRUE | FALSE | UNKNOWN | DISTINCT FROM, [NOT] BETWEEN, IN, LIKE,
    ILIKE, RLIKE   (one of them) = == <=> <> != < <= > >= !> !<    (left to right)
    |
    ^
    &
    << >> >>>
    + - ||
    * / % DIV
    unary - + ~
    ::type, .child, ['child']

As in Spark's default mode nearly every keyword is also a name: AND is a column in the position of
an operand. There the words NULL, TRUE and FALSE are literals, and words such as CAST are functions
if a bracket follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.predicates import coercion
from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.predicates.expressions.node import casted
from lance_spark.predicates.sql import computed
from lance_spark.predicates.sql.computed import Operand
from lance_spark.predicates.sql.tokens import Token, TokenCursor, error, shown
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.times import has_zone
from lance_spark.predicates.tree import Column
from lance_spark.predicates.typed_literals import (
    CLOCK,
    INSTANT,
    TIME,
    Typed,
    cast,
    decimal,
    integer,
    to_float32,
)

# --------------------------------------------------------------------------------------------------
# The syntax of a predicate: keywords and operators, and the nodes of a syntax tree.

#: Words that need backticks as names if spark.sql.ansi.enforceReservedKeywords is true.
RESERVED = frozenset(
    {
        "ALL", "AND", "ANY", "AS", "AUTHORIZATION", "BOTH", "CALL", "CASE", "CAST", "CHECK",
        "COLLATE", "COLLATION", "COLLATIONS", "COLUMN", "CONSTRAINT", "CREATE", "CROSS",
        "CURRENT_DATE", "CURRENT_SCHEMA", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER",
        "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT", "EXECUTE", "FALSE", "FETCH", "FILTER",
        "FOR", "FOREIGN", "FROM", "FULL", "GRANT", "GROUP", "HAVING", "IN", "INNER",
        "INTERSECT", "INTO", "IS", "JOIN", "LATERAL", "LEADING", "LEFT", "LOCALTIME", "NATURAL",
        "NOT", "NULL", "OFFSET", "ON", "ONLY", "OR", "ORDER", "OUTER", "OVERLAPS", "PRIMARY",
        "RECURSIVE", "REFERENCES", "RIGHT", "SELECT", "SESSION_USER", "SOME", "SQL", "TABLE",
        "THEN", "TIME", "TO", "TRAILING", "TRUE", "UNION", "UNIQUE", "UNKNOWN", "USER", "USING",
        "WHEN", "WHERE", "WITH", "WITHIN",
    }
)  # fmt: skip
#: Functions whose arguments have a special grammar, which is not supported.
FUNCTIONS_OF_GRAMMAR = frozenset(
    {
        "ANY_VALUE", "EXISTS", "FIRST", "IDENTIFIER", "LAST", "OVERLAY", "POSITION", "STRUCT",
        "TIMEDIFF", "TIMESTAMPADD", "TIMESTAMPDIFF",
    }
)  # fmt: skip
#: Words that are functions of the session if no column has their name.
CURRENT = frozenset(
    {
        "CURRENT_DATE", "CURRENT_SCHEMA", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER",
        "SESSION_USER", "USER",
    }
)  # fmt: skip
#: Words that begin a query after a bracket, unless one of the signs follows.
QUERY_WORDS = ("FROM", "MAP", "REDUCE", "SELECT", "TABLE", "VALUES", "WITH")
SIGNS_AFTER_NAME = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", ")", ",", ".")
#: Words that stand between or after operands.
BETWEEN_OPERANDS = frozenset(
    {"AND", "OR", "IS", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV"}
)
#: The word before a string, and the detail of the node `literal`.
LITERAL_TYPES = {
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp_ltz",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "X": "x",
}
DECIMAL_TYPES = ("DECIMAL", "DEC", "NUMERIC")
#: Types of pylance's literals with a size, such as ``DECIMAL(5, 3) '1.5'``.
SIZED_LITERALS = (*DECIMAL_TYPES, "DATETIME", "TIMESTAMP")
#: Functions whose arguments can be separated by words.
FUNCTIONS_WITH_WORDS = ("EXTRACT", "SUBSTR", "SUBSTRING", "TRIM")
EXTRACT_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE")
TRIM_FUNCTIONS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
#: The operator of the node for each spelling of a comparison.
COMPARISONS = {
    "=": "=",
    "==": "=",
    "<=>": "<=>",
    "<>": "!=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    "!>": "<=",
    ">": ">",
    ">=": ">=",
    "!<": ">=",
}
#: Precedence of the binary operators; operators of equal precedence are evaluated from left to
#: right.
PRECEDENCE: dict[str, int] = {
    **dict.fromkeys(COMPARISONS, 1),
    "|": 2,
    "^": 3,
    "&": 4,
    **dict.fromkeys(("<<", ">>", ">>>"), 5),
    **dict.fromkeys(("+", "-", "||"), 6),
    **dict.fromkeys(("*", "/", "%", "DIV"), 7),
}


@dataclass(frozen=True, slots=True)
class SqlNode:
    """A part of the text.

    - `offset`: Its first character in the text.
    - `depth`: Levels of the tree below the node, itself included.
    """

    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Name(SqlNode):
    """A column, or a child of a struct: the names from the top-level column down."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value(SqlNode):
    """A literal."""

    typed: Typed


@dataclass(frozen=True, slots=True)
class Apply(SqlNode):
    """An operator or a function.

    - `op`: `and or not = <=> != < <= > >= + - * / % div | ^ & << >> >>> || negative positive ~ in
      between is cast try_cast like ilike rlike literal interval case`, or `call`.
    - `detail`: For `cast` the type; for `like` and `ilike` the escape character; for `is` the word
      after IS; for `call` the name in lower case; for `literal` a value of `LITERAL_TYPES`; for
      `interval` the text, whether it is negative, and its units or None; for `case` whether it has
      a value and an ELSE.
    """

    op: str
    args: tuple[SqlNode, ...]
    detail: Any = None


# --------------------------------------------------------------------------------------------------
# Literals: numbers, and strings with a prefix such as ``DATE '2024-01-31'``. Casts of operands.

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIME": TIME,
    "TIMESTAMP_LTZ": INSTANT,
    "TIMESTAMP_NTZ": CLOCK,
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VOID": pa.null(),
}
_INTEGERS = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}
_LARGEST_FLOAT = Decimal(2**128 - 2**104)
_LARGEST_DOUBLE = Decimal(2**1024 - 2**970)
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
#: Types that are also functions of one argument, which cast it.
CAST_FUNCTIONS: dict[str, pa.DataType] = {
    **{name.lower(): dtype for name, dtype in TYPES.items() if name.lower() not in _NOT_FUNCTIONS},
    # Unlike the type of a cast, the function `timestamp` has a zone under every setting.
    "timestamp": INSTANT,
    "decimal": pa.decimal128(10, 0),
}
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


def typed_number(text: str, suffix: str, settings: SqlSettings) -> Typed:
    """Return the literal of a number.

    - `text`: The digits, with or without a sign.
    - `suffix`: In upper case; empty for none.

    Raises TypeError: the number does not fit its type, or has more digits than any type.
    """
    number = Decimal(text)
    is_whole = not set(text) & set(".eE")
    if suffix in _INTEGERS:
        dtype = _INTEGERS[suffix]
        limit = 1 << dtype.bit_width - 1
        if not -limit <= number < limit:
            raise TypeError(f"the number does not fit its suffix {suffix}")
        return Typed(int(number), dtype, True)
    if suffix == "" and is_whole:
        # The size is checked first, because Python is slow to parse an integer of many digits.
        return decimal(number) if number.adjusted() > 18 else integer(int(number))
    if suffix in ("F", "D") or (
        suffix == "" and set(text) & set("eE") and not settings.exponent_literals_as_decimals
    ):
        largest = _LARGEST_FLOAT if suffix == "F" else _LARGEST_DOUBLE
        # Unlike `abs`, it does not round, which raises an error for huge exponents.
        if number.copy_abs() > largest:
            raise TypeError("the number is too large for its type")
        if suffix == "F":
            return Typed(to_float32(number), pa.float32(), True)
        return Typed(float(text), pa.float64(), True)
    exponent = number.as_tuple().exponent
    if settings.negative_scale and isinstance(exponent, int) and exponent > 0:
        raise TypeError(
            "decimals with a negative scale are not read; write the digits, or set "
            "spark.sql.legacy.allowNegativeScaleOfDecimal=false"
        )
    return decimal(number)


def typed_literal(prefix: str, text: str, settings: SqlSettings) -> Typed:
    """Return the literal of a string with a prefix.

    - `prefix`: A value of `syntax.LITERAL_TYPES`.

    Raises NoCommonTypeError, CastError.
    """
    if prefix == "x":
        return _bytes(text)
    if prefix == "time" and _FINE_TIME.search(text):
        # Releases of Spark give such a literal different types.
        raise NoCommonTypeError("write at most six digits after the second of a TIME")
    dtypes = {"date": pa.date32(), "time": TIME, "timestamp_ntz": CLOCK}
    dtype = dtypes.get(prefix, INSTANT)
    if prefix == "timestamp" and settings.timestamp_type == "TIMESTAMP_NTZ":
        dtype = INSTANT if has_zone(text) else CLOCK
    return cast(Typed(text, pa.string(), True), dtype, settings)


def _bytes(text: str) -> Typed:
    try:
        # `fromhex` skips white space, which Spark does not.
        if text and not text.isalnum():
            raise ValueError(text)
        data = bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}")
    except ValueError:
        raise NoCommonTypeError("X'...' must have hexadecimal digits") from None
    return Typed(data, pa.binary(), True)


def cast_to(
    operand: Operand, dtype: pa.DataType, settings: SqlSettings, *, null_if_failed: bool = False
) -> Operand:
    """Return an operand cast to a type. A column stays a column if the cast keeps every value.

    - `null_if_failed`: Whether it is a ``TRY_CAST``.

    Raises NoCommonTypeError, CastError, EvaluationError.
    """
    if isinstance(operand, Column):
        source = coercion.type_of(operand)
        if source.equals(dtype):
            return operand
        if dtype in _WIDER.get(source, ()) or (
            pat.is_decimal(source)
            and pat.is_decimal(dtype)
            and source.scale <= dtype.scale
            and source.precision - source.scale <= dtype.precision - dtype.scale
        ):
            return Column(operand.path, dtype)
    value = casted(computed.value_of(operand), dtype, settings, null_if_failed=null_if_failed)
    return computed.operand_of(value)


# --------------------------------------------------------------------------------------------------
# The parser of the names of types, as in ``CAST(value AS decimal(5, 3))``.


class TypeParser(TokenCursor):
    """Base class of the parser.

    - `pylance_dialect`: Whether types and literals of pylance are allowed.
    """

    def __init__(self, text: str, settings: SqlSettings, pylance_dialect: bool = False) -> None:
        super().__init__(text, settings)
        self._pylance_dialect = pylance_dialect

    def _type(self) -> pa.DataType:
        token = self._next()
        word = token.upper
        sizes: list[int] = []
        if self._current.is_sign("("):
            self._index += 1
            while not sizes or self._accept(","):
                size = self._next()
                if size.category != "number" or size.suffix or not size.value.isdigit():
                    raise self._error("expected a number of digits", size.offset)
                sizes.append(int(size.value[:9]))
            self._expect(")")
        if word in DECIMAL_TYPES and len(sizes) <= 2:
            precision, scale = (*sizes, *(10, 0)[len(sizes) :])[:2]
            if 0 < precision <= 38 and scale <= precision:
                return pa.decimal128(precision, scale)
        elif word in ("VARCHAR", "CHAR", "CHARACTER") and len(sizes) == 1:
            return pa.string()
        elif word == "DATETIME" and self._pylance_dialect and sizes in ([], [6]):
            return CLOCK
        elif word == "TIMESTAMP" and (not sizes or (self._pylance_dialect and sizes == [6])):
            return CLOCK if self._settings.timestamp_type == "TIMESTAMP_NTZ" else INSTANT
        elif word == "TIME" and sizes not in ([], [6]):
            raise self._error(
                "times have six digits after the second here; write TIME", token.offset
            )
        elif word in TYPES and (not sizes or word == "TIME"):
            return TYPES[word]
        raise self._error(
            "expected a type that a value can be cast to, such as int, double or date", token.offset
        )


# --------------------------------------------------------------------------------------------------
# The parser of Spark's boolean expressions, after the rules of its SqlBaseParser.g4.

#: Most levels of a tree. Each level takes some recursive calls in parsing, binding and evaluation.
MAX_DEPTH = 100
_NUMBER = re.compile(r"\s*[+-]?[0-9]+(?:\.[0-9]*)?\s*")


def parse(text: str, settings: SqlSettings, *, pylance_dialect: bool = False) -> SqlNode:
    """Return the syntax tree of a text; if `pylance_dialect`, with literals of pylance.

    Raises InvalidInputError: the text is not one expression, or has more than `MAX_DEPTH` levels.
    """
    try:
        return _Parser(text, settings, pylance_dialect).parse()
    except RecursionError:
        raise InvalidInputError(f"filter {shown(text)}: the nesting is too deep") from None


class _Parser(TypeParser):
    def __init__(self, text: str, settings: SqlSettings, pylance_dialect: bool = False) -> None:
        super().__init__(text, settings, pylance_dialect)
        self._level = 0

    def parse(self) -> SqlNode:
        if len(self._tokens) == 1:
            raise self._error("the text is empty; expected a condition")
        node = self._logic()
        if self._current.category != "end":
            raise self._error("expected AND, OR, an operator or the end", word_hint=True)
        return node

    def _apply(self, offset: int, op: str, args: Sequence[SqlNode], detail: object = None) -> Apply:
        depth = 1 + max((arg.depth for arg in args), default=0)
        if depth > MAX_DEPTH:
            raise self._too_deep(offset)
        return Apply(offset, depth, op, tuple(args), detail)

    # OR, AND, NOT

    def _logic(self, inside_and: bool = False) -> SqlNode:
        """Parse a condition; if `inside_and`, without OR and AND."""
        self._enter()
        offset = self._current.offset
        if inside_and:
            node = self._negation()
        else:
            alternatives = [self._chain(offset, "and", self._conjuncts())]
            while self._accept_word("OR"):
                start = self._current.offset
                alternatives.append(self._chain(start, "and", self._conjuncts()))
            node = self._chain(offset, "or", alternatives)
        self._level -= 1
        return node

    def _enter(self) -> None:
        self._level += 1
        if self._level > MAX_DEPTH:
            raise self._too_deep(self._current.offset)

    def _too_deep(self, offset: int) -> InvalidInputError:
        return error(self._text, offset, f"the predicate has more than {MAX_DEPTH} levels")

    def _conjuncts(self) -> list[SqlNode]:
        parts = [self._logic(inside_and=True)]
        while self._accept_word("AND"):
            parts.append(self._logic(inside_and=True))
        return parts

    def _chain(self, offset: int, op: str, parts: list[SqlNode]) -> SqlNode:
        return parts[0] if len(parts) == 1 else self._apply(offset, op, parts)

    def _negation(self) -> SqlNode:
        offsets: list[int] = []
        while self._current.is_sign("!") or self._is_not():
            offsets.append(self._next().offset)
        node = self._predicate()
        for offset in reversed(offsets):
            node = self._apply(offset, "not", [node])
        return node

    def _is_not(self) -> bool:
        """Return whether the current word is the operator NOT, and not a column of that name."""
        return self._current.upper == "NOT" and _begins_operand(self._peek())

    # Predicates

    def _predicate(self) -> SqlNode:
        """Parse a value, and a predicate such as IS NULL or IN (...) after it."""
        offset = self._current.offset
        left = self._value(1)
        current, index_of_not = self._current, self._index
        inverted = self._accept_word("NOT")
        if not inverted and current.is_sign("!") and self._peek().upper in BETWEEN_OPERANDS:
            if not self._settings.bang_equals_not:
                raise self._error("! must be before a condition; write NOT here")
            inverted = self._accept("!")
        node = self._is(offset, left) if not inverted and self._accept_word("IS") else None
        if node is None:
            node = self._suffix(offset, left, inverted)
        if node is None:
            if inverted:
                self._index = index_of_not
            return left
        return self._apply(offset, "not", [node]) if inverted else node

    def _suffix(self, offset: int, left: SqlNode, inverted: bool) -> SqlNode | None:
        if self._accept_word("BETWEEN"):
            low = self._value(1)
            self._expect_word("AND")
            return self._apply(offset, "between", [left, low, self._value(1)])
        if self._accept_word("IN"):
            self._expect("(")
            self._refuse_query()
            return self._apply(offset, "in", [left, *self._arguments()])
        if self._accept_word("RLIKE", "REGEXP"):
            return self._apply(offset, "rlike", [left, self._value(1)])
        for word in ("LIKE", "ILIKE"):
            if self._accept_word(word):
                return self._like(offset, word.lower(), left, inverted)
        return None

    def _like(self, offset: int, op: str, left: SqlNode, inverted: bool) -> SqlNode:
        quantifier = self._current.upper
        if quantifier in ("ANY", "SOME", "ALL") and self._peek().is_sign("("):
            self._index += 2
            parts = [
                self._apply(offset, op, [left, pattern], "\\") for pattern in self._arguments()
            ]
            # NOT LIKE ANY is true if one pattern does not match, which is NOT (LIKE ALL).
            is_all = (quantifier == "ALL") is not inverted
            return self._chain(offset, "and" if is_all else "or", [*parts])
        pattern, escape = self._value(1), "\\"
        if self._accept_word("ESCAPE"):
            token = self._next()
            if token.category != "string" or len(token.value) != 1:
                raise self._error("expected a string of one character after ESCAPE", token.offset)
            escape = token.value
        return self._apply(offset, op, [left, pattern], escape)

    def _is(self, offset: int, left: SqlNode) -> SqlNode:
        inverted = self._accept_word("NOT")
        word = self._next()
        if word.upper == "DISTINCT":
            self._expect_word("FROM")
            equal = self._apply(offset, "<=>", [left, self._value(1)])
            return equal if inverted else self._apply(offset, "not", [equal])
        if word.upper not in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            raise self._error("expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", word.offset)
        node = self._apply(offset, "is", [left], word.upper)
        return self._apply(offset, "not", [node]) if inverted else node

    def _arguments(self, end: str = ")") -> list[SqlNode]:
        """Parse expressions separated by commas, and the closing bracket."""
        arguments: list[SqlNode] = []
        while not arguments or self._accept(","):
            # Lists of thousands of literals are common.
            is_literal = self._current.category in ("number", "string")
            is_short = is_literal and self._peek().is_sign(",", end) and self._level < MAX_DEPTH - 1
            arguments.append(self._operand() if is_short else self._logic())
        self._expect(end)
        return arguments

    # Values

    def _value(self, min_precedence: int) -> SqlNode:
        offset = self._current.offset
        signs: list[Token] = []
        while self._current.is_sign("-", "+", "~"):
            if self._current.value == "-" and self._peek().category == "number":
                break
            signs.append(self._next())
        node = self._primary()
        for sign in reversed(signs):
            op = {"-": "negative", "+": "positive", "~": "~"}[sign.value]
            node = self._apply(sign.offset, op, [node])
        while True:
            current = self._current
            op = current.value if current.category == "sign" else current.upper
            precedence = PRECEDENCE.get(op, 0) if current.category in ("sign", "word") else 0
            if precedence < min_precedence:
                return node
            self._index += 1
            right = self._value(precedence + 1)
            name = COMPARISONS.get(op, op.lower())
            node = self._apply(offset, name, [node, right])

    def _primary(self) -> SqlNode:
        node = self._operand()
        while True:
            if self._current.is_sign(".") and isinstance(node, Name):
                self._index += 1
                node = Name(node.offset, 1, (*node.parts, self._name()))
            elif self._current.is_sign("[") and isinstance(node, Name):
                self._index += 1
                if self._current.category != "string" or not self._peek().is_sign("]"):
                    raise self._error("expected the name of a struct's child in quotes, and ]")
                node = Name(node.offset, 1, (*node.parts, self._next().value))
                self._index += 1
            elif self._accept("::"):
                node = self._apply(node.offset, "cast", [node], self._type())
            elif self._current.upper == "COLLATE" and self._peek().category in ("word", "name"):
                raise self._error("collations are not supported in a predicate")
            else:
                return node

    def _operand(self) -> SqlNode:
        token = self._next()
        if token.category == "number":
            return self._number(token, "")
        if token.is_sign("-"):
            return self._number(self._next(), "-", token.offset)
        if token.category == "string":
            text = token.value
            while self._current.category == "string":
                text += self._next().value
            return Value(token.offset, 1, Typed(text, pa.string(), True))
        if token.is_sign("("):
            self._refuse_query()
            node = self._logic()
            if self._current.is_sign(","):
                raise self._error("rows of several values are not supported in a predicate")
            self._expect(")")
            return node
        if token.is_sign("["):
            # As Lance's other filters write arrays; Spark has no such literals.
            return self._array(token)
        if token.category == "name":
            return Name(token.offset, 1, (token.value,))
        if token.category == "word":
            return self._word(token)
        self._index -= token.category != "end"
        if token.is_sign("?", ":"):
            raise self._error("parameters have no value here; write the literal")
        raise self._error("expected a column, a literal or a bracket", token.offset, word_hint=True)

    def _array(self, token: Token) -> SqlNode:
        """Parse the items of an array in square brackets."""
        items = [] if self._accept("]") else self._arguments("]")
        return self._apply(token.offset, "call", items, "array")

    def _refuse_query(self) -> None:
        """Refuse a subquery. Spark reads also ``(values IN (1))`` as one, not as a column."""
        word, after = self._current, self._peek()
        if (
            word.category != "word"
            or word.upper not in QUERY_WORDS
            or after.is_sign(*SIGNS_AFTER_NAME)
        ):
            return
        if after.category != "end":
            raise self._error(
                f"{word.value} begins a subquery, which is not supported in a predicate; if "
                f"{word.value} is a column, write `{word.value}` with backticks"
            )

    def _word(self, token: Token) -> SqlNode:
        word, current = token.upper, self._current
        if self._pylance_dialect and word == "ARRAY" and self._accept("["):
            return self._array(token)
        if self._pylance_dialect and current.is_sign("(") and word in SIZED_LITERALS:
            literal = self._sized_literal(token)
            if literal is not None:
                return literal
        if current.is_sign("("):
            return self._call(token)
        if word in ("NULL", "TRUE", "FALSE"):
            if word == "NULL":
                return Value(token.offset, 1, Typed(None, pa.null(), True))
            return Value(token.offset, 1, Typed(word == "TRUE", pa.bool_(), True))
        if word == "INTERVAL" and (
            current.category in ("string", "number") or current.is_sign("-", "+")
        ):
            return self._interval(token)
        if current.category == "string":
            if word not in LITERAL_TYPES:
                raise self._error(
                    f"the type of a literal must be one of {', '.join(LITERAL_TYPES)}, not "
                    f"{token.value}",
                    token.offset,
                    word_hint=True,
                )
            self._index += 1
            text = Value(current.offset, 1, Typed(current.value, pa.string(), True))
            return self._apply(token.offset, "literal", [text], LITERAL_TYPES[word])
        if (
            word == "CASE"
            and (current.upper == "WHEN" or _begins_operand(current))
            and (current.upper not in BETWEEN_OPERANDS)
        ):
            return self._case(token)
        if word == "CURRENT_PATH":
            raise self._error(
                "CURRENT_PATH is a function since Spark 4.3", token.offset, word_hint=True
            )
        self._check_reserved(token)
        return Name(token.offset, 1, (token.value,))

    def _sized_literal(self, token: Token) -> SqlNode | None:
        """Parse a literal such as ``DECIMAL(5, 3) '1.5'``; return None if it is a function."""
        end = self._index
        while self._tokens[end].category in ("number", "sign") and not (
            self._tokens[end].is_sign(")")
        ):
            end += 1
        # The last token is the end of the text.
        if not self._tokens[end].is_sign(")") or self._tokens[end + 1].category != "string":
            return None
        self._index -= 1
        target, text = self._type(), self._next()
        value = Value(text.offset, 1, Typed(text.value, pa.string(), True))
        return self._apply(token.offset, "cast", [value], target)

    def _interval(self, token: Token) -> SqlNode:
        """Parse the rest of INTERVAL.

        It is numbers with units, a string of these, or a string and a range of units.
        """
        parts: list[str] = []
        while not parts or self._current.category in ("number", "string"):
            sign = self._next().value if self._current.is_sign("-", "+") else ""
            number = self._next()
            if number.category not in ("string", "number") or number.suffix:
                raise self._error(
                    "expected a number and a unit, as in INTERVAL 3 DAYS", number.offset
                )
            if number.category == "string" and self._peek().upper == "TO" and not parts:
                return self._interval_between(token, sign, number.value)
            if number.category == "string" and not _NUMBER.fullmatch(number.value):
                if sign or parts:
                    raise self._error(
                        "write the sign of an interval inside its string", number.offset
                    )
                return self._apply(token.offset, "interval", (), (number.value, False, None))
            unit = self._next()
            value = number.value.strip()
            if unit.category != "word" or (sign and value[0] in "+-"):
                raise self._error("expected a unit, as in INTERVAL 3 DAYS", unit.offset)
            # A sign after the unit is an operator, and ends the interval.
            parts.append(f"{sign}{value} {unit.value}")
        return self._apply(token.offset, "interval", (), (" ".join(parts), False, None))

    def _interval_between(self, token: Token, sign: str, text: str) -> SqlNode:
        """Parse the units after a string, as in ``INTERVAL '1 02:03:04' DAY TO SECOND``."""
        largest = self._next().upper
        self._expect_word("TO")
        units = (largest.lower(), self._next().upper.lower())
        return self._apply(token.offset, "interval", (), (text, sign == "-", units))

    def _case(self, token: Token) -> SqlNode:
        """Parse the rest of CASE, up to END."""
        self._enter()
        parts = [] if self._current.upper == "WHEN" else [self._logic()]
        has_value = bool(parts)
        while self._accept_word("WHEN"):
            parts.append(self._logic())
            self._expect_word("THEN")
            parts.append(self._logic())
        if len(parts) < 2:
            raise self._error(
                f"expected WHEN; if {token.value} is a column, write `{token.value}` with backticks"
            )
        has_otherwise = self._accept_word("ELSE")
        if has_otherwise:
            parts.append(self._logic())
        self._expect_word("END")
        self._level -= 1
        return self._apply(token.offset, "case", parts, (has_value, has_otherwise))

    def _check_reserved(self, token: Token) -> None:
        enforced = self._settings.ansi and self._settings.reserved_keywords
        if enforced and token.upper in RESERVED:
            raise error(
                self._text,
                token.offset,
                f"{token.value} is a reserved word with spark.sql.ansi.enforceReservedKeywords; "
                f"write `{token.value}` with backticks",
            )

    def _name(self) -> str:
        token = self._next()
        if token.category not in ("word", "name"):
            raise self._error("expected the name of a struct's child", token.offset)
        if token.category == "word":
            self._check_reserved(token)
        return token.value

    def _call(self, token: Token) -> SqlNode:
        word = token.upper
        if word in ("CAST", "TRY_CAST"):
            self._index += 1
            inner = self._logic()
            self._expect_word("AS")
            target = self._type()
            self._expect(")")
            return self._apply(token.offset, word.lower(), [inner], target)
        if word in FUNCTIONS_WITH_WORDS:
            return self._call_with_words(token)
        if word in FUNCTIONS_OF_GRAMMAR:
            raise self._error(
                f"{token.value}(...) is not supported in a predicate", token.offset, word_hint=True
            )
        self._index += 1
        arguments = [] if self._accept(")") else self._arguments()
        return self._apply(token.offset, "call", arguments, word.lower())

    def _call_with_words(self, token: Token) -> SqlNode:
        """Parse a function with words between its arguments: ``substring(a FROM 2 FOR 3)``."""
        self._index += 1
        name, part = token.upper, self._current.upper
        if name == "EXTRACT":
            if part not in EXTRACT_PARTS or self._peek().upper != "FROM":
                raise self._error(f"expected one of {', '.join(EXTRACT_PARTS)}, and FROM")
            self._index += 2
            return self._apply(token.offset, "call", self._arguments(), part.lower())
        if name == "TRIM" and part in TRIM_FUNCTIONS and self._peek().upper == "FROM":
            self._index += 2
            return self._apply(token.offset, "call", self._arguments(), TRIM_FUNCTIONS[part])
        arguments = [self._logic()]
        if self._current.upper == "FROM":
            if name == "TRIM":
                raise self._error("trimming of characters other than spaces is not supported")
            while self._accept_word("FROM" if len(arguments) == 1 else "FOR"):
                arguments.append(self._logic())
            self._expect(")")
        elif self._accept(","):
            arguments += self._arguments()
        else:
            self._expect(")")
        if (name == "TRIM") is not (len(arguments) == 1):
            raise self._error(f"{token.value} is not supported with these arguments", token.offset)
        return self._apply(token.offset, "call", arguments, name.lower())

    def _number(self, token: Token, sign: str, offset: int | None = None) -> SqlNode:
        try:
            typed = typed_number(sign + token.value, token.suffix, self._settings)
        except (TypeError, InvalidOperation, OverflowError, ValueError) as reason:
            message = str(reason) if isinstance(reason, TypeError) else "not a number in Spark"
            raise error(self._text, token.offset, message) from None
        return Value(token.offset if offset is None else offset, 1, typed)


def _begins_operand(token: Token) -> bool:
    if token.category == "sign":
        return token.value in ("(", "-", "+", "~", "!")
    return token.category != "end"
