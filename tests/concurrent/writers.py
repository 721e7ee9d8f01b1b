"""One of several processes that change one table at the same time: `python -m
tests.concurrent.writers PATH CLIENT NUMBER CHANGES`.

A writer owns the rows whose ids are of its million, so that what the table has to hold in the end
follows from what each writer was told, whatever the order. It says on its standard output, one JSON
list a line, what was acknowledged:

    ["append", [id, ...]]    ["delete", [id, ...]]    ["update", [id, ...], value]    ["compact"]    ["config", value]

A change that lost against another one is planned anew, as often as it takes.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

MILLION = 1_000_000
CONFIG_KEY = "writer.{}"
_TRIES = 60


def rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array(ids, pa.int64())})


class Ours:
    """Changes by this package."""

    conflicts: tuple[type[BaseException], ...]

    def __init__(self, path: str) -> None:
        import lance_spark
        from lance_spark.errors import CommitConflictError

        self.path = path
        self.package = lance_spark
        self.conflicts = (CommitConflictError,)

    def open(self) -> Any:
        return self.package.open_dataset(self.path)

    def append(self, ids: list[int]) -> None:
        self.package.write_dataset(rows(ids), self.path, mode="append")

    def delete(self, ids: list[int]) -> None:
        self.open().delete([("id", "in", ids)])

    def update(self, ids: list[int], value: int) -> None:
        self.open().update({"value": value}, [("id", "in", ids)])

    def compact(self) -> None:
        self.open().compact_files(target_rows_per_fragment=200)

    def config(self, key: str, value: str) -> None:
        self.open().update_config({key: value})


class Theirs:
    """Changes by pylance."""

    conflicts: tuple[type[BaseException], ...] = (OSError, RuntimeError)

    def __init__(self, path: str) -> None:
        import lance

        self.path = path
        self.package = lance

    def open(self) -> Any:
        return self.package.dataset(self.path)

    def append(self, ids: list[int]) -> None:
        self.package.write_dataset(rows(ids), self.path, mode="append")

    def delete(self, ids: list[int]) -> None:
        self.open().delete(f"id in ({', '.join(map(str, ids))})")

    def update(self, ids: list[int], value: int) -> None:
        self.open().update({"value": str(value)}, where=f"id in ({', '.join(map(str, ids))})")

    def compact(self) -> None:
        self.open().optimize.compact_files(target_rows_per_fragment=200)

    def config(self, key: str, value: str) -> None:
        self.open().update_config({key: value})


def is_conflict(error: BaseException) -> bool:
    text = str(error).lower()
    return any(word in text for word in ("conflict", "too much write contention", "preempted"))


def acknowledged(
    client: Ours | Theirs, change: Callable[[], None], randomness: random.Random
) -> None:
    for _ in range(_TRIES):
        try:
            change()
        except client.conflicts as error:
            if isinstance(client, Theirs) and not is_conflict(error):
                raise
            time.sleep(randomness.uniform(0, 0.2))
        else:
            return
    raise TimeoutError(f"{_TRIES} tries were not enough")


def main(path: str, client_name: str, number: int, changes: int) -> None:
    client = Ours(path) if client_name == "ours" else Theirs(path)
    randomness = random.Random(number)
    alive: list[int] = []
    next_id = number * MILLION
    print(json.dumps(["ready"]), flush=True)
    sys.stdin.readline()
    for turn in range(changes):
        choice = randomness.choices(
            ("append", "delete", "update", "compact", "config"), (4, 3, 3, 1, 1)
        )[0]
        if choice in ("delete", "update") and not alive:
            choice = "append"
        chosen = randomness.sample(alive, min(len(alive), randomness.randint(1, 4)))
        change: list[Any]
        if choice == "append":
            new = list(range(next_id, next_id + randomness.randint(1, 6)))
            next_id += len(new)
            acknowledged(client, lambda new=new: client.append(new), randomness)
            alive += new
            change = ["append", new]
        elif choice == "delete":
            acknowledged(client, lambda some=chosen: client.delete(some), randomness)
            alive = [number for number in alive if number not in chosen]
            change = ["delete", chosen]
        elif choice == "update":
            value = -(turn + 1)
            acknowledged(
                client, lambda some=chosen, value=value: client.update(some, value), randomness
            )
            change = ["update", chosen, value]
        elif choice == "compact":
            acknowledged(client, client.compact, randomness)
            change = ["compact"]
        else:
            key = CONFIG_KEY.format(number)
            acknowledged(
                client, lambda key=key, turn=turn: client.config(key, str(turn)), randomness
            )
            change = ["config", str(turn)]
        print(json.dumps(change), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
