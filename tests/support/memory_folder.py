"""The folder for temporary files of a run: in memory if there is room, because `fsync` on a disk
takes most of the time of many tests.
"""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path("/dev/shm")
#: Ten times the largest size of the files of a run. The remaining memory is for Spark, pylance and
#: other users.
ROOM = 8 << 30
_LIMIT = Path("/sys/fs/cgroup/memory.max")
_USED = Path("/sys/fs/cgroup/memory.current")


def memory_folder() -> Path | None:
    """Return a folder in memory with room for the files of a run; None where there is none."""
    if not FOLDER.is_dir() or shutil.disk_usage(FOLDER).free < ROOM or _available() < ROOM:
        return None
    return FOLDER


def _available() -> int:
    """Return the bytes of memory that this process and its files can still take."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = dict(line.split(":", 1) for line in lines)
        free = int(available["MemAvailable"].split()[0]) << 10
        limit = _LIMIT.read_text().strip() if _LIMIT.exists() else "max"
        return free if limit == "max" else min(free, int(limit) - int(_USED.read_text()))
    except (OSError, KeyError, ValueError):
        return 0
