"""`make test-spark-suites SPARK_SOURCE=FOLDER`: tests of Spark's source, with Parquet and with Lance.

The folder is a checkout of the release of the installed pyspark. Each statement of the golden SQL
files, and each test of some modules of pyspark, runs with Parquet and with Lance as the source, and
the run prints where Lance differs: with a reason of `reasons.toml`, or wrong. `SUITES` chooses
files of SQL (`inputs/group-by.sql`, `inputs/subquery/*`) and modules
(`pyspark.sql.tests.test_types`) by patterns. Outcomes with Parquet are kept in
`build/spark-suites`. The exit status is 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

import pyspark

from lance_spark.spark.jvm import enable
from tests.spark_suites.inputs import created_table, created_view
from tests.spark_suites.outcomes import Outcome, difference
from tests.spark_suites.reasons import Reasons
from tests.spark_suites.session import REPLY
from tests.support.spark.processes import JAVA_OPTIONS, ROOT, environment, write_kept_jar

RESOURCES = Path("sql/core/src/test/resources")
INPUTS = RESOURCES / "sql-tests" / "inputs"
#: Folders of a checkout that the run needs.
NEEDED = (INPUTS, RESOURCES / "test-data" / "postgresql", Path("python") / "test_support")
KEPT = ROOT / "build" / "spark-suites"
#: Spark's suite ignores it, too.
IGNORED = frozenset({"ignored.sql"})
#: Modules of `pyspark.sql.tests` about readers, writers, catalogs, types and streams.
MODULES = (
    *("test_catalog", "test_collection", "test_creation", "test_dataframe", "test_datasources"),
    *("test_observation", "test_readwriter", "test_repartition", "test_serde", "test_sql"),
    *("test_stat", "test_subquery", "test_types"),
    *("streaming.test_streaming", "streaming.test_streaming_foreach"),
    *("streaming.test_streaming_foreach_batch", "streaming.test_streaming_listener"),
)
#: The condition of a file or a module whose other outcomes are missing.
NO_OUTCOME = "NoOutcome"
#: Maximum seconds between two outcomes.
SECONDS = 180


class Worker:
    """A process that runs files or modules with a source, one after the other."""

    def __init__(self, module: str, source: str, argument: Path, scratch: Path):
        self._command = [sys.executable, "-m", f"tests.spark_suites.{module}", source]
        self._command += [str(argument)]
        self._argument = argument
        self._scratch = scratch
        self._source = source
        self._takes_folder = module == "session"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def _start(self) -> subprocess.Popen[str]:
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        command = [*self._command, str(folder)] if self._takes_folder else self._command
        if not self._takes_folder:
            shutil.copytree(self._argument / "test_support", folder / "python" / "test_support")
        variables = environment() if self._takes_folder else _conf(self._source, folder)
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._lines = queue.SimpleQueue()
        assert process.stdout is not None
        threading.Thread(target=_forward, args=(process.stdout, self._lines), daemon=True).start()
        return process

    def run(self, name: str) -> Iterator[Outcome]:
        """Run a file or a module. If an outcome takes too long, the others of it are left out."""
        self._process = process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(name + "\n")
        process.stdin.flush()
        number = 0
        while True:
            try:
                line = self._lines.get(timeout=SECONDS)
                problem = "the process ended"
            except queue.Empty:
                line, problem = None, f"no outcome in {SECONDS} seconds"
            if line is None:
                self.end()
                yield Outcome(name, number + 1, "", condition=NO_OUTCOME, error=problem)
                return
            values = json.loads(line)
            if values is None:
                return
            number = values["number"]
            yield Outcome.of(values)

    def end(self) -> None:
        """End the process with all that it started."""
        if self._process is not None:
            with_children = os.getpgid(self._process.pid)
            os.killpg(with_children, 9)
            self._process.wait()
            self._process = None


def _forward(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        # Spark's log may stand before it.
        _, found, values = line.partition(REPLY)
        if found:
            lines.put(values)
    lines.put(None)


def _conf(source: str, folder: Path) -> dict[str, str]:
    """Write the settings of Spark for tests of Python; return the variables of their process."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.sources.default": source,
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    lines = [f"{name} {value}" for name, value in settings.items()]
    if source == "lance":
        enable.write_conf(folder, session_catalog=True)
        lines.append((folder / "lance-spark-defaults.conf").read_text())
    (folder / "spark-defaults.conf").write_text("\n".join(lines))
    (folder / "log4j2.properties").write_text("rootLogger.level = off\n")
    return environment(SPARK_CONF_DIR=str(folder), SPARK_TESTING="1")


