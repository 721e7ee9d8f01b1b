"""Every Python process of a Spark loads this: it kills Spark's driver or its own executor when a
table's files reach a moment.

The folder named by the variable SPARK_KILLS tells what to do:

| file | what it says |
| --- | --- |
| driver | ids of the driver's processes, its JVM first: the other one may be the one that kills them |
| armed | the moment, and who is killed then: "commit driver" |
| killed.N | somebody has been killed, the N-th time |

| moment | what is about to happen |
| --- | --- |
| writing | a data file or deletion file is opened, another one of this process is written already or will be |
| commit | the manifest gets its name |
| committed | it has its name, and nobody was told |
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

FOLDER = os.environ.get("SPARK_KILLS", "")


def moment(event: str, path: str) -> str:
    """Return the moment of a call to the file system, or an empty text."""
    in_versions = "/_versions/" in path
    if event == "os.link" and in_versions:
        return "commit"
    if event == "os.remove" and in_versions:
        return "committed"
    if event == "open" and ("/data/" in path or "/_deletions/" in path):
        return "writing"
    return ""


def victims(role: str) -> list[int]:
    """Return the processes to kill: the driver and its JVM, this process, or the executor's JVM and
    the process that forks workers.
    """
    if role == "planner":
        return [os.getpid()]
    if role == "driver":
        return [int(word) for word in Path(FOLDER, "driver").read_text().split()]
    forking = os.getppid()
    stat = Path(f"/proc/{forking}/stat").read_text()
    return [int(stat.rpartition(")")[2].split()[1]), forking]


def reach(current_moment: str) -> None:
    """Kill the process that the folder names, if this is the moment and no process was faster."""
    armed = Path(FOLDER, "armed")
    try:
        wanted, role = armed.read_text().split()
    except (OSError, ValueError):
        return
    if wanted != current_moment:
        return
    # Only one process can rename the file.
    taken = Path(FOLDER, f"killed.{time.time_ns()}")
    try:
        armed.rename(taken)
    except OSError:
        return
    for process in victims(role):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    if role == "driver":
        os.kill(os.getpid(), signal.SIGKILL)
    # Wait until the parent process sees that its executor has ended.
    time.sleep(100)


def hook(event: str, arguments: tuple[object, ...]) -> None:
    """Check each call to the file system."""
    if event not in ("open", "os.link", "os.remove"):
        return
    if event == "open":
        flags = arguments[2] if len(arguments) > 2 else 0
        if not (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            return
    path = arguments[1] if event == "os.link" else arguments[0]
    if isinstance(path, str) and (current_moment := moment(event, path)):
        reach(current_moment)


if FOLDER:
    sys.addaudithook(hook)
