"""Processes that write to shards of a MemWAL, compact them, or are killed at a step. Nothing here
imports pylance: it runs in a fork.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pyarrow as pa

import lance_spark
from lance_spark.errors import CommitConflictError
from lance_spark.mem_wal import claims, compaction
from lance_spark.table.manifest import versions

#: All processes write to this shard.
SHARD = "00000000-0000-0000-0000-000000000007"
KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("n", pa.int64())])
#: The step before which a process is killed: after data was written, before its manifest is.
STEPS: dict[str, tuple[Any, str]] = {
    "flush": (claims, "publish"),
    "compaction": (versions, "create_manifest"),
    "drain": (compaction, "drain"),
}


def row(key: int, number: int) -> pa.Table:
    return pa.table({"id": [key], "n": [number]}, schema=SCHEMA)


def opened(uri: str, options: dict[str, Any]) -> lance_spark.Dataset:
    return lance_spark.open_dataset(uri, storage_options=options)


def race(uri: str, options: dict[str, Any], first: int, barrier: Any, answer: Any) -> None:
    """Claim the shard again and again, and put rows; send the keys that were acknowledged."""
    acknowledged: list[int] = []
    key = first
    for _ in range(2):
        barrier.wait()
        try:
            writer = opened(uri, options).mem_wal_writer(SHARD)
            for _ in range(2):
                key += 1
                writer.put(row(key, key))
                acknowledged.append(key)
            writer.close(flush=False)
        except CommitConflictError:
            continue
    answer.send(acknowledged)


def hold(uri: str, options: dict[str, Any], pipe: Any) -> None:
    """Put a row whenever a key arrives, and send the error or None."""
    writer = opened(uri, options).mem_wal_writer(SHARD)
    pipe.send("claimed")
    while (key := pipe.recv()) is not None:
        try:
            writer.put(row(key, key))
            pipe.send(None)
        except CommitConflictError as error:
            pipe.send(str(error))


def killed(step: str, uri: str, options: dict[str, Any]) -> None:
    """Put and flush a row, or compact, up to a step."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    dataset = opened(uri, options)
    if step == "flush":
        writer = dataset.mem_wal_writer(SHARD)
        writer.put(row(2, 200))
    owner, name = STEPS[step]
    setattr(owner, name, die)
    if step == "flush":
        writer.close()
    else:
        dataset.compact_mem_wal()


def count_up(uri: str, options: dict[str, Any], keys: int, latest: Any, done: Any) -> None:
    """Put greater and greater numbers, and note the number that was acknowledged last."""
    number = 0
    with opened(uri, options).mem_wal_writer(SHARD, max_memtable_rows=8) as writer:
        while not done.is_set():
            number += 1
            writer.put(row(number % keys, number))
            latest[number % keys] = number


def compact(uri: str, options: dict[str, Any], count: Any, done: Any) -> None:
    """Compact again and again, and count the compactions that had something to do."""
    while not done.is_set():
        before = opened(uri, options)
        if before.compact_mem_wal().version > before.version:
            with count.get_lock():
                count.value += 1
        time.sleep(0.05)


def come_and_go(uri: str, options: dict[str, Any], latest: Any, done: Any) -> None:
    """Put greater and greater numbers for key 0, by one writer after the other."""
    number = 0
    while not done.is_set():
        with opened(uri, options).mem_wal_writer(SHARD) as writer:
            for _ in range(2):
                number += 1
                writer.put(row(0, number))
                latest.value = number
        time.sleep(0.05)
