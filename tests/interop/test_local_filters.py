"""Filters of `Dataset` beside those of pylance: the same rows, or a refusal.

The first list has the filters of pylance's own tests and others that both clients take. The second
has filters that pylance takes and this package refuses by name. The third has those whose meaning
is Spark's here, and another in pylance.
"""

from __future__ import annotations

import datetime
import random
from decimal import Decimal

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql import parse_predicate
from tests.support.cells import number_of

ROWS = 60
#: Random filters.
FILTERS = number_of(150, 10_000)

SAME = [
    *("id >= 50", "str in ('aa', 'bb')", "rec.bool", "rec.bool is not true", "not (id % 5 == 0)"),
    "rec.date = cast('2021-01-01' as date)",
    "rec.dt = cast('2021-01-01 00:00:00' as timestamp(6))",
    "rec.dt = cast('2021-01-01 00:00:00' as timestamp)",
    "rec.dt = cast('2021-01-01 00:00:00' as datetime(6))",
    "rec.dt = cast('2021-01-01 00:00:00' as datetime)",
    "rec.dt = TIMESTAMP '2021-01-01 00:00:00'",
    "rec.dt = TIMESTAMP(6) '2021-01-01 00:00:00'",
    *("rec.date = DATE '2021-01-01'", "cast(rec.date as string) = '2021-01-01'"),
    *("decimal = DECIMAL(5,3) '12.000'", "decimal >= DECIMAL(5,3) '50.000'"),
    *("date <= current_date()", "date <= current_date", "date > today()"),
    *("ts < now()", "tz < now()", "tz < current_timestamp", "ts >= current_timestamp()"),
    "ts BETWEEN timestamp '2024-01-01 00:00:03' AND timestamp '2025-01-01 00:00:07'",
    "to_timestamp('2024-01-01') < ts",
    "date_trunc('month', ts) = timestamp '2024-01-01'",
    *("str LIKE 'a%'", "str NOT LIKE 'a%'", "mixed ILIKE 'APPLE%'", "mixed LIKE 's-1_'"),
    *("regexp_match(str, 'c.+')", "regexp_match(str, 'a|b.')", "not regexp_match(str, 'c.+')"),
    *("regexp_match(str, 'c.+') is not null", "regexp_match(str, 'c.+') is null"),
    *("regexp_match(mixed, '^s-1[0-9]$')", "regexp_match(str, 'c') and id > 30"),
    *("regexp_like(str, 'c.+')", "regexp_like(mixed, 'apple', 'i')", "regexp_like(mixed, 'e$')"),
    *("starts_with(str, 'a')", "ends_with(str, 'a')", "contains(str, 'a')"),
    *("`silly :name` > 1", "`ALLCAPS` > 0", "is_valid(i)", "not is_valid(i)"),
    *("array_has_any(genres, Array['anime', 'adventure'])", "array_contains(genres, 'comedy')"),
    *("array_has_any(genres, ['anime'])", "array_has_all(genres, Array['anime', 'drama'])"),
    *("array_has_any(labels, [1, NULL])", "not array_has_any(labels, [1, NULL])"),
    *("array_has_any(labels, [NULL, 1])", "array_has(genres, 'comedy')"),
    *("list_contains(labels, 1)", "list_has_any(labels, [1])", "list_has_all(labels, [1, 2])"),
    *("array_length(labels) = 2", "cardinality(labels) > 1", "empty(labels)"),
    *("not array_empty(labels)", "list_length(labels) is null", "array_length(labels) + 1 > 2"),
    *("i = -1", "i = 1 * -1", "i <= 2 + -2 ", "i = j - 2", "i + j > 3", "i + 3 >= 5"),
    *("i % 2 = 1", "i % 2 == 1", "i % -3 = 1", "j % 3 = -1", "-i > 2", "i < -(-5 + 3)"),
    *("u - 5 > 3", "u + 250 > 255", "float / 2 > 3", "dbl % 2 = 1"),
    *("i BETWEEN CAST(3 AS INT) AND CAST(7 AS INT)", "float BETWEEN 2.5 AND 6.5"),
    *("i IN (1, 2, NULL)", "i NOT IN (1, 2, NULL)", "i NOT IN (1, 2)", "i is distinct from 3"),
    *("binary = X'616263'", "binary is NULL", "flag", "not flag", "flag = false"),
    "i > 3 AND rec.bool = true AND (str == 'abc' OR str in ('aaa', 'bbb'))",
    *("json_get_int(js, 'a') = 7", "json_get_int(js, 'a') > 25", "json_get_int(js, 'a') is null"),
    *("json_get_int(js, 'a') between 3 and 5", "json_get_int(js, 'a') in (3, 5, 100)"),
    *("json_get_string(js, 'b') = 'x3'", "json_get_string(js, 'a') = '3'"),
    *("json_get_float(js, 'a') >= 50.5", "json_get_bool(js, 'zz') is null"),
    *(
        "json_extract(js, '$.user.name') = '\"Al\"'",
        "json_extract(js, 'user') = '{\"name\":\"Al\"}'",
    ),
    *("json_exists(js, '$.user.name')", "not json_exists(js, '$.user.age')"),
    *("json_exists(js, '$.tags[1]')", "json_exists(js, '$.tags[2]')"),
    *("json_array_contains(js, '$.tags', 'python')", "json_array_contains(js, '$.tags', 7)"),
    *("json_array_length(js, '$.tags') > 1", "json_array_length(js, '$.user') = 0"),
    "json_get_string(json_get(js, 'user'), 'name') = 'Al'",
    "json_get_string(json_get(js, 'tags'), '0') = 'python'",
    *("json_get(js, 'user') IS NOT NULL", "json_get(js, 'user') IS NULL"),
    *("json_get_int(js, 'a') = 7 and i > 0", "not (json_get_int(js, 'a') < 50)"),
    *("json_get_string(js, 'b') like 'x_'", "lower(json_get_string(js, 'b')) = 'x3'"),
]
REFUSED = [
    *("octet_length(str) = 3", "split_part(str, 'a', 1) = 'b'", "sqrt(dbl) > 1", "random() < 2"),
    *("labels[1] = 1", "json_extract(js, '$.tags[*]') = '1'", "json_extract(js, '$.**') = '1'"),
    *("regexp_like(str, 'a', 'x')", "regexp_match(str, '(?i)a')", "regexp_match(str, '\\\\bx')"),
    *("current_time < now()", "json_get(js, 'a') = X'00'", "json_get_int(js, str) = 3"),
    *("json_get_int(str, 'a') = 3", "json_get_int(js, 'b') = 3", "json_get_bool(js, 'a')"),
]
#: With the numbers of rows in pylance and here.
OTHER_MEANING = [
    *(("7 / 2 = 3", 60, 0), ("concat(str, 'x') = 'x'", 4, 0)),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    result = str(tmp_path_factory.mktemp("filters") / "t.lance")
    rng = random.Random(1)
    numbers = range(ROWS)
    day = datetime.timedelta(days=1)
    times = [datetime.datetime(2024, 1, 1) + day * 60 * k for k in numbers]
    documents = [f'{{"a":{k},"b":"x{k % 5}","tags":["python",{k}],"user":{{"name":"Al"}}}}'
                 for k in range(ROWS - 2)]  # fmt: skip
    table = pa.table(
        {
            "id": numbers,
            "i": pa.array([None if k % 11 == 5 else k % 13 - 4 for k in numbers], pa.int32()),
            "j": [None if k % 7 == 3 else k % 9 - 3 for k in numbers],
            "u": pa.array([k % 20 for k in numbers], pa.uint8()),
            "float": pa.array([None if k % 17 == 4 else k * 2 / 3 - 7 for k in numbers]).cast("f4"),
            "dbl": [float("nan") if k % 10 == 9 else k / 4 - 3 for k in numbers],
            "str": [None if k % 15 == 7 else "".join(rng.choices("abc", k=3)) for k in numbers],
            "mixed": ["Apple", "apple pie", "BANANA", "naïve café", "s-10", "s-1x", ""] * 8
            + [None] * 4,
            "decimal": [Decimal(f"{k}.000") for k in numbers],
            "rec": [
                {
                    "bool": k < 30,
                    "date": datetime.date(2021, 1, 1) + day * k,
                    "dt": datetime.datetime(2021, 1, 1) + datetime.timedelta(hours=k),
                }
                for k in numbers
            ],
            "flag": [None if k % 5 == 0 else k % 2 == 0 for k in numbers],
            "date": [datetime.date(2020, 1, 1) + day * 200 * k for k in numbers],
            "ts": pa.array(times, pa.timestamp("us")),
            "tz": pa.array(times, pa.timestamp("us", "UTC")),
            "binary": [b"abc", None, b"x"] * 20,
            "genres": [["action", "comedy"], ["anime", "drama"], ["adventure"], None, [], ["x"]]
            * 10,
            "labels": pa.array(
                [[1, 2], [3], None, [], [None, 1], [5, 6, 7]] * 10, pa.list_(pa.int64())
            ),
            "js": pa.array([*documents, None, "{}"], pa.json_()),
            "silly :name": numbers,
            "ALLCAPS": numbers,
        }
    )
    lance.write_dataset(table, result, max_rows_per_file=40)
    return result


def ours(path: str, text: str) -> list[int]:
    rows: list[int] = lance_spark.open_dataset(path).to_table(["id"], filter=text)["id"].to_pylist()
    return rows


def theirs(path: str, text: str) -> list[int]:
    rows: list[int] = lance.dataset(path).to_table(["id"], filter=text)["id"].to_pylist()
    return rows


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", SAME)
def test_rows_are_those_of_pylance(path: str, text: str) -> None:
    rows = theirs(path, text)
    assert ours(path, text) == rows
    assert lance_spark.open_dataset(path).count_rows(text) == len(rows)


@pytest.mark.parametrize("text", REFUSED)
def test_refused(path: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        ours(path, text)


@pytest.mark.parametrize(("text", "in_pylance", "here"), OTHER_MEANING)
def test_meaning_of_spark(path: str, text: str, in_pylance: int, here: int) -> None:
    assert len(theirs(path, text)) == in_pylance
    assert len(ours(path, text)) == here


@pytest.mark.parametrize(
    "text",
    [
        *("json_get_int(js, 'a') = 3", "regexp_match(str, 'a')", "date < current_date"),
        *("ts < now()", "starts_with(str, 'a')", "is_valid(i)", "array_length(labels) = 1"),
        *("decimal = DECIMAL(5,3) '12.000'", "array_has_any(genres, Array['x'])"),
        *("regexp_like(str, 'a', 'i')", "rec.dt = TIMESTAMP '2021-01-01 00:00:00'"),
    ],
)
def test_texts_of_a_session_have_no_functions_of_pylance(path: str, text: str) -> None:
    schema = lance_spark.open_dataset(path)._table.schema
    assert isinstance(schema, Schema)
    with pytest.raises(InvalidInputError):
        parse_predicate(text, schema)


def test_random_filters(path: str) -> None:
    for seed in range(FILTERS):
        text = random_filter(random.Random(seed))
        assert ours(path, text) == theirs(path, text), (seed, text)


def random_filter(rng: random.Random) -> str:
    """Return a random condition that both clients take."""

    def number() -> str:
        return rng.choice(["i", "j", "json_get_int(js, 'a')", "array_length(labels)",
                           "(i + j)", "(j % 4)", "-i", str(rng.randint(-9, 60))])  # fmt: skip

    def text() -> str:
        return rng.choice(["str", "mixed", "json_get_string(js, 'b')", "json_extract(js, '$.a')"])

    def condition(depth: int) -> str:
        if depth:
            left, right = condition(depth - 1), condition(depth - 1)
            return rng.choice([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"])
        column = rng.choice(["i", "j", "json_get_int(js, 'a')"])
        word = rng.choice(["a", "x1", "bc", "s-1", "3", ""])
        return rng.choice(
            [
                f"{column} {rng.choice(['=', '<', '>=', '!='])} {number()}",
                f"{number()} {rng.choice(['=', '<', '>', '!='])} {column}",
                f"{column} {rng.choice(['', 'NOT '])}IN ({rng.randint(-3, 9)}, {rng.randint(0, 60)})",
                f"{column} BETWEEN {rng.randint(-9, 9)} AND {rng.randint(0, 60)}",
                f"{text()} = '{word}'",
                f"{text()} LIKE '%{word}%'",
                f"starts_with({text()}, '{word}')",
                f"regexp_match({rng.choice(['str', 'mixed'])}, '{word}.')",
                f"json_array_contains(js, '$.tags', '{rng.randint(0, 60)}')",
                f"json_exists(js, '$.{rng.choice(['a', 'b', 'zz', 'user.name', 'tags[0]'])}')",
                f"{rng.choice([text(), column, 'json_get(js, ' + repr('user') + ')'])} IS NULL",
                f"array_has_any(labels, [{rng.randint(0, 8)}, NULL])",
                f"array_has_any(genres, Array['x', '{rng.choice(['anime', 'comedy'])}'])",
            ]
        )

    return condition(rng.choice([0, 1, 2]))
