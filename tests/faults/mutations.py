"""Mistakes that the checker must find. Each mistake replaces a part of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from lance_spark.errors import StorageError, UncertainCommitError
from lance_spark.storage import commit as put
from lance_spark.storage.s3 import S3Output
from lance_spark.table.cleanup import plan as cleanup_plan
from lance_spark.table.cleanup.plan import References
from lance_spark.table.commit import commit
from lance_spark.table.commit.write import WriteJob
from lance_spark.table.operations.base import Conflict
from lance_spark.table.operations.update import Delete, Update
from lance_spark.table.refs import branches, clones, removal_guard, tags
from lance_spark.table.refs import json_file as ref_json


def overwriting_put() -> list[Any]:
    """A conditional put that checks first, and then puts."""

    def put_if_absent(self: Any, path: str, data: bytes) -> bool:
        if self._fs.exists(path):
            return False
        self._fs.pipe_file(path, data)
        return True

    return [mock.patch.object(put.ConditionalPut, "put_if_absent", put_if_absent)]


def blind_retry() -> list[Any]:
    """A commit that does not recognise its own version."""
    read = commit.read_transaction

    def anonymous(*arguments: Any) -> Any:
        transaction = read(*arguments)
        if transaction is not None:
            object.__setattr__(transaction, "uuid", "another")
        return transaction

    return [mock.patch.object(commit, "read_transaction", anonymous)]


def sure_failure() -> list[Any]:
    """A commit that takes every error for an error without effect."""
    return [mock.patch.object(commit, "UncertainCommitError", StorageError)]


def sure_success() -> list[Any]:
    """A commit that takes every answer for a success, except the answer that the version exists."""

    def create(store: Any, location: Any, data: bytes) -> bool:
        try:
            return bool(store.put_if_absent(location.path, data))
        except StorageError:
            return True

    return [mock.patch.object(commit.versions, "create_manifest", create)]


def greedy_cleanup() -> list[Any]:
    """A cleanup that does not know which files the remaining versions need."""
    return [mock.patch.object(cleanup_plan, "references_of", return_value=References())]


def lost_updates() -> list[Any]:
    """Deletes and updates that are compatible with all changes by other clients."""

    def conflict(self: Any, committed: Any) -> Conflict:
        return Conflict.COMPATIBLE

    return [mock.patch.object(operation, "conflict", conflict) for operation in (Delete, Update)]


def untidy_failure() -> list[Any]:
    """A write that leaves its files behind when it fails."""
    return [mock.patch.object(WriteJob, "abort", return_value=None)]


def parts_left() -> list[Any]:
    """An upload that is aborted without deleting its parts."""
    return [mock.patch.object(S3Output, "_abort_upload", return_value=None)]


def short_upload() -> list[Any]:
    """An upload that leaves out the parts that could not be sent."""

    def wait_for(self: Any, limit: int) -> None:
        for future in list(self._pending):
            if future.exception() is None:
                self._parts.append(future.result())
        self._pending.clear()

    return [mock.patch.object(S3Output, "_wait_for", wait_for)]


class _AsTheyCome(list[Any]):
    def sort(self, **_: Any) -> None:
        """Keep the parts in the order in which they arrived, which only threads change."""


def unsorted_parts() -> list[Any]:
    """An upload whose parts are put together in the order in which they were sent."""
    begin = S3Output.__init__

    def unsorted(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self._parts = _AsTheyCome()

    return [mock.patch.object(S3Output, "__init__", unsorted)]


def late_names() -> list[Any]:
    """Tags and branches that do not check whether their version is being removed."""
    return [
        mock.patch.object(module, "check_stays", return_value=None)
        for module in (removal_guard, tags)
    ]


def sure_names() -> list[Any]:
    """Tags and branches that take every error for an error without effect."""
    places = (ref_json, removal_guard, branches)
    return [mock.patch.object(module, "UncertainCommitError", StorageError) for module in places]


def late_restores() -> list[Any]:
    """Restores that do not check whether their version is being removed."""
    return [mock.patch.object(commit, "check_stays", return_value=None)]


def forgetful_clone() -> list[Any]:
    """A deep clone that copies no deletion files."""

    def some(copies: Any, started: Any) -> None:
        copy_files(
            [file_copy for file_copy in copies if not file_copy.path.startswith("_deletions/")],
            started,
        )

    copy_files = clones.copy_files
    copy_again = mock.patch.object(clones, "_copy_again", return_value=None)
    return [mock.patch.object(clones, "copy_files", some), copy_again]


MUTATIONS: dict[str, Callable[[], list[Any]]] = {
    mutation.__name__: mutation
    for mutation in (
        overwriting_put,
        blind_retry,
        sure_failure,
        sure_success,
        greedy_cleanup,
        lost_updates,
        untidy_failure,
        parts_left,
        short_upload,
        unsorted_parts,
        late_names,
        sure_names,
        late_restores,
        forgetful_clone,
    )
}
#: Mistakes that show only in schedules where cleanup meets tags, branches and restores of old
#: versions.
MEETING = frozenset({"late_names", "late_restores"})
assert issubclass(UncertainCommitError, StorageError)


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Make the mistake of this name; none for an empty name."""
    with ExitStack() as stack:
        for patch in MUTATIONS[name]() if name else ():
            stack.enter_context(patch)
        yield
