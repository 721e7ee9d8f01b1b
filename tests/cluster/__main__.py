"""Runs Spark programs on a standalone cluster, and prints what each case did.

    python -m tests.cluster               all cases
    python -m tests.cluster archives zip  some cases

It needs Linux and the rights of root for `unshare --mount`. Tables are on an S3 server of this
machine. The workers see none of the driver's files; see `machines.py`. A case is a program of
`job.py` with settings, and what happens to its processes meanwhile. `--folder=FOLDER` keeps the
logs, and takes environments that an earlier run has made there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.job import PARTITIONS, check_once
from tests.cluster.machines import Cluster, Machine, make_machine, running
from tests.support.spark.processes import JAVA_OPTIONS, ROOT, SHORT_LIVED, environment, shared_home
from tests.support.stores import s3_programs

JOB = Path(__file__).with_name("job.py")
#: Maximum duration of a program. Beside heavy load, some take more than 15 minutes.
SECONDS = 2400
#: The program of Python that only an environment of --archives has.
PACKED = "./env/bin/python"
NONE: Mapping[str, str] = {}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    # Its tasks do not end in time.
    "spark.executor.decommission.forceKillTimeout": "1s",
}


@dataclass
class Place:
    """Where programs run."""

    machine: Machine
    cluster: Cluster
    server: s3_programs.Running
    folder: Path
    variables: dict[str, str]
    runs: int = 0

    def start(
        self,
        parts: str,
        table: str,
        python: str,
        *options: str,
        settings: Mapping[str, str] = NONE,
        checks: bool = True,
    ) -> subprocess.Popen[bytes]:
        """Start a program.

        - `parts`: Parts of `job.py`.
        - `table`: The folder of its tables.
        - `python`: The program of its tasks.
        - `options`, `settings`: Of spark-submit.
        - `checks`: Whether it checks the program of its tasks.
        """
        self.runs += 1
        driver, shared = self.folder / "driver", self.shared
        confs = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.executor.memory": "1g",
            "spark.executor.cores": "2",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.warehouse.dir": f"file://{shared}/warehouse-{self.runs}",
            "spark.pyspark.driver.python": sys.executable,
            "spark.pyspark.python": python,
            **settings,
        }
        words = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
        arguments = [parts, f"s3://{self.server.bucket}/{table}", str(shared)]
        arguments += [python] if checks else []
        submit = str(Path(sys.executable).with_name("spark-submit"))
        variables = environment(
            SPARK_HOME=str(shared_home()), SPARK_LOCAL_DIRS=str(driver / "local"), **self.variables
        )
        # Without `enable`, Spark reads this variable alone.
        del variables["PYSPARK_PYTHON"]
        if parts == "plain":
            variables["PYSPARK_PYTHON"] = python
        with (driver / f"log-{self.runs}").open("wb") as log:
            return subprocess.Popen(
                [submit, "--master", self.cluster.master, *words, *options, str(JOB), *arguments],
                cwd=driver,
                env=variables,
                stderr=log,
                start_new_session=True,
            )

    @property
    def shared(self) -> Path:
        """The folder that all machines see."""
        return self.folder / "shared"

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a program, which must succeed."""
        try:
            code = process.wait(SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        log = self.folder / "driver" / f"log-{self.runs}"
        assert code == 0, f"code {code}: {log.read_text(errors='replace')[-2000:]}"

    def run(
        self,
        parts: str,
        table: str,
        python: str,
        *options: str,
        settings: Mapping[str, str] = NONE,
    ) -> None:
        """Run a program to its end; see `start`."""
        self.finish(self.start(parts, table, python, *options, settings=settings))

    def wait_for_tasks(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until each task of a slow write has begun; end the program if they do not."""
        until = time.monotonic() + SECONDS
        while len(list(self.shared.glob("begun-*-0"))) < PARTITIONS:
            if process.poll() is not None or time.monotonic() > until:
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError("the slow write does not begin")
            time.sleep(0.1)
        # Batches are on their way to the writer.
        time.sleep(2)


def plain(place: Place) -> None:
    """The package is installed at the same path on all machines; the program calls no `enable`."""
    place.run("plain", "plain", str(place.machine.installed / "bin/python"))


def installed(place: Place) -> None:
    """The package is installed on the workers, at a path that the driver does not use."""
    place.run("page,changes", "installed", str(place.machine.installed / "bin/python"))


def archives(place: Place) -> None:
    """The workers get an environment by --archives."""
    shipped = ("--archives", f"{place.machine.packed()}#env")
    place.run("page,changes", "archives", PACKED, *shipped)


def zip_of_the_package(place: Place) -> None:
    """The workers have what the package needs, and get a zip of it by --py-files."""
    shipped = ("--py-files", str(place.machine.zipped))
    place.run("page,changes", "zip", str(place.machine.libraries / "bin/python"), *shipped)


def memory(place: Place) -> None:
    """Python processes of an executor have a limit of memory."""
    settings = {
        "spark.executor.pyspark.memory": "2g",
        # Arrow's own allocator reserves a gigabyte of addresses.
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    place.run(
        "page,changes", "memory", str(place.machine.installed / "bin/python"), settings=settings
    )


def speculation(place: Place) -> None:
    """Slow tasks run a second time."""
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "2s",
    }
    python = str(place.machine.installed / "bin/python")
    place.run("changes,speculated", "speculation", python, settings=settings)


def dynamic_allocation(place: Place) -> None:
    """Executors come and go while a program runs."""
    python = str(place.machine.installed / "bin/python")
    place.run("changes,append", "dynamic", python, settings=DYNAMIC)


def decommission(place: Place) -> None:
    """An executor is decommissioned while it writes."""
    _signalled(place, "decommission", signal.SIGPWR)


def killed_executor(place: Place) -> None:
    """An executor is killed while it writes."""
    _signalled(place, "executor", signal.SIGKILL)


def _signalled(place: Place, table: str, number: signal.Signals) -> None:
    python = str(place.machine.installed / "bin/python")
    process = place.start("append", table, python, settings=DYNAMIC, checks=False)
    place.wait_for_tasks(process)
    executors = place.cluster.executors()
    print(f"    {number.name} to process {executors[0]} of the executors {executors}")
    os.kill(executors[0], number)
    place.finish(process)
    assert list(place.shared.glob("begun-*-1")), "no task ran again"


def killed_driver(place: Place) -> None:
    """The driver is killed while its tasks write, and the program is started again."""
    python = str(place.machine.installed / "bin/python")
    process = place.start("append", "driver", python, checks=False)
    place.wait_for_tasks(process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    uri = f"s3://{place.server.bucket}/driver/slow.lance"
    check_once(uri, 0)
    while place.cluster.executors():
        time.sleep(0.5)
    check_once(uri, 0)
    print("    the table has none of the rows")
    place.run("append", "driver", python)


CASES = [
    *(plain, installed, archives, zip_of_the_package, memory, speculation, dynamic_allocation),
    *(decommission, killed_executor, killed_driver),
]


def main() -> int:
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    cases = {case.__name__.replace("_", "-"): case for case in CASES}
    chosen = {name: cases[name] for name in names} if names else cases
    kept = [word.partition("=")[2] for word in sys.argv[1:] if word.startswith("--folder=")]
    folder = Path(tempfile.mkdtemp(prefix="lance-cluster-", dir=kept[0] if kept else None))
    failed = []
    try:
        for name in ("driver", "shared"):
            (folder / name).mkdir()
        start = time.monotonic()
        made = Path(kept[0]) if kept else folder
        machine = make_machine(made / "software", made / "shipped")
        print(f"environments: {time.monotonic() - start:.0f} s", flush=True)
        hidden = [ROOT, folder / "driver", made / "shipped"]
        if not Path(sys.prefix).is_relative_to(ROOT):
            hidden.append(Path(sys.prefix))
        with s3_programs.serving("localbucket") as server:
            variables = {
                "AWS_ACCESS_KEY_ID": server.key,
                "AWS_SECRET_ACCESS_KEY": server.secret,
                "AWS_REGION": server.options["aws_region"],
                "AWS_ENDPOINT_URL": server.endpoint,
            }
            os.environ.update(variables)
            with running(machine, folder, hidden, variables) as cluster:
                place = Place(machine, cluster, server, folder, variables)
                for name, case in chosen.items():
                    print(f"{name}: {case.__doc__}", flush=True)
                    start, result = time.monotonic(), "passed"
                    for path in (folder / "shared").glob("begun-*"):
                        path.unlink()
                    try:
                        case(place)
                    except Exception:
                        traceback.print_exc(file=sys.stdout)
                        result = "FAILED"
                        failed.append(name)
                    print(f"{name} {result}, {time.monotonic() - start:.0f} s", flush=True)
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"failed: {', '.join(failed)}" if failed else f"all {len(chosen)} cases passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
