"""One schedule: a table, some writers and readers, their faults, and the verdict."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import LanceError
from lance_spark.storage import remote
from lance_spark.storage.multipart import PartSizes
from tests.faults.checker import Call, Checker
from tests.faults.model import TwiceError, read
from tests.faults.operations import Maker
from tests.faults.places import KINDS, Table, place
from tests.faults.schedule import Actor, Schedule
from tests.faults.threads import deterministic

#: How often operations of a kind are chosen.
WEIGHTS = {
    "append": 6,
    "append_once": 3,
    "overwrite": 1,
    "replace": 2,
    "delete": 4,
    "update": 4,
    "update_columns": 3,
    "compact": 4,
    "add_column": 2,
    "drop_column": 1.5,
    "cast": 1.5,
    "rename": 1.5,
    "config": 1,
    "restore": 2,
    "deep_clone": 1,
}
#: A tag or branch keeps a version, or is refused if a cleanup is about to remove the version.
NAMES = {"tag": 2, "branch": 2}
#: A cleanup does not know shallow clones at other paths. So one schedule does not have both: see
#: docs/explanation/reliability.md.
CLONES = {"shallow_clone": 1}
REMOVES = {"cleanup": 3}
#: Schedules with cleanup, and with tags, branches and restores of old versions, which seldom meet
#: otherwise. The seed chooses the operations.
MEETING = (
    {"append": 3, "tag": 8, "branch": 2, "cleanup": 6},
    {"append": 3, "restore": 8, "cleanup": 6},
)
#: The content of the tables that schedules begin with, by kind of store and table.
_KNOWN: dict[tuple[str, str], dict[object, Any]] = {}
AUTO = {"lance.auto_cleanup.interval": "2", "lance.auto_cleanup.retain_versions": "2"}
_DAYS = 24 * 3600
_ON_BRANCH = 0.2


@dataclass
class Verdict:
    """The outcome of a schedule.

    Attributes
    ----------
    seed : int
    kind : str
        Of the store.
    wrong : list of str
    faults : Counter
        By kind of fault and kind of call.
    outcomes : Counter
        By kind of operation and its end.
    steps, versions, reads : int
    said : list of str
        What happened, in its order.
    """

    seed: int
    kind: str
    wrong: list[str]
    faults: Counter[tuple[str, str]]
    outcomes: Counter[tuple[str, str]]
    steps: int
    versions: int
    reads: int
    said: list[str] = field(default_factory=list)


def digest(texts: list[str]) -> str:
    """Return a digest that differs between different runs."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Requests:
    """How files are cut into requests. Schedules use small requests.

    Attributes
    ----------
    parts : PartSizes
        Of uploads to S3.
    gap : int
        Bytes that are read for nothing rather than asking twice.
    """

    parts: PartSizes
    gap: int

    @classmethod
    def chosen(cls, random: Random) -> _Requests:
        size = random.choice([remote.PART, remote.PART, 100, 250, 600])
        gap = random.choice([remote.MAX_GAP, remote.MAX_GAP, remote.MAX_GAP, 0])
        return cls(PartSizes(size, random.choice([1, 2, 10]), constant=True), gap)

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        with (
            mock.patch.object(PartSizes, "of", return_value=self.parts),
            mock.patch.object(remote, "MAX_GAP", self.gap),
        ):
            yield


