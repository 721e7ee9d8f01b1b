"""Rename without replace: a call of the kernel that Python does not offer."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCL = 4


def rename_without_replace(source: str, target: str) -> bool:
    """Move `source` to `target` atomically; return False and change nothing if `target` exists.

    Raises
    ------
    OSError
        Errno ENOSYS, EINVAL or ENOTSUP: the kernel or file system does not have this call.
    """
    if os.name == "nt":
        try:
            os.rename(source, target)
        except FileExistsError:
            return False
        return True
    old, new = os.fsencode(source), os.fsencode(target)
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(old, new, _RENAME_EXCL)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_NOREPLACE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    if not failed:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    raise OSError(code, os.strerror(code), target)
