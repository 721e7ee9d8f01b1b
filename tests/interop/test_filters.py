"""Filters of a scan against tables of pylance that Arrow filters, and the bytes that statistics
save.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.file.v0_1 import reader as legacy
from tests.support.interop.tables import assert_same

ROWS = 20_000

#: Filters, and the same filters for Arrow.
CASES: dict[str, tuple[list[Any], pc.Expression]] = {
    "less": ([("i", "<", 300)], pc.field("i") < 300),
    "between": (
        [("i", ">=", 5_000), ("i", "<=", 5_100)],
        (pc.field("i") >= 5_000) & (pc.field("i") <= 5_100),
    ),
    "none": ([("i", ">", 10**9)], pc.field("i") > 10**9),
    "all": ([("i", ">=", 0)], pc.field("i") >= 0),
    "equal": ([("s", "==", "v77")], pc.field("s") == "v77"),
    "different": ([("s", "!=", "v77")], pc.field("s") != "v77"),
    "in": ([("k", "in", [3, 5])], pc.field("k").isin([3, 5])),
    "not in": ([("k", "not in", [3, 5])], ~pc.field("k").isin([3, 5]) & pc.field("k").is_valid()),
    "nan": ([("f", ">", 0.5)], pc.field("f") > 0.5),
    "null": ([("k", "is_null")], pc.field("k").is_null()),
    "not null": ([("k", "is_not_null", None)], pc.field("k").is_valid()),
    "child": (
        [("p.x", "<", 100), ("k", "!=", 2)],
        (pc.field("p", "x") < 100) & (pc.field("k") != 2),
    ),
}


def table(*, nulls: bool) -> pa.Table:
    rng = np.random.default_rng(5)
    keys = pa.array(rng.integers(0, 9, ROWS), mask=rng.random(ROWS) < 0.2 if nulls else None)
    floats = rng.random(ROWS)
    floats[::7] = np.nan
    inner = pa.array(np.arange(ROWS) % 1_000)
    return pa.table(
        {
            "i": np.arange(ROWS),
            "k": keys,
            "f": floats,
            "s": [f"v{n % 1_000}" for n in range(ROWS)],
            "p": pa.StructArray.from_arrays([inner, pc.cast(inner, pa.string())], ["x", "y"]),
        }
    )


def bits(table_read: pa.Table) -> pa.Table:
    """Return a table with the bits of NaN, because NaN equals no value."""
    floats = table_read["f"].combine_chunks().view(pa.int64())
    return table_read.set_column(table_read.schema.get_field_index("f"), "f", floats)


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2", "2.3"])
def test_rows_are_those_that_arrow_keeps(tmp_path: Path, version: str, case: str) -> None:
    filters, expression = CASES[case]
    lance.write_dataset(
        table(nulls=version != "0.1"),
        str(tmp_path / "t"),
        data_storage_version=version,
        max_rows_per_file=7_000,
    )
    lance.dataset(str(tmp_path / "t")).delete("i % 10 = 4 or (i > 8000 and i < 12000)")
    all_rows = lance.dataset(str(tmp_path / "t")).to_table()
    expected = all_rows.filter(expression)
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    assert_same(bits(dataset.to_table(filters=filters)), bits(expected), case)
    narrow = dataset.to_table(columns=["s", "p.y"], filters=filters)
    assert narrow["s"].to_pylist() == expected["s"].to_pylist()
    assert sum(b.num_rows for b in dataset.to_batches([], filters=filters)) == expected.num_rows


def test_pages_are_skipped_by_their_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(table(nulls=False), str(tmp_path / "t"), data_storage_version="0.1")
    read: list[int] = []
    plain = legacy.LegacyFileReader.read

    def counted(self: Any, fields: Any, rows: Any, column_of: Any = None) -> Any:
        read.append(len(rows))
        return plain(self, fields, rows, column_of)

    monkeypatch.setattr(legacy.LegacyFileReader, "read", counted)
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    filtered = dataset.to_table(filters=[("i", ">=", 5_000), ("i", "<", 5_010)])
    assert filtered["i"].to_pylist() == list(range(5_000, 5_010))
    # One batch of 1,024 rows is read for the condition, and its ten rows for the other columns.
    assert sum(read) <= 1_024 + 10
    read.clear()
    assert dataset.to_table(filters=[("i", "<", -1)]).num_rows == 0
    assert not read


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (("nope", "<", 3), "no field 'nope'"),
        (("i", "~", 3), "operator must be one of ==, .*, not '~'"),
        (("i", "<", "x"), "'x' is not a value of type int64"),
        (("i", "<", None), "is_null"),
        (("p", "<", 3), "cannot be compared"),
        ("i < 3", "column, operator, value"),
    ],
)
def test_invalid_filters_are_refused(tmp_path: Path, bad: Any, says: str) -> None:
    lance_spark.write_dataset(table(nulls=False), str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match=says):
        lance_spark.open_dataset(str(tmp_path / "t")).to_table(filters=[bad])
