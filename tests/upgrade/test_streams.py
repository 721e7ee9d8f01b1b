"""Tables, checkpoints and tasks of streams of earlier states: see README.md."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.upgrade.conftest import EVERY, LATER
from tests.upgrade.write import FOLDER, STEP, TARGETS, rows, stream_of

#: Rows of the source: `write.py` deletes one.
IDS = [number for number in range(4 * STEP) if number != 3]
LOST = pytest.mark.parametrize("lost", [False, True], ids=["", "the commit is lost"])


def ids_of(path: Path) -> list[int]:
    """Return the ids of a table, as this package and pylance read them."""
    ids = sorted(lance_spark.open_dataset(path).to_table(["id"])["id"].to_pylist())
    assert ids == sorted(lance.dataset(str(path)).to_table(["id"])["id"].to_pylist())
    return ids


def go_on(spark: Any, folder: Path, name: str, *, lost: bool, times: int = 1) -> None:
    """Continue a stream; the second time, it has nothing to read."""
    if lost:
        # The last batch is repeated, and has been written already.
        checkpoint = "checkpoint" if name == "target" else f"{name}_checkpoint"
        (folder / checkpoint / "commits" / "1").unlink()
    for _ in range(times):
        query = stream_of(spark, name, folder).start(str(folder / TARGETS[name]))
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()


@EVERY
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


@EVERY
def test_the_tasks_read_the_rows_that_they_were_planned_on(folder: Path) -> None:
    stored, own = (str(path).encode() for path in (FOLDER, folder))
    assert len(stored) == len(own)
    lance_spark.open_dataset(folder / "source.lance").delete("id > 20")
    tasks = pickle.loads((folder / "plan.pickle").read_bytes().replace(stored, own))
    assert len(tasks) > 1
    ids = [
        number for task in tasks for batch in task.batches() for number in batch["id"].to_pylist()
    ]
    assert sorted(ids) == [number for number in IDS if number > 1 and number != 12]


@pytest.mark.sample(2)
@EVERY
@LOST
def test_a_stream_of_appends_goes_on(spark: Any, folder: Path, lost: bool) -> None:
    source, target = folder / "source.lance", folder / "target.lance"
    assert ids_of(target) == list(range(3 * STEP))
    # A delete is no change that a stream reads.
    lance_spark.write_dataset(rows(4), source, mode="append")
    go_on(spark, folder, "target", lost=lost, times=2)
    assert ids_of(target) == list(range(5 * STEP))
    # Version 1 has the rows of two fragments.
    assert lance.dataset(str(target)).version == 3


@LATER
def test_other_streams_go_on(spark: Any, folder: Path) -> None:
    lance_spark.write_dataset(rows(4), folder / "source.lance", mode="append")
    for name in ("feed", "totals", "sstable", "log"):
        go_on(spark, folder, name, lost=name != "totals")
    # The changes, made one after another, give the rows.
    changes = lance_spark.open_dataset(folder / "changes.lance").to_table().to_pylist()
    order = ("delete", "update_preimage", "update_postimage", "insert")
    replayed: dict[int, int] = {}
    for change in sorted(changes, key=lambda row: (row["version"], order.index(row["type"]))):
        if change["type"] in order[:2]:
            assert replayed.pop(change["id"]) == change["n"]
        else:
            assert replayed.setdefault(change["id"], change["n"]) == change["n"]
    feed = lance_spark.open_dataset(folder / "feed.lance").to_table()
    assert replayed == dict(zip(feed["id"].to_pylist(), feed["n"].to_pylist(), strict=True))
    totals = lance_spark.open_dataset(folder / "totals.lance").to_table()
    assert totals["count"].to_pylist() == [5 * STEP]
    # The row with the id 2 is a delete of its key.
    keys = {number: f"text {number - 1}" for number in range(1, 5 * STEP + 1) if number != 3}
    expected = {**keys, **{-number: text for number, text in keys.items()}}
    path = folder / "keyed.lance"
    fresh = lance_spark.open_dataset(path).fresh().to_table()
    compacted = lance_spark.open_dataset(path).compact_mem_wal(flush=True).to_table()
    for table in (fresh, compacted, lance.dataset(str(path)).to_table()):
        assert table.num_rows == len(expected)
        pairs = zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)
        assert dict(pairs) == expected
