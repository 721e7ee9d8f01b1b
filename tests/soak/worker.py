"""One of many processes that work on one table at the same time.

Rows come in batches, which stay whole: all rows of a batch have the same value, and are written,
changed and deleted together. So whoever reads half a commit sees a batch that is not whole. A
writer alone changes its batches; what it was told is what the table has to hold. Nothing here
imports pylance: the processes are forks, which its threads do not survive.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lance_spark
import lance_spark.mutations.compaction.run
import lance_spark.table.cleanup.run
import lance_spark.table.commit.write
from lance_spark.errors import (
    CommitConflictError,
    LanceError,
    MissingFileError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.table.manifest import versions

MILLION = 1_000_000
ROWS = 20
#: Batches that a writer keeps, so that the table does not grow.
BATCHES = 12
_LONGEST_START = 120
SCHEMA = pa.schema([("batch", pa.int64()), ("row", pa.int64()), ("v", pa.int64())])


@dataclass(frozen=True)
class Work:
    """The work of a process.

    Attributes
    ----------
    role : str
        "writer", "reader", "compaction" or "cleanup".
    number : int
    uri : str
    options : dict
        Of the store.
    seconds : float
        How long to work, once all processes are ready.
    age : float
        Seconds that versions are kept for.
    log : str
        Where the account goes: a JSON object.
    """

    role: str
    number: int
    uri: str
    options: dict[str, Any]
    seconds: float
    age: float
    log: str


@dataclass
class Account:
    """The results of a process.

    Attributes
    ----------
    counts : Counter
        commits, conflicts (changes that others contradicted), retries (commits that others were
        faster than), uncertain, reads, rows, overtaken (reads of versions that were cleaned up
        meanwhile).
    seconds : dict of str to list of float
        How long each commit, and each open and read, took.
    batches : dict of int to int
        What the table has to hold: the value of each batch.
    unknown : dict of int to list of (int or None)
        What else batches may have become, None if they may be gone.
    wrong : list of str
    until : float
        When to stop, by the monotonic clock.
    """

    counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    unknown: dict[int, list[int | None]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    until: float = 0.0

    def timed(self, action: str, call: Callable[[], Any]) -> Any:
        started = time.monotonic()
        answer = call()
        self.seconds.setdefault(action, []).append(time.monotonic() - started)
        return answer


def rows(batch: int, value: int) -> pa.Table:
    return pa.table(
        {"batch": [batch] * ROWS, "row": list(range(ROWS)), "v": [value] * ROWS}, SCHEMA
    )


def batches_of(table: pa.Table) -> tuple[dict[int, int], list[str]]:
    """Return the value of each batch, and the incomplete batches."""
    grouped = table.group_by("batch").aggregate(
        [("row", "count"), ("row", "count_distinct"), ("v", "min"), ("v", "max")]
    )
    complete = pc.and_(
        pc.and_(
            pc.equal(grouped["row_count"], ROWS), pc.equal(grouped["row_count_distinct"], ROWS)
        ),
        pc.equal(grouped["v_min"], grouped["v_max"]),
    )
    wrong = grouped.filter(pc.invert(complete)).to_pylist()[:5]
    values = dict(zip(grouped["batch"].to_pylist(), grouped["v_min"].to_pylist(), strict=True))
    return values, [f"half a batch: {row}" for row in wrong]


def run(work: Work, ready: Any) -> None:
    """Wait for the other processes, work until the deadline, and write the account."""
    account = Account()
    _count(account)
    ready.wait(_LONGEST_START)
    account.until = time.monotonic() + work.seconds
    random.seed(f"{work.role} {work.number}")
    try:
        {"writer": _write, "reader": _read, "compaction": _compact, "cleanup": _clean_up}[
            work.role
        ](work, account)
    except BaseException as error:
        account.wrong.append(f"{work.role} {work.number} ended with {error!r}"[:2000])
    Path(work.log).write_text(json.dumps(vars(account)))


def _count(account: Account) -> None:
    """Count the retries and conflicts inside the package."""
    create, begin = versions.create_manifest, CommitConflictError.__init__

    def counted(*arguments: Any) -> bool:
        created = create(*arguments)
        account.counts["retries"] += not created
        return created

    def conflict(self: CommitConflictError, message: str, *, retryable: bool) -> None:
        account.counts["conflicts"] += 1
        begin(self, message, retryable=retryable)

    versions.create_manifest = counted
    CommitConflictError.__init__ = conflict  # type: ignore[method-assign]


def _open(work: Work) -> Any:
    return lance_spark.open_dataset(work.uri, storage_options=work.options)


def _write(work: Work, account: Account) -> None:
    following = work.number * MILLION
    while time.monotonic() < account.until:
        mine = sorted(account.batches)
        operation = random.choice(["append", "append", "update", "columns"]) if mine else "append"
        if len(mine) > BATCHES:
            operation = "delete"
        batch = following if operation == "append" else random.choice(mine)
        value: int | None = random.randrange(MILLION)
        if operation == "append":
            following += 1

            def change(batch: int = batch, value: Any = value) -> Any:
                return lance_spark.write_dataset(
                    rows(batch, value), work.uri, "append", storage_options=work.options
                )
        elif operation == "delete":
            value = None

            def change(batch: int = batch, value: Any = value) -> Any:
                return _open(work).delete([("batch", "==", batch)], conflict_retries=30)
        else:
            mode: Any = "rows" if operation == "update" else "columns"

            def change(batch: int = batch, value: Any = value, mode: Any = mode) -> Any:
                return _open(work).update(
                    {"v": value}, [("batch", "==", batch)], mode=mode, conflict_retries=30
                )

        try:
            account.timed("commit", change)
        except UncertainCommitError:
            account.counts["uncertain"] += 1
            account.unknown.setdefault(batch, [account.batches.pop(batch, None)]).append(value)
            continue
        except (CommitConflictError, MissingFileError):
            # The version on which the change was planned may have been removed.
            account.counts["given up"] += 1
            continue
        account.counts["commits"] += 1
        if value is None:
            del account.batches[batch]
        else:
            account.batches[batch] = value


def _read(work: Work, account: Account) -> None:
    newest = 0
    while time.monotonic() < account.until:
        try:
            dataset, table = account.timed("read", lambda: _read_table(work))
        except MissingFileError as error:
            # A version that is not the newest can be removed at any time, if it is old enough.
            account.counts["overtaken"] += 1
            if str(_open(work).version) == str(error.args[-1]):
                account.wrong.append(f"reader {work.number}: {error!r}"[:500])
            continue
        except LanceError as error:
            account.wrong.append(f"reader {work.number}: {error!r}"[:500])
            continue
        if dataset.version < newest:
            account.wrong.append(f"the newest version went back: {newest}, {dataset.version}")
        newest = dataset.version
        account.wrong += batches_of(table)[1]
        account.counts["reads"] += 1
        account.counts["rows"] += table.num_rows
        if random.random() < 0.3:
            _read_again(dataset, table, account)


def _read_again(dataset: Any, table: pa.Table, account: Account) -> None:
    """Open a version by its number: its rows must be unchanged, unless it was removed."""
    try:
        reopened = dataset.checkout_version(dataset.version).to_table()
    except (MissingFileError, VersionNotFoundError):
        account.counts["overtaken"] += 1
        return
    if not reopened.equals(table):
        account.wrong.append(f"version {dataset.version} is not what it was")


def _read_table(work: Work) -> tuple[Any, pa.Table]:
    dataset = _open(work)
    try:
        return dataset, dataset.to_table()
    except MissingFileError as error:
        raise MissingFileError(str(error), dataset.version) from error


def _compact(work: Work, account: Account) -> None:
    while time.monotonic() < account.until:
        try:
            _, metrics = account.timed(
                "compaction",
                lambda: _open(work).compact_files(target_rows_per_fragment=200, conflict_retries=2),
            )
            account.counts["compactions"] += metrics.fragments_removed > 0
        except (CommitConflictError, MissingFileError):
            account.counts["compactions given up"] += 1
        except UncertainCommitError:
            account.counts["uncertain"] += 1
        time.sleep(0.5)


def _clean_up(work: Work, account: Account) -> None:
    while time.monotonic() < account.until:
        stats = account.timed(
            "cleanup", lambda: _open(work).cleanup_old_versions(timedelta(seconds=work.age))
        )
        account.counts["versions removed"] += stats.old_versions
        account.counts["files removed"] += len(stats.files)
        time.sleep(1)
