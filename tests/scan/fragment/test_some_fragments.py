"""Scans of some fragments, and scans that leave fragments whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError

ROWS = 20_000


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    """Ten fragments of 20,000 rows."""
    rows = pa.table({"id": np.arange(10 * ROWS)})
    path = str(tmp_path / "t")
    write_dataset(rows, path, max_rows_per_file=ROWS, enable_stable_row_ids=request.param)
    return open_dataset(path)


@pytest.mark.parametrize("target", [None, 3_000, 45_000])
def test_plan_of_some_whole_fragments(dataset: Dataset, target: int | None) -> None:
    ids = [7, 2, 3]
    columns = ["id", "_rowoffset", "_rowid", "_fragid"]
    tasks = dataset.plan(columns, target_rows=target, fragment_ids=ids, whole_fragments=True)
    parts = [pa.Table.from_batches(task.batches()) for task in tasks]
    owners = [set(part["_fragid"].to_pylist()) for part in parts]
    assert sum(map(len, owners)) == len(set().union(*owners))
    rows = pa.concat_tables(parts)
    wanted = np.concatenate([np.arange(n * ROWS, (n + 1) * ROWS) for n in sorted(ids)])
    assert rows["id"].to_numpy().tolist() == wanted.tolist()
    # Positions are those in the whole table.
    assert rows["_rowoffset"].to_numpy().tolist() == wanted.tolist()
    if target == 3_000:
        assert len(tasks) == 3


def test_filters_on_some_and_no_fragments(dataset: Dataset) -> None:
    tasks = dataset.plan(["id"], filter="id > 25000", fragment_ids=range(2))
    assert sum(batch.num_rows for task in tasks for batch in task.batches()) == 2 * ROWS - 25_001
    assert dataset.plan(["id"], fragment_ids=[]) == []
    # Without the option large fragments are cut.
    assert len(dataset.plan(["id"], fragment_ids=[4], target_rows=3_000)) > 1


def test_unknown_fragment_ids_are_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="no fragment 10"):
        dataset.plan(fragment_ids=[3, 10])
