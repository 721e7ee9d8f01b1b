"""Compiled Java classes, kept in a folder of the user from one session to the next.

Each file of the folder is the jar that some sources compile to. Its name is a digest of all that
decides what they compile to: the sources, the release of this package, the build of Spark and its
jars, and the JVM. Its first bytes are a digest of its name and of the rest.

Classes of the folder run with all rights of the user. So a file counts only if the user is the
owner of the folder and of the file, nobody else may write to them, and the digest is right. In all
other cases, and after any error, the caller compiles: this module never raises.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lance_spark._version import __version__
from lance_spark.storage.own_files import HAVE_OWNERS, open_file, open_folder

#: The folder, or `OFF`. The setting of a session counts before the variable.
SETTING, VARIABLE = "spark.lance.classCache", "LANCE_SPARK_CLASS_CACHE"
OFF = "off"
#: Is part of each name: increase it if the jars of equal sources change.
_FORMAT = 1
#: Class loaders that look for Spark's classes on the class path of the JVM first.
_LOADERS = frozenset(
    {
        "org.apache.spark.util.MutableURLClassLoader",
        "jdk.internal.loader.ClassLoaders$AppClassLoader",
    }
)
_SUFFIX = ".classes"
_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
_LARGEST = 64 << 20
#: Files of releases that were used last. Others are deleted when one is added.
_KEPT = 8
#: Seconds after which a file that was never renamed belongs to a process that died.
_ABANDONED = 3600


def folder_of(spark: Any) -> Path | None:
    """Return the folder of a session; None if the cache is off."""
    return folder(spark.conf.get(SETTING, None))


def folder(setting: str | None = None) -> Path | None:
    """Return the folder that the setting, the environment or the default names; None for none."""
    if not HAVE_OWNERS:
        # Nothing can be checked.
        return None
    named = setting if setting is not None else os.environ.get(VARIABLE)
    if named is not None:
        is_folder = named.strip().lower() != OFF and Path(named).is_absolute()
        return Path(named) if is_folder else None
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):
        caches = os.path.expanduser("~/.cache")
    # A user without a home has the path as it is.
    return Path(caches, "lance_spark", "classes") if os.path.isabs(caches) else None


def name_of(jvm: Any, loader: Any, sources: Mapping[str, str]) -> str | None:
    """Return the name of the file of sources in a JVM; None if no file may stand for them.

    Parameters
    ----------
    loader : java.lang.ClassLoader
        Finds Spark's classes.
    sources : mapping of str to str
        Texts by name, as they are compiled.
    """
    kind = str(loader.getClass().getName())
    if kind not in _LOADERS:
        # It may find other classes than those of the class path.
        return None
    build, system = jvm.org.apache.spark.SparkBuildInfo, jvm.java.lang.System
    properties = ("java.vm.vendor", "java.vm.name", "java.vm.version", "os.arch")
    facts = {
        "format": _FORMAT,
        "release": __version__,
        "spark": [build.spark_version(), build.spark_revision(), build.spark_build_date()],
        "java": [system.getProperty(name) for name in properties],
        "jars": _jars(system.getProperty("java.class.path").split(os.pathsep)),
        "sources": sorted(sources.items()),
    }
    return _DIGEST(json.dumps(facts, default=str).encode()).hexdigest() + _SUFFIX


def _jars(paths: Iterable[str]) -> list[tuple[str, int]]:
    """Return names and sizes of the jars of a class path, in its order."""
    jars = []
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                jars.append((os.path.basename(path), status.st_size))
    return jars


def load(folder: Path, name: str) -> bytes | None:
    """Return the jar of a file; None unless it is certain that this user has written it."""
    try:
        directory = open_folder(folder)
    except (OSError, ValueError):
        return None
    try:
        return _read(directory, name)
    except OSError:
        return None
    finally:
        os.close(directory)


def _read(directory: int, name: str) -> bytes | None:
    descriptor, status = open_file(directory, name)
    with open(descriptor, "rb") as file:
        if status.st_size > _LARGEST:
            return None
        data = file.read(_LARGEST)
        digest, jar = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest != _digest(name, jar):
            return None
        with suppress(OSError):
            # The time of the last use.
            os.utime(file.fileno())
        return jar


def _digest(name: str, jar: bytes) -> bytes:
    return _DIGEST(name.encode() + b"\0" + jar).digest()


def store(folder: Path, name: str, jar: bytes) -> None:
    """Write a jar to a file, in one step. If it fails, there is no file."""
    with suppress(OSError, ValueError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A folder that others may write to gets nothing.
        os.close(open_folder(folder))
        descriptor, path = tempfile.mkstemp(prefix=".", suffix=_SUFFIX, dir=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(_digest(name, jar) + jar)
            os.replace(path, folder / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        _clean(folder)


def _clean(folder: Path) -> None:
    """Delete files of releases that are not used any more, and of processes that died."""
    used = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            used.append((path.stat().st_mtime, path))
    used.sort(reverse=True)
    complete = [path for _, path in used if not path.name.startswith(".")]
    limit = time.time() - _ABANDONED
    abandoned = [path for at, path in used if path.name.startswith(".") and at < limit]
    for path in (*complete[_KEPT:], *abandoned):
        with suppress(OSError):
            path.unlink()
