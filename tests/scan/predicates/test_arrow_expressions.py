"""Expressions of Arrow as conditions: the same rows as Arrow keeps, with and without indexes."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.scan.predicates.arrow.tree import Call, FieldRef, tree_of

ROWS = 1_000
FIELD = pc.field
NAN = pc.scalar(float("nan"))


def table() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "i": pa.array([None if n % 11 == 0 else n for n in numbers], pa.int32()),
            "f": [
                None if n % 10 == 0 else float("nan") if n % 13 == 0 else -0.0 if n == 1 else n / 2
                for n in numbers
            ],
            "f32": pa.array([n / 3 for n in numbers], pa.float32()),
            "b": [n % 3 == 0 if n % 5 else None for n in numbers],
            "t": [f"x{n % 7}" for n in numbers],
            "u": [f"z{n}" for n in numbers],
            "day": pa.array([n // 10 for n in numbers], pa.date32()),
            "time": pa.array([n * 1000 for n in numbers], pa.timestamp("us")),
            "dec": [Decimal(n) / 4 for n in numbers],
            "s": [None if n % 9 == 0 else {"x": n % 5, "y": None} for n in numbers],
            "l": [[n, n + 1] for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance_spark.Dataset:
    made = lance_spark.write_dataset(
        table(), tmp_path_factory.mktemp("expressions") / "t", max_rows_per_file=300
    )
    for column, index in (("i", "BTREE"), ("f", "ZONEMAP"), ("t", "BITMAP"), ("u", "BTREE")):
        made = made.create_scalar_index(column, index)
    return made


CONDITIONS = [
    FIELD("i") > 500,
    pc.scalar(500) > FIELD("i"),
    (FIELD("i") > 5) & (FIELD("i") < 20),
    FIELD("i") <= FIELD("f"),
    FIELD("f") > 490.0,
    FIELD("f") == 0.0,
    FIELD("f") == NAN,
    FIELD("f") != NAN,
    FIELD("f") != 5.0,
    ~(FIELD("f") > 20.0),
    FIELD("f32") == 1 / 3,
    FIELD("f32") > 300.5,
    FIELD("i").isin([1, 2, None]),
    FIELD("i").isin([5, 7]),
    FIELD("i").isin([]),
    ~FIELD("i").isin([5, 7]),
    FIELD("f").isin([1.5, float("nan")]),
    FIELD("t").isin(["x1", "nothing"]),
    FIELD("i").is_null(),
    FIELD("f").is_null(nan_is_null=True),
    ~FIELD("f").is_null(),
    FIELD("i").is_valid() & ~(FIELD("t") == "x3"),
    FIELD("b"),
    ~FIELD("b"),
    FIELD("s", "x") == 3,
    FIELD("s").is_null(),
    FIELD("s", "y").is_null(),
    (FIELD("t") == "x3") | (FIELD("i") == 4),
    (FIELD("i") + 1 == 7) | (FIELD("u") == "z77"),
    FIELD("i").cast(pa.int64()) == 10,
    FIELD("i") > 5.5,
    FIELD("i") == 2**40,
    FIELD("i") == pc.scalar(pa.scalar(None, pa.int32())),
    FIELD("u") == "z77",
    FIELD("u") < "z11",
    pc.starts_with(FIELD("u"), "z99"),
    FIELD("day") == datetime.date(1970, 2, 1),
    FIELD("time") >= datetime.datetime(1970, 1, 1, 0, 0, 0, 990_000),
    FIELD("dec") > Decimal("240.25"),
    pc.list_value_length(FIELD("l")) == 2,
    pc.scalar(True),
    pc.scalar(False),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: str(condition)[:60])
def test_rows_are_those_of_arrow(dataset: lance_spark.Dataset, condition: pc.Expression) -> None:
    kept = table().filter(condition)["u"].to_pylist()
    assert dataset.to_table(["u"], condition)["u"].to_pylist() == kept
    assert dataset.scanner(["u"], condition, use_scalar_index=False).count_rows() == len(kept)
    assert dataset.count_rows(condition) == len(kept)


def test_random_conditions(dataset: lance_spark.Dataset) -> None:
    rng = np.random.default_rng(1)
    rows = table()
    leaves = CONDITIONS[:20]
    for _ in range(40):
        condition = leaves[rng.integers(len(leaves))]
        for _ in range(rng.integers(1, 4)):
            other = leaves[rng.integers(len(leaves))]
            condition = [condition & other, condition | other, ~condition][rng.integers(3)]
        kept = rows.filter(condition)["u"].to_pylist()
        assert dataset.to_table(["u"], condition)["u"].to_pylist() == kept, str(condition)


def test_hidden_columns(dataset: lance_spark.Dataset) -> None:
    assert dataset.count_rows(FIELD("_rowid") < 5) == 5
    assert dataset.count_rows(FIELD("_fragid") == 3) == 100


def test_indexes_rule_out_rows(dataset: lance_spark.Dataset) -> None:
    for condition, rows in (
        (FIELD("u") == "z77", "rows to look at: 1 of"),
        (FIELD("i").isin([5, 7]) & (FIELD("f") < 400.0), "rows to look at: 2 of"),
        ((FIELD("i") > 5) & (FIELD("i") < 20), "rows to look at: 13 of"),
    ):
        assert rows in dataset.scanner(filter=condition).explain_plan()


@pytest.mark.parametrize(
    "condition", [FIELD("q") == 1, FIELD("s", "q") == 1, FIELD("i"), FIELD("i") == "text"]
)
def test_invalid_conditions(dataset: lance_spark.Dataset, condition: pc.Expression) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        dataset.to_table(filter=condition)


def test_tasks_can_be_pickled(dataset: lance_spark.Dataset) -> None:
    (task,) = dataset.plan(["u"], filter=FIELD("i") == 8)
    (batch,) = pickle.loads(pickle.dumps(task)).batches()
    assert batch.to_pylist() == [{"u": "z8"}]


def test_trees() -> None:
    def tree(expression: pc.Expression) -> object:
        return tree_of(expression.__reduce__()[1][0])

    assert tree(FIELD("a.b")) == FieldRef(("a.b",))
    assert tree(FIELD("a", "b")) == FieldRef(("a", "b"))
    call = tree(FIELD("a").isin([1]) & (FIELD("b") > FIELD("c")))
    assert isinstance(call, Call)
    assert [part.function for part in call.args] == ["is_in", "greater"]
    assert tree_of(pa.py_buffer(b"nothing")) is None


def test_blobs_are_only_tested_for_null(tmp_path: Path) -> None:
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([pa.array([b"a", None, b""], pa.large_binary())], pa.schema([field]))
    for version in ("2.0", "2.1", "2.2"):
        made = lance_spark.write_dataset(rows, tmp_path / version, data_storage_version=version)
        assert made.count_rows(FIELD("blob").is_null()) == 1
        assert made.count_rows(~FIELD("blob").is_null() & FIELD("blob").is_valid()) == 2
        assert made.count_rows(filters=[("blob", "is_not_null", None)]) == 2
        for condition in ("blob IS NULL", "isnull(blob)", "NOT (blob IS NOT NULL)"):
            assert made.count_rows(condition) == 1
        for condition in (FIELD("blob") == b"a", "blob = X'61'", "blob.size = 1"):
            with pytest.raises(InvalidInputError, match="blob"):
                made.count_rows(condition)
    assert made.delete("blob IS NULL").count_rows() == 2
