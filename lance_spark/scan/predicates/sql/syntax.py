"""The syntax of a predicate: keywords and operators, and the nodes of a syntax tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lance_spark.scan.predicates.typed_values import Typed

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
