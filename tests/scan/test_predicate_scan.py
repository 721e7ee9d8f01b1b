"""Scans with a predicate return the rows of pylance, for every layout of a table."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.scan.metrics import ScanMetrics

ROWS = 50_000


def make(path: Path, data_storage_version: str) -> None:
    random = np.random.default_rng(5)
    number = pa.array(random.integers(0, 1000, ROWS), pa.int32(), mask=random.random(ROWS) < 0.1)
    inner = pa.array([f"w{i % 97}" for i in range(ROWS)])
    # Early versions keep no null structs.
    nulls = pa.array((random.random(ROWS) < 0.1) & (data_storage_version in ("2.1", "2.2")))
    deep = pa.StructArray.from_arrays([inner, number], ["text", "n"], mask=nulls)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random.random(ROWS * 8), pa.float32()), 8)
    table = pa.table({"id": range(ROWS), "number": number, "deep": deep, "vector": vectors})
    lance.write_dataset(
        table, str(path), max_rows_per_file=20_000, data_storage_version=data_storage_version
    )


@pytest.fixture(scope="module", params=["legacy", "2.0", "2.1", "2.2"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predicates") / "t.lance"
    make(path, request.param)
    dataset = lance.dataset(str(path))
    dataset.delete("id % 7 = 3")
    return path


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "text",
    [
        *("number = 5", "number > 990 OR deep.n < 3", "NOT (number <= 500 OR deep.text = 'w5')"),
        *("id >= 19990 AND id < 20010", "id IN (1, 2, 49999)", "deep IS NULL"),
        *("deep.text LIKE 'w1%' AND (number < 100 OR number IS NULL)", "id < 0", "true"),
        "number IS NOT NULL",
        *("number > 990 AND deep.text LIKE '%1%'", "deep.text > 'w5' AND number > 100"),
        "id < 19900 AND number > 500 AND deep.text LIKE '%9%' AND deep.n IS NOT NULL",
    ],
)
def test_rows(path: Path, text: str) -> None:
    theirs = lance.dataset(str(path)).to_table(filter=text)
    ours = lance_spark.open_dataset(str(path)).to_table(filter=text)
    assert ours.equals(theirs)
    assert len(ours) > 0 or text in ("id < 0", "deep IS NULL")


@pytest.mark.parametrize("text", ["true", "1 = 1", "false", "id >= 0", "id = 1 OR true"])
@pytest.mark.parametrize("columns", [None, ["word"], []])
def test_few_rows(tmp_path: Path, text: str, columns: list[str] | None) -> None:
    """Conditions without columns, too."""
    path = str(tmp_path / "t.lance")
    table = pa.table({"id": [0, 1, 2], "word": ["a", "b", "c"]})
    lance.write_dataset(table, path, max_rows_per_file=2)
    expected = lance.dataset(path).count_rows(text)
    dataset = lance_spark.open_dataset(path)
    assert dataset.to_table(columns, filter=text).num_rows == expected
    assert dataset.count_rows(text) == expected
    assert dataset.delete(text).count_rows() == 3 - expected
    assert lance.dataset(path).count_rows() == 3 - expected


def test_filter_columns_need_not_be_selected(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    theirs = lance.dataset(str(path)).to_table(["id"], filter="number = 5 AND deep.n = 5")
    assert dataset.to_table(["id"], filter="number = 5 AND deep.n = 5").equals(theirs)
    filtered = dataset.to_table(
        ["id"], filters=[("id", "<", 100)], filter="number < 500 OR number IS NULL"
    )
    assert filtered["id"].to_pylist() == [
        row["id"]
        for row in lance.dataset(str(path)).to_table(filter="id < 100").to_pylist()
        if row["number"] is None or row["number"] < 500
    ]


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("late = 5", 300),
        ("late IS NULL", 0),
        ("NOT (late = 5)", 300),
        ("late = 5 OR late IS NULL", 0),
        ("late = 5 OR id < 10", 0),
        ("pair.late = 6 AND late > 0", 300),
    ],
)
def test_columns_that_no_file_of_a_fragment_has(tmp_path: Path, text: str, skipped: int) -> None:
    path = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"id": range(300)}), path)
    dataset.add_columns(
        [pa.field("late", pa.int32()), pa.field("pair", pa.struct({"late": pa.int32()}))]
    )
    rows = [{"id": 1_000 + n, "late": n, "pair": {"late": n + 1}} for n in range(10)]
    lance.write_dataset(pa.Table.from_pylist(rows, dataset.schema), path, mode="append")
    dataset = lance.dataset(path)
    dataset.delete("id = 7")
    ours = lance_spark.open_dataset(path)
    assert ours.to_table(filter=text).equals(dataset.to_table(filter=text))
    metrics = ScanMetrics()
    for task in ours.plan(filter=text, rows_per_task=200):
        list(task.batches(metrics))
    assert metrics.rows_skipped == skipped


def test_row_metadata_columns(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    second = lance.dataset(str(path)).get_fragments()[1].to_table(columns=["id"])["id"].to_pylist()
    table = dataset.to_table(["id", "_fragid"], filter=f"_fragid = 1 AND id < {second[5]}")
    assert table["id"].to_pylist() == second[:5]


def test_refused_predicates(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    with pytest.raises(InvalidInputError, match="column missing not found"):
        dataset.to_table(filter="missing = 1")
    with pytest.raises(InvalidInputError, match=r"leave it to DataFrame.where"):
        dataset.to_table(filter="sqrt(id) = 1")


@pytest.mark.parametrize("text", ["word LIKE '%7%' AND id < 1000", "id < 0 AND word > 'w'"])
def test_texts_of_rows_that_numbers_leave_out_are_not_read(tmp_path: Path, text: str) -> None:
    words = [f"w{i * 7919 % 10007}" * 20 for i in range(ROWS)]
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(ROWS), "word": words}), path).delete("id % 5 = 2")
    dataset = lance_spark.open_dataset(path)

    def bytes_read(condition: str) -> int:
        metrics = ScanMetrics()
        for task in dataset.plan(["id"], filter=condition):
            for _ in task.batches(metrics):
                pass
        return metrics.bytes_read

    assert dataset.to_table(filter=text).equals(lance.dataset(path).to_table(filter=text))
    assert bytes_read(text) < bytes_read("word LIKE '%7%'") / 5
