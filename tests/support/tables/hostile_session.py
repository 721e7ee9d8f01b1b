"""A process that uses a table many times, each time with other damage to one of its files.

Run as `python -m tests.support.tables.hostile_session`, with a pickled `Session` on standard input; prints a JSON object: what was
raised that is no LanceError, or does not name the table, what was opened outside of the roots of the table, and the longest time that a step took.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import lance_spark
from lance_spark.errors import LanceError

#: Memory that a step may take in addition to the memory of the process before it.
MEMORY = 1 << 30
_EVENTS = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.rename",
    "os.link",
    "os.truncate",
}


@dataclass(frozen=True)
class Session:
    """Damage to one file of a table.

    Attributes
    ----------
    root : str
        The table.
    roots : tuple of str
        What may be opened.
    file : str
        Path of the file below the root.
    contents : list of bytes
        What is written into it, one after the other.
    oldest : int
        A version that is sound.
    writes : bool
        Whether the table is also written to, every third time.
    """

    root: str
    roots: tuple[str, ...]
    file: str
    contents: list[bytes]
    oldest: int
    writes: bool = True


class Watch:
    """Records which files the process opens while it is active, except files of its own program."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots
        program = (
            sys.prefix,
            sys.base_prefix,
            "/usr",
            "/proc",
            "/sys",
            "/dev/null",
            "/dev/urandom",
            "/etc/localtime",
        )
        self._own = (*program, str(Path(lance_spark.__file__).parents[2]))
        self.on = False
        self.accesses: set[str] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event not in _EVENTS:
            return
        count = 2 if event in ("os.rename", "os.link") else 1
        for path in arguments[:count]:
            if isinstance(path, int) or path is None:
                continue
            text = os.path.normpath(os.path.abspath(os.fsdecode(path)))
            inside = any(text == root or text.startswith(root + "/") for root in self._roots)
            if not inside and not text.startswith(self._own):
                self.accesses.add(f"{event} {text}")


def steps(root: str, oldest: int, writes: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """Return all uses of a table."""
    opened: list[lance_spark.Dataset] = []

    def every_version() -> None:
        for version in opened[0].versions():
            with contextlib.suppress(LanceError):
                dataset = lance_spark.open_dataset(root, version=version.version)
                dataset.schema, dataset.count_rows(), dataset.plan()

    late = lance_spark.open_dataset(root, version=oldest)
    yield "open", lambda: opened.append(lance_spark.open_dataset(root))
    yield "versions", late.versions
    yield "tag", lambda: lance_spark.open_dataset(root, tag="t").count_rows()
    yield "branch", late.branches.list
    if opened:
        dataset = opened[0]
        yield "repr", lambda: (repr(dataset), repr(dataset.fragments))
        yield "schema", lambda: dataset.schema
        yield "count", dataset.count_rows
        yield "scan", dataset.to_table
        yield "filter", lambda: dataset.to_table(filters=[("i", "==", 3)])
        yield "rows", lambda: list(dataset.to_batches(with_row_id=True, with_row_address=True))
        yield "take", lambda: dataset.take([0, 3])
        yield "take ids", lambda: dataset.take_rows([0, 3])
        yield "tasks", lambda: pickle.loads(pickle.dumps(dataset.plan()))
        yield "tags", dataset.tags.list
        yield "transactions", dataset.get_transactions
        yield "bases", dataset.base_paths
        yield "history", every_version
        yield "indices", dataset.list_indices
        if writes:
            table = pa.table({"i": pa.array([9], pa.int64()), "s": ["x"]})
            yield "delete", lambda: dataset.delete([("i", "==", 3)])
            yield "late delete", lambda: late.delete([("i", "==", 2)])
            yield "append", lambda: lance_spark.write_dataset(table, root, mode="append")
            yield "overwrite", lambda: lance_spark.write_dataset(table, root, mode="overwrite")
    yield (
        "cleanup",
        lambda: lance_spark.open_dataset(root).cleanup_old_versions(
            retain_versions=1, error_if_tagged_old_versions=False, dry_run=True
        ),
    )


def run(session: Session) -> dict[str, Any]:
    watch = Watch(session.roots)
    target = Path(session.root) / session.file
    sound_content = target.read_bytes()
    before = _files(session.root)
    # Import all modules that are imported late, and use the table without damage.
    every = steps(session.root, session.oldest, session.writes)
    sound = {name: repr(_outcome(step)[0]) for name, step in every}
    _restore(session.root, before, target, sound_content)
    limit = _memory() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    wrong: list[str] = []
    unnamed: list[str] = []
    slowest = (0.0, "")
    outcomes: Counter[str] = Counter()
    for number, content in enumerate(session.contents):
        target.write_bytes(content)
        writes = session.writes and number % 3 == 0
        for name, step in steps(session.root, session.oldest, writes):
            watch.on = True
            started = time.process_time()
            error, text = _outcome(step)
            watch.on = False
            seconds = time.process_time() - started
            slowest = max(slowest, (seconds, f"{number} {name}"))
            outcomes[type(error).__name__ if error else "none"] += 1
            if error is not None and not isinstance(error, LanceError):
                wrong.append(f"{number} {name}: {type(error).__name__}: {text}")
            elif error is not None and session.root not in str(error):
                unnamed.append(f"{number} {name}: {error}")
        _restore(session.root, before, target, sound_content)
    return {
        "sound": {name: text for name, text in sound.items() if text != "None"},
        "wrong": wrong[:20],
        "unnamed": unnamed[:20],
        "outside": sorted(watch.accesses),
        "slowest": slowest,
        "outcomes": outcomes,
    }


def _outcome(step: Callable[[], object]) -> tuple[BaseException | None, str]:
    try:
        step()
    except BaseException as error:
        import traceback

        frames = traceback.extract_tb(error.__traceback__)[-4:]
        stack = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
        return error.with_traceback(None), f"{str(error)[:200]} @ {stack}"
    finally:
        gc.collect(0)
    return None, ""


def _files(root: str) -> set[str]:
    return {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}


def _restore(root: str, before: set[str], target: Path, content: bytes) -> None:
    for path in _files(root) - before:
        os.unlink(path)
    target.write_bytes(content)


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    print(json.dumps(run(pickle.load(sys.stdin.buffer))))
