"""Local disks whose system calls fail. The modules of `storage` get replacements for `os` and
`open`. Memory maps, and checks whether a path exists, stay those of the system.

Nothing else is changed: maps of memory, and questions whether a path is there, are the system's
own.
"""

from __future__ import annotations

import builtins
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from lance_spark.storage import commit
from tests.faults.faults import Faults
from tests.faults.places import Watcher, compare_with_pylance, scratch
from tests.faults.schedule import Schedule

#: Calls that change nothing.
_LOOKS = {"scandir": "list", "listdir": "list", "stat": "head", "read": "get", "fsync": "fsync"}
_CHANGES = ("link", "replace", "rename", "unlink", "remove", "mkdir", "rmdir")


class Calls:
    """Replaces the module `os`.

    Attributes
    ----------
    root : str
        Of the table: calls about other places are made as they are.
    watcher : callable, optional
    """

    def __init__(self, schedule: Schedule, faults: Faults, root: str) -> None:
        self._schedule = schedule
        self._faults = faults
        self.root = root
        self.watcher: Watcher | None = None
        self._named: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        original = self._stat if name == "stat" else getattr(os, name)
        if name in _LOOKS:
            return self.wrapped(_LOOKS[name], original)
        if name in _CHANGES:
            return self.wrapped(name, original)
        return original

    def wrapped(self, call: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that may fail."""

        def made(*arguments: Any, **named: Any) -> Any:
            path = next(
                (argument for argument in reversed(arguments) if isinstance(argument, str)), ""
            )
            actor = self._schedule.running
            created = [] if actor is None else actor.created

            def effect() -> Any:
                answer = original(*arguments, **named)
                if call in ("link", "replace", "rename") and answer is not False:
                    self._named[path] = self._schedule.now
                    created.append(self._relative(path))
                    self._watch(path)
                return answer

            if path and not path.startswith(self.root):
                return effect()
            return self._faults.call(call, path, effect)

        return made

    def open(self, path: str, *arguments: Any, **named: Any) -> int:
        return self._faults.call("open", path, lambda: os.open(path, *arguments, **named))

    def open_file(self, path: str, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        """Replaces the builtin `open`."""
        if "x" not in mode and "w" not in mode:
            return builtins.open(path, mode, *arguments, **named)

        def effect() -> Any:
            return builtins.open(path, mode, *arguments, **named)

        file = self._faults.call("begin", path, effect)
        actor = self._schedule.running
        if actor is not None:
            actor.created.append(self._relative(path))
        return _File(file, path, self._faults)

    def _stat(self, path: str) -> os.stat_result:
        """Return the status of a file with the time of the schedule at which the file got its name.
        The time of the system would differ in each run.
        """
        status = os.stat(path)
        named = self._named.get(path)
        return (
            status
            if named is None
            else os.stat_result(
                tuple(status), {"st_mtime": named, "st_ctime_ns": status.st_ctime_ns}
            )
        )

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.root)

    def _watch(self, path: str) -> None:
        if self.watcher is None:
            return
        with self._schedule.aside():
            self.watcher(self._relative(path), True)


class _File:
    """A file that is being written."""

    def __init__(self, file: Any, path: str, faults: Faults) -> None:
        self._file = file
        self._path = path
        self._faults = faults

    def write(self, data: Any) -> int:
        done = 0

        def effect() -> int:
            # Bytes that arrive twice or late are not written to the file.
            nonlocal done
            done += 1
            return int(self._file.write(data)) if done == 1 else len(data)

        return self._faults.call("write", self._path, effect)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class LocalTable:
    """A table on a local disk."""

    _templates: ClassVar[dict[str, str]] = {}

    def __init__(self, calls: Calls, faults: Faults) -> None:
        self._calls = calls
        self.uri = calls.root
        self.faults = faults

    def set_up(self, key: str, make: Callable[[], None]) -> None:
        known = self._templates.get(key)
        if known is None:
            make()
            known = self._templates[key] = f"{os.path.dirname(self.uri)}/template {key}"
            shutil.copytree(self.uri, known)
        else:
            shutil.copytree(known, self.uri)

    def watch(self, watcher: Watcher) -> None:
        self._calls.watcher = watcher

    def names(self) -> set[str]:
        root = Path(self.uri)
        return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}

    def has_parts(self, path: str) -> bool:
        return False

    def age(self, seconds: float) -> None:
        """Do nothing: the clock of the schedule moves, and files keep the time of the system, which
        does not.
        """

    def compare(self, checker: Any) -> None:
        compare_with_pylance(Path(self.uri), checker)


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process. Branches name their files by absolute paths, so tables are
    always at the same place.
    """
    return tempfile.TemporaryDirectory(prefix="lance-faults-", dir=scratch())


@contextmanager
def patched(schedule: Schedule, faults: Faults) -> Iterator[Calls]:
    """Let the modules of `storage` make their calls through `Calls`."""
    root = f"{_folder().name}/table"
    shutil.rmtree(root, ignore_errors=True)
    calls = Calls(schedule, faults, root)
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("lance_spark.storage") and getattr(module, "os", None) is os
    ]
    patches = [mock.patch.object(module, "os", calls) for module in modules]
    patches += [
        mock.patch.object(module, "open", calls.open_file, create=True) for module in modules
    ]
    # This function asks the kernel without `os`.
    rename = calls.wrapped("rename", commit.rename_without_replace)
    patches.append(mock.patch.object(commit, "rename_without_replace", rename))
    for patch in patches:
        patch.start()
    try:
        yield calls
    finally:
        for patch in patches:
            patch.stop()
        shutil.rmtree(root, ignore_errors=True)
