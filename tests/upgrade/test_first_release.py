"""Tables, a checkpoint and tasks of the first release: see `write.py`."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.upgrade.write import ARCHIVE, FOLDER, STEP, folder_in, rows

#: Rows of the source: `write.py` deletes one.
IDS = [number for number in range(4 * STEP) if number != 3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files, for this test to change."""
    found = folder_in(tmp_path)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(found, filter="data")
    return found


def ids_of(path: Path) -> list[int]:
    """Return the ids of a table, as this package and pylance read them."""
    found = sorted(lance_spark.open_dataset(path).to_table(["id"])["id"].to_pylist())
    assert found == sorted(lance.dataset(str(path)).to_table(["id"])["id"].to_pylist())
    return found


def test_the_table_is_read_and_changed(folder: Path) -> None:
    path = folder / "source.lance"
    expected = pa.concat_tables(rows(part) for part in range(4))
    expected = expected.filter(pa.compute.field("id") != 3)
    dataset = lance_spark.open_dataset(path)
    assert dataset.to_table() == expected == lance.dataset(str(path)).to_table()
    assert lance_spark.open_dataset(path, 3).count_rows() == 3 * STEP
    dataset.validate()
    lance_spark.write_dataset(rows(4), path, mode="append")
    dataset = lance_spark.open_dataset(path)
    dataset.delete("id = 5")
    dataset = lance_spark.open_dataset(path)
    dataset.update({"text": "new"}, "id = 7")
    dataset = lance_spark.open_dataset(path)
    dataset.compact_files()
    assert ids_of(path) == sorted({*IDS, *range(4 * STEP, 5 * STEP)} - {5})
    new = lance.dataset(str(path)).to_table(["id"], filter="text = 'new'")
    assert new["id"].to_pylist() == [7]
    lance.dataset(str(path)).validate()


def test_the_tasks_read_the_rows_that_they_were_planned_on(folder: Path) -> None:
    stored, own = (str(path).encode() for path in (FOLDER, folder))
    assert len(stored) == len(own)
    lance_spark.open_dataset(folder / "source.lance").delete("id > 20")
    tasks = pickle.loads((folder / "plan.pickle").read_bytes().replace(stored, own))
    assert len(tasks) > 1
    found = [
        number for task in tasks for batch in task.batches() for number in batch["id"].to_pylist()
    ]
    assert sorted(found) == [number for number in IDS if number > 1 and number != 12]


@pytest.mark.parametrize("lost", [False, True], ids=["", "the commit is lost"])
def test_the_stream_goes_on(spark: Any, folder: Path, lost: bool) -> None:
    source, target = folder / "source.lance", folder / "target.lance"
    assert ids_of(target) == list(range(3 * STEP))
    if lost:
        # The last batch is repeated, and has been written already.
        (folder / "checkpoint" / "commits" / "1").unlink()
    # A delete is no change that a stream reads.
    lance_spark.write_dataset(rows(4), source, mode="append")
    for _ in range(2):
        stream = (
            spark.readStream.format("lance").option("skipChangeCommits", "true").load(str(source))
        )
        writer = stream.writeStream.format("lance")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(target))
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()
        assert ids_of(target) == list(range(5 * STEP))
        # Version 1 has the rows of two fragments.
        assert lance.dataset(str(target)).version == 3
