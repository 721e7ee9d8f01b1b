"""`LanceTable.update` in the mode "overlay"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lance_spark import LanceTable
from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import InvalidInputError, UnsupportedError
from tests.spark.table.tables import left_over

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Without this variable, pylance refuses tables with overlays, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    ids = range(100)
    data = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "n": pa.array(ids, pa.int32()),
            "text": [f"text {i}" for i in ids],
            "point": pa.array([None if i == 3 else {"x": i, "y": "p"} for i in ids], POINT),
        }
    )
    lance.write_dataset(data, str(tmp_path / "t"), max_rows_per_file=30, enable_stable_row_ids=True)
    return tmp_path / "t"


def rows(path: Path) -> dict[int, dict[str, Any]]:
    """Return the rows by their ids, as both clients read them."""
    ours = open_dataset(str(path))
    ours.validate()
    result = ours.to_table().to_pylist()
    assert result == lance.dataset(str(path)).to_table().to_pylist()
    return {row["id"]: row for row in result}


def num_overlays(path: Path) -> list[int]:
    return [len(f.metadata.overlays) for f in lance.dataset(str(path)).get_fragments()]


def test_update(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    expected = rows(path)
    result = table.update(
        "id % 40 = 7", {"n": "n * 2", "text": F.upper("text"), "point.x": "id + 1"}, mode="overlay"
    )
    assert (result.version, result.num_updated_rows) == (2, 3)
    assert num_overlays(path) == [1, 1, 1, 0]
    for row_id in (7, 47, 87):
        expected[row_id] |= {"n": row_id * 2, "text": f"TEXT {row_id}"}
        expected[row_id]["point"] = {"x": row_id + 1, "y": "p"}
    assert rows(path) == expected
    df = spark.read.format("lance").load(str(path)).where("n = 174")
    assert [row.id for row in df.collect()] == [87]
    assert left_over(path) == set()
    # Window functions need all rows, so that the rows are sorted by their addresses.
    table.update("id < 50", {"n": "row_number() OVER (ORDER BY id DESC)"}, mode="overlay")
    for row_id in range(50):
        expected[row_id]["n"] = 50 - row_id
    assert rows(path) == expected
    metrics = table.optimize(max_overlays_per_fragment=0).first()
    assert metrics.fragments_removed >= 2
    assert sum(num_overlays(path)) == 0
    assert rows(path) == expected


def test_never_by_itself(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.update("id = 5", {"n": "1"})
    table.update("id = 5", {"n": "1"}, mode="columns")
    assert sum(num_overlays(path)) == 0


def test_refusals(spark: Any, path: Path, tmp_path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    before = set(path.rglob("*"))
    with pytest.raises(InvalidInputError, match="whether a struct is null"):
        table.update("id < 5", {"point.x": "1"}, mode="overlay")
    assert set(path.rglob("*")) == before
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "old"), data_storage_version="legacy")
    with pytest.raises(UnsupportedError, match=r"version 2\.0 or later"):
        LanceTable.forPath(spark, str(tmp_path / "old")).update(None, {"a": "2"}, mode="overlay")