class Run:
    """One schedule.

    Parameters
    ----------
    seed : int
    kind : str, optional
        "s3", "gs" or "local"; by the seed if it is not given.
    rate : int, optional
        Faults of a thousand calls.
    meeting : bool
        Whether it has to be one of `MEETING`; else the seed says so.
    """

    def __init__(
        self,
        seed: int,
        store_kind: str | None = None,
        rate: int | None = None,
        *,
        meeting: bool = False,
    ) -> None:
        self._random = Random(f"run {seed}")
        self.seed = seed
        by_seed = self._random.choice(KINDS)
        self.kind = store_kind or by_seed
        self.removes = self._random.random() < 0.4 or meeting
        self.stable = self._random.random() < 0.3
        self.auto = self.removes and self._random.random() < 0.3 and not meeting
        self.meeting = meeting or (self.removes and not self.auto and self._random.random() < 0.4)
        #: Whether there is no table in the beginning.
        self.new = self._random.random() < 0.1
        #: Whether threads of operations take turns, too.
        self.threads = self._random.random() < 0.6
        self._requests = _Requests.chosen(self._random)
        self.schedule = Schedule(seed)
        self._rate = rate
        self._said: list[str] = []
        self._uri = ""

    def run(self) -> Verdict:
        """Run the schedule."""
        with place(self.seed, self.kind, self.schedule, self._rate) as table:
            self._uri = table.uri
            with (
                deterministic(self.seed, self.schedule, threads=self.threads),
                self._requests.made(),
            ):
                checker = Checker(table)
                checker.new = self.new
                if not self.new:
                    self._set_up(table, checker)
                table.watch(checker.created)
                for number in range(1, self._random.randint(3, 5) + 1):
                    writer = _Writer(self, table, checker, number)
                    self.schedule.add(f"writer {number}", writer.run)
                for number in range(1, self._random.randint(1, 2) + 1):
                    reader = _Reader(self, table, checker, number)
                    self.schedule.add(f"reader {number}", reader.run)
                self.schedule.run()
                for error in self.schedule.errors():
                    checker.say(f"the schedule broke off: {error!r}")
                if self.schedule.hangs:
                    checker.say(f"the schedule hangs after {self.schedule.steps} steps")
                elif not checker.wrong:
                    self._finish(table, checker)
            faults = table.faults.tried
        return Verdict(
            self.seed,
            self.kind,
            checker.wrong,
            faults,
            checker.outcomes,
            self.schedule.steps,
            len(checker.states),
            checker.reads,
            self._said,
        )

    def say(self, text: str) -> None:
        self._said.append(f"{self.schedule.steps:5} {text.replace(self._uri, 'table')}")

    def _set_up(self, table: Table, checker: Checker) -> None:
        def make() -> None:
            maker = Maker(Random(0), 0)
            dataset = write_dataset(
                maker._new(6), table.uri, max_rows_per_file=3, enable_stable_row_ids=self.stable
            )
            dataset = dataset.add_columns({"c0": pa.scalar(7, pa.int64())})
            dataset = dataset.delete([("id", "==", 1)])
            dataset.create_branch("b0")
            if self.auto:
                dataset.update_config(AUTO)
            else:
                # Cleanup after commits removes nothing as long as a removable version has a tag.
                dataset.tags.create("first", 1)

        key = f"{self.stable} {self.auto}"
        table.set_up(key, make)
        known = _KNOWN.setdefault((self.kind, key), {})
        versions = [("", 1), ("", 2), ("", 3), ("tree/b0", 3)]
        if self.auto:
            versions = [("", 3), ("", 4), ("tree/b0", 3)]
            checker.cleans_up = True
        for root, version in versions:
            checker.setup(root, version, known)

    def _finish(self, table: Table, checker: Checker) -> None:
        checker.finish()
        if self.seed % 10 == 0 and not checker.wrong:
            table.compare(checker)
        # A week later, files of failed jobs are old enough to be removed.
        self.schedule.now += 8 * _DAYS
        table.age(8 * _DAYS)
        try:
            self._clean_up(table, checker)
        except (LanceError, TwiceError) as error:
            checker.say(f"cleanup in the end: {error!r}")

    def _clean_up(self, table: Table, checker: Checker) -> None:
        for root in checker.roots():
            dataset = open_dataset(f"{table.uri}/{root}" if root else table.uri)
            before = read(dataset)
            dataset.cleanup_old_versions(retain_versions=2, error_if_tagged_old_versions=False)
            if read(open_dataset(dataset.uri)) != before:
                checker.say(f"cleanup changed the newest version of {root or 'main'}")
        unneeded = checker.unneeded()
        # Without a table, cleanup cannot run.
        if unneeded and checker.states:
            checker.say(f"cleanup left {sorted(unneeded)} behind")


class _Actor:
    def __init__(self, run: Run, table: Table, checker: Checker, name: str) -> None:
        self._run = run
        self._table = table
        self._checker = checker
        self._name = name
        self._random = Random(f"{name} {run.seed}")

    @property
    def _actor(self) -> Actor:
        actor = self._run.schedule.running
        assert actor is not None
        return actor

    def _open(self, root: str, version: int | None = None) -> Dataset:
        return open_dataset(f"{self._table.uri}/{root}" if root else self._table.uri, version)

    def _root(self) -> str:
        return "tree/b0" if self._random.random() < _ON_BRANCH and not self._run.new else ""


