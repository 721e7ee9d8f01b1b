"""Literals have the value and the type of Spark, in sessions with several settings."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql.binding import _Binder
from lance_spark.predicates.sql.grammar import parse
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.typed_literals import Typed, type_name

ZONE = "America/New_York"
LITERALS = r"""
'a''b'|'a' 'b'|r'a''b'|'a' "b"|"a""b"|"a'b"|'a"b'|'\x41\u0041\U00000041\101\t\0\Z\%\_\q'|'\u004'
'\U0001F600'|'\ud83d\ude00'|'\400'|'\08'|r'\n'|R"a\b"|'a\'b'|''|''''|'\\'|'a\
b'|x'1F2'|X''|1.5|0.1|00.10|.5|5.|1e5|1E5BD|1.0E-5BD|99999999999|99999999999999999999
1234567890123456789012345678901234567.8|1.5F|0.1f|16777217F|1e-400|-128Y|- 128Y|32767S|-9223372036854775808
9223372036854775807L|2147483648|-2147483648|1d|1BD|1.d|1.e2|+1|+ -1|- -1|-1::int|~1|7 div 2|-7 div 2|-7 % 3
1.5+2|1.5*2.5|1/3|1e0/3|1 + 2L|1Y + 1Y|1.5D + 1.5BD|2.5F*3|-7.5D % 2|'a' || 'b'
1 = 1 = true|not true and false|! true|1 !> 2|1 <=> null|1 is distinct from 2|null is unknown|1 = 2 is null
null = 1|null in (1)|1 in (2, null)|1 in (1, null)|1 not in (2, null)|1.0 = 1|1 = '1'|0.1 = 0.1D|0.1F = 0.1
'1' in (1, 2)|double('NaN') = double('NaN')|-0.0D = 0.0|1 between 0 and 2 and true|X'61' = 'a'|true = 'yes'
DATE '2024-1-1'|DATE'2024'|DATE ' 2024-01-01 '|DATE '2024-01-01T10'|DATE '2024-01-01 foo'
TIMESTAMP '2024-01-01'|TIMESTAMP '2024-01-01 10'|TIMESTAMP '2024-01-01 10:30'|TIMESTAMP '2024-01-01 10:30:15.1234567'
TIMESTAMP '2024-01-01 10:30:15 Europe/Berlin'|TIMESTAMP_NTZ '2024-01-01 10:30:15+01:00'|TIMESTAMP_LTZ '2024-01-01 10:30:15+1:00'
TIMESTAMP '2024-03-10 02:30:00'|TIMESTAMP '2024-11-03 01:30:00'|TIMESTAMP '1883-11-18 12:00:00'
1 /* c /* d */ e */ + 1|cast(1.55 as decimal(3,1))|cast(-1.55 as int)|cast(' 1 ' as int)|cast('1e2' as double)
cast('1d' as double)|cast('inf' as double)|cast('+Infinity' as float)|cast(' nan ' as double)|cast('1e2' as decimal(5,1))
cast(1.5D as int)|cast(true as int)|cast(2 as boolean)|cast(' T ' as boolean)|cast(1 as string)|cast(1.50 as string)
cast(DATE'2024-01-01' as timestamp)|cast(TIMESTAMP'2024-01-01' as date)|int('5')|binary('a')|cast(1 as decimal)
cast(16777217 as float)|cast('0.1' as float)|cast(9007199254740993 as double)|cast(0.1 as float)|cast(null as int)
-- c
1|date('2024-01-31')|timestamp'2024-01-01 00:00:00' = date'2024-01-01'|true is not false
"""
REFUSED = r"""
X'1g'|X'1F' 'a'|1e-40BD|1e40BD|999999999999999999999999999999999999999|12345678901234567890123456789012345678.8|1e39F|1e400
128Y|-(128Y)|32768S|9223372036854775808L|1._|2147483647+1|127Y+1Y|1 ! in (1)|VARCHAR 'a'|`a|1 /*+ x */|1 /* x
true.x|cast('1.5' as int)|cast('１' as int)|cast('1e2' as int)|cast(1e20 as int)|cast(double('nan') as int)|cast(300 as tinyint)
cast('2' as boolean)|cast(1 as date)|cast('x' as date)|1 = true|1/0|'a|"a|1 +|(1|1)|1 2|DATE '2024-02-30'
"""
SETTINGS = [
    {},
    {"spark.sql.parser.escapedStringLiterals": "true"},
    {"spark.sql.legacy.consecutiveStringLiterals.enabled": "true"},
    {"spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true"},
    {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
]


def literals(block: str) -> list[str]:
    # A text may continue on the next line: quotes mark these texts.
    joined = block.strip().replace("\\\nb'", "\\\x01b'").replace("-- c\n1", "-- c\x011")
    texts = itertools.chain.from_iterable(
        line.split("|") for line in joined.replace("'a' || 'b'", "\x02").split("\n")
    )
    return [text.replace("\x01", "\n").replace("\x02", "'a' || 'b'") for text in texts]


def ours(text: str, settings: SqlSettings) -> tuple[str, Any]:
    """Return the type and the Python value of a literal."""
    binder = _Binder(text, Schema.from_arrow(pa.schema({})), settings)
    result = binder.operand(parse(text, settings))
    if not isinstance(result, Typed):
        (batch,) = pa.table({"x": [0]}).to_batches()
        return "boolean", result.evaluate(batch)[0].as_py()  # type: ignore[union-attr]
    value = pa.array([result.value], result.dtype)[0].as_py()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return type_name(result.dtype), value


@pytest.mark.parametrize("conf", SETTINGS, ids=lambda conf: "".join(conf).rpartition("sql.")[2])
def test_values(spark: SparkSession, conf: dict[str, str]) -> None:
    texts = literals(LITERALS)
    if "spark.sql.parser.escapedStringLiterals" in conf:
        # Without escapes, some of these texts are no literals.
        texts = [text for text in texts if not text.startswith(("r'", 'R"')) and "\\'" not in text]
    if "spark.sql.legacy.exponentLiteralAsDecimal.enabled" in conf:
        texts = ["1e5", "1.5e-3", "1.e2", "1E5BD", "1e0D", "2e-1F", "-1e3", "1e1 = 10"]
    if "spark.sql.timestampType" in conf:
        texts = [text for text in texts if "imestamp" in text.lower()]
    for name, value in {**conf, "spark.sql.session.timeZone": ZONE}.items():
        spark.conf.set(name, value)
    try:
        columns = ", ".join(
            f"typeof({text}\n) t{at}, {text}\n v{at}" for at, text in enumerate(texts)
        )
        frame = spark.sql(f"select {columns}")
        (row,) = frame.toArrow().to_pylist()
    finally:
        for name in (*conf, "spark.sql.session.timeZone"):
            spark.conf.unset(name)
    settings = SqlSettings.from_conf({**conf, "spark.sql.session.timeZone": ZONE})
    wrong = []
    for at, text in enumerate(texts):
        value = row[f"v{at}"]
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        wanted, result = (row[f"t{at}"], value), ours(text, settings)
        # NaN is not equal to itself, and both zeros are.
        if repr(result) != repr(wanted):
            wrong.append((text, result, wanted))
    assert wrong == []


def test_texts_that_spark_refuses(spark: SparkSession) -> None:
    for text in literals(REFUSED):
        with pytest.raises(InvalidInputError):
            ours(text, SqlSettings(time_zone=ZONE))
        with pytest.raises(Exception, match=r".*"):
            spark.sql(f"select {text}\n").collect()


def test_quoted_names(spark: SparkSession) -> None:
    settings = SqlSettings(double_quoted_identifiers=True)
    assert ours("'a' = 'a'", settings) == ("boolean", True)
    with pytest.raises(InvalidInputError, match="column a not found"):
        ours('"a" = 1', settings)


def test_variables_of_the_session_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"spark\.sql\.variable\.substitute"):
        ours("'${a}' = 'x'", SqlSettings())
    assert ours("'${a}' = '${a}'", SqlSettings(variable_substitution=False)) == ("boolean", True)
