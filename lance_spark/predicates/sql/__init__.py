"""Parser of predicates in Spark's SQL, as in ``WHERE``, on columns and literals.

The rules are from Spark's lexer (`tokens`), grammar (`grammar`) and analyzer (`binding`) in a
session with some settings (`SqlSettings`). docs/reference/predicates.md describes the language. An
error has the position in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql_settings import DEFAULTS, LOCAL, SPARK_NAMES, SqlSettings
from lance_spark.predicates.tree import Column, Predicate

if TYPE_CHECKING:
    from lance_spark.predicates.expressions.node import Expression

__all__ = ["SPARK_NAMES", "SqlSettings", "parse_local", "parse_predicate", "parse_value"]


def parse_local(text: str, schema: Schema) -> Predicate:
    """Parse a predicate of a `Dataset`: Spark's SQL in UTC, and functions of pylance (`sql.local`).

    The parameters and errors are those of `parse_predicate`.
    """
    return parse_predicate(text, schema, LOCAL, pylance_dialect=True)


def parse_predicate(
    text: str, schema: Schema, settings: SqlSettings = DEFAULTS, *, pylance_dialect: bool = False
) -> Predicate:
    """Parse a predicate.

    - `text`: A condition of Spark's SQL, as in ``WHERE``.
    - `schema`: Of the table.
    - `settings`: Settings of the Spark session of the text; Spark's defaults if left out.
    - `pylance_dialect`: Whether functions and literals of pylance are allowed.

    Raises InvalidInputError: the text is not a predicate on the table's columns, or has something
    that is not supported.

    Examples
    --------
    >>> parse_predicate("name = 'O''Brien' AND NOT age < 18", schema)  # doctest: +SKIP
    """
    from lance_spark.predicates.sql.binding import bind
    from lance_spark.predicates.sql.grammar import parse

    if settings.quoted_regex_columns:
        raise InvalidInputError(
            "filter: with spark.sql.parser.quotedRegexColumnNames=true names in backticks are "
            "patterns, which are not supported; set it to false"
        )
    try:
        return bind(
            parse(text, settings, pylance_dialect=pylance_dialect),
            text,
            schema,
            settings,
            pylance_dialect=pylance_dialect,
        )
    except RecursionError:
        raise InvalidInputError(f"filter {text[:200]!r}: the nesting is too deep") from None


def parse_value(text: str, schema: Schema) -> Expression | Column:
    """Parse an expression for a value of each row, in the language of `parse_local`.

    Raises InvalidInputError: the text is not an expression on the table's columns, or has something
    that is not supported.
    """
    from lance_spark.predicates.sql.binding import bind_value
    from lance_spark.predicates.sql.grammar import parse

    return bind_value(
        parse(text, LOCAL, pylance_dialect=True), text, schema, LOCAL, pylance_dialect=True
    )
