"""Writers of both clients fight for the shards of one MemWAL, and are killed, while others compact.

python -m tests.soak.mem_wal [--seconds 60] [--buckets 2] [--seed 0]

| process | what it does |
| --- | --- |
| writer | puts and deletes rows of its own keys of a shard; another client writes the others. It notes each batch before it writes it, and writes it again after it was killed or fenced |
| compaction | compacts SSTables and drains; two at once |
| cleanup | removes what was not needed for some seconds |
| reader | reads fresh rows: the number of a key never decreases |

In the end, the rows are those of the writers: in fresh reads of both clients, and in the base table
after a compaction. Prints what happened, at last as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import lance_spark
from lance_spark.errors import CommitConflictError, MissingFileError
from lance_spark.mem_wal.table.shard_manifest import list_shards
from lance_spark.table.open import open_table

_KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=_KEY), ("v", pa.int64())])
_KEYS = 60
_GRACE = timedelta(seconds=20)
_FENCED = ("fence", "epoch", "claim", "stale")


def rows(numbers: dict[int, int]) -> pa.Table:
    return pa.table({"id": list(numbers), "v": list(numbers.values())}, schema=SCHEMA)


class Writer:
    """Writes its own keys to a shard until a deadline; its state is in a file."""

    def __init__(self, path: str, state: Path, client: str) -> None:
        self.path, self.state, self.client = path, state, client
        self.noted: dict[str, Any] = json.loads(state.read_text())
        #: Kept with the state: a writer that is killed does not report.
        self.counts: Counter[str] = Counter(self.noted["counts"])

    def open(self) -> Any:
        if self.client == "pylance":
            import lance

            dataset = lance.dataset(self.path)
            return dataset.mem_wal_writer(self.noted["shard"], max_wal_flush_interval_ms=5)
        return lance_spark.open_dataset(self.path).mem_wal_writer(self.noted["shard"])

    def run(self, seconds: float) -> None:
        pick = random.Random(os.getpid())
        deadline = time.monotonic() + seconds
        writer = None
        while time.monotonic() < deadline or self.noted["next"]:
            if not self.noted["next"]:
                self.note(self.batch(pick))
            try:
                writer = writer or self.open()
                self.write(writer)
                self.counts["batches"] += 1
                if pick.random() < 0.1:
                    writer.close()
                    writer = None
            # pylance raises errors of several classes.
            except Exception as error:
                if not any(word in str(error).lower() for word in _FENCED):
                    raise
                self.counts["fenced"] += 1
                writer = None
                time.sleep(pick.random() * 0.2)

    def batch(self, pick: random.Random) -> dict[str, Any]:
        self.noted["number"] += 1
        chosen = pick.sample(self.noted["keys"], 5)
        return {"put": chosen[:4], "delete": chosen[4:], "number": self.noted["number"]}

    def write(self, writer: Any) -> None:
        batch = self.noted["next"]
        writer.put(rows(dict.fromkeys(batch["put"], batch["number"])))
        writer.delete(pa.table({"id": pa.array(batch["delete"], pa.int64())}))
        for key in batch["put"]:
            self.noted["rows"][str(key)] = batch["number"]
        for key in batch["delete"]:
            self.noted["rows"].pop(str(key), None)
        self.counts["batches"] += 1
        self.note(None)

    def note(self, batch: dict[str, Any] | None) -> None:
        self.noted["next"], self.noted["counts"] = batch, self.counts
        part = self.state.with_suffix(".part")
        part.write_text(json.dumps(self.noted))
        part.replace(self.state)


def compactions(path: str, seconds: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        version = lance_spark.open_dataset(path).version
        try:
            compacted = lance_spark.open_dataset(path).compact_mem_wal().version > version
            counts["compactions"] += compacted
        except (CommitConflictError, MissingFileError):
            counts["compactions given up"] += 1
        time.sleep(0.2)
    return counts


def cleanups(path: str, seconds: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stats = lance_spark.open_dataset(path).clean_mem_wal(_GRACE)
        counts["SSTables removed"] += stats.sstables_removed
        counts["entries removed"] += stats.entries_removed
        time.sleep(1)
    return counts


def reads(path: str, seconds: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    newest: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        rows = fresh_rows(path)
        for key, number in rows.items():
            if number < newest.get(key, -1):
                raise AssertionError(f"key {key} has {number} after {newest[key]}")
        newest.update(rows)
        counts["reads"] += 1
    return counts


def fresh_rows(path: str) -> dict[int, int]:
    table = lance_spark.open_dataset(path).fresh().to_table()
    return _by_key(table)


def _by_key(table: pa.Table) -> dict[int, int]:
    result = dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    if len(result) != table.num_rows:
        raise AssertionError("a key is there twice")
    return result


def soak(folder: str, seconds: float, buckets: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run all processes; return what happened, and what is wrong."""
    path, pick = f"{folder}/table", random.Random(seed)
    dataset = lance_spark.write_dataset(rows(dict.fromkeys(range(_KEYS), 0)), path)
    dataset = dataset.initialize_mem_wal(bucket_column="id", num_buckets=buckets)
    states: list[tuple[Path, str]] = []
    for shard, part in dataset.split_by_shard(dataset.to_table()).items():
        keys = part["id"].to_pylist()
        for number, client in enumerate(("ours", "pylance")):
            own = keys[number::2]
            state = Path(folder) / f"{uuid.uuid4()}.json"
            kept = {str(key): 0 for key in own}
            noted = {"shard": shard, "keys": own, "rows": kept, "number": 0, "next": None}
            state.write_text(json.dumps({**noted, "counts": {}}))
            states.append((state, client))
    ends = time.monotonic() + seconds
    writers = [_start("writer", path, seconds, str(state), client) for state, client in states]
    others = [
        _start(role, path, seconds)
        for role in ("compactions", "compactions", "cleanups", "reads", "reads")
    ]
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    while (left := ends - time.monotonic()) > 5:
        time.sleep(min(pick.uniform(2, 6), left))
        number = pick.randrange(len(writers))
        if writers[number].poll() is None:
            writers[number].kill()
            counts["writers killed"] += 1
        _collect(writers[number], counts, wrong, killed=True)
        state, client = states[number]
        left = max(ends - time.monotonic(), 1)
        writers[number] = _start("writer", path, left, str(state), client)
    for process in (*writers, *others):
        _collect(process, counts, wrong)
    expected: dict[int, int] = {}
    for state, _ in states:
        noted = json.loads(state.read_text())
        expected.update({int(key): number for key, number in noted["rows"].items()})
        counts.update(noted["counts"])
    if fresh_rows(path) != expected:
        wrong.append("fresh rows are not those that the writers have written")
    dataset = lance_spark.open_dataset(path).compact_mem_wal(flush=True)
    if _by_key(dataset.to_table()) != expected:
        wrong.append("the base table has other rows than the writers have written")
    import lance

    theirs = lance.dataset(path)
    theirs.validate()
    if _by_key(theirs.to_table()) != expected:
        wrong.append("pylance reads other rows")
    counts["shards"] = len(list_shards(open_table(path).store))
    return counts, wrong


def _start(role: str, path: str, seconds: float, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.soak.mem_wal", "--seconds", str(seconds)]
    command += ["--role", role, "--path", path, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _collect(
    process: subprocess.Popen[str], counts: Counter[str], wrong: list[str], *, killed: bool = False
) -> None:
    text = process.communicate()[0]
    if process.returncode == 0:
        counts.update(json.loads(text.strip().rpartition("\n")[2]))
    elif not (killed and process.returncode < 0):
        wrong.append(text[-3_000:])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--buckets", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--role", default="")
    parser.add_argument("--path", default="")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    if options.role == "writer":
        state, client = options.arguments
        writer = Writer(options.path, Path(state), client)
        writer.run(options.seconds)
        print("{}", flush=True)
        # pylance would flush when its writers are collected.
        os._exit(0)
    if options.role:
        roles = {"compactions": compactions, "cleanups": cleanups, "reads": reads}
        print(json.dumps(roles[options.role](options.path, options.seconds)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        counts, wrong = soak(folder, options.seconds, options.buckets, options.seed)
    for text in wrong:
        print(text)
    print(json.dumps({**dict(sorted(counts.items())), "wrong": len(wrong)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
