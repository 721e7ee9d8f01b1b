"""Runners of the tasks of a mutation, and removal of their files that no version refers to.

Plan, tasks and commit of a mutation are the same with all runners: in this process, or on a
cluster. A task that ran twice, was killed, or belongs to a failed job leaves files. The names of
all files of a job have its tag:

| file | position of the tag |
| --- | --- |
| data file, folder of its blobs | the last 6 bytes of the UUID in the name |
| deletion file | its first 5 bytes are the highest bytes of the id at the end of the name |
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lance_spark import progress
from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import join
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import TAG_BYTES, delete_fragments, written_by
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, open_table, read_latest
from lance_spark.table.paths import DATA, DELETIONS, BasePath, TablePaths
from lance_spark.table.rows.deletions import has_tag

#: Tasks that run at the same time where the store is remote.
_REMOTE_THREADS = 16
#: Maximum number of versions that are searched for files of a failed job.
_MAX_VERSIONS = 100
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentTask:
    """Fragments that one task handles. Can be pickled; holds no manifest.

    - `uri`: Root of the table.
    - `base_paths`: Base paths of the table, by id.
    - `tag`: Tag in the names of the new files.
    """

    uri: str = field(repr=False)
    fragments: tuple[Fragment, ...]
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tag: bytes = b""

    def open_paths(self) -> TablePaths:
        """Return the table's paths, opened in the task."""
        return TablePaths.open(self.uri, self.storage_options, self.base_paths)


class Runner(ABC):
    """Runs the tasks of a mutation."""

    #: Empty if nothing removes orphaned files of the job.
    tag: bytes = b""

    @abstractmethod
    def run(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], undo: Callable[[_R], object]
    ) -> list[_R]:
        """Run tasks.

        - `run`: Runs one task. A cluster needs a function of a module, or a method of a class of
          one.
        - `undo`: Deletes the files of a task by its result. Called if another task fails.

        Returns results in the order of the tasks.
        """

    def run_counted(
        self,
        tasks: Sequence[_T],
        run: Callable[[_T], _R],
        undo: Callable[[_R], object],
        stage: str,
        total: int | None,
        unit: str,
    ) -> list[_R]:
        """Run tasks in a stage of progress, in which they count; see `run` and `progress.stage`.

        An error of a callback at the end of the stage undoes the tasks, too.
        """
        results: list[_R] = []
        try:
            with progress.stage(stage, total, unit):
                results = self.run(tasks, run, undo)
        except BaseException:
            for result in results:
                with suppress(StorageError):
                    undo(result)
            raise
        return results


class LocalRunner(Runner):
    """Runs tasks in this process.

    - `local`: Whether the table's store is local: tasks of remote stores run at the same time.
    - `threads`: Number of tasks that run at the same time.
    """

    def __init__(self, local: bool, threads: int | None = None) -> None:
        self._threads = threads or (1 if local else _REMOTE_THREADS)

    def run(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], undo: Callable[[_R], object]
    ) -> list[_R]:
        """Run tasks; see `Runner.run`."""
        pool = ThreadPoolExecutor(self._threads)
        counting = progress.bound(run)
        futures = [pool.submit(counting, task) for task in tasks]
        try:
            return list(progress.results(futures))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            for future in futures:
                if not future.cancelled() and future.exception() is None:
                    with suppress(StorageError):
                        undo(future.result())
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def write_and_delete(
    write: Callable[[], _T],
    delete: Callable[[], _R],
    undo: Callable[[_R], object],
) -> tuple[_T, _R]:
    """Finish the files of new rows, and write the deletion files of the old rows.

    Neither waits for the requests of the other, or until the disk has its files.

    - `write`: Runs in another thread. The caller deletes its files after an error.
    - `undo`: Deletes the files of `delete`. Called if `write` fails.
    """
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(progress.bound(lambda _: write()), None)
        deleted = delete()
        try:
            (written,) = progress.results([writing])
            return written, deleted
        except BaseException:
            with suppress(Exception):
                undo(deleted)
            raise


