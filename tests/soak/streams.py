"""Streams from and to tables that others change, stopped and started again from their checkpoints.

| stream | from | to | in the end |
| --- | --- | --- | --- |
| `copy` | rows that are appended to `log` | appends to `copy` | each row of `log` once |
| `changes` | the change feed of `events` | appends to `changes` | the changes, made one after another, give the rows of `events` |
| `keyed` | rows that are appended to `log` | upserts into the MemWAL of `keyed` | the newest row of each key, or none if it is a delete |

Another thread compacts the tables and the MemWAL, and removes what is old. `SparkStreams` are queries
of Spark. `CalledStreams` call the source and the sink as Spark does, without it: many batches a
second, a part of which end before their commit, or before the checkpoint has it.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

import lance_spark
from lance_spark.errors import CommitConflictError, MissingFileError, TableNotFoundError
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.spark.streaming.reader import HAS_LIMITS
from lance_spark.spark.types.mapping import to_spark_schema
from tests.soak.clients import KEYS, LOG, Account, differences, error_text, logged
from tests.soak.own_clients import LATE

_KEY = {"lance-schema:unenforced-primary-key": "true"}
KEYED = pa.schema(
    [pa.field("key", pa.int64(), False, _KEY), ("id", pa.int64()), ("seq", pa.int64())]
)
CHANGES = pa.schema(
    [("id", pa.int64()), ("n", pa.int64()), ("type", pa.string()), ("version", pa.int64())]
)
#: Columns of `changes`, and those of the feed.
_CHANGE_COLUMNS = {"id": "id", "n": "n", "type": "_change_type", "version": "_commit_version"}
_GRACE = timedelta(seconds=40)

#: What errors of Spark say of a worker that was ended by a signal: the fault handler, which is on,
#: has written nothing. Two seconds after a query is stopped, Spark ends the workers of tasks that
#: still run; it may have given such a worker to another query meanwhile.
_ENDED = re.compile(r"Python worker exited unexpectedly \(crashed\):\s+at org\.apache\.spark")


class Streams:
    """Streams from `log` and `events`, until a deadline."""

    names = ("copy-from-log", "changes-from-events", "keyed-from-log")

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        if not (folder / "keyed.lance").exists():
            keyed = lance_spark.write_dataset(KEYED.empty_table(), folder / "keyed.lance")
            # Logs are flushed by size, too, before a query changes its mode.
            keyed.initialize_mem_wal(bucket_column="key", num_buckets=2, max_memtable_batches=20)

    def stream(self, name: str, deadline: float) -> None:
        """Run a stream, stopping it at any time, until a deadline."""
        raise NotImplementedError

    def drain(self) -> None:
        """Read the rest."""
        raise NotImplementedError

    def run(self, seconds: float) -> None:
        """Run the streams until a deadline."""
        deadline = time.monotonic() + seconds
        parts = [partial(self._maintain, deadline)]
        parts += [partial(self.stream, name, deadline) for name in self.names]
        threads = [threading.Thread(target=self._guarded, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def path(self, table: str) -> str:
        return str(self.folder / f"{table}.lance")

    def checkpoint(self, name: str) -> Path:
        return self.folder / "checkpoints" / name

    def options(self, name: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the options of a stream's source and sink."""
        if name == "changes-from-events":
            return {"readChangeFeed": "true"}, {}
        if name == "copy-from-log":
            return {}, {}
        upsert = {"upsert": "true", "sequence_column": "seq", "delete_column": "is_deleted"}
        return {}, {**upsert, "upsert_mode": self.random.choice(["sstable", "log"])}

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            self.errors.append(error_text(error))

    def _maintain(self, deadline: float) -> None:
        while time.monotonic() < deadline and not self.errors:
            for table in ("copy", "changes", "keyed"):
                path = self.path(table)
                try:
                    dataset = lance_spark.open_dataset(path)
                    if table == "keyed":
                        dataset.compact_mem_wal()
                        lance_spark.open_dataset(path).clean_mem_wal(_GRACE)
                    lance_spark.open_dataset(path).compact_files(target_rows_per_fragment=2_000)
                    lance_spark.open_dataset(path).cleanup_old_versions(_GRACE)
                    self.counts[f"{table}: maintenance"] += 1
                except TableNotFoundError:
                    # The first commit of the stream makes it a table, after its first data files.
                    continue
                except (CommitConflictError, MissingFileError):
                    self.counts[f"{table}: maintenance given up"] += 1
            time.sleep(1)


