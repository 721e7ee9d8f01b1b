"""Real processes that commit to one table at the same time: no commit is lost, none happens twice."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import lance

from lance_spark.storage.store import ObjectStore
from lance_spark.table.transaction import read_transaction
from tests.table.pylance_tables import ids, manifests, new_table, rows, written_by_pylance

COMMITS = 6

OURS = """
import pickle
import sys
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit import commit
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append
from lance_spark.table.transaction import Transaction

store = ObjectStore.from_uri(sys.argv[1])
fragments = pickle.loads(bytes.fromhex(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for one in fragments:
    base = read_latest(store)
    commit(store, Transaction.new(base.version, Append(one)), base, max_retries=100)
"""

THEIRS = """
import sys
import lance
from tests.table.pylance_tables import rows

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
from lance_spark.file.schema import Schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit import commit
from lance_spark.table.operations.overwrite import Overwrite
from lance_spark.table.transaction import Transaction

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


def run(scripts: list[tuple[str, ...]]) -> list[str]:
    """Start processes, let all begin at once, and return what they print."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for script in scripts
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
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


def ours(path: Path, number: int) -> tuple[str, ...]:
    starts = range(6 + 3 * COMMITS * number, 6 + 3 * COMMITS * (number + 1), 3)
    fragments = [written_by_pylance(path, rows(start)) for start in starts]
    return OURS, str(path), pickle.dumps(fragments).hex()


def theirs(path: Path, number: int) -> tuple[str, ...]:
    return THEIRS, str(path), str(6 + 3 * COMMITS * number), str(COMMITS)


def check(path: Path, commits: int) -> None:
    found = manifests(path)
    assert sorted(ids(path)) == list(range(6 + 3 * commits))
    assert [manifest.version for manifest in found] == list(range(1, commits + 2))
    store = ObjectStore.from_uri(path)
    transactions = [read_transaction(store, manifest) for manifest in found]
    assert len({t.uuid for t in transactions if t}) == commits + 1
    for manifest, transaction in zip(found, transactions, strict=True):
        assert transaction is not None
        assert transaction.read_version < manifest.version
    # Every version has the rows of the one before, and three more.
    assert [manifest.num_rows for manifest in found] == [6 + 3 * i for i in range(commits + 1)]
    assert len({fragment.id for fragment in found[-1].fragments}) == len(found[-1].fragments)


def test_writers_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    run([ours(path, number) for number in range(4)])
    check(path, 4 * COMMITS)


def test_writers_of_ours_and_of_pylance(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path, enable_stable_row_ids=True)
    run([ours(path, 0), theirs(path, 1), ours(path, 2), theirs(path, 3)])
    check(path, 4 * COMMITS)
    numbers = lance.dataset(str(path)).to_table(columns=[], with_row_id=True)["_rowid"]
    assert sorted(numbers.to_pylist()) == list(range(6 + 12 * COMMITS))


def test_one_creates_the_table(tmp_path: Path) -> None:
    said = run([(CREATE, str(tmp_path / "t"))] * 4)
    assert sorted(said) == ["1", "exists", "exists", "exists"]
    lance.write_dataset(rows(0), str(tmp_path / "t"), mode="append")
    assert ids(tmp_path / "t") == [0, 1, 2]
