"""Keywords and operators of Spark's SQL that are special in a predicate."""

from __future__ import annotations

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
#: Precedence of the binary operators; equal ones are evaluated from left to right.
PRECEDENCE: dict[str, int] = {
    **dict.fromkeys(COMPARISONS, 1),
    "|": 2,
    "^": 3,
    "&": 4,
    **dict.fromkeys(("<<", ">>", ">>>"), 5),
    **dict.fromkeys(("+", "-", "||"), 6),
    **dict.fromkeys(("*", "/", "%", "DIV"), 7),
}