class SparkStreams(Streams):
    """Queries of Spark."""

    def __init__(self, folder: Path, seed: int, spark: Any) -> None:
        super().__init__(folder, seed)
        self._spark = spark

    def stream(self, name: str, deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0 and not self.errors:
            try:
                query = self._start(name, processingTime="200 milliseconds")
                # The query may be stopped within a batch.
                query.awaitTermination(min(self.random.uniform(1, 20), left))
                self.counts[f"{name}: starts"] += 1
                self.counts[f"{name}: starts with rows"] += query.lastProgress is not None
                query.stop()
            except PySparkException as error:
                self._check_failure(name, error)

    def drain(self) -> None:
        for name in self.names:
            while True:
                try:
                    query = self._start(name, availableNow=True)
                    if not query.awaitTermination(300):
                        self.errors.append(f"{name} did not end")
                    break
                except PySparkException as error:
                    self._check_failure(name, error)

    def _check_failure(self, name: str, error: PySparkException) -> None:
        """Let a query begin again if Spark has waited too long for a process, or has ended it."""
        offsets = self.checkpoint(name) / "offsets"
        if (
            "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY" in str(error)
            and not (offsets / "0").exists()
        ):
            # Spark was stopped while it wrote the offsets of the first batch. It does not begin
            # beside this file, which it has not finished.
            shutil.rmtree(offsets)
            self.counts["first offsets that Spark did not finish"] += 1
        elif any(text in str(error) for text in LATE):
            self.counts["processes that Spark did not wait for"] += 1
        elif _ENDED.search(str(error)):
            self.counts["processes that were ended"] += 1
        else:
            raise error

    def _start(self, name: str, **trigger: Any) -> Any:
        target, _, source = name.split("-")
        reading, writing = self.options(name)
        if target == "copy" and self._spark.version >= "4.2":
            reading = {"maxFragmentsPerTrigger": "30"}
        frame = self._spark.readStream.format("lance").options(**reading).load(self.path(source))
        if target == "changes":
            frame = frame.selectExpr(*(f"{old} AS {new}" for new, old in _CHANGE_COLUMNS.items()))
        writer = frame.writeStream.format("lance").options(**writing)
        writer = writer.option("checkpointLocation", str(self.checkpoint(name)))
        return writer.trigger(**trigger).start(self.path(target))


class CalledStreams(Streams):
    """Calls of the source and the sink, with checkpoints like those of Spark."""

    def stream(self, name: str, deadline: float) -> None:
        while time.monotonic() < deadline and not self.errors:
            if not self._batch(name, *self._query(name), fails=True):
                time.sleep(0.05)

    def drain(self) -> None:
        for name in self.names:
            query = self._query(name)
            while self._batch(name, *query, fails=False):
                pass

    def _query(self, name: str) -> tuple[Any, Any]:
        """Return a reader and a writer."""
        target, _, source = name.split("-")
        reading, writing = self.options(name)
        read = LanceDataSource({**reading, "path": self.path(source)})
        # Spark tells the sink the id of the checkpoint.
        written = {**writing, "path": self.path(target), "streamingQueryId": name}
        schema: Any = read.schema()
        columns = to_spark_schema(CHANGES) if target == "changes" else schema
        return read.streamReader(schema), LanceDataSource(written).streamWriter(columns, False)

    def _batch(self, name: str, reader: Any, writer: Any, *, fails: bool) -> bool:
        """Run the next batch, or repeat the last one; return whether there was one."""
        offsets, commits = (self.checkpoint(name) / part for part in ("offsets", "commits"))
        for folder in (offsets, commits):
            folder.mkdir(parents=True, exist_ok=True)
        number = len(list(commits.iterdir()))
        start = reader.initialOffset()
        if number:
            start = json.loads((offsets / f"{number - 1}").read_text())
        planned = offsets / f"{number}"
        if planned.exists():
            end = json.loads(planned.read_text())
            self.counts[f"{name}: repeated batches"] += 1
        else:
            # Spark asks for limits from 4.2 on.
            limits = (start, reader.getDefaultReadLimit()) if HAS_LIMITS else ()
            end = reader.latestOffset(*limits)
            if end == start:
                return False
            planned.write_text(json.dumps(end))
        messages = [
            writer.write(map(_shaped, reader.read(partition)))
            for partition in reader.partitions(start, end)
        ]
        if fails and self.random.random() < 0.15:
            return True
        writer.commit(messages, number)
        self.counts[f"{name}: batches"] += 1
        if fails and self.random.random() < 0.15:
            return True
        (commits / f"{number}").touch()
        reader.commit(end)
        return True


def _shaped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of a batch that a stream writes."""
    if "_change_type" not in batch.schema.names:
        return batch
    columns = [batch[name].cast(CHANGES.field(new).type) for new, name in _CHANGE_COLUMNS.items()]
    return pa.record_batch(columns, schema=CHANGES)


def wrong_streams(folder: Path, accounts: list[Account], events: dict[int, int]) -> list[str]:
    """Return what is wrong with the tables that streams write.

    Parameters
    ----------
    events : dict of int to int
        `n` of each id of `events`.
    """
    logs = [logged(account.number, 0, account.logged) for account in accounts]
    log = pa.concat_tables(logs).to_pydict()
    path = folder / "copy.lance"
    # The first batch with rows creates the table.
    copied = lance_spark.open_dataset(path).to_table() if path.exists() else LOG.empty_table()
    columns = copied.to_pydict()
    names = ("key", "seq", "is_deleted")
    expected = dict(zip(log["id"], zip(*(log[name] for name in names), strict=True), strict=True))
    pairs = list(
        zip(columns["id"], zip(*(columns[name] for name in names), strict=True), strict=True)
    )
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
