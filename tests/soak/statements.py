"""Statements of SQL, and pylance, change one table at the same time. Prints what happened, at last as
one line of JSON.

python -m tests.soak.statements [--seconds 60] [--writers 4] [--others 2] [--seed 0]

Each writer is a thread that runs statements on rows of its own, and knows which rows it must have.
The others are processes of pylance that do the same. All of them add 1 to one counter, so that a
lost update shows. The first writer also compacts, and creates, extends and drops indexes. A change
that raises a conflict has done nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from pyspark.errors import PySparkException

import lance_spark
from tests.support.forking import CONTEXT

COUNTER = -1
_STEP = 1_000_000
_SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.int32()), ("n", pa.int64())])
_CATALOG = "statement_load"
#: Columns with an index, and its type.
_INDEXES = {"id": "btree", "writer": "bitmap", "n": "zonemap"}


@dataclass
class Account:
    """The changes of a writer, and the rows that it must have.

    Attributes
    ----------
    rows : dict of int to int
        The value `n` of each id.
    increments : int
        How often it has added 1 to the counter.
    """

    number: int
    rows: dict[int, int] = field(default_factory=dict)
    increments: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    _next: int = 0

    def new_ids(self, count: int) -> list[int]:
        ids = [self.number * _STEP + self._next + i for i in range(count)]
        self._next += count
        return ids

    def json(self) -> str:
        fields = ("number", "increments", "counts", "errors")
        values = {name: getattr(self, name) for name in fields}
        return json.dumps({**values, "rows": list(self.rows.items())})

    @classmethod
    def parse(cls, text: str) -> Account:
        values = json.loads(text)
        rows = dict(map(tuple, values.pop("rows")))
        return cls(**{**values, "rows": rows, "counts": Counter(values["counts"])})


class Writer:
    """Changes a table by one client until a deadline."""

    def __init__(self, number: int, seed: int) -> None:
        self.account = Account(number)
        self.random = random.Random(f"{seed} {number}")

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

    def compact(self) -> None:
        raise NotImplementedError

    def index(self) -> None:
        """Create, extend or drop an index."""
        raise NotImplementedError

    def is_conflict(self, error: Exception) -> bool:
        raise NotImplementedError

    def run(self, seconds: float) -> None:
        """Change the table."""
        changes = [self._insert, self._update, self._delete, self._merge, self._count, self._count]
        if self.account.number == 0:
            changes += [self.compact, self.compact, self.index, self.index]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.account.errors:
            change = self.random.choice(changes)
            name = change.__name__.removeprefix("_")
            try:
                change()
                self.account.counts[name] += 1
            except Exception as error:
                if self.is_conflict(error):
                    self.account.counts["conflicts"] += 1
                else:
                    self.account.errors.append(f"{name}: {type(error).__name__}: {error}"[:600])

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
        remainder = self.random.randrange(7)
        self.delete(f"writer = {self.account.number} AND id % 7 = {remainder}")
        self.account.rows = {i: n for i, n in self.account.rows.items() if i % 7 != remainder}

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


class SqlWriter(Writer):
    """Runs statements in a session of its own."""

    def __init__(self, number: int, seed: int, spark: Any, table: str) -> None:
        super().__init__(number, seed)
        self._sql = spark.newSession().sql
        self._table = table
        self._indexes: set[str] = set()

    def insert(self, ids: list[int]) -> None:
        self._sql(f"INSERT INTO {self._table} VALUES {self._rows(ids, 0)}")

    def compact(self) -> None:
        self._sql(f"CALL {_CATALOG}.system.optimize('t')")

    def index(self) -> None:
        column, index_type = self.random.choice(list(_INDEXES.items()))
        name, draw = f"by_{column}", self.random.random()
        if name not in self._indexes or draw < 0.3:
            self._sql(
                f"ALTER TABLE {self._table} CREATE INDEX {name} USING {index_type} ({column})"
            )
            self._indexes.add(name)
        elif draw < 0.9:
            self._sql(f"ALTER TABLE {self._table} OPTIMIZE INDEX {name}")
        else:
            self._sql(f"ALTER TABLE {self._table} DROP INDEX {name}")
            self._indexes.remove(name)

    def update(self, condition: str) -> None:
        self._sql(f"UPDATE {self._table} SET n = n + 1 WHERE {condition}")

    def delete(self, condition: str) -> None:
        self._sql(f"DELETE FROM {self._table} WHERE {condition}")

    def merge(self, old: list[int], new: list[int]) -> None:
        self._sql(
            f"MERGE INTO {self._table} AS t USING (SELECT * FROM VALUES {self._rows(old + new, 0)} "
            "AS v(id, writer, n)) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + 1 "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def is_conflict(self, error: Exception) -> bool:
        return (
            isinstance(error, PySparkException) and error.getCondition() == "LANCE_COMMIT_CONFLICT"
        )

    def _rows(self, ids: list[int], n: int) -> str:
        return ", ".join(f"({i}, {self.account.number}, {n})" for i in ids)


class PylanceWriter(Writer):
    """Changes the table by pylance."""

    def __init__(self, number: int, seed: int, path: str) -> None:
        super().__init__(number, seed)
        self._path = path

    def insert(self, ids: list[int]) -> None:
        lance.write_dataset(self._table(ids, [0] * len(ids)), self._path, mode="append")

    def update(self, condition: str) -> None:
        lance.dataset(self._path).update({"n": "n + 1"}, where=condition)

    def delete(self, condition: str) -> None:
        lance.dataset(self._path).delete(condition)

    def merge(self, old: list[int], new: list[int]) -> None:
        values = [self.account.rows[i] + 1 for i in old] + [0] * len(new)
        merge = lance.dataset(self._path).merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self._table(old + new, values))

    def is_conflict(self, error: Exception) -> bool:
        return (
            "conflict" in str(error).lower() or "too many concurrent writers" in str(error).lower()
        )

    def _table(self, ids: list[int], values: list[int]) -> pa.Table:
        return pa.table([ids, [self.account.number] * len(ids), values], schema=_SCHEMA)


def _run_pylance(number: int, seed: int, path: str, seconds: float, log: str) -> None:
    writer = PylanceWriter(number, seed, path)
    writer.run(seconds)
    Path(log).write_text(writer.account.json())


def run_statements(
    spark: Any, folder: Path, seconds: float, writers: int, pylance_writers: int, seed: int = 0
) -> tuple[Counter[str], list[str]]:
    """Change a table by several clients, and check it.

    Returns
    -------
    Counter, list of str
        How many changes there were, and what is wrong with the table.
    """
    lance_spark.enable(spark, _CATALOG, root=str(folder))
    table, path = f"{_CATALOG}.t", str(folder / "t.lance")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, writer INT, n BIGINT) "
        "TBLPROPERTIES ('enable_stable_row_ids' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} VALUES ({COUNTER}, {COUNTER}, 0)")
    logs = [folder / f"log{number}" for number in range(pylance_writers)]
    processes = [
        CONTEXT.Process(target=_run_pylance, args=(writers + number, seed, path, seconds, str(log)))
        for number, log in enumerate(logs)
    ]
    sql_writers = [SqlWriter(number, seed, spark, table) for number in range(writers)]
    threads = [threading.Thread(target=writer.run, args=(seconds,)) for writer in sql_writers]
    for part in (*processes, *threads):
        part.start()
    for part in (*threads, *processes):
        part.join()
    accounts = [writer.account for writer in sql_writers]
    accounts += [Account.parse(log.read_text()) for log in logs]
    counts: Counter[str] = Counter()
    for account in accounts:
        counts.update(account.counts)
    return counts, [
        *(text for account in accounts for text in account.errors),
        *_wrong(path, accounts),
    ]


def _wrong(path: str, accounts: list[Account]) -> list[str]:
    """Return what is wrong with a table."""
    dataset = lance.dataset(path)
    dataset.validate()
    rows = dataset.to_table(with_row_id=True).to_pydict()
    wrong = []
    for name in ("id", "_rowid"):
        repeated = [value for value, count in Counter(rows[name]).items() if count > 1]
        if repeated:
            wrong.append(f"{name} more than once: {repeated[:10]}")
    actual = dict(zip(rows["id"], rows["n"], strict=True))
    expected = {COUNTER: sum(account.increments for account in accounts)}
    for account in accounts:
        expected.update(account.rows)
    for name, ids in (
        ("lost", expected.keys() - actual.keys()),
        ("not deleted", actual.keys() - expected.keys()),
        ("other value", {i for i, n in actual.items() if expected.get(i, n) != n}),
    ):
        if ids:
            examples = [(i, expected.get(i), actual.get(i)) for i in sorted(ids)[:10]]
            wrong.append(f"{len(ids)} {name}, as (id, expected, actual): {examples}")
    handle = lance_spark.open_dataset(path)
    for index in handle.describe_indices():
        if index.field_names and not (check := handle.check_index(index.name)).is_valid:
            wrong.append(f"{check}")
    for text in ("id = -1", "writer = 0", "n > 3", "writer = 1 AND id % 2 = 0"):
        found = handle.to_table(["id"], filter=text)
        if not found.equals(handle.to_table(["id"], filter=text, use_scalar_index=False)):
            wrong.append(f"{text}: other rows by indexes")
    ours = handle.to_table(columns=["id", "n"]).to_pydict()
    if dict(zip(ours["id"], ours["n"], strict=True)) != actual:
        wrong.append("this package reads other rows than pylance")
    return wrong


def main() -> int:
    """Run a load; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.statements")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--others", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="statements") as folder:
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        spark = SparkSession.builder.master("local[4]").config(map=settings).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        counts, wrong = run_statements(
            spark,
            Path(folder),
            arguments.seconds,
            arguments.writers,
            arguments.others,
            arguments.seed,
        )
        spark.stop()
    for text in wrong:
        print(text)
    print(json.dumps({**counts, "lost or wrong": len(wrong)}))
    return min(len(wrong), 1)


if __name__ == "__main__":
    raise SystemExit(main())
