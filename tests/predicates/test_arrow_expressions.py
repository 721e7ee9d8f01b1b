"""Expressions of Arrow as conditions: the same rows as Arrow keeps, with and without indexes."""

from __future__ import annotations

import datetime
import functools
import operator
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.predicates.arrow import ArrowCall, FieldRef, tree_of

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


@pytest.mark.sample(3)
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
        result = tree_of(expression)
        assert result is not None
        assert result.expression(result.root).equals(expression)
        return result.root

    assert tree(FIELD("a.b")) == FieldRef(("a.b",))
    assert tree(FIELD("a", "b")) == FieldRef(("a", "b"))
    call = tree(FIELD("a").isin([1]) & (FIELD("b") > FIELD("c")))
    assert isinstance(call, ArrowCall)
    assert [part.function for part in call.args] == ["is_in", "greater"]
    chain = functools.reduce(operator.or_, [FIELD("a").is_valid()] * 60_000)
    result = tree_of(chain)
    assert result is not None
    assert isinstance(result.root, ArrowCall)
    assert len(result.root.args) == 60_000


def test_chains_of_many_conditions(dataset: lance_spark.Dataset) -> None:
    rng = np.random.default_rng(2)
    rows = table()
    leaves = [part for part in CONDITIONS[:40] if str(part) not in ("b", "invert(b)")]
    numbers = range(0, ROWS, 2)

    def chain(size: int) -> pc.Expression:
        parts = [leaves[rng.integers(len(leaves))] for _ in range(3)]
        names = [("i", 1), ("f", 0.5), ("f32", 1.0), ("dec", Decimal(1))]
        for _ in range(size):
            name, unit = names[rng.integers(len(names))]
            value = rng.choice(numbers).item() * unit
            parts.append(FIELD(name) == value if rng.integers(4) else FIELD("u") > f"z{value}")
        joins = operator.and_, operator.or_
        result = functools.reduce(joins[int(rng.integers(5) > 0)], parts)
        return ~result if rng.integers(2) else result

    for _ in range(12):
        condition = chain(60) | (chain(70) & chain(3)) if rng.integers(2) else chain(120)
        kept = rows.filter(condition)["u"].to_pylist()
        assert dataset.to_table(["u"], condition)["u"].to_pylist() == kept
        assert dataset.count_rows(condition) == len(kept)


def test_deep_conditions(tmp_path: Path) -> None:
    rows = pa.table({"id": range(100)})
    made = lance_spark.write_dataset(rows, tmp_path / "t").create_scalar_index("id", "BTREE")

    def nested(levels: int) -> pc.Expression:
        value = FIELD("id")
        for _ in range(levels):
            value = value + 1
        return value > levels + 90

    condition = functools.reduce(
        operator.or_, [FIELD("id") == 2 * number for number in range(1_500)]
    )
    assert made.count_rows(condition) == made.to_table(filter=condition).num_rows == 50
    assert "id_idx" in made.scanner(filter=condition).explain_plan()
    assert made.delete(condition).count_rows() == 50
    made = made.checkout_version(2)
    assert made.count_rows(~condition) == made.arrow_dataset().count_rows(~condition) == 50
    (task,) = made.plan(filter=condition)
    assert sum(batch.num_rows for batch in pickle.loads(pickle.dumps(task)).batches()) == 50
    assert made.count_rows(nested(900)) == 9
    for levels in (1100, 20_000):
        with pytest.raises(InvalidInputError, match="at most 1000 are possible"):
            made.count_rows(nested(levels))


def test_columns_have_the_types_of_the_table(tmp_path: Path) -> None:
    """Also where filters read dictionaries and JSONB."""
    words = ["apple", "fig", None, "kiwi"]
    texts = [words[number % 4] for number in range(4_000)]
    rows = pa.table(
        {
            "t": texts,
            "b": pa.array([None if t is None else t.encode() for t in texts], pa.binary()),
            "doc": pa.array([None if t is None else f'{{"{t}":1}}' for t in texts], pa.json_()),
        }
    )
    inner = rows["doc"].combine_chunks()
    lists = pa.ListArray.from_arrays(pa.array(range(4_001), pa.int32()), inner)
    rows = rows.append_column("s", pa.StructArray.from_arrays([inner], ["doc"]))
    rows = rows.append_column("l", lists)
    made = lance_spark.write_dataset(rows, tmp_path / "t")
    for condition, count in (
        (pc.starts_with(FIELD("t"), "ap"), 1_000),
        (pc.utf8_upper(FIELD("t")) == "FIG", 1_000),
        (pc.utf8_length(FIELD("t")) > 3, 2_000),
        (pc.binary_length(FIELD("b")) > 3, 2_000),
        (pc.match_substring_regex(FIELD("b"), "^k"), 1_000),
        (pc.if_else(FIELD("t").is_null(), "fig", FIELD("t")) == "fig", 2_000),
        (FIELD("doc") == '{"fig":1}', 1_000),
        (FIELD("doc") != '{"fig":1}', 2_000),
        (FIELD("doc") < '{"b', 1_000),
        (FIELD("doc").isin(['{"fig":1}', '{"kiwi":1}']), 2_000),
        (pc.ends_with(FIELD("s", "doc"), "1}") & (FIELD("t") == "kiwi"), 1_000),
        (pc.list_element(FIELD("l"), 0) == '{"apple":1}', 1_000),
    ):
        assert made.count_rows(condition) == count
        assert sum(part.count_rows(condition) for part in made.get_fragments()) == count
        assert made.to_table(filter=condition).num_rows == count
        assert made.to_table(["t"], condition).num_rows == count
        made = made.delete(condition)
        assert made.count_rows() == 4_000 - count
        made = made.checkout_version(1).restore()


def test_values_that_arrow_cannot_compute(tmp_path: Path) -> None:
    made = lance_spark.write_dataset(pa.table({"t": ["1", "x", "3"]}), tmp_path / "t")
    condition = FIELD("t").cast(pa.int64()) > 1
    with pytest.raises(EvaluationError, match="filter"):
        made.count_rows(condition)
    # The value of a deleted row does not count.
    assert made.delete("t = 'x'").count_rows(condition) == 1


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
