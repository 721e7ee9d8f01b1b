"""Writers of one table, each of which knows which rows it must have.

| table | rows |
| --- | --- |
| `events` | rows of each writer, which it inserts, updates, deletes and merges; and a counter to which all writers add 1, so that a lost update shows. `s` and `v` follow from `id` |
| `log` | rows that each writer appends: `seq` counts them, and streams read them |

python -m tests.soak.clients --folder F --number 3 --seed 0 --seconds 20

runs a writer by the pylance of the interpreter, also of an older release: nothing here imports this
package. The writer continues the account of its number, and stores it in the end.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

COUNTER = -1
STEP = 1_000_000
#: Rows that a writer keeps, so that the table does not grow.
MOST_ROWS = 400
KEYS = 8
#: Seconds for which old versions stay: longer than any change takes. pylance does not see changes of
#: versions that are gone, and commits beside them.
KEPT_SECONDS = 300.0
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("writer", pa.int32()),
        ("n", pa.int64()),
        ("s", pa.string()),
        ("v", pa.list_(pa.float32(), 4)),
    ]
)
LOG = pa.schema(
    [("id", pa.int64()), ("key", pa.int64()), ("seq", pa.int64()), ("is_deleted", pa.bool_())]
)
#: What errors of pylance say that have changed nothing.
_CONFLICTS = ("conflict", "too many concurrent writers", "preempted by concurrent transaction")


def text_of(row: int) -> str:
    return f"every w{row % 7} v{row % 50}"


def vector_of(row: int) -> list[float]:
    return [float(row % 11), float(row % 13), float(row % 5), 1.0]


def events(ids: Iterable[int], writer: int, values: Iterable[int]) -> pa.Table:
    """Return rows of `events`."""
    ids = list(ids)
    columns = [ids, [writer] * len(ids), list(values)]
    texts, vectors = [text_of(row) for row in ids], [vector_of(row) for row in ids]
    return pa.table([*columns, texts, vectors], schema=SCHEMA)


def logged(writer: int, first: int, last: int) -> pa.Table:
    """Return rows of `log`; keys belong to one writer."""
    numbers = range(first, last)
    columns = [
        [writer * STEP + seq for seq in numbers],
        [writer * KEYS + seq % KEYS for seq in numbers],
        list(numbers),
        [seq % 5 == 0 for seq in numbers],
    ]
    return pa.table(columns, schema=LOG)


@dataclass
class Account:
    """The changes of a writer, and the rows that it must have.

    Attributes
    ----------
    rows : dict of int to int
        The value `n` of each id.
    increments : int
        How often it has added 1 to the counter.
    logged : int
        How many rows it has appended to `log`.
    """

    number: int
    rows: dict[int, int] = field(default_factory=dict)
    increments: int = 0
    logged: int = 0
    used: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def new_ids(self, count: int) -> list[int]:
        ids = [self.number * STEP + self.used + i for i in range(count)]
        self.used += count
        return ids

    @classmethod
    def load(cls, folder: Path, number: int) -> Account:
        """Return the stored account of a writer, or a new one."""
        path = folder / f"account{number}.json"
        if not path.exists():
            return cls(number)
        values = json.loads(path.read_text())
        rows = dict(map(tuple, values.pop("rows")))
        return cls(**{**values, "rows": rows, "counts": Counter(values["counts"])})

    def store(self, folder: Path) -> None:
        values = {**vars(self), "rows": list(self.rows.items())}
        (folder / f"account{self.number}.json").write_text(json.dumps(values))


def differences(name: str, expected: dict[Any, Any], actual: list[tuple[Any, Any]]) -> list[str]:
    """Return what is wrong with pairs of key and value: lost, doubled, other."""
    counts = Counter(key for key, _ in actual)
    result = dict(actual)
    wrong = []
    for fault, keys in (
        ("doubled", {key for key, count in counts.items() if count > 1}),
        ("lost", expected.keys() - result.keys()),
        ("not written", result.keys() - expected.keys()),
        ("other value", {k for k, v in result.items() if k in expected and expected[k] != v}),
    ):
        if keys:
            some = [(k, expected.get(k), result.get(k)) for k in sorted(keys)[:10]]
            wrong.append(f"{name}: {len(keys)} {fault}, as (key, expected, actual): {some}")
    return wrong


class Writer:
    """Changes the tables by one client until a deadline."""

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        self.folder = folder
        self.events, self.log = str(folder / "events.lance"), str(folder / "log.lance")
        self.account = Account.load(folder, number)
        self.random = random.Random(f"{seed} {number} {self.account.used}")

    def insert(self, ids: list[int]) -> None:
        raise NotImplementedError

    def update(self, condition: str) -> None:
        """Add 1 to `n`."""
        raise NotImplementedError

    def delete(self, condition: str) -> None:
        raise NotImplementedError

    def merge(self, old: list[int], new: list[int]) -> None:
        """Add 1 to `n` of old ids, and insert new ids."""
        raise NotImplementedError

    def append_log(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def matching_rows(self, condition: str) -> dict[str, list[Any]]:
        """Return `id`, `n` and `s` of rows of the newest version."""
        raise NotImplementedError

    def is_conflict(self, error: BaseException) -> bool:
        raise NotImplementedError

    def run(self, seconds: float) -> None:
        """Change the tables. A change that raises a conflict has done nothing."""
        changes: list[Callable[[], None]] = [
            *(self._insert, self._update, self._delete, self._merge, self._count, self._count),
            *(self._append_log, self._append_log, self._check, self._check),
        ]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.account.errors:
            change = self.random.choice(changes)
            name = change.__name__.removeprefix("_")
            started = time.monotonic()
            try:
                change()
                self.account.counts[name] += 1
            # pylance's panics are no exceptions.
            except BaseException as error:
                if self.is_conflict(error):
                    self.account.counts[f"{name}: conflicts"] += 1
                else:
                    text = error_text(error)
                    self.account.errors.append(f"writer {self.account.number}: {name}: {text}")
            seconds_taken = time.monotonic() - started
            if seconds_taken > KEPT_SECONDS:
                self.account.errors.append(
                    f"writer {self.account.number}: {name} took {seconds_taken:.0f} s, but old "
                    f"versions stay for {KEPT_SECONDS} s only: the machine is too slow"
                )

    def _insert(self) -> None:
        ids = self.account.new_ids(5)
        self.insert(ids)
        self.account.rows.update(dict.fromkeys(ids, 0))

    def _update(self) -> None:
        remainder = self.random.randrange(3)
        self.update(f"writer = {self.account.number} AND id % 3 = {remainder}")
        rows = self.account.rows
        self.account.rows = {i: n + (i % 3 == remainder) for i, n in rows.items()}

    def _delete(self) -> None:
        divisor = 2 if len(self.account.rows) > MOST_ROWS else 7
        remainder = self.random.randrange(divisor)
        self.delete(f"writer = {self.account.number} AND id % {divisor} = {remainder}")
        rows = self.account.rows
        self.account.rows = {i: n for i, n in rows.items() if i % divisor != remainder}

    def _merge(self) -> None:
        rows = self.account.rows
        old = self.random.sample(sorted(rows), min(len(rows), 3))
        new = self.account.new_ids(2)
        self.merge(old, new)
        rows.update({i: rows[i] + 1 for i in old})
        rows.update(dict.fromkeys(new, 0))

    def _count(self) -> None:
        self.update(f"id = {COUNTER}")
        self.account.increments += 1

    def _append_log(self) -> None:
        first = self.account.logged
        last = first + self.random.randrange(1, 9)
        self.append_log(logged(self.account.number, first, last))
        self.account.logged = last

    def _check(self) -> None:
        """Compare the writer's rows: no other writer changes them."""
        result = self.matching_rows(f"writer = {self.account.number}")
        name = f"writer {self.account.number} sees"
        pairs = list(zip(result["id"], result["n"], strict=True))
        self.account.errors += differences(name, self.account.rows, pairs)
        if result["s"] != [text_of(row) for row in result["id"]]:
            self.account.errors.append(f"{name}: other texts")


