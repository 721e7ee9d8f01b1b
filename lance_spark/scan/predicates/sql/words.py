"""Keywords of Spark's SQL that are special where a predicate has a name or a function."""

from __future__ import annotations

#: Words that are no names without backticks where spark.sql.ansi.enforceReservedKeywords is true.
RESERVED = frozenset(
    {
        "ALL", "AND", "ANY", "AS", "AUTHORIZATION", "BOTH", "CALL", "CASE", "CAST", "CHECK",
        "COLLATE", "COLLATION", "COLLATIONS", "COLUMN", "CONSTRAINT", "CREATE", "CROSS",
        "CURRENT_DATE", "CURRENT_SCHEMA", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER",
        "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT", "EXECUTE", "FALSE", "FETCH", "FILTER",
        "FOR", "FOREIGN", "FROM", "FULL", "GRANT", "GROUP", "HAVING", "IN", "INNER",
        "INTERSECT", "INTO", "IS", "JOIN", "LATERAL", "LEADING", "LEFT", "LOCALTIME", "NATURAL", "NOT",
        "NULL", "OFFSET", "ON", "ONLY", "OR", "ORDER", "OUTER", "OVERLAPS", "PRIMARY",
        "RECURSIVE", "REFERENCES", "RIGHT", "SELECT", "SESSION_USER", "SOME", "SQL", "TABLE",
        "THEN", "TIME", "TO", "TRAILING", "TRUE", "UNION", "UNIQUE", "UNKNOWN", "USER", "USING",
        "WHEN", "WHERE", "WITH", "WITHIN",
    }
)  # fmt: skip
#: Functions whose arguments have a grammar of their own.
FUNCTIONS_OF_GRAMMAR = frozenset(
    {
        "ANY_VALUE", "EXISTS", "FIRST", "IDENTIFIER", "LAST", "OVERLAY", "POSITION", "STRUCT",
        "TIMEDIFF", "TIMESTAMPADD", "TIMESTAMPDIFF",
    }
)  # fmt: skip
#: Words that are functions of the session where no column has their name.
CURRENT = frozenset(
    {
        "CURRENT_DATE", "CURRENT_SCHEMA", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER",
        "SESSION_USER", "USER",
    }
)  # fmt: skip
