"""Computed values in filters without Spark: errors of rows. tests/interop/predicates checks
values.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.write import write_dataset
from lance_spark.encoding.rows import NO_ROWS, RowRanges
from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.predicates.expressions import kernels
from lance_spark.predicates.sql import SqlSettings, parse_predicate
from lance_spark.predicates.times import start_of_day, to_instant, to_local

ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int32()),
        "n": pa.array([0, 1, 2, 3, None, 5, 2**31 - 1, -(2**31)], pa.int32()),
        "s": ["Ab", "ab", "", None, "x1", "Ä", "7", " 7 "],
    }
)


@pytest.fixture
def dataset(tmp_path: Path) -> lance_spark.Dataset:
    return write_dataset(ROWS, str(tmp_path / "t.lance"), max_rows_per_file=4)


def kept(dataset: lance_spark.Dataset, text: str) -> list[int]:
    rows: list[int] = dataset.to_table(["id"], filter=text)["id"].to_pylist()
    return rows


def test_an_error_names_table_and_column(dataset: lance_spark.Dataset) -> None:
    with pytest.raises(EvaluationError, match=r"t\.lance.*'n'.*overflows int"):
        kept(dataset, "n + 1 > 0")
    with pytest.raises(EvaluationError, match=r"t\.lance.*'n'.*division by zero"):
        dataset.delete("10 / n > 1")
    with pytest.raises(EvaluationError, match=r"t\.lance.*'s'.*'Ab' .*cannot be cast to int"):
        dataset.update({"id": 0}, "cast(s as int) = 7")
    assert dataset.count_rows() == 8
    assert lance_spark.open_dataset(dataset.uri).version == dataset.version


def test_rows_that_do_not_need_a_value_raise_no_error(dataset: lance_spark.Dataset) -> None:
    assert kept(dataset, "n <> 0 AND 10 / n > 1") == [1, 2, 3, 5]
    assert kept(dataset, "n = 0 OR n IS NULL OR 10 / n > 1") == [0, 1, 2, 3, 4, 5]
    assert kept(dataset, "CASE WHEN n = 0 THEN 0 ELSE 10 / n END > 1") == [1, 2, 3, 5]
    assert kept(dataset, "if(n < 100, n + 1, 0) = 3") == [2]
    assert kept(dataset, "coalesce(nullif(n, 0), n + 5) = 5") == [0, 5]
    assert kept(dataset, "id = 7 AND trim(s) = cast(abs(id) as string)") == [7]


def test_deleted_rows_raise_no_error(dataset: lance_spark.Dataset) -> None:
    left = dataset.delete("id IN (0, 6)")
    assert kept(left, "10 / n > 1") == [1, 2, 3, 5]
    assert left.delete("n + 1 = 3").count_rows() == 5


def test_delete_and_update_by_computed_conditions(dataset: lance_spark.Dataset) -> None:
    changed = dataset.update({"s": "changed"}, "lower(s) = 'ab'")
    assert kept(changed, "s || '!' = 'changed!'") == [0, 1]
    assert sorted(kept(changed.delete("length(s) = 1"), "id >= 0")) == [0, 1, 2, 3, 4, 7]


@pytest.mark.parametrize(
    "text",
    [
        *("unknown(n) = 1", "substring(s, n) = 'a'", "s LIKE s", "n + s = 1"),
        *("CASE WHEN n THEN 1 END = 1", "INTERVAL 1 MONTH = INTERVAL 1 MONTH"),
        *("n + INTERVAL 1 DAY > 1", "abs(n, 1) = 1", "date_trunc('eon', s) IS NULL", "n / 0.5 > 1"),
        # A zone is not guessed.
        "hour(cast(id as string)) = 1 OR date_trunc('hour', TIMESTAMP '2024-01-31 12:30:15Z') IS "
        "NULL",
    ],
)
def test_unsupported_expressions_are_refused(dataset: lance_spark.Dataset, text: str) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        kept(dataset, text)


@pytest.fixture
def clocks(tmp_path: Path) -> lance_spark.Dataset:
    hours = [
        datetime.time(0),
        datetime.time(12, 34, 56, 789000),
        datetime.time(23, 59, 59, 999999),
        None,
    ]
    spans = [
        datetime.timedelta(1),
        datetime.timedelta(hours=26),
        -datetime.timedelta(microseconds=1),
        None,
    ]
    columns = {
        "id": [0, 1, 2, 3],
        "t": pa.array(hours, pa.time64("us")),
        "t_ns": pa.array(hours, pa.time64("ns")),
        "d": pa.array(spans, pa.duration("us")),
        "d_ns": pa.array(spans, pa.duration("ns")),
        "s": ["12:34:56.789", "00:00", "x", "1 day"],
    }
    return write_dataset(pa.table(columns), str(tmp_path / "clocks.lance"))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("t < TIME '12:34:56.789'", [0]),
        ("t_ns = '12:34:56.789'", [1]),
        ("t IN (TIME '00:00', NULL)", [0]),
        ("t = t_ns AND t <=> t_ns", [0, 1, 2]),
        ("NOT t < TIME '12:00'", [1, 2]),
        ("t > 'T23:59:59.9999989'", [2]),
        ("hour(t) = 12 AND minute(t_ns) = 34 AND second(t) = 56", [1]),
        ("cast(t AS string) = '12:34:56.789' OR cast(t_ns AS string) = '00:00:00'", [0, 1]),
        ("coalesce(t, TIME '01:00') = TIME '01:00'", [3]),
        ("try_cast(s AS time) = TIME '12:34:56.789'", [0]),
        ("d > INTERVAL '1' DAY", [1]),
        ("d_ns = INTERVAL '1 02:00:00' DAY TO SECOND", [1]),
        (
            "d < INTERVAL '0.000001' SECOND AND d_ns >= INTERVAL -'0:00.000001' MINUTE TO SECOND",
            [2],
        ),
        ("d BETWEEN INTERVAL '24' HOUR AND INTERVAL 1 DAY 2 HOURS", [0, 1]),
        ("d NOT IN (INTERVAL '1 day', INTERVAL '26:00' HOUR TO MINUTE)", [2]),
        ("d = d_ns", [0, 1, 2]),
        ("d <=> NULL", [3]),
        ("INTERVAL '1' DAY = INTERVAL '24' HOUR AND id = 0", [0]),
    ],
)
def test_times_of_day_and_intervals(
    clocks: lance_spark.Dataset, text: str, rows: list[int]
) -> None:
    assert kept(clocks, text) == rows


def test_python_values_as_times_and_intervals(clocks: lance_spark.Dataset) -> None:
    assert clocks.delete([("t", "<", datetime.time(12))]).count_rows() == 3
    assert clocks.delete([("d_ns", ">=", datetime.timedelta(1))]).count_rows() == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("t < TIME '24:00'", "24 must be below 24"),
        ("t < TIME '12'", "write it as 12:30:15"),
        ("t < TIME '1:00 PM'", "write it as 12:30:15"),
        ("t < TIME '12:00:00.1234567'", "at most six digits"),
        ("t < 5", "does not compare time"),
        ("t < d", "does not compare time"),
        ("d > '1 day'", "write INTERVAL"),
        ("d > 5", "does not compare interval day to second with int"),
        ("d > INTERVAL '1' MONTH", "years or months"),
        ("d > INTERVAL '1-2' YEAR TO MONTH", "years or months"),
        ("d > INTERVAL '1 24' DAY TO HOUR", "the hour must be below 24"),
        ("d > INTERVAL '1' DAY TO SECOND", "is not an interval DAY TO SECOND"),
        ("d > INTERVAL '1 2' DAYS TO HOURS", "INTERVAL DAYS TO HOURS is not supported"),
        ("d > INTERVAL '1.5' DAY", "only seconds have a fraction"),
        ("d > INTERVAL 1.5 DAYS", "only seconds have a fraction"),
        ("d > INTERVAL '106751992' DAY", "out of Spark's range"),
        ("d + INTERVAL '1' DAY > INTERVAL '2' DAY", "added to dates and timestamps here"),
        ("d * 2 > INTERVAL '2' DAY", "leave it to DataFrame.where"),
    ],
)
def test_times_and_intervals_that_are_refused(
    clocks: lance_spark.Dataset, text: str, why: str
) -> None:
    with pytest.raises(InvalidInputError, match=why):
        kept(clocks, text)


def test_bounds_on_a_column_use_statistics(dataset: lance_spark.Dataset) -> None:
    schema = dataset._table.schema

    def operators(text: str, *, decide: bool = True) -> list[str]:
        ops: list[str] = []

        def statistics(field: Any, op: str, value: Any) -> RowRanges | None:
            ops.append(op)
            return NO_ROWS if decide else None

        parse_predicate(text, schema, SqlSettings()).candidates(statistics)
        return ops

    assert operators("n > 5 AND n + 1 > 6") == [">"]
    # Whether a value is null is asked only if nothing else is known of it.
    bounded = "n > 5 AND n <= 9 AND n IS NOT NULL"
    assert operators(bounded) == ["between"]
    assert operators(bounded, decide=False) == ["between", "is_not_null"]
    assert operators("n IS NOT NULL") == ["is_not_null"]
    assert operators("n IN (5, 9)") == ["in"]
    assert operators("n > 2 + 3") == [">"]
    assert operators("n + 0 > 5") == []


ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
    "+05:30",
    "UTC",
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("many", [kernels.to_local, kernels.to_instants, kernels.starts_of_days])
def test_arrays_of_times_are_converted_like_single_times(
    many: Callable[..., Any], zone: str
) -> None:
    rng = np.random.default_rng(21)
    ends = [datetime.datetime(year, 1, 1) for year in (1600, 2090)]
    low, high = (int((item - datetime.datetime(1970, 1, 1)).total_seconds()) for item in ends)
    # Around changes of clocks, and anywhere.
    seconds = np.concatenate(
        [rng.integers(low, high, 300), 1710054000 + rng.integers(-9000, 9000, 60)]
    )
    single: Callable[[int, str], int]
    if many is kernels.starts_of_days:
        values, single = seconds // 86_400, start_of_day
    else:
        values = seconds * 1_000_000 + rng.integers(0, 1_000_000, len(seconds))
        single = to_local if many is kernels.to_local else to_instant
    assert many(values, zone).tolist() == [single(int(value), zone) for value in values]


def test_clocks_and_dates_of_the_most_distant_times() -> None:
    most = 2**63 - 1
    micros = [most, -most - 1, most - 10**15, 3 - 5 * 10**18, 0, -1]
    times = pa.array(micros, pa.timestamp("us", "UTC"))
    hour, minute = 3_600_000_000, 60_000_000
    for zone, offset in (("UTC", 0), ("+05:30", 330 * minute), ("-11:00", -11 * hour)):
        local = [value + offset for value in micros]
        parts = kernels.DATE_KERNELS["time_part"]([times], ("hour", zone), pa.int32())
        assert parts.to_pylist() == [value // hour % 24 for value in local]
        days = kernels.CAST_KERNELS["cast"]([times], ("java", zone), pa.date32())
        assert days.cast(pa.int32()).to_pylist() == [value // (24 * hour) for value in local]
        for unit, size in (("h", hour), ("D", 24 * hour)):
            inside = times.take([0, 2, 3, 4, 5])
            starts = kernels.DATE_KERNELS["date_trunc"]([inside], (unit, zone), times.type)
            expected = [value - (value + offset) % size for value in micros if value >= -most]
            assert starts.cast(pa.int64()).to_pylist() == expected
            # Spark raises an error as well.
            with pytest.raises(kernels.RowError, match="out of the range"):
                kernels.DATE_KERNELS["date_trunc"]([times], (unit, zone), times.type)
