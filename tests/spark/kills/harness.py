"""Runs `run.py` and checks its table: each acknowledged change is present once, and there are no
other rows.

While it runs, this process appends rows with ids below zero to the same table. Spark's jobs must
not delete their files.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa

import lance_spark
from lance_spark.errors import CommitConflictError
from tests.spark.kills.model import Log, Rows, outcome
from tests.spark.table.tables import checked
from tests.support.spark.processes import ROOT, environment, make_home

SCRIPT = Path(__file__).with_name("run.py")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("batch", pa.int64()), ("n", pa.int64()), ("text", pa.string())]
)


@dataclass
class Kills:
    """A table, and what has happened to it.

    Attributes
    ----------
    folder : Path
    rows : dict
        What is in the table, without the rows that this process appends.
    own : list of int
        Ids of those.
    drivers, executors : int
        How often each was killed.
    """

    folder: Path
    rows: Rows = field(default_factory=dict)
    own: list[int] = field(default_factory=list)
    drivers: int = 0
    executors: int = 0
    answers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self.folder / "t"
        ids = list(range(400))
        self.rows = dict.fromkeys(ids, (0, 0))
        first = pa.table([ids, [0] * 400, [0] * 400, [f"row {i}" for i in ids]], schema=SCHEMA)
        lance_spark.write_dataset(first, str(self.table), max_rows_per_file=100)
        self._home = make_home(self.folder / "home")

    def run(self, *changes: str, seconds: float | None = None, seed: int = 0) -> Log:
        """Let Spark change the table until it ends or its driver is killed; then check the table.

        Parameters
        ----------
        changes : str
            As `run.py` has them.
        seconds : float, optional
            For so long Spark changes the table by turns, and executors are killed at any time; then
            the driver is.
        seed : int
            Of the times.
        """
        path = self.folder / "log"
        first = max(Log(path).begun, default=0) + 1 if path.exists() else 1
        variables = environment(
            SPARK_HOME=str(self._home),
            SPARK_LOCAL_DIRS=str(self.folder / "local"),
            SPARK_KILLS=str(self.folder),
            PYTHONPATH=os.pathsep.join([str(SCRIPT.parent / "hook"), str(ROOT)]),
        )
        command = [sys.executable, str(SCRIPT), str(self.folder), str(first), *changes]
        for name in ("driver", "armed"):
            (self.folder / name).unlink(missing_ok=True)
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=variables, stdout=output, stderr=output
            )
            stop = threading.Event()
            appending = threading.Thread(target=self._append, args=(stop,))
            appending.start()
            try:
                if seconds is None:
                    process.wait(300)
                else:
                    self._kill_at_random(process, seconds, random.Random(seed))
            finally:
                with suppress(OSError, ValueError):
                    os.kill(self._driver(), signal.SIGKILL)
                process.kill()
                process.wait()
                stop.set()
                appending.join()
        log = Log(path)
        self._check(log, first, by_chance=seconds is not None)
        return log

    @property
    def output(self) -> str:
        """Return the last output of Spark."""
        return (self.folder / "output").read_text(errors="replace")[-3000:]

    def _driver(self) -> int:
        """Return the process of the driver's JVM."""
        return int((self.folder / "driver").read_text().split()[0])

    def _append(self, stop: threading.Event) -> None:
        while not stop.wait(0.7):
            number = -1 - len(self.own)
            row = pa.table([[number], [number], [0], ["own"]], schema=SCHEMA)
            while True:
                with suppress(CommitConflictError):
                    lance_spark.write_dataset(row, str(self.table), mode="append")
                    break
            self.own.append(number)

    def _kill_at_random(
        self, process: subprocess.Popen[bytes], seconds: float, times: random.Random
    ) -> None:
        deadline = time.monotonic() + 120
        while not (self.folder / "driver").exists():
            assert process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)
        driver = self._driver()
        end = time.monotonic() + seconds
        while True:
            time.sleep(times.uniform(1.0, 9.0))
            assert process.poll() is None, self.output
            if time.monotonic() > end:
                break
            executors = executors_of(driver)
            if executors:
                with suppress(ProcessLookupError):
                    os.kill(times.choice(executors), signal.SIGKILL)
                self.executors += 1
        (self.folder / f"killed.{time.time_ns()}").touch()

    def _check(self, log: Log, first: int, *, by_chance: bool) -> None:
        numbers = [number for number in log.begun if number >= first]
        # A driver that is killed at a random time may not have begun a change.
        assert numbers or by_chance, self.output
        for number in numbers:
            self.answers.append(log.answers.get(number, "killed"))
        dataset = lance.dataset(self.table)
        dataset.validate()
        table = dataset.to_table(["id", "batch", "n"])
        ids = table["id"].to_pylist()
        assert len(set(ids)) == len(ids)
        rows = dict(
            zip(
                ids,
                zip(table["batch"].to_pylist(), table["n"].to_pylist(), strict=True),
                strict=True,
            )
        )
        ours = lance_spark.open_dataset(str(self.table)).to_table(columns=["id", "batch", "n"])
        assert ours.sort_by("id") == table.sort_by("id")
        # Updates change all rows with even ids, of any writer.
        assert sorted(i for i in ids if i < 0) == sorted(self.own)
        rows = {i: row for i, row in rows.items() if i >= 0}
        possible = outcome(log, numbers, self.rows)
        assert rows in possible, (log.begun, log.answers)
        self.rows = rows

    def clean(self) -> None:
        """Remove the files of killed processes; afterwards versions refer to all files."""
        lance_spark.open_dataset(str(self.table)).cleanup_old_versions(
            timedelta(days=1), delete_unverified=True
        )
        checked(self.table)


def executors_of(driver: int) -> list[int]:
    """Return the processes of executors whose workers a driver's JVM has started."""
    executors = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == driver and b"CoarseGrainedExecutorBackend" in words:
                executors.append(int(process.name))
    return executors