class PylanceWriter(Writer):
    """Changes the tables by pylance."""

    def insert(self, ids: list[int]) -> None:
        import lance

        rows = events(ids, self.account.number, [0] * len(ids))
        lance.write_dataset(rows, self.events, mode="append")

    def append_log(self, rows: pa.Table) -> None:
        import lance

        lance.write_dataset(rows, self.log, mode="append")

    def update(self, condition: str) -> None:
        self._open().update({"n": "n + 1"}, where=condition)

    def delete(self, condition: str) -> None:
        self._open().delete(condition)

    def merge(self, old: list[int], new: list[int]) -> None:
        values = [self.account.rows[i] + 1 for i in old] + [0] * len(new)
        merge = self._open().merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(events(old + new, self.account.number, values))

    def matching_rows(self, condition: str) -> dict[str, list[Any]]:
        rows = self._open().to_table(columns=["id", "n", "s"], filter=condition)
        columns: dict[str, list[Any]] = rows.to_pydict()
        return columns

    def is_conflict(self, error: BaseException) -> bool:
        return any(word in str(error).lower() for word in _CONFLICTS)

    def _open(self) -> Any:
        import lance

        return lance.dataset(self.events)


def error_text(error: BaseException) -> str:
    """Return the end of the stack trace of an error, and the beginning of those of the JVM."""
    text = "".join(traceback.format_exception(error))[-2_000:]
    cause: Any = error
    while hasattr(cause, "_stackTrace"):
        text += f"\nCaused by: {cause._desc[:1_000]}\n{cause._stackTrace[:3_000]}"
        cause = cause._cause
    return text


def run_as_process(writers: dict[str, type[Writer]]) -> None:
    """Run the writer that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", default="pylance", choices=writers)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    writer = writers[options.client](options.folder, options.number, options.seed)
    writer.run(options.seconds)
    writer.account.store(options.folder)


if __name__ == "__main__":
    run_as_process({"pylance": PylanceWriter})
