"""Processes that commit to one table at the same time: each commit happens exactly once."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance

from lance_spark.file.schema.schema import Schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append, Overwrite
from tests.support.tables.pylance_written import ids, manifests, new_table, rows, written_by_pylance

COMMITS = 6

OURS = """
import pickle
import sys
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append
from lance_spark.table.commit.transaction import Transaction

store = ObjectStore.from_uri(sys.argv[1])
fragments = pickle.loads(bytes.fromhex(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for fragment in fragments:
    base = read_latest(store)
    commit(store, Transaction.new(base.version, Append(fragment)), base, max_retries=100)
"""

THEIRS = """
import sys
import lance
from tests.support.tables.pylance_written import rows

path, start, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    for attempt in range(5):
        try:
            lance.write_dataset(rows(start + 3 * i), path, mode="append")
            break
        except OSError as error:
            # pylance gives up after its own number of retries.
            if "conflict" not in str(error).lower():
                raise
"""

CREATE = """
import sys
import pyarrow as pa
from lance_spark.errors import TableExistsError
from lance_spark.file.schema.schema import Schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.operations.append import Overwrite
from lance_spark.table.commit.transaction import Transaction

store = ObjectStore.from_uri(sys.argv[1])
schema = Schema.from_arrow(pa.schema([("id", pa.int64()), ("word", pa.string())]))
operation = Overwrite((), tuple(schema.to_protos()), data_storage_version=(2, 2))
print("ready", flush=True)
sys.stdin.readline()
try:
    print(commit(store, Transaction.new(0, operation), None).version)
except TableExistsError:
    print("exists")
"""


def launch(script: tuple[str, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", *script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]


def run(scripts: list[tuple[str, ...]]) -> list[str]:
    """Start processes, let them begin at once, and return their output."""
    processes = [launch(script) for script in scripts]
    try:
        for process in processes:
            wait_until_ready(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        results = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, results, strict=True):
        assert process.returncode == 0, errors
    return [out.strip() for out, _ in results]


def ours(path: Path, number: int, commits: int = COMMITS) -> tuple[str, ...]:
    starts = range(6 + 3 * commits * number, 6 + 3 * commits * (number + 1), 3)
    fragments = [written_by_pylance(path, rows(start)) for start in starts]
    return OURS, str(path), pickle.dumps(fragments).hex()


def theirs(path: Path, number: int) -> tuple[str, ...]:
    return THEIRS, str(path), str(6 + 3 * COMMITS * number), str(COMMITS)


def check(path: Path, commits: int) -> None:
    result = manifests(path)
    assert sorted(ids(path)) == list(range(6 + 3 * commits))
    assert [manifest.version for manifest in result] == list(range(1, commits + 2))
    store = ObjectStore.from_uri(path)
    transactions = [read_transaction(store, manifest) for manifest in result]
    assert len({t.uuid for t in transactions if t}) == commits + 1
    for manifest, transaction in zip(result, transactions, strict=True):
        assert transaction is not None
        assert transaction.read_version < manifest.version
    # Every version has the rows of the version before, and three more rows.
    assert [manifest.num_rows for manifest in result] == [6 + 3 * i for i in range(commits + 1)]
    assert len({fragment.id for fragment in result[-1].fragments}) == len(result[-1].fragments)


def test_concurrent_writers(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    run([ours(path, number) for number in range(4)])
    check(path, 4 * COMMITS)


def test_concurrent_writers_with_pylance(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path, enable_stable_row_ids=True)
    run([ours(path, 0), theirs(path, 1), ours(path, 2), theirs(path, 3)])
    check(path, 4 * COMMITS)
    numbers = lance.dataset(str(path)).to_table(columns=[], with_row_id=True)["_rowid"]
    assert sorted(numbers.to_pylist()) == list(range(6 + 12 * COMMITS))


def test_killed_writer(tmp_path: Path) -> None:
    """After a kill at any moment, the table has a valid version, and other writers continue."""
    path = tmp_path / "t"
    new_table(path)
    process = launch(ours(path, 0, commits=100))
    wait_until_ready(process)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    while len(manifests(path)) < 10:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    commits = len(manifests(path)) - 1
    assert 9 <= commits < 100
    check(path, commits)
    lance.write_dataset(rows(6 + 3 * commits), str(path), mode="append")
    check(path, commits + 1)


def test_threads_on_one_store(tmp_path: Path) -> None:
    """The store in memory gives each thread its own connection, as object stores do."""
    uri = f"memory://{tmp_path.name}/t"
    schema = Schema.from_arrow(rows(0).schema)
    creation = Overwrite((), tuple(schema.to_protos()), data_storage_version=(2, 2))
    commit(ObjectStore.from_uri(uri), Transaction.new(0, creation), None)

    def append(number: int) -> None:
        store = ObjectStore.from_uri(uri)
        for i in range(COMMITS):
            base = read_latest(store)
            file = DataFile(f"{number}-{i}.lance", (0, 1), (0, 1), 2, 2)
            commit(store, Transaction.new(base.version, Append((Fragment(0, [file], 1),))), base)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(append, range(6)))
    newest = read_latest(ObjectStore.from_uri(uri))
    assert newest.version == 1 + 6 * COMMITS
    assert {fragment.files[0].path for fragment in newest.fragments} == {
        f"{number}-{i}.lance" for number in range(6) for i in range(COMMITS)
    }
    assert [fragment.id for fragment in newest.fragments] == list(range(6 * COMMITS))


def test_only_one_writer_creates_the_table(tmp_path: Path) -> None:
    answers = run([(CREATE, str(tmp_path / "t"))] * 4)
    assert sorted(answers) == ["1", "exists", "exists", "exists"]
    lance.write_dataset(rows(0), str(tmp_path / "t"), mode="append")
    assert ids(tmp_path / "t") == [0, 1, 2]
