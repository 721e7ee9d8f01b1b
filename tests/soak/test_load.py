"""Short forms of the load tests of `python -m tests.soak`, and faults that they must find."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.soak.clients import COUNTER, KEYS, LOG, Account, events, logged
from tests.soak.load import load
from tests.soak.mixed import Clients, create, run_mixed, wrong_tables
from tests.soak.streams import CHANGES, KEYED
from tests.soak.worker import batches_of, rows


def test_load_on_a_local_disk(tmp_path: Path) -> None:
    path = tmp_path / "table"
    figures = load(str(path), 8, writers=4, readers=3, age=2)
    assert not figures.wrong
    # Few commits, because other programs may use the machine.
    assert figures.counts["commits"] > 4
    assert figures.counts["reads"] > 2
    theirs = lance.dataset(str(path))
    theirs.validate()
    ours = lance_spark.open_dataset(str(path)).to_table()
    assert theirs.to_table().equals(ours)
    assert ours.num_rows == figures.counts["rows in the end"]


def test_the_load_detects_half_a_batch() -> None:
    batch = rows(7, 3)
    assert batches_of(batch) == ({7: 3}, [])
    for pieces in (
        [batch.slice(1)],
        [batch, batch.slice(0, 1)],
        [batch.slice(1), rows(7, 4).slice(0, 1)],
    ):
        (wrong,) = batches_of(pa.concat_tables(pieces))[1]
        assert wrong.startswith("half a batch")


def test_clients_of_both_packages_at_once(tmp_path: Path) -> None:
    counts, wrong = run_mixed(None, tmp_path, 5, Clients(own=1, pylance=1, streams="called"))
    assert not wrong
    assert counts.total() > 5


#: A fault -> a change of a right table that makes it, and what the check says. Nobody has noted
#: these changes.
FAULTS = {
    "a row is lost": ("events", "delete id = 2000004", "1 lost"),
    "a row is doubled": ("events", "append", "1 doubled"),
    "a row that was deleted is back": ("events", "append other", "1 not written"),
    "a row has an old value": ("events", "update n = 0 where id = 2000004", "1 other value"),
    "a row has another text": ("events", "update s = x where id = 2000004", "other texts"),
    "an addition to the counter is lost": ("events", "update n = 6 where id = -1", "1 other value"),
    "a logged row is lost": ("log", "delete id = 2000003", "log: 1 lost"),
    "a logged row is doubled": ("log", "append", "log: 1 doubled"),
    "a stream lost a row": ("copy", "delete id = 2000003", "copy: 1 lost"),
    "a stream wrote a row twice": ("copy", "append", "copy: 1 doubled"),
    "a key is lost": ("keyed", "delete key = 17", "keyed: 1 lost"),
    "a key has an old row": ("keyed", "update seq = 1 where key = 17", "keyed: 1 other value"),
    "a change is lost": ("changes", "delete version = 2", "this row did not exist"),
    "a change is doubled": ("changes", "append", "a row of this id exists"),
}


@pytest.fixture(scope="module")
def right_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tables of a writer, and those that streams would have written."""
    folder = tmp_path_factory.mktemp("right")
    clients = Clients(streams="called")
    create(folder, clients, columns=["id", "n"])
    account = Account(2, increments=7, logged=20)
    account.rows = {row: row % 10 for row in account.new_ids(9)}
    account.store(folder)
    path = folder / "events.lance"
    rows = events(account.rows, account.number, account.rows.values())
    lance_spark.write_dataset(rows, path, mode="append")
    lance_spark.open_dataset(path).update({"n": 7}, f"id = {COUNTER}")
    log = logged(account.number, 0, account.logged)
    lance_spark.write_dataset(log, folder / "log.lance", mode="append")
    lance_spark.write_dataset(log, folder / "copy.lance", schema=LOG)
    newest = [row for row in log.to_pylist()[-KEYS:] if not row.pop("is_deleted")]
    lance_spark.write_dataset(pa.Table.from_pylist(newest, KEYED), folder / "keyed.lance")
    lance_spark.open_dataset(folder / "keyed.lance").initialize_mem_wal(
        bucket_column="key", num_buckets=2
    )
    made = [(COUNTER, 0, "insert", 1)]
    made += [(row, 0, "insert", 2) for row in account.rows]
    for row, n in {COUNTER: 7, **account.rows}.items():
        made += [(row, 0, "update_preimage", 3), (row, n, "update_postimage", 3)]
    changes = pa.table(list(zip(*made, strict=True)), schema=CHANGES)
    lance_spark.write_dataset(changes, folder / "changes.lance")
    assert wrong_tables(folder, clients) == []
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_finds(fault: str, right_tables: Path, tmp_path: Path) -> None:
    table, change, expected = FAULTS[fault]
    folder = Path(shutil.copytree(right_tables, tmp_path / "wrong"))
    path = folder / f"{table}.lance"
    dataset = lance_spark.open_dataset(path)
    if change == "append other":
        lance_spark.write_dataset(events([2_000_999], 2, [0]), path, mode="append")
    elif change == "append":
        lance_spark.write_dataset(dataset.to_table(limit=1), path, mode="append")
    elif change.startswith("delete "):
        dataset.delete(change.removeprefix("delete "))
    else:
        assignment, condition = change.removeprefix("update ").split(" where ")
        name, value = assignment.split(" = ")
        dataset.update({name: value if name == "s" else int(value)}, condition)
    wrong = wrong_tables(folder, Clients(streams="called"))
    assert any(expected in text for text in wrong), wrong
