"""A keyword without backticks is a column exactly where Spark accepts it as a column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql import parse_predicate
from lance_spark.predicates.sql.grammar import Apply, Name, SqlNode, Value, parse
from lance_spark.predicates.sql_settings import SqlSettings
from tests.support.cells import number_of

#: Each word is tried in one position of sixteen: all of them would take a minute.
STEP = number_of(16, 4)
#: Positions of a word in a condition.
FORMS = [
    *("{w} = 1", "1 = {w}", "NOT {w}", "{w} IS NOT NULL", "{w} AND x", "x OR {w} OR y"),
    *("{w} IN (1)", "x BETWEEN {w} AND 2", "NOT {w} = 1", "{w}.x = 1", "x.{w} = 1", "({w})"),
    *("x = {w} AND y", "!{w}", "-{w} = 1", "{w}::int = 1"),
]
#: A function in one release of Spark only: refused without backticks.
REFUSED = {"CURRENT_PATH"}


def shape(node: SqlNode) -> Any:
    """Return a syntax tree without offsets, and with names in lower case."""
    if isinstance(node, Name):
        return tuple(part.lower() for part in node.parts)
    if isinstance(node, Value):
        return node.typed
    assert isinstance(node, Apply)
    return (node.op, node.detail, *map(shape, node.args))


def ours(text: str, settings: SqlSettings) -> Any:
    try:
        return shape(parse(text, settings))
    except InvalidInputError:
        return None


def keywords(spark: SparkSession) -> list[str]:
    assert spark._jvm is not None
    vocabulary = spark._jvm.org.apache.spark.sql.catalyst.parser.SqlBaseLexer.VOCABULARY
    names = [vocabulary.getSymbolicName(at) for at in range(vocabulary.getMaxTokenType() + 1)]
    result = names[names.index("ADD") : names.index("ZONE") + 1]
    literal = {"BINARY_HEX": "X", "IDENTIFIER_KW": "IDENTIFIER", "PERCENTLIT": "PERCENT"}
    also = ["MINUS", "TEMP", "REGEXP"]
    return [*(literal.get(name, name) for name in result if name != "SETMINUS"), *also]


def test_all_keywords(spark: SparkSession) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]

    def theirs(text: str) -> Any:
        try:
            return parser.parseExpression(text).toString()
        except Exception:
            return None

    words, wrong = keywords(spark), []
    assert len(words) > 400
    for at, word in enumerate(words):
        for form in FORMS[at % STEP :: STEP]:
            plain, quoted = form.format(w=word), form.format(w=f"`{word}`")
            shown = theirs(plain)
            column = shown is not None and shown == theirs(quoted)
            tree = ours(plain, SqlSettings())
            if (tree is not None and tree == ours(quoted, SqlSettings())) != column:
                wrong.append(plain)
    assert [item for item in wrong if not any(word in item for word in REFUSED)] == []


def test_reserved_words(spark: SparkSession) -> None:
    settings = SqlSettings.from_conf({"spark.sql.ansi.enforceReservedKeywords": "true"})
    parser = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    spark.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    try:
        wrong = []
        for word in keywords(spark):
            text = f"{word} = 1"
            try:
                column = parser.parseExpression(text).toString().startswith("('")
            except Exception:
                column = False
            result = ours(text, settings)
            if (
                result is not None and result[1:2] == (None,) and result[2] == (word.lower(),)
            ) != column:
                wrong.append(word)
        assert [word for word in wrong if word not in REFUSED] == []
    finally:
        spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")


@pytest.mark.parametrize(
    "word", ["comment", "values", "set", "load", "update", "desc", "if", "key", "begin", "commit"]
)
def test_keywords_that_are_common_column_names(word: str) -> None:
    schema = Schema.from_arrow(pa.schema({word: pa.int32()}))
    batch = pa.RecordBatch.from_pydict({word: pa.array([1, 2, None], pa.int32())})
    result = parse_predicate(f"{word} = 1 AND NOT {word.upper()} > 1", schema)
    assert result.holds(batch).to_pylist() == [True, False, False]


def test_the_error_suggests_backticks() -> None:
    schema = Schema.from_arrow(pa.schema({"case": pa.int32()}))
    with pytest.raises(InvalidInputError, match="`case` with backticks"):
        parse_predicate("case x = 1", schema)
