"""Two concurrent Spark jobs in two processes: both changes hold, or the second replans.

Each pair is a race: both processes plan on the first version and stop before their first commit
(`writers.py`). Then one commits, and the other one finds a newer version. `make test` runs one
of seven pairs, in one of their two orders, and races about different rows without merges;
`make test-long` runs all of them.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.spark.table.tables import checked
from tests.spark.table.writers import PATIENCE
from tests.support.cells import ALL_CELLS
from tests.support.spark.processes import environment

FRAGMENTS, ROWS = 6, 10
COLUMNS = ("id", "g", "v")
MESSAGE = "__lance_commit_message"
ALL = ALL_CELLS
START = "from tests.spark.table.writers import main; main({!r})"


@dataclass(frozen=True)
class Rows:
    """The content of a table: its columns, and how often each row occurs."""

    columns: tuple[str, ...]
    rows: Counter[tuple[int | None, ...]]

    def mapped(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Rows:
        """Return the table with each row replaced by another row, or removed."""
        counts: Counter[tuple[int | None, ...]] = Counter()
        for row, times in self.rows.items():
            changed = change(dict(zip(self.columns, row, strict=True)))
            if changed is not None:
                counts[tuple(changed.get(name) for name in self.columns)] += times
        return replace(self, rows=counts)

    def is_like(self, other: Rows) -> bool:
        """Return whether columns and rows are equal, in any order."""
        names = sorted(self.columns)
        return names == sorted(other.columns) and self.of(names) == other.of(names)

    def of(self, names: Sequence[str]) -> Counter[tuple[int | None, ...]]:
        places = [self.columns.index(name) for name in names]
        counts: Counter[tuple[int | None, ...]] = Counter()
        for row, times in self.rows.items():
            counts[tuple(row[place] for place in places)] += times
        return counts

    def with_rows(self, first: int, stop: int, factor: int) -> Rows:
        return replace(self, rows=self.rows + made(self.columns, first, stop, factor))


def made(columns: tuple[str, ...], first: int, stop: int, factor: int) -> Counter[Any]:
    rows = [{"id": n, "g": n % 5, "v": n * factor} for n in range(first, stop)]
    return Counter(tuple(row.get(name) for name in columns) for row in rows)


def append(state: Rows, first: int, stop: int) -> Rows:
    return state.with_rows(first, stop, 10)


def overwrite(state: Rows, first: int, stop: int, columns: list[str]) -> Rows:
    names = tuple(columns)
    return Rows(names, made(names, first, stop, -1))


def delete(state: Rows, ids: list[int]) -> Rows:
    return state.mapped(lambda row: None if row["id"] in ids else row)


def update(state: Rows, ids: list[int], mode: str) -> Rows:
    return state.mapped(lambda row: {**row, "v": row["v"] * 2 + 1} if row["id"] in ids else row)


def merge(state: Rows, ids: list[int], first: int, stop: int) -> Rows:
    keys = {*ids, *range(first, stop)}
    existing_ids = {row[state.columns.index("id")] for row in state.rows}
    merged = state.mapped(lambda row: {**row, "v": row["v"] * 3} if row["id"] in keys else row)
    for number in sorted(keys - existing_ids):
        merged = merged.with_rows(number, number + 1, 10)
    return merged


def optimize(state: Rows, condition: str | None) -> Rows:
    return state


def add_columns(state: Rows, column: str) -> Rows:
    index = state.columns.index("v")
    rows: Counter[Any] = Counter()
    for row, times in state.rows.items():
        rows[(*row, row[index] + 1)] += times
    return Rows((*state.columns, column), rows)


MODELS: dict[str, Callable[..., Rows]] = {
    model.__name__: model
    for model in (append, delete, update, merge, optimize, add_columns, overwrite)
}


@dataclass(frozen=True)
class Change:
    """A change that one of two processes makes.

    Attributes
    ----------
    job : str
        Name of a method of `writers.Jobs`, and of a function here.
    arguments : dict
    before : str
        The operation that it stops before; any if it is empty.
    more : dict
        Arguments of `LanceTable`'s methods.
    """

    job: str
    arguments: dict[str, Any]
    before: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    def __call__(self, state: Rows) -> Rows:
        return MODELS[self.job](state, **self.arguments)

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.job}({arguments})" + (f" held before {self.before}" if self.before else "")


@dataclass
class Writer:
    """A process with a Spark session."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    def tell(self, folder: Path, change: Change) -> None:
        (folder / f"{self.name}.hold").write_text(change.before)
        request = {
            "race": str(folder),
            "job": change.job,
            "arguments": change.arguments,
            "more": change.more,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def wait(self, file: Path, otherwise: Path | None = None) -> str:
        """Return the text of a file as soon as the file exists."""
        deadline = time.monotonic() + PATIENCE
        while not file.exists():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, (
                f"{file} did not come: {self.log.read_text()[-3000:]}"
            )
            assert otherwise is None or not otherwise.exists(), otherwise.read_text()
            time.sleep(0.005)
        return file.read_text()

    def stopped(self, folder: Path) -> int:
        """Return the newest version that the writer knew when it stopped before its commit."""
        return int(self.wait(folder / f"{self.name}.ready", folder / f"{self.name}.answer"))

    def go(self, folder: Path) -> dict[str, Any]:
        """Let the writer commit; return its answer."""
        (folder / f"{self.name}.go").touch()
        answer: dict[str, Any] = json.loads(self.wait(folder / f"{self.name}.answer"))
        return answer

    def conflicts(self, folder: Path) -> list[tuple[str, bool, str]]:
        """Return the conflicts of the writer: operation, whether a retry can help, the error."""
        file = folder / f"{self.name}.conflicts"
        lines = file.read_text().splitlines() if file.exists() else []
        return [tuple(json.loads(line)) for line in lines]


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Writer, Writer]]:
    folder = tmp_path_factory.mktemp("writers")
    started = []
    for name in "ab":
        log = folder / f"{name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", START.format(name)],
                env=environment(SPARK_LOCAL_DIRS=str(folder / name)),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        started.append(Writer(name, process, log))
    try:
        for writer in started:
            assert writer.process.stdout is not None
            assert writer.process.stdout.readline() == "ready\n", writer.log.read_text()[-3000:]
        first, second = started
        yield first, second
    finally:
        for writer in started:
            assert writer.process.stdin is not None
            writer.process.stdin.close()
        for writer in started:
            try:
                writer.process.wait(30)
            except subprocess.TimeoutExpired:
                writer.process.kill()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write tables of six fragments: with row addresses, with stable row ids, and with a primary
    key.
    """
    folder = tmp_path_factory.mktemp("sources")
    ids = range(FRAGMENTS * ROWS)
    plain = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "g": pa.array([n % 5 for n in ids], pa.int32()),
            "v": pa.array([n * 10 for n in ids], pa.int64()),
        }
    )
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    keyed = plain.cast(pa.schema([key, *list(plain.schema)[1:]]))
    for name, rows in (("plain", plain), ("stable", plain), ("keyed", keyed)):
        lance.write_dataset(
            rows, folder / name, max_rows_per_file=ROWS, enable_stable_row_ids=name == "stable"
        )
    return {name: folder / name for name in ("plain", "stable", "keyed")}


def found_rows(table: pa.Table) -> Rows:
    names = tuple(table.column_names)
    return Rows(names, Counter(zip(*(table[name].to_pylist() for name in names), strict=True)))


@dataclass
class Race:
    """The outcome of a race."""

    folder: Path
    before: Rows
    after: Rows
    first: dict[str, Any]
    second: dict[str, Any]
    conflicts: list[tuple[str, bool, str]]
    messages: list[str | None]


class Races:
    """Lets changes race on copies of tables."""

    def __init__(
        self, writers: tuple[Writer, Writer], sources: dict[str, Path], folder: Path
    ) -> None:
        self.writers = writers
        self.sources = sources
        self.folder = folder
        self._number = 0

    def run(self, source: str, first: Change, second: Change) -> Race:
        self._number += 1
        folder = self.folder / str(self._number)
        folder.mkdir()
        path = folder / "t"
        shutil.copytree(self.sources[source], path)
        before = found_rows(lance.dataset(path).to_table())
        first_writer, second_writer = self.writers
        try:
            first_writer.tell(folder, first)
            if second.before:
                # The second writer commits once before it stops. The first writer must have
                # planned by then.
                first_writer.stopped(folder)
            second_writer.tell(folder, second)
            planned_on = [first_writer.stopped(folder), second_writer.stopped(folder)]
            assert planned_on == [1, 2 if second.before else 1]
            first_error = first_writer.go(folder)
            assert not first_writer.conflicts(folder)
            second_error = second_writer.go(folder)
        finally:
            for writer in self.writers:
                (folder / f"{writer.name}.go").touch()
        dataset = checked(path)
        theirs = found_rows(dataset.to_table())
        assert found_rows(lance_spark.open_dataset(str(path)).to_table()) == theirs
        transactions = [
            dataset.read_transaction(version["version"]) for version in dataset.versions()
        ]
        messages = [transaction.transaction_properties.get(MESSAGE) for transaction in transactions]
        return Race(
            folder,
            before,
            theirs,
            first_error,
            second_error,
            second_writer.conflicts(folder),
            messages,
        )


@pytest.fixture(scope="module")
def races(
    writers: tuple[Writer, Writer],
    sources: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Races:
    return Races(writers, sources, tmp_path_factory.mktemp("races"))


PAIRS = list(itertools.combinations_with_replacement(MODELS, 2))


def change(job: str, side: int, same_rows: bool, mode: str) -> Change:
    """Return the change of the first or second process.

    With `same_rows` both processes change the same rows. Other rows are in the same fragments,
    except rows that a compaction rewrites.

    Different rows are in the same fragments, except those that a compaction rewrites.
    """
    ids = [2, 15, 17, *range(30, 40)] if same_rows else [2 + side, 15 + 2 * side]
    condition = None if same_rows else ("id between 20 and 39", "id >= 40")[side]
    first = 100 + 50 * side
    arguments: dict[str, dict[str, Any]] = {
        "append": {"first": first, "stop": first + 3},
        "overwrite": {"first": first, "stop": first + 5, "columns": list(COLUMNS)},
        "delete": {"ids": ids},
        "update": {"ids": ids, "mode": mode},
        "merge": {"ids": ids, "first": 200 + first, "stop": 202 + first},
        "optimize": {"condition": condition},
        "add_columns": {"column": f"n{side}"},
    }
    return Change(job, arguments[job])


def orders(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield one of seven pairs, in one order, or all pairs in both orders, with a number. Pairs of
    one job with itself are always among them.
    """
    for number, (first_job, second_job) in enumerate(pairs):
        if not ALL and first_job != second_job and number % 7:
            continue
        ordered = (
            [(first_job, second_job)]
            if first_job == second_job
            else [(first_job, second_job), (second_job, first_job)]
        )
        for first, second in ordered if ALL else [ordered[number % len(ordered)]]:
            yield number, first, second