def runner_for(table: OpenTable, runner: Runner | None, threads: int | None = None) -> Runner:
    """Return the given runner, or a runner that runs tasks in this process."""
    return runner or LocalRunner(table.store.is_local, threads)


def check_once(table: OpenTable, fragment_ids: Iterable[int]) -> None:
    """Raise InvalidInputError for two results of a fragment: its rows would double."""
    repeated = [number for number, count in Counter(fragment_ids).items() if count > 1]
    if repeated:
        raise InvalidInputError(
            f"{table.store.display}: two results are of fragment {repeated[0]}; give one result of "
            "each task, the first if it ran twice"
        )


def new_tag() -> bytes:
    """Return a random tag, which no other job has."""
    return secrets.token_bytes(TAG_BYTES)


@contextmanager
def abort_on_error(abort: Callable[[], object]) -> Iterator[None]:
    """Call `abort`, which deletes the files of a task, if the task raises an error.

    Errors of `abort` are ignored: `delete_orphans` deletes the remaining files.
    """
    try:
        yield
    except BaseException:
        with suppress(Exception):
            abort()
        raise


def delete_orphans(
    table: OpenTable,
    tag: bytes,
    committed: Manifest | Iterable[Manifest] | None = None,
    *,
    targets: Sequence[int | None] = (None,),
) -> int:
    """Delete the files of a job that no version refers to. Lists all data files and deletion files.

    - `table`: A version that has the base paths of all targets.
    - `committed`: The versions that the job committed. Their files stay.
    - `targets`: Targets of the data files: ids of base paths, or None for the table itself.

    Returns how many files were deleted, without blob files. Raises StorageError. Raises ValueError:
    the tag is too short, so that files of another job could have it.
    """
    if len(tag) != TAG_BYTES:
        raise ValueError(f"a tag has {TAG_BYTES} bytes, not {len(tag)}")
    manifests = [committed] if isinstance(committed, Manifest) else list(committed or ())
    fragments = [fragment for manifest in manifests for fragment in manifest.fragments]
    data = {
        (file.base_id, file.path)
        for fragment in fragments
        for file in (*fragment.files, *(overlay.data_file for overlay in fragment.overlays))
    }
    deletions = {
        fragment.deletion_file.name(fragment.id)
        for fragment in fragments
        if fragment.deletion_file is not None
    }
    count = 0
    for target in targets:
        store, path = table.paths.locate(target, DATA, "x")
        folder = path.rpartition("/")[0]
        # A folder of blobs can exist without its data file, which is closed after the blobs.
        names = {*written_by(store.list_names(folder), tag)}
        names |= {f"{name}.lance" for name in written_by(store.list_folders(folder), tag)}
        unused = [name for name in sorted(names) if (target, name) not in data]
        files = tuple(DataFile(name, (), (), 0, 0, 0, target) for name in unused)
        delete_fragments(table.paths, [Fragment(0, files, 0)])
        count += len(unused)
    return count + _delete_orphaned_deletions(table.store, tag, deletions)


def delete_orphans_of_failed_job(
    table: OpenTable, tag: bytes, targets: Sequence[int | None]
) -> None:
    """Delete the files of a job that no version since its start refers to.

    The job may have failed, or a newer version may lack files of the version that it committed. All
    versions are searched, because an interrupt can come between a commit and its answer. After many
    versions of other clients the files are left to cleanup. Do not call this while a commit of the
    job may still be under way.

    - `table`: The version that the job started from.
    - `targets`: As for `delete_orphans`.

    Raises StorageError.
    """
    newest = read_latest(table.store)
    if newest.version - table.version > _MAX_VERSIONS:
        return
    options = table.store.options or None
    older = (
        open_table(table.store.uri, version=version, storage_options=options).manifest
        for version in range(table.version + 1, newest.version)
    )
    delete_orphans(table, tag, [*older, newest], targets=targets)


def _delete_orphaned_deletions(store: ObjectStore, tag: bytes, committed: set[str]) -> int:
    names = [name for name in store.list_names(DELETIONS) if has_tag(name, tag)]
    unused = [name for name in names if name not in committed]
    store.delete([join(DELETIONS, name) for name in unused])
    return len(unused)
