"""Files that only this user can have written, in a folder that nobody else may write to.

Symbolic links are not followed. On systems whose files have no owners, there are no such files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Whether files have owners.
HAVE_OWNERS = hasattr(os, "geteuid")
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_folder(folder: str | Path, *, directory: int | None = None) -> int:
    """Return a descriptor of a folder, which the caller closes.

    - `directory`: Descriptor of the folder that a relative path begins in.

    Raises OSError: there is none, or others than this user may write to it.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags, dir_fd=directory)
    if not _is_own(os.fstat(descriptor)):
        os.close(descriptor)
        raise PermissionError(f"{folder}: others than this user may write to the folder")
    return descriptor


def open_file(directory: int, name: str) -> tuple[int, os.stat_result]:
    """Open a file for reading; return its descriptor, which the caller closes, and its status.

    - `directory`: Descriptor of a folder.
    - `name`: Relative to the folder.

    Raises OSError: there is none, or others than this user may write to it.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not _is_own(status):
        os.close(descriptor)
        raise PermissionError(f"{name}: others than this user may write to the file")
    return descriptor, status


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _OF_OTHERS