class Run:
    """Compares files and modules, and counts the outcomes."""

    def __init__(self, source: Path, scratch: Path):
        self._resources = source / RESOURCES
        self._python = source / "python"
        self._reasons = Reasons.read()
        self._counts: Counter[str] = Counter()
        self._files: set[str] = set()
        self._key = f"{_release(source)}-{pyspark.__version__}"
        self._workers = {
            (module, name): Worker(module, name, argument, scratch)
            for module, argument in (("session", self._resources), ("unit_tests", self._python))
            for name in ("parquet", "lance")
        }

    def compare(self, kind: str, name: str) -> None:
        """Run a file or a module with both sources, and print the differences."""
        start = time.monotonic()
        expected = {outcome.number: outcome for outcome in self._with_parquet(kind, name)}
        middle = time.monotonic()
        counts: Counter[str] = Counter()
        missing: dict[str, int] = {}
        for outcome in self._workers[kind, "lance"].run(name):
            parquet = expected.get(outcome.number)
            differs = difference(parquet, outcome) if parquet else "not run with Parquet"
            if outcome.condition == NO_OUTCOME:
                differs = f"error: {outcome.error}"
            verdict = "same"
            if not differs and outcome.condition and kind == "unit_tests":
                verdict = "skipped" if outcome.condition == "skipped" else "fails"
            if differs:
                reason = self._reasons.find(outcome, differs) or _follows(outcome, missing)
                created = created_table(outcome.text) or created_view(outcome.text)
                if created and outcome.condition:
                    missing[created] = outcome.number
                verdict = "reason" if reason else "wrong"
                if not reason:
                    _print(outcome, differs)
            counts[verdict] += 1
        self._counts += counts
        self._files.add(name)
        seconds = f"{middle - start:.0f} s and {time.monotonic() - middle:.0f} s"
        print(f"{name}: {_text(counts)} ({seconds})", flush=True)

    def _with_parquet(self, kind: str, name: str) -> list[Outcome]:
        kept = KEPT / self._key / f"{name.replace('/', '_')}.json"
        if kept.exists():
            return [Outcome.of(values) for values in json.loads(kept.read_text())]
        outcomes = list(self._workers[kind, "parquet"].run(name))
        if not any(outcome.condition == NO_OUTCOME for outcome in outcomes):
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps([outcome.values() for outcome in outcomes]))
        return outcomes

    def end(self, is_all: bool) -> int:
        """Print the sum; return the exit status.

        - `is_all`: Whether all files and modules were run.
        """
        for worker in self._workers.values():
            worker.end()
        for reason, uses in self._reasons.uses.items():
            print(f"{uses} times: {reason.reason}")
        for reason in self._reasons.unused(self._files, is_all):
            print(f"explains nothing: {reason.reason} ({reason.file})")
        print(f"all: {_text(self._counts)}")
        return 1 if self._counts["wrong"] else 0


def _print(outcome: Outcome, differs: str) -> None:
    text = " ".join(outcome.text.split())[:200]
    print(f"  wrong {outcome.file} {outcome.number}: {text}")
    print(f"      {' '.join(differs.split())[:600]}", flush=True)


def _follows(outcome: Outcome, missing: dict[str, int]) -> str:
    """Return which statement explains that a statement does not find a table or a view.

    - `missing`: Statements that did not create one, by its name.
    """
    if outcome.condition == "TABLE_OR_VIEW_NOT_FOUND":
        for table, number in missing.items():
            if re.search(rf"`{table}`", outcome.error, re.IGNORECASE):
                return f"statement {number} did not create {table}"
    return ""


def _text(counts: Counter[str]) -> str:
    text = f"{counts['same']} same, {counts['reason']} with a reason, {counts['wrong']} wrong"
    if counts["skipped"]:
        text += f", {counts['skipped']} skipped"
    if counts["fails"]:
        text += f", {counts['fails']} fail with both sources"
    return text


def _release(source: Path) -> str:
    """Return the version of a checkout of Spark."""
    line = (source / "python" / "pyspark" / "version.py").read_text()
    return line.rpartition("=")[2].strip().strip("\"'")


def _check_release(source: Path, other_release: bool) -> None:
    """End unless the checkout is of the installed release of pyspark, up to the patch."""
    for folder in NEEDED:
        if not (source / folder).is_dir():
            sys.exit(f"SPARK_SOURCE must be a checkout of Spark, but {source / folder} is missing")
    found, installed = _release(source), pyspark.__version__
    if found.split(".")[:2] != installed.split(".")[:2]:
        problem = f"SPARK_SOURCE is Spark {found}, and pyspark {installed} is installed"
        if not other_release:
            sys.exit(f"{problem}: check out the tag v{installed}, or set OTHER_RELEASE=1")
        print(f"{problem}: what that release does not know is an error with both sources")


def _chosen(source: Path, patterns: list[str]) -> list[tuple[str, str]]:
    """Return the files and modules of these patterns, or all."""
    inputs = source / INPUTS
    files = sorted(str(path.relative_to(inputs)) for path in inputs.rglob("*.sql"))
    names = [("session", file, f"inputs/{file}") for file in files if file not in IGNORED]
    modules = [f"pyspark.sql.tests.{module}" for module in MODULES]
    names += [
        ("unit_tests", module, module)
        for module in modules
        if (source / "python" / Path(*module.split("."))).with_suffix(".py").exists()
    ]
    return [
        (kind, name)
        for kind, name, full in names
        if not patterns or any(fnmatch(full, pattern) for pattern in patterns)
    ]


def main(arguments: list[str]) -> int:
    """Run the files and modules of these patterns, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark_suites")
    parser.add_argument("source", type=Path)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("--other-release", action="store_true")
    options = parser.parse_intermixed_args(arguments)
    source = options.source.absolute()
    _check_release(source, options.other_release)
    chosen = _chosen(source, options.suites)
    if not chosen:
        sys.exit(f"no file of {INPUTS} and no module has a name like {options.suites}")
    enable.write_jar = write_kept_jar
    # The processes of the run are in sessions of their own, and end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = Path(tempfile.mkdtemp(prefix="spark-suites-"))
    run = Run(source, scratch)
    try:
        for kind, name in chosen:
            run.compare(kind, name)
    finally:
        status = run.end(is_all=not options.suites)
        shutil.rmtree(scratch, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
