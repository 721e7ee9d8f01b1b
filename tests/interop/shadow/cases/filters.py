"""Conditions as text and as expressions of Arrow, with and without indexes."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

ROWS = 60
TEXTS = [
    "int >= 50",
    "int = 50",
    "int != 50",
    "int <> 50",
    "float < 30.0",
    "text = 'aa'",
    "text in ('aa', 'bb')",
    "text not in ('aa', 'bb')",
    "rec.flag",
    "not rec.flag",
    "rec.flag = true",
    "rec.flag is true",
    "rec.flag is not false",
    "rec.day = cast('2021-01-01' as date)",
    "rec.day = date '2021-01-03'",
    "rec.time = cast('2021-01-01 00:00:00' as timestamp(6))",
    "rec.time = cast('2021-01-01 00:00:00' as timestamp)",
    "rec.time = cast('2021-01-01 00:00:00' as datetime)",
    "rec.time = timestamp '2021-01-01 05:00:00'",
    "rec.time > timestamp '2021-01-01 05:00:00' and rec.day < date '2021-01-20'",
    "cast(rec.day as string) = '2021-01-01'",
    "dec = decimal(5,3) '12.000'",
    "dec >= decimal(5,3) '50.000'",
    "dec > 12",
    "text like 'a%'",
    "text not like 'a%'",
    "text like '_b'",
    "text ilike 'A%'",
    "regexp_match(text, 'a.')",
    "regexp_like(text, '^b')",
    "starts_with(text, 'a')",
    "ends_with(text, 'c')",
    "contains(text, 'b')",
    "int = 1 * 3",
    "int <= 2 + 2",
    "int = other - 2",
    "int = -1",
    "int > -1",
    "int between 3 and 5",
    "int not between 3 and 55",
    "int % 7 = 2",
    "float is null",
    "float is not null",
    "isnan(float)",
    "int in (1, 2, null)",
    "int is null or text = 'aa'",
    "int > 10 and (text = 'aa' or text = 'bc') and float < 30",
    "not (int > 10 or text = 'aa')",
    "abs(other) = 5",
    "length(text) = 2",
    "upper(text) = 'AA'",
    "lower(text) = 'aa'",
    "coalesce(float, 0.0) = 0.0",
    "array_has(tags, 'x')",
    "array_contains(tags, 'x')",
    "array_has_any(tags, ['x', 'z'])",
    "array_has_all(tags, ['x', 'y'])",
    "array_length(tags) = 2",
    "case when int > 5 then true else false end",
    "`silly :name` > 3",
    "`UPPER` > 3",
    "UPPER > 3",
    "UPPER_MISSING > 3",
    "int > ",
    "int + 1",
    "text = 5",
    "int = '5'",
    "true",
    "false",
    "int = int",
    "null",
    "int > 10 and int > null",
]
EXPRESSIONS = {
    "ge": pc.field("int") >= 50,
    "eq": pc.field("int") == 50,
    "ne": pc.field("int") != 50,
    "float lt": pc.field("float") < 30.0,
    "float ge": pc.field("float") >= 30.0,
    "text ne": pc.field("text") != "aa",
    "text eq": pc.field("text") == "aa",
    "and": (pc.field("int") >= 50) & (pc.field("text") == "aa"),
    "or": (pc.field("int") >= 50) | (pc.field("text") == "aa"),
    "invert": ~(pc.field("int") >= 50),
    "is_in": pc.field("text").isin(["aa", "bb"]),
    "is_null": pc.field("float").is_null(),
    "is_valid": pc.field("float").is_valid(),
    "child": pc.field("rec", "flag"),
    "sum": pc.field("int") + pc.field("other") > 20,
    "cast": pc.field("int").cast(pa.float64()) > 5.5,
    "day": pc.field("rec", "day") > datetime.date(2021, 1, 20),
    "decimal": pc.field("dec") > decimal.Decimal("12.000"),
    "missing": pc.field("missing") > 5,
    "not a condition": pc.field("int") + 1,
}


def table() -> pa.Table:
    numbers = range(ROWS)
    day, time = datetime.date(2021, 1, 1), datetime.datetime(2021, 1, 1)
    rec = [
        {
            "flag": i < ROWS / 2,
            "day": day + datetime.timedelta(days=i),
            "time": time + datetime.timedelta(hours=i),
        }
        for i in numbers
    ]
    return pa.table(
        {
            "int": pa.array(numbers, pa.int64()),
            "float": pa.array([None if i % 7 == 0 else i * 2 / 3 for i in numbers], pa.float32()),
            "rec": rec,
            "text": ["abc"[i % 3] + "abc"[i // 3 % 3] for i in numbers],
            "dec": [decimal.Decimal(f"{i}.000") for i in numbers],
            "other": pa.array([i - 10 if i % 5 else i + 2 for i in numbers], pa.int64()),
            "tags": [["x", "y"][: i % 3] for i in numbers],
            "silly :name": list(numbers),
            "UPPER": list(numbers),
        }
    )


def case(name: str, condition: Any, index: bool = False) -> Case:
    def run(client: Client, path: Path) -> Any:
        dataset = client.write(table(), path, max_rows_per_file=25)
        if index:
            dataset.create_scalar_index("int", "BTREE")
            client.open(path).create_scalar_index("text", "BITMAP")
        opened = client.open(path)
        rows = opened.to_table(columns=["int"], filter=condition)
        return rows, opened.count_rows(condition)

    return Case("filters", f"{name}{' (indexed)' if index else ''}", run)


CASES = [
    *(case(text, text) for text in TEXTS),
    *(case(f"expression {name}", condition) for name, condition in EXPRESSIONS.items()),
    *(case(text, text, index=True) for text in TEXTS[:8]),
    *(case(f"expression {name}", EXPRESSIONS[name], True) for name in ("ge", "or", "is_in")),
]
