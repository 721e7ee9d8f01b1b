"""A MemWAL on S3, by several processes at once, and by processes that are killed."""

from __future__ import annotations

import signal
import time
from datetime import timedelta

import pytest

import lance_spark
from tests.support.forking import CONTEXT
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.shard_writers import (
    SCHEMA,
    SHARD,
    STEPS,
    compact,
    count_up,
    hold,
    killed,
    opened,
    race,
    row,
)

_KEYS = 5
#: Of a writer, a compaction and a reader side by side.
_SECONDS = 1.0


@pytest.fixture
def uri(aws: Aws, request: pytest.FixtureRequest) -> str:
    uri = f"s3://{BUCKET}/{request.node.name}"
    lance_spark.write_dataset(SCHEMA.empty_table(), uri, storage_options=aws.ours)
    opened(uri, aws.ours).initialize_mem_wal(unsharded=True)
    return uri


def fresh(uri: str, aws: Aws) -> dict[int, int]:
    rows = opened(uri, aws.ours).fresh().to_table()
    numbers = dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert len(numbers) == rows.num_rows
    return numbers


def test_writers_that_claim_a_shard_at_the_same_time(aws: Aws, uri: str) -> None:
    """Rows that were acknowledged are there, and the others are not."""
    barrier = CONTEXT.Barrier(2)
    pipes = [CONTEXT.Pipe(duplex=False) for _ in range(2)]
    processes = [
        CONTEXT.Process(target=race, args=(uri, aws.ours, 1000 * number, barrier, pipe[1]))
        for number, pipe in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    answers = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    # If the processes happen to run one after the other, none is fenced; see the next test.
    acknowledged = [key for keys in answers for key in keys]
    assert acknowledged
    assert fresh(uri, aws) == {key: key for key in acknowledged}
    dataset = opened(uri, aws.ours).compact_mem_wal(flush=True)
    assert sorted(dataset.to_table()["id"].to_pylist()) == sorted(acknowledged)


def test_a_writer_in_another_process_is_fenced(aws: Aws, uri: str) -> None:
    pipe, other = CONTEXT.Pipe()
    process = CONTEXT.Process(target=hold, args=(uri, aws.ours, other))
    process.start()
    assert pipe.recv() == "claimed"
    pipe.send(1)
    assert pipe.recv() is None
    with opened(uri, aws.ours).mem_wal_writer(SHARD) as writer:
        pipe.send(2)
        assert "fenced" in pipe.recv()
        writer.put(row(3, 3))
        pipe.send(4)
        assert "fenced" in pipe.recv()
    pipe.send(None)
    process.join(60)
    assert fresh(uri, aws) == {1: 1, 3: 3}


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", STEPS)
def test_a_process_is_killed_between_data_and_manifest(aws: Aws, uri: str, step: str) -> None:
    """The rows stay, and the next process finishes the work."""
    with opened(uri, aws.ours).mem_wal_writer(SHARD) as writer:
        writer.put(row(1, 100))
    expected = {1: 100, 2: 200} if step == "flush" else {1: 100}
    process = CONTEXT.Process(target=killed, args=(step, uri, aws.ours))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert fresh(uri, aws) == expected
    with opened(uri, aws.ours).mem_wal_writer(SHARD) as writer:
        writer.put(row(3, 300))
    dataset = opened(uri, aws.ours).compact_mem_wal()
    assert fresh(uri, aws) == {**expected, 3: 300}
    assert dataset.count_rows() == len(expected) + 1
    (shard,) = dataset.mem_wal_shards()
    assert not shard.num_sstables
    cleanup = dataset.clean_mem_wal(older_than=timedelta(0))
    # The flush that was interrupted has left an SSTable that no manifest lists.
    assert cleanup.sstables_removed == (3 if step == "flush" else 2)
    assert fresh(uri, aws) == {**expected, 3: 300}


def test_a_compaction_and_a_reader_beside_a_writer(aws: Aws, uri: str) -> None:
    """A read has all rows that were acknowledged before it, and never an older row again."""
    latest = CONTEXT.Array("q", [0] * _KEYS)
    compactions = CONTEXT.Value("q", 0)
    done = CONTEXT.Event()
    processes = [
        CONTEXT.Process(target=count_up, args=(uri, aws.ours, _KEYS, latest, done)),
        CONTEXT.Process(target=compact, args=(uri, aws.ours, compactions, done)),
    ]
    for process in processes:
        process.start()
    seen = [0] * _KEYS
    reads, ends = 0, time.monotonic() + _SECONDS
    try:
        while time.monotonic() < ends or not (compactions.value and any(seen)):
            known = list(latest[:])
            numbers = fresh(uri, aws)
            values = [numbers.get(key, 0) for key in range(_KEYS)]
            assert all(map(int.__ge__, values, known)), (values, known)
            assert all(map(int.__ge__, values, seen)), (values, seen)
            seen = values
            reads += 1
            assert time.monotonic() < ends + 60, (reads, compactions.value)
    finally:
        done.set()
        for process in processes:
            process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    final = {key: number for key, number in enumerate(latest[:]) if number}
    assert fresh(uri, aws) == final
    dataset = opened(uri, aws.ours).compact_mem_wal(flush=True)
    assert dataset.count_rows() == len(final)
    assert reads
    assert compactions.value
