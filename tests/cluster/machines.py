"""Machines of a cluster: processes in mount namespaces of their own, and what is installed there.

Workers see neither the checkout, nor the environment of the driver, nor its temporary files, nor
the files of one another. They share with the driver the network of this machine, one folder, and
the base installation of Python.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.spark.processes import ROOT, SHORT_LIVED, make_home
from tests.support.stores.azurite import free_port

WORKERS = 2
#: Dependencies that executors do not need from an environment: Spark's home has pyspark.
NOT_INSTALLED = "pyspark"
_INSTALL = ("pip", "install", "-q")


@dataclass(frozen=True)
class Machine:
    """What is on the machine of a worker.

    Attributes
    ----------
    home : Path
        Spark.
    installed, libraries : Path
        Environments: with the package, and with what the package needs.
    zipped : Path
        On the driver: the package as a zip.
    """

    home: Path
    installed: Path
    libraries: Path
    zipped: Path

    def packed(self) -> Path:
        """Return the first environment as `venv-pack` packs it, on the driver."""
        driver = self.zipped.parent
        archive, tools = driver / "env.tar.gz", str(driver / "tools")
        python = str(self.installed / "bin" / "python")
        _run(python, "-m", *_INSTALL, "--target", tools, "venv-pack")
        options = ("-q", "--compress-level", "1", "-p", str(self.installed), "-o", str(archive))
        _run(python, "-m", "venv_pack", *options, PYTHONPATH=tools)
        return archive


def make_machine(folder: Path, driver: Path) -> Machine:
    """Install Spark and two environments into a folder, and what the driver ships into another.

    Environments that are there stay as they are, but for the package.
    """
    machine = Machine(
        folder / "spark",
        folder / "installed",
        folder / "libraries",
        driver / "lance_spark.zip",
    )
    python = str(machine.installed / "bin" / "python")
    if not machine.installed.exists():
        copy_home(machine.home)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed = [text for text in project["dependencies"] if not text.startswith(NOT_INSTALLED)]
        needed += [*project["optional-dependencies"]["s3"], "pandas<3"]
        _run(sys.executable, "-m", "venv", str(machine.libraries))
        _run(str(machine.libraries / "bin" / "python"), "-m", *_INSTALL, *needed)
        shutil.copytree(machine.libraries, machine.installed, symlinks=True, copy_function=_link)
    shutil.rmtree(driver, ignore_errors=True)
    _run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(driver), str(ROOT))
    (wheel,) = driver.glob("lance_spark-*.whl")
    _run(python, "-m", *_INSTALL, "--no-deps", "--force-reinstall", str(wheel))
    # A wheel is a zip of the package.
    wheel.rename(machine.zipped)
    return machine


def copy_home(home: Path) -> None:
    """Make a home of Spark, whose Python processes start quickly, as `make_home` does, without
    links to the installed one.
    """
    linked = make_home(home.with_name("linked"))
    shutil.copytree(
        linked,
        home,
        copy_function=_link,
        # What pyspark has beside its modules.
        ignore=lambda folder, names: (
            {"jars", "python", "bin"} & set(names) if Path(folder).name == "pyspark" else ()
        ),
    )
    shutil.rmtree(linked)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _run(*command: str, **variables: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **variables})


@dataclass(frozen=True)
class Cluster:
    """A running master, and the processes of its workers."""

    master: str
    workers: list[subprocess.Popen[bytes]]

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                command = (path / "cmdline").read_bytes()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and parent in {
                worker.pid for worker in self.workers
            }:
                found.append(int(path.name))
        return sorted(found)


@contextmanager
def running(
    machine: Machine, folder: Path, hidden: list[Path], variables: dict[str, str]
) -> Iterator[Cluster]:
    """Run a master and workers.

    - `folder`: Has a folder for each process.
    - `hidden`: Folders of the driver.
    - `variables`: Of the environments of the processes.
    """
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    folders = [folder / f"machine-{number}" for number in range(WORKERS + 1)]
    for made in folders:
        made.mkdir()
    web = ("--webui-port", "0")
    commands = [
        ["master.Master", "--port", str(port), *web],
        *(
            [
                *("worker.Worker", master, "--cores", "2", "--memory", "3g"),
                *(*web, "--work-dir", str(made / "work")),
            ]
            for made in folders[1:]
        ),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, (made, command) in enumerate(zip(folders, commands, strict=True), 1):
            others = [other for other in folders if other != made]
            # Executors of one host read one another's files without a request.
            host = f"127.0.0.{number}"
            command += ["--host", host]
            variables = {**variables, "SPARK_LOCAL_IP": host}
            processes.append(_started(machine, made, [*hidden, *others], command, variables))
            if len(processes) == 1:
                wait_for(port)
        yield Cluster(master, processes[1:])
    finally:
        # Executors end with their workers.
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_for(port: int) -> None:
    """Wait until a process listens on a port."""
    until = time.monotonic() + 300
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < until, f"nothing listens on port {port}"
            time.sleep(0.1)
        else:
            return


def _started(
    machine: Machine,
    folder: Path,
    hidden: list[Path],
    command: list[str],
    variables: dict[str, str],
) -> subprocess.Popen[bytes]:
    mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(path))} && " for path in hidden)
    # Spark's scripts find out the version of Scala.
    (core,) = (machine.home / "jars").glob("spark-core_*.jar")
    scala = core.name.split("_")[1].split("-")[0]
    java = ["java", *SHORT_LIVED.split(), "-Xmx512m", "-cp", f"{machine.home}/jars/*"]
    java.append(f"org.apache.spark.deploy.{command[0]}")
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f'{mounts}exec "$@"', "sh", *java, *command[1:]],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={
                "PATH": os.environ["PATH"],
                "SPARK_HOME": str(machine.home),
                "SPARK_SCALA_VERSION": scala,
                "SPARK_LOCAL_DIRS": str(folder / "local"),
                "HOME": str(folder),
                **variables,
            },
        )
