"""Streams from and to tables that others change, stopped and started again from their checkpoints.

| stream | from | to | in the end |
| --- | --- | --- | --- |
| `copy` | rows that are appended to `log` | appends to `copy` | each row of `log` once |
| `changes` | the change feed of `events` | appends to `changes` | the changes, made one after another, give the rows of `events` |
| `keyed` | rows that are appended to `log` | upserts into the MemWAL of `keyed` | the newest row of each key, or none if it is a delete |

Another thread compacts the tables and the MemWAL, and removes what is old.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException

import lance_spark
from lance_spark.errors import CommitConflictError, MissingFileError
from tests.soak.clients import KEYS, Account, differences, logged
from tests.soak.own_clients import LATE

_KEY = {"lance-schema:unenforced-primary-key": "true"}
KEYED = pa.schema(
    [pa.field("key", pa.int64(), False, _KEY), ("id", pa.int64()), ("seq", pa.int64())]
)
CHANGES = pa.schema(
    [("id", pa.int64()), ("n", pa.int64()), ("type", pa.string()), ("version", pa.int64())]
)
_GRACE = timedelta(seconds=40)


class Streams:
    """Streams from `log` and `events`, until a deadline."""

    def __init__(self, spark: Any, folder: Path, seed: int) -> None:
        self._spark, self._folder = spark, folder
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._queries: dict[str, Callable[[], Any]] = {
            "copy-from-log": self._copy,
            "changes-from-events": self._changes,
            "keyed-from-log": self._keyed,
        }
        if not (folder / "keyed.lance").exists():
            keyed = lance_spark.write_dataset(KEYED.empty_table(), folder / "keyed.lance")
            keyed.initialize_mem_wal(bucket_column="key", num_buckets=2)

    def run(self, seconds: float) -> None:
        """Run the streams, then let them read all that exists when they begin for the last time."""
        deadline = time.monotonic() + seconds
        parts: list[Callable[[], None]] = [lambda: self._maintain(deadline)]
        for name in self._queries:
            parts.append(lambda name=name: self._stream(name, deadline))  # type: ignore[misc]
        threads = [threading.Thread(target=self._guarded, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def drain(self) -> None:
        """Read the rest."""
        for name in self._queries:
            while True:
                query = self._start(name, availableNow=True)
                try:
                    if not query.awaitTermination(300):
                        self.errors.append(f"{name} did not end")
                    break
                except StreamingQueryException as error:
                    self._check_failure(error)

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            self.errors.append("".join(traceback.format_exception(error))[-3_000:])

    def _stream(self, name: str, deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0 and not self.errors:
            query = self._start(name, processingTime="200 milliseconds")
            try:
                # The query may be stopped within a batch.
                query.awaitTermination(min(self._random.uniform(1, 20), left))
            except StreamingQueryException as error:
                self._check_failure(error)
            self.counts[f"{name}: starts"] += 1
            self.counts[f"{name}: starts with rows"] += query.lastProgress is not None
            query.stop()

    def _check_failure(self, error: StreamingQueryException) -> None:
        """Let a query begin again if Spark has waited too long for a process, and only then."""
        if not any(text in str(error) for text in LATE):
            raise error
        self.counts["processes that Spark did not wait for"] += 1

    def _start(self, name: str, **trigger: Any) -> Any:
        writer = self._queries[name]()
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoints" / name))
        target = str(self._folder / f"{name.partition('-')[0]}.lance")
        return writer.trigger(**trigger).start(target)

    def _read(self, table: str, **options: object) -> Any:
        reader = self._spark.readStream.format("lance").options(**options)
        return reader.load(str(self._folder / f"{table}.lance"))

    def _copy(self) -> Any:
        most = {} if self._spark.version < "4.2" else {"maxFragmentsPerTrigger": 30}
        return self._read("log", **most).writeStream.format("lance")

    def _changes(self) -> Any:
        feed = self._read("events", readChangeFeed=True)
        columns = ["id", "n", "_change_type AS type", "_commit_version AS version"]
        return feed.selectExpr(*columns).writeStream.format("lance")

    def _keyed(self) -> Any:
        options = {"upsert": "true", "sequence_column": "seq", "delete_column": "is_deleted"}
        mode = self._random.choice(["sstable", "log"])
        writer = self._read("log").writeStream.format("lance").options(**options)
        return writer.option("upsert_mode", mode)

    def _maintain(self, deadline: float) -> None:
        while time.monotonic() < deadline and not self.errors:
            for table in ("copy", "changes", "keyed"):
                path = self._folder / f"{table}.lance"
                if not path.exists():
                    continue
                try:
                    dataset = lance_spark.open_dataset(path)
                    if table == "keyed":
                        dataset.compact_mem_wal()
                        lance_spark.open_dataset(path).clean_mem_wal(_GRACE)
                    lance_spark.open_dataset(path).compact_files(target_rows_per_fragment=2_000)
                    lance_spark.open_dataset(path).cleanup_old_versions(_GRACE)
                    self.counts[f"{table}: maintenance"] += 1
                except (CommitConflictError, MissingFileError):
                    self.counts[f"{table}: maintenance given up"] += 1
            time.sleep(1)


def wrong_streams(folder: Path, accounts: list[Account], events: dict[int, int]) -> list[str]:
    """Return what is wrong with the tables that streams write.

    Parameters
    ----------
    events : dict of int to int
        `n` of each id of `events`.
    """
    logs = [logged(account.number, 0, account.logged) for account in accounts]
    log = pa.concat_tables(logs).to_pydict()
    found = lance_spark.open_dataset(folder / "copy.lance").to_table().to_pydict()
    names = ("key", "seq", "is_deleted")
    expected = dict(zip(log["id"], zip(*(log[name] for name in names), strict=True), strict=True))
    pairs = list(zip(found["id"], zip(*(found[name] for name in names), strict=True), strict=True))
    wrong = differences("copy", expected, pairs)
    newest = {
        key: (row, seq)
        for key, row, seq, is_deleted in zip(
            *(log[name] for name in ("key", "id", "seq", "is_deleted")), strict=True
        )
        if seq >= _logged_of(accounts, key) - KEYS and not is_deleted
    }
    fresh = lance_spark.open_dataset(folder / "keyed.lance").fresh()
    base = lance_spark.open_dataset(folder / "keyed.lance").compact_mem_wal(flush=True)
    for name, dataset in (("keyed", fresh), ("keyed, compacted", base)):
        rows = dataset.to_table(["key", "id", "seq"]).to_pydict()
        pairs = list(zip(rows["key"], zip(rows["id"], rows["seq"], strict=True), strict=True))
        wrong += differences(name, newest, pairs)
    return wrong + _wrong_changes(folder, events)


def _logged_of(accounts: list[Account], key: int) -> int:
    return next(account.logged for account in accounts if account.number == key // KEYS)


def _wrong_changes(folder: Path, events: dict[int, int]) -> list[str]:
    """Make the changes one after another; each must fit the rows before it."""
    changes = lance_spark.open_dataset(folder / "changes.lance").to_table()
    order = {"delete": 0, "update_preimage": 1, "update_postimage": 2, "insert": 3}
    made = sorted(
        changes.to_pylist(), key=lambda change: (change["version"], order[change["type"]])
    )
    rows: dict[int, int] = {}
    wrong = []
    for change in made:
        row, n, kind = change["id"], change["n"], change["type"]
        if kind in ("delete", "update_preimage"):
            if rows.pop(row, None) != n:
                wrong.append(f"changes: {change}: this row did not exist")
        elif row in rows:
            wrong.append(f"changes: {change}: a row of this id exists")
        else:
            rows[row] = n
    return wrong[:10] + differences("changes", events, list(rows.items()))
