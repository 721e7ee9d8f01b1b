"""PyTorch reads tables of Spark by the loaders of this package, and by those of pylance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lance_spark.loaders.torch import (  # noqa: E402
    LanceDataset,
    SafeLanceDataset,
    get_safe_loader,
)

KEPT = [number for number in range(200) if number % 10 != 3]


@pytest.fixture(scope="module")
def table(spark: Any, folder: Path) -> str:
    """A table of vectors that Spark writes and changes."""
    frame = spark.range(200).selectExpr(
        "id", "array_repeat(cast(id AS float), 4) AS vector", "id % 3 AS label"
    )
    writer = frame.repartition(4).writeTo("lance.vectors")
    writer.tableProperty("vector.arrow.fixed-size-list.size", "4").create()
    spark.sql("DELETE FROM lance.vectors WHERE id % 10 = 3")
    spark.sql("UPDATE lance.vectors SET label = 9 WHERE id < 20")
    return str(folder / "lake" / "vectors.lance")


def check(batches: Any) -> None:
    seen = []
    for batch in batches:
        assert batch["vector"].shape == (len(batch["id"]), 4)
        assert torch.equal(batch["vector"][:, 0].long(), batch["id"])
        assert torch.equal(batch["label"] == 9, batch["id"] < 20)
        seen += batch["id"].tolist()
    assert sorted(seen) == KEPT


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_loader(table: str, shuffle: bool, workers: int) -> None:
    """`DataLoader(lance_spark.loaders.torch.LanceDataset(PATH, 256), batch_size=None)` gives batches
    of tensors, also in shuffled order and in several workers.
    """
    rows = LanceDataset(table, 32, shuffle=shuffle, seed=1)
    check(torch.utils.data.DataLoader(rows, batch_size=None, num_workers=workers))


def test_filtered_loader(table: str) -> None:
    """`LanceDataset(PATH, 256, columns=..., filter=...)` reads only these columns and rows."""
    rows = LanceDataset(table, 32, columns=["id", "label"], filter="label = 9")
    found = [number for batch in rows for number in batch["id"].tolist()]
    assert sorted(found) == [number for number in KEPT if number < 20]


def test_map_loader(table: str) -> None:
    """`get_safe_loader(SafeLanceDataset(PATH))` reads rows by position, for samplers."""
    rows = SafeLanceDataset(table)
    assert len(rows) == len(KEPT)
    loader = get_safe_loader(rows, batch_size=16, num_workers=0, shuffle=True)
    found = [int(number) for batch in loader for number in batch["id"]]
    assert sorted(found) == KEPT


def test_pylance_loader(table: str) -> None:
    """`lance.torch.data.LanceDataset(PATH, batch_size=256)` of pylance reads tables of Spark."""
    data = pytest.importorskip("lance.torch.data")
    check(data.LanceDataset(table, batch_size=32))