def problem(race: Race, first: Change, second: Change) -> str | None:
    """Return what is wrong with a race in which both changes must succeed."""
    if race.first or race.second:
        return f"failed: {race.first or race.second}"
    # A conflict with an overwrite is not retryable, but the change is planned again.
    stuck = [
        conflict for conflict in race.conflicts if not conflict[1] and first.job != "overwrite"
    ]
    if stuck:
        return f"a conflict that no retry helps against: {stuck[0]}"
    wanted = [second(first(race.before))]
    if not race.conflicts:
        wanted.append(first(second(race.before)))
    if not any(race.after.is_like(rows) for rows in wanted):
        return (
            f"{len(race.conflicts)} conflicts; {race.after} is not {' or '.join(map(str, wanted))}"
        )
    # A compaction has nothing to do after an overwrite or another compaction.
    idle = second.job == "optimize" and first.job in ("overwrite", "optimize")
    if not {"a", *(() if idle else "b")} <= set(race.messages):
        return f"the history has only changes of {race.messages}"
    return None


def others_rows(pair: tuple[str, str]) -> bool:
    """Return whether both changes of a pair can also be made to different rows."""
    return set(pair) <= {"delete", "update", "merge", "optimize"} and (ALL or "merge" not in pair)


def test_pairs(races: Races) -> None:
    """Both changes are about the same rows, or about different rows."""
    problems, replanned = [], set()
    for same_rows, pairs in ((True, PAIRS), (False, list(filter(others_rows, PAIRS)))):
        for number, first_job, second_job in orders(pairs):
            modes = ("rows", "columns") if number % 2 else ("columns", "rows")
            first = change(first_job, 0, same_rows, modes[0])
            second = change(second_job, 1, same_rows, modes[1])
            source = ("plain", "stable", "keyed")[number % 3]
            race = races.run(source, first, second)
            description = problem(race, first, second)
            if description is not None:
                problems.append(f"{first}, then {second}, {source}: {description}")
            if race.conflicts:
                replanned.add((same_rows, first_job, second_job))
    assert not problems, "\n".join(problems)
    # Changes that do not touch each other must not be planned again.
    quiet = [("delete", "append"), ("append", "optimize"), ("add_columns", "append")]
    assert not replanned & {(True, *pair) for pair in quiet}
    assert not replanned & {
        (False, first_job, second_job)
        for first_job in ("delete", "optimize")
        for second_job in ("delete", "optimize")
    }
    # Changes of the same rows must be planned again.
    assert replanned >= {(True, "delete", "delete"), (True, "update", "update")}


