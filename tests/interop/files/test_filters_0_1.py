"""Filters over pages of version 0.1 that this package writes, in both clients."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from tests.interop.files.legacy_tables import extremes
from tests.support.cells import number_of

FILTERS = [
    "f > 3.0",
    "f < 0.0",
    "f = 0.0",
    "f <= -0.0",
    "g >= 4.5",
    "h > 3.0",
    "h <= -0.0",
    "h = 0.0",
    "s > 'y'",
    "s >= 'éé'",
    f"s = '{'x' * 64}1'",
    "s < 'c'",
    "s is null",
    "n is not null",
    "u = 9223372036854775810",
    "d < 0",
    "t > date '1970-01-03'",
    "z",
    "not z and f > 1.0",
]


def test_filters_over_pages(tmp_path: Path) -> None:
    table = extremes(7_000).append_column("id", pa.array(range(7_000)))
    path = str(tmp_path / "t")
    lance_spark.write_dataset(table, path, data_storage_version="0.1")
    lance.write_dataset(table, str(tmp_path / "model"), data_storage_version="2.2")
    theirs, model = lance.dataset(path), lance.dataset(str(tmp_path / "model"))
    counts = []
    for text in FILTERS:
        expected = model.to_table(["id"], filter=text)
        for use_stats in (True, False):
            filtered = theirs.to_table(["id"], filter=text, use_stats=use_stats)
            assert filtered == expected, (text, use_stats)
        counts.append(expected.num_rows)
    assert sum(0 < count < 7_000 for count in counts) > 10


CONDITIONS = [
    ("f", ">", 3.0),
    ("f", "==", 0.0),
    ("g", "<=", 4.5),
    ("s", ">", "y"),
    ("s", "==", "x" * 64 + "1"),
    ("s", "is_null", None),
    ("u", "==", 2**63 + 2),
    ("z", "==", True),
]


def test_filters_over_pages_equal_those_of_version_2_2(tmp_path: Path) -> None:
    table = extremes(7_000).append_column("id", pa.array(range(7_000)))
    for name, version in (("t", "0.1"), ("model", "2.2")):
        lance_spark.write_dataset(table, str(tmp_path / name), data_storage_version=version)
    ours, model = (lance_spark.open_dataset(str(tmp_path / name)) for name in ("t", "model"))
    for condition in CONDITIONS:
        chosen = condition if condition[2] is not None else condition[:2]
        expected = model.to_table(["id"], filters=[chosen])
        assert ours.to_table(["id"], filters=[chosen]) == expected, chosen


#: Random filters of a table.
FILTERS_OF_A_TABLE = number_of(40, 60)


def filtered_rows(count: int, seed: int) -> pa.Table:
    """Return rows with values in runs and at random: bounds of the types, signed zeros, NaN in a
    few batches, null strings.
    """
    rng = np.random.default_rng(seed)
    runs = np.arange(count) // 500
    floats = np.where(rng.random(count) < 0.1, -0.0, runs - 3.0)
    floats[count // 2 : count // 2 + 40 : 4] = np.nan
    words = [f"{run:03}" + "é" * int(run % 40) for run in runs]
    limits = rng.choice(np.array([-(2**63), -1, 0, 2**63 - 1]), count)
    return pa.table(
        {
            "id": np.arange(count),
            "i": np.where(runs % 3 == 0, limits, runs - 5),
            "u": pa.array((runs * 3).astype(np.uint8)),
            "f": floats,
            "g": pa.array(floats.astype(np.float32)),
            "h": pa.array(np.nan_to_num(floats)),
            "s": pa.array(words, mask=rng.random(count) < np.where(runs % 4 == 1, 1.0, 0.1)),
            "z": runs % 2 == 0,
            "d": pa.array((runs - 4).astype(np.int32)).cast(pa.date32()),
            "t": pa.array(runs * 10**9).cast(pa.timestamp("us")),
            "m": pa.array(runs - 5).cast(pa.decimal128(22, 2)),
        }
    )


def random_filter(
    rng: np.random.Generator, table: pa.Table
) -> tuple[str, str, object] | tuple[str, str]:
    """Return a comparison with a value of the column, or with a value next to it."""
    name = str(rng.choice([n for n in table.column_names if n != "id"]))
    if rng.random() < 0.15:
        return name, str(rng.choice(["is_null", "is_not_null"]))
    op = str(rng.choice(["==", "!=", "<", "<=", ">", ">="]))
    value = None
    while value is None or repr(value) == "nan":
        value = table[name][int(rng.integers(table.num_rows))].as_py()
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.3:
        limits = np.iinfo(table[name].type.to_pandas_dtype())
        value = min(max(value + int(rng.integers(-1, 2)), limits.min), limits.max)
    if isinstance(value, float) and rng.random() < 0.3:
        value = float(rng.choice([value + 0.5, 0.0, -0.0]))
    if isinstance(value, str) and rng.random() < 0.3:
        value = value[: int(rng.integers(len(value) + 1))]
    return name, op, value


def theirs_of(condition: tuple[str, str, object] | tuple[str, str]) -> str:
    """Return the condition as pylance parses it."""
    name, op = condition[:2]
    if len(condition) == 2:
        return f"{name} is {'not ' if op == 'is_not_null' else ''}null"
    value = condition[2]
    sql_types = {"d": "date", "t": "timestamp"}
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if name in sql_types:
        text = f"{sql_types[name]} '{value}'"
    elif isinstance(value, str):
        text = f"'{value}'"
    elif name == "m":
        text = f"cast({value} as decimal(22, 2))"
    return f"{name} {'=' if op == '==' else op} {text}"


@pytest.mark.parametrize("seed", range(number_of(2, 50)))
def test_random_filters_over_pages(tmp_path: Path, seed: int) -> None:
    # The model has no statistics of pages: version 2.0, written by pylance.
    table = filtered_rows(9_000, seed)
    ours = str(tmp_path / "ours")
    batches = table.to_batches(max_chunksize=1 + 777 * seed % 2_000)
    lance_spark.write_dataset(
        pa.Table.from_batches(batches, table.schema),
        ours,
        data_storage_version="0.1",
        max_rows_per_file=4_000,
    )
    lance_spark.open_dataset(ours).delete([("id", "in", list(range(0, 9_000, 17)))])
    kept = pa.array(np.arange(9_000) % 17 != 0)
    lance.write_dataset(table.filter(kept), str(tmp_path / "model"), data_storage_version="2.0")
    dataset, model = (
        lance_spark.open_dataset(ours),
        lance_spark.open_dataset(str(tmp_path / "model")),
    )
    pylance = lance.dataset(ours)
    rng = np.random.default_rng(seed)
    num_partial = 0
    for _ in range(FILTERS_OF_A_TABLE):
        conditions = [random_filter(rng, table) for _ in range(int(rng.integers(1, 3)))]
        numbers = dataset.to_table(["id"], filters=conditions)["id"].to_pylist()
        expected = model.to_table(["id"], filters=conditions)["id"].to_pylist()
        assert numbers == expected, conditions
        num_partial += 0 < len(numbers) < model.count_rows()
        if any(name in "fg" for name, *_ in conditions):
            # DataFusion sorts NaN, and distinguishes signed zeros.
            continue
        text = " and ".join(map(theirs_of, conditions))
        if str(-(2**63)) in text:
            # Its parser takes the digits of the least integer for a floating-point number.
            continue
        for use_stats in (True, False):
            rows = pylance.to_table(["id"], filter=text, use_stats=use_stats)["id"].to_pylist()
            assert rows == expected, (text, use_stats)
    assert num_partial > FILTERS_OF_A_TABLE // 3


@pytest.mark.parametrize("value", ["b", "b" * 64, "\U0010ffff" * 16, b"b", b"\xff" * 64], ids=repr)
def test_nulls_beside_one_value_are_found(tmp_path: Path, value: str | bytes) -> None:
    # If both bounds of a page are one value, pylance takes the nulls of the page for this value.
    table = pa.table(
        {"id": range(1_500), "s": [value if number % 3 else None for number in range(1_500)]}
    )
    lance_spark.write_dataset(table, str(tmp_path), data_storage_version="0.1")
    theirs, ours = lance.dataset(str(tmp_path)), lance_spark.open_dataset(str(tmp_path))
    zero = "''" if isinstance(value, str) else "X''"
    for text, count in (("s is null", 500), ("s is not null", 1_000), (f"s > {zero}", 1_000)):
        assert theirs.to_table(["id"], filter=text).num_rows == count, text
        assert ours.to_table(["id"], filter=text).num_rows == count, text
    assert ours.to_table(["id"], filters=[("s", "==", value)]).num_rows == 1_000


@pytest.mark.parametrize("start", ["a" * 61, "b" * 62, "c" * 63], ids=len)
def test_strings_above_the_bounds_of_pylance_are_found(tmp_path: Path, start: str) -> None:
    """pylance cuts the first string before a character that ends after byte 64, and takes the
    second, which is less, for the greatest.
    """
    cut = start + "\U0001f600 and more"
    strings = [cut, start + "zz", "A"]
    table = pa.table({"id": [0, 1, 2], "s": strings})
    for client, name in ((lance, "theirs"), (lance_spark, "ours")):
        path = str(tmp_path / name)
        client.write_dataset(table, path, data_storage_version="0.1")
        dataset = lance_spark.open_dataset(path)
        for op, value in (("==", cut), (">=", cut), (">", start + "{x"), (">=", start), (">", cut)):
            expected = [number for number, s in enumerate(strings) if _compare(s, op, value)]
            found = dataset.to_table(["id"], filters=[("s", op, value)])["id"].to_pylist()
            assert found == expected, (name, op, value)


def _compare(text: str, op: str, value: str) -> bool:
    first, second = text.encode(), value.encode()
    return {"==": first == second, ">=": first >= second, ">": first > second}[op]