class _Writer(_Actor):
    """Runs some operations, each on the newest version or on a known older version."""

    def __init__(self, run: Run, table: Table, checker: Checker, number: int) -> None:
        super().__init__(run, table, checker, f"writer {number}")
        self._maker = Maker(self._random, number, repeats=not run.removes)
        self._weights: dict[str, float] = {**WEIGHTS, **(REMOVES if run.removes else CLONES)}
        if not run.auto:
            # Cleanup after commits removes nothing as long as tags exist.
            self._weights |= NAMES
        if run.meeting:
            self._weights = {**MEETING[run.seed % len(MEETING)]}
        self._known: dict[str, Dataset] = {}
        self._count = 0

    def run(self) -> None:
        for _ in range(self._random.randint(2, 10 if self._run.meeting else 5)):
            self._change()

    def _change(self) -> None:
        root = self._root()
        actor = self._actor
        actor.begin()
        if self._run.new and not self._checker.states:
            self._count += 1
            name = f"{self._name}, operation {self._count}"
            self._call(Call(name, self._name, "", 0, self._maker.create(name, self._table.uri)))
            return
        dataset = self._known.get(root)
        if dataset is None or self._random.random() < 0.6:
            try:
                dataset = self._open(root)
            except LanceError as error:
                self._checker.unread(root, 0, error, actor.faults)
                return
            self._known[root] = dataset
        (operation_name,) = self._random.choices(list(self._weights), self._weights.values())
        if root and operation_name in ("tag", "branch", "shallow_clone", "deep_clone"):
            return
        self._count += 1
        name = f"{self._name}, operation {self._count}"
        planned = self._checker.states.get((root, dataset.version))
        if planned is None:
            # The checker has recorded the reason.
            return
        operation = self._maker.make(operation_name, name, planned, dataset.version)
        if operation is None or (root, operation.calls_back) in self._checker.made_again:
            # A writer that refers to a version which was created again, but not acknowledged, gets
            # its content.
            return
        self._call(Call(name, self._name, root, dataset.version, operation), dataset)

    def _call(self, call: Call, dataset: Dataset | None = None) -> None:
        actor, operation, name = self._actor, call.operation, call.name
        with self._run.schedule.aside():
            self._checker.began(call)
        self._run.say(f"{name}: {operation.kind} of version {call.version} {call.root}")
        actor.begin()
        answer: Any = None
        failed: BaseException | None = None
        try:
            answer = operation.run(dataset)  # type: ignore[arg-type]
        except Exception as error:
            failed = error
        self._checker.ended(call, failed, actor)
        self._run.say(f"{name}: {call.outcome} {call.versions} {call.error} {actor.faults}")
        if isinstance(answer, Dataset) and not operation.clone:
            self._known[call.root] = answer


class _Reader(_Actor):
    """Reads the newest version, a version by its number, or a version that it opened before."""

    def __init__(self, run: Run, table: Table, checker: Checker, number: int) -> None:
        super().__init__(run, table, checker, f"reader {number}")
        self._seen: dict[str, int] = {}
        self._pinned: list[tuple[str, Dataset]] = []

    def run(self) -> None:
        for _ in range(self._random.randint(3, 8)):
            self._look()
            self._run.schedule.sleep(self._random.uniform(0, 3))

    def _look(self) -> None:
        actor = self._actor
        actor.begin()
        root, version = self._root(), 0
        choice = self._random.choice(["newest", "newest", "number", "pinned"])
        dataset: Dataset | None = None
        with contextlib.suppress(_ReadFailedError):
            if choice == "pinned" and self._pinned:
                root, dataset = self._random.choice(self._pinned)
                version = dataset.version
            elif choice == "number" and root in self._seen:
                version = self._random.randint(1, self._seen[root])
                if root:
                    version = max(version, 3)
                dataset = self._try(lambda: self._open(root, version), root, version)
            else:
                dataset = self._try(lambda: self._open(root), root, self._seen.get(root, 0))
                version = dataset.version
                self._checker.opened(self._seen, root, version)
                self._pinned.append((root, dataset))
            opened = dataset
            state = self._try(lambda: read(opened), root, version)
            self._checker.saw(root, version, state)

    def _try(self, call: Any, root: str, version: int) -> Any:
        try:
            return call()
        except Exception as error:
            self._checker.unread(root, version, error, self._actor.faults)
            raise _ReadFailedError from error


class _ReadFailedError(Exception):
    pass