def test_both_insert_one_key(races: Races) -> None:
    """With a primary key, the second merge finds the row; appends ignore keys."""
    first, second = (Change("merge", {"ids": [side], "first": 300, "stop": 302}) for side in (1, 2))
    race = races.run("keyed", first, second)
    assert problem(race, first, second) is None
    assert [conflict[1] for conflict in race.conflicts] == [True]
    assert race.after.is_like(second(first(race.before)))


def test_a_compaction_with_reserved_fragments(races: Races) -> None:
    """A change by another writer between the two commits is neither lost nor undone."""
    rewrite = Change("optimize", {"condition": None}, before="rewrite")
    for first in (
        Change("delete", {"ids": [2, 15, *range(30, 40)]}),
        Change("append", {"first": 100, "stop": 103}),
    ):
        race = races.run("plain", first, rewrite)
        assert problem(race, first, rewrite) is None
        assert bool(race.conflicts) == (first.job == "delete")


def test_conflicts_without_retries_are_errors(races: Races) -> None:
    """The error says what happened and what to do. No part of the change is left."""
    first = Change("update", {"ids": [2, 3], "mode": "rows"})
    second = Change("delete", {"ids": [3, 4]}, more={"conflict_retries": 0})
    race = races.run("plain", first, second)
    assert race.second["error"] == "CommitConflictError"
    assert race.second["retryable"] is True
    assert "rows 3 of fragment 0 were changed too since version 1" in race.second["text"]
    assert "plan it again on the newest version" in race.second["text"]
    assert race.after.is_like(first(race.before))

    # Rows for removed columns cannot be written.
    overwrite = Change("overwrite", {"first": 200, "stop": 205, "columns": ["id", "v"]})
    append = Change("append", {"first": 100, "stop": 103})
    race = races.run("plain", overwrite, append)
    assert "append is incompatible with version 2 (overwrite)" in race.second["text"]
    assert race.after.is_like(overwrite(race.before))

    # The retry finds that the other writer has added the same column.
    column = Change("add_columns", {"column": "n"})
    race = races.run("plain", column, column)
    assert race.second["error"] == "InvalidInputError"
    assert "column 'n' exists already" in race.second["text"]
    assert race.after.is_like(column(race.before))
