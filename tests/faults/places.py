"""The places of tables of schedules: objects in memory, or a local disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Protocol

from lance_spark.storage.store import ObjectStore
from tests.faults.checker import Checker
from tests.faults.faults import Faults
from tests.faults.objects import Objects
from tests.faults.schedule import Schedule
from tests.faults.store import ROOT, Place, registered

KINDS = ("s3", "gs", "local")
Watcher = Callable[[str, bool], None]


class Table(Protocol):
    """The table of a schedule."""

    uri: str
    faults: Faults

    def set_up(self, key: str, make: Callable[[], None]) -> None:
        """Copy what `make` creates. An earlier schedule may have created it with the same key."""

    def watch(self, watcher: Watcher) -> None:
        """Call a function, without schedule or faults, for each new file."""

    def names(self) -> set[str]: ...

    def has_parts(self, path: str) -> bool: ...

    def age(self, seconds: float) -> None:
        """Make all files older."""

    def compare(self, checker: Checker) -> None:
        """Let pylance read the table."""


@contextmanager
def place(seed: int, store_kind: str, schedule: Schedule, rate: int | None) -> Iterator[Table]:
    """Create the place for the table of a schedule.

    Parameters
    ----------
    seed : int
    store_kind : str
        One of `KINDS`.
    schedule : Schedule
    rate : int, optional
        Faults of a thousand calls.
    """
    faults = Faults(seed, schedule, local=store_kind == "local", rate=rate)
    if store_kind == "local":
        from tests.faults.local_calls import LocalTable, patched

        with patched(schedule, faults) as calls:
            yield LocalTable(calls, faults)
        return
    Place.objects, Place.faults, Place.schedule = Objects(), faults, schedule
    Place.deletes_singly = schedule.seed % 4 > 0
    with registered():
        table = _Bucket(store_kind, faults)
        # A process probes a store once, under a lock that does not belong to the schedule.
        ObjectStore.from_uri(table.uri).check_put_if_absent()
        yield table


class _Bucket:
    _templates: ClassVar[dict[tuple[str, str], Objects]] = {}

    def __init__(self, scheme: str, faults: Faults) -> None:
        self._scheme = scheme
        self.uri = f"{scheme}://{ROOT[:-1]}"
        self.faults = faults

    def set_up(self, key: str, make: Callable[[], None]) -> None:
        known = self._templates.get((self._scheme, key))
        if known is None:
            make()
            self._templates[self._scheme, key] = Place.objects.copy()
        else:
            Place.objects = known.copy()

    def watch(self, watcher: Watcher) -> None:
        put = Place.objects.put
        schedule = Place.schedule

        def watched(path: str, data: bytes, modified: float, *, create: bool = False) -> None:
            known = Place.objects.now.get(path)
            put(path, data, modified, create=create)
            with schedule.aside():
                watcher(path.removeprefix(ROOT), known is None or known.data == data)

        Place.objects.put = watched  # type: ignore[method-assign]

    def names(self) -> set[str]:
        return {path.removeprefix(ROOT) for path in Place.objects.now}

    def has_parts(self, path: str) -> bool:
        return bool(Place.objects.uploads(f"{path}#", least=1))

    def age(self, seconds: float) -> None:
        """The store has the clock of the schedule."""

    def compare(self, checker: Checker) -> None:
        with tempfile.TemporaryDirectory(dir=scratch()) as folder:
            for path, stored in Place.objects.now.items():
                target = Path(folder, path.removeprefix(ROOT))
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(stored.data)
            compare_with_pylance(Path(folder), checker)


def scratch() -> str | None:
    """Return a folder in memory if the system has one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def compare_with_pylance(path: Path, checker: Checker) -> None:
    """Let pylance open the newest version, validate it and read the same rows."""
    import lance

    if not any(root == "" for root, _ in checker.states):
        # No writer has created the table.
        return
    theirs = lance.dataset(str(path))
    theirs.validate()
    table = theirs.to_table()
    their_rows = {row["id"]: row for row in table.to_pylist()}
    known = checker.states["", theirs.version]
    if their_rows != known.rows or len(their_rows) != table.num_rows:
        checker.say(
            f"pylance reads version {theirs.version} otherwise: {their_rows}, not {known.rows}"
        )
