"""Idempotent changes: found in the history, and among concurrent commits."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pytest

from lance_spark.dataset.write import write_dataset
from lance_spark.errors import AlreadyCommittedError, InvalidInputError, LanceError
from lance_spark.file.schema.schema import Schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit import commit as commit_module
from lance_spark.table.commit import options as once_module
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import WriteToken, find_committed_version
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append, Overwrite
from tests.support.tables.pylance_written import ids, manifests, new_table, rows, written_by_pylance
from tests.table.commit.test_concurrency import run

ID, NUMBER = "lance.streaming.queryId", "lance.streaming.epochId"

WRITER = f"""
import pickle
import sys
from lance_spark.errors import AlreadyCommittedError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import WriteToken
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append
from lance_spark.table.commit.transaction import Transaction

store = ObjectStore.from_uri(sys.argv[1])
fragments = pickle.loads(bytes.fromhex(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
done = []
for number, one in enumerate(fragments):
    base = read_latest(store)
    once = WriteToken("{ID}", "q", "{NUMBER}", number)
    try:
        commit(store, Transaction.new(base.version, Append(one)), base, max_retries=100, write_token=once)
    except AlreadyCommittedError:
        continue
    done.append(str(number))
print(",".join(done))
"""


def once(number: int, name: str = "q", lookback: int = 1_000) -> WriteToken:
    return WriteToken(ID, name, NUMBER, number, lookback)


def append(
    path: Path, start: int, only: WriteToken | None = None, base: Manifest | None = None
) -> Manifest:
    store = ObjectStore.from_uri(path)
    base = base or read_latest(store)
    operation = Append(written_by_pylance(path, rows(start)))
    transaction = Transaction.new(base.version, operation, {"kept": "yes"})
    return commit(store, transaction, base, write_token=only)


def test_committed_change_is_found(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    append(path, 6, once(3))
    properties = lance.dataset(str(path)).read_transaction(2).transaction_properties
    assert properties == {ID: "q", NUMBER: "3", "kept": "yes"}
    append(path, 9)
    for number in (0, 3):
        with pytest.raises(AlreadyCommittedError, match=r"version 2 .*'q'") as raised:
            append(path, 100, once(number))
        assert raised.value.version == 2
        assert pickle.loads(pickle.dumps(raised.value)).version == 2
    # Numbers of a writer have no meaning for another writer.
    assert append(path, 12, once(3, "other")).version == 4
    assert append(path, 15, once(4)).version == 5
    assert ids(path) == list(range(18))
    files = {file.name for file in (path / "_transactions").iterdir()}
    store = ObjectStore.from_uri(path)
    named = {read_transaction(store, manifest).file_name for manifest in manifests(path)}  # type: ignore[union-attr]
    assert files == named, "a change that is not made leaves no transaction behind"


def test_search_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends at the newest transaction of the writer, or at the lookback."""
    path = tmp_path / "t"
    new_table(path)
    append(path, 6, once(0))
    append(path, 9, once(1))
    append(path, 12)
    append(path, 15)
    store = ObjectStore.from_uri(path)
    newest = read_latest(store)
    read: list[int] = []
    original = once_module.read_manifest

    def noting(store: ObjectStore, location: object) -> Manifest:
        manifest = original(store, location)  # type: ignore[arg-type]
        read.append(manifest.version)
        return manifest

    monkeypatch.setattr(once_module, "read_manifest", noting)
    assert find_committed_version(store, newest, once(2)) is None
    assert read == [4, 3]
    assert find_committed_version(store, newest, once(1)) == 3
    assert find_committed_version(store, newest, once(1, lookback=3)) == 3
    assert find_committed_version(store, newest, once(1, lookback=2)) is None
    read.clear()
    assert find_committed_version(store, newest, once(0, "nobody")) is None
    assert read == [4, 3, 2, 1]
    read.clear()
    assert find_committed_version(store, newest, once(0, "nobody", lookback=1)) is None
    assert read == []


def test_remote_stores_are_searched_in_the_same_order(tmp_path: Path) -> None:
    uri = f"memory://{tmp_path.name}/t"
    store = ObjectStore.from_uri(uri)
    write_dataset(rows(0), uri)
    for number in range(40):
        base = read_latest(store)
        properties = {} if number % 4 else once(number // 4).properties()
        commit(store, Transaction.new(base.version, Append(()), properties), base)
    newest = read_latest(store)
    assert newest.version == 41
    assert find_committed_version(store, newest, once(10)) is None
    assert (
        find_committed_version(store, newest, once(9))
        == find_committed_version(store, newest, once(0))
        == 38
    )
    assert find_committed_version(store, newest, once(9, lookback=3)) is None
    assert find_committed_version(store, newest, once(0, "nobody")) is None


def test_removed_versions_are_not_searched(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    append(path, 6, once(0))
    append(path, 9)
    store = ObjectStore.from_uri(path)
    store.delete([item.path for item in list_manifests(store) if item.version == 2])
    assert find_committed_version(store, read_latest(store), once(0)) is None


@pytest.mark.parametrize("stands", ["x", "-1", "1.0", "", "9" * 40, "٣"])
def test_invalid_numbers_are_ignored(stands: str) -> None:
    transaction = Transaction.new(1, Append(()), {ID: "q", NUMBER: stands})
    assert not once(0).is_committed_by(transaction)
    assert once(0).number_of(transaction) is None


def test_invalid_tokens_are_refused(tmp_path: Path) -> None:
    for number, name, lookback in ((-1, "q", 1), (2**63, "q", 1), (0, "", 1), (0, "q", 0)):
        with pytest.raises(InvalidInputError):
            once(number, name, lookback)
    path = tmp_path / "t"
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    with pytest.raises(InvalidInputError, match="detached"):
        commit(store, Transaction.new(1, Append(())), base, detached=True, write_token=once(0))


def race(monkeypatch: pytest.MonkeyPatch, change: object) -> list[object]:
    """Let two threads search the history before either commits; return their versions."""
    barrier = threading.Barrier(2, timeout=30)
    waited = threading.local()
    original = commit_module._Attempts._catch_up

    def catch_up(self: object, result: object) -> object:
        written = original(self, result)  # type: ignore[arg-type]
        if not hasattr(waited, "done"):
            waited.done = True
            barrier.wait()
        return written

    monkeypatch.setattr(commit_module._Attempts, "_catch_up", catch_up)

    def made(number: int) -> object:
        try:
            return change(number)  # type: ignore[operator]
        except LanceError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(made, range(2)))


def test_concurrent_commits_of_the_same_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    new_table(path)
    base = read_latest(ObjectStore.from_uri(path))
    made = race(monkeypatch, lambda number: append(path, 6 + 3 * number, once(7), base).version)
    assert sorted(str(type(item).__name__) for item in made) == ["AlreadyCommittedError", "int"]
    refused = next(item for item in made if isinstance(item, AlreadyCommittedError))
    assert refused.version == 2
    assert 2 in made
    assert len(manifests(path)) == 2
    assert len(ids(path)) == 9


def test_concurrent_creations_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    schema = Schema.from_arrow(rows(0).schema)

    def create(_: int) -> int:
        operation = Overwrite(
            written_by_pylance(path, rows(0)),
            tuple(schema.to_protos()),
            data_storage_version=(2, 2),
        )
        store = ObjectStore.from_uri(path)
        return commit(store, Transaction.new(0, operation), None, write_token=once(0)).version

    made = race(monkeypatch, create)
    assert Counter(type(item) for item in made) == Counter([int, AlreadyCommittedError])
    assert ids(path) == [0, 1, 2]


def test_processes_commit_each_change_once(tmp_path: Path) -> None:
    """Both threads try all changes of a writer; each change is committed once."""
    path = tmp_path / "t"
    new_table(path)
    count = 8

    def writer() -> tuple[str, ...]:
        fragments = [written_by_pylance(path, rows(6 + 3 * i)) for i in range(count)]
        return WRITER, str(path), pickle.dumps(fragments).hex()

    done = run([writer(), writer(), writer()])
    numbers = [int(number) for item in done for number in item.split(",") if number]
    assert sorted(numbers) == list(range(count))
    assert len(manifests(path)) == 1 + count
    assert ids(path) == list(range(6 + 3 * count))
