"""Predicates from text: what ``WHERE`` takes in Spark's SQL, as far as it is about columns and literals.

A text is read by Spark's own rules, of its lexer (`tokens`), its grammar (`grammar`) and its analyzer (`binding`), and means what it
means in a session with some settings (`SqlSettings`). docs/reference/options.md has the language in words. What is not
understood is refused with the place in the text.
"""

from __future__ import annotations

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates.sql_settings import DEFAULTS, SPARK_NAMES, SqlSettings
from lance_spark.scan.predicates.tree import Predicate

__all__ = ["SPARK_NAMES", "SqlSettings", "parse_predicate"]


def parse_predicate(text: str, schema: Schema, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the predicate that a text says.

    Parameters
    ----------
    text : str
        A condition of Spark's SQL, as in ``WHERE``.
    schema : Schema
        Of the table.
    settings : SqlSettings, optional
        Of the session whose text it is. Without, Spark's defaults.

    Raises
    ------
    InvalidInputError
        It is not a predicate, not one on the table's columns, or one that is not understood here.

    Examples
    --------
    >>> parse_predicate("name = 'O''Brien' AND NOT age < 18", schema)  # doctest: +SKIP
    """
    from lance_spark.scan.predicates.sql.binding import bind
    from lance_spark.scan.predicates.sql.grammar import parse

    if settings.quoted_regex_columns:
        raise InvalidInputError(
            "filter: with spark.sql.parser.quotedRegexColumnNames=true names in backticks are "
            "patterns, which are not read here; set it to false"
        )
    try:
        return bind(parse(text, settings), text, schema, settings)
    except RecursionError:
        raise InvalidInputError(f"filter {text[:200]!r}: it is nested too deep") from None
