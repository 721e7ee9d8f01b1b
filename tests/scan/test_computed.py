"""Computed values in filters without Spark: which rows raise errors, and what the errors name. What values are is in interop/predicates."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.scan.expressions import zones
from lance_spark.scan.sql import SqlSettings, parse_predicate
from lance_spark.scan.times import start_of_day, to_instant, to_local
from lance_spark.write import write_dataset

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
    found: list[int] = dataset.to_table(["id"], filter=text)["id"].to_pylist()
    return found


def test_an_error_names_table_and_column(dataset: lance_spark.Dataset) -> None:
    with pytest.raises(EvaluationError, match=r"t\.lance.*'n'.*overflows int"):
        kept(dataset, "n + 1 > 0")
    with pytest.raises(EvaluationError, match=r"t\.lance.*'n'.*divides by zero"):
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


def test_changes_by_computed_conditions(dataset: lance_spark.Dataset) -> None:
    changed = dataset.update({"s": "changed"}, "lower(s) = 'ab'")
    assert kept(changed, "s || '!' = 'changed!'") == [0, 1]
    assert sorted(kept(changed.delete("length(s) = 1"), "id >= 0")) == [0, 1, 2, 3, 4, 7]


@pytest.mark.parametrize(
    "text",
    [
        "unknown(n) = 1",
        "substring(s, n) = 'a'",
        "s LIKE s",
        "n + s = 1",
        "CASE WHEN n THEN 1 END = 1",
        "INTERVAL 1 MONTH = INTERVAL 1 MONTH",
        "n + INTERVAL 1 DAY > 1",
        "abs(n, 1) = 1",
        "date_trunc('eon', s) IS NULL",
        "n / 0.5 > 1",
        # A zone is not guessed.
        "hour(cast(id as string)) = 1 OR date_trunc('hour', TIMESTAMP '2024-01-31 12:30:15Z') IS NULL",
    ],
)
def test_what_is_not_computed_is_refused(dataset: lance_spark.Dataset, text: str) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        kept(dataset, text)


def test_a_bound_on_a_column_still_serves_statistics(dataset: lance_spark.Dataset) -> None:
    schema = dataset._table.schema

    def asked(text: str) -> list[str]:
        ops: list[str] = []

        def statistics(field: Any, op: str, value: Any) -> list[range]:
            ops.append(op)
            return []

        parse_predicate(text, schema, SqlSettings()).candidates(statistics)
        return ops

    assert asked("n > 5 AND n + 1 > 6")[0] == ">"
    assert asked("n > 2 + 3") == [">"]
    assert asked("n + 0 > 5") == []


ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
    "+05:30",
    "UTC",
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("many", [zones.to_local, zones.to_instants, zones.starts_of_days])
def test_many_times_are_converted_as_one(many: Callable[..., Any], zone: str) -> None:
    rng = np.random.default_rng(21)
    ends = [datetime.datetime(year, 1, 1) for year in (1600, 2090)]
    low, high = (int((one - datetime.datetime(1970, 1, 1)).total_seconds()) for one in ends)
    # Around changes of clocks, and anywhere.
    seconds = np.concatenate(
        [rng.integers(low, high, 300), 1710054000 + rng.integers(-9000, 9000, 60)]
    )
    single: Callable[[int, str], int]
    if many is zones.starts_of_days:
        values, single = seconds // 86_400, start_of_day
    else:
        values = seconds * 1_000_000 + rng.integers(0, 1_000_000, len(seconds))
        single = to_local if many is zones.to_local else to_instant
    assert many(values, zone).tolist() == [single(int(one), zone) for one in values]
