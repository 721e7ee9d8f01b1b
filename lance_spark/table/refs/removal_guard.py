"""Checks against the removal of versions by cleanup, which takes no lock.

**Before a tag, a branch or a restore relies on a version** (`check_stays`): is cleanup removing it?

Cleanup and a client that gives a name to a version exclude each other without a lock:

| cleanup | client |
| --- | --- |
| 1. deletes the version's transaction file (the *removal mark*) | 1. writes the tag or branch |
| 2. reads tags, branches and newer versions again | 2. checks that the file still exists |
| 3. keeps a version that has a name now, else deletes it | 3. takes the name back if not |

Whichever order the steps take, at least one of the two sees the other. A restore cannot be taken
back, so it checks before it commits; cleanup sees the transaction file of the restore
(`lance_spark.table.cleanup.plan`).

Limits: a version that cleanup marked and then kept does not get its file back, since another
cleanup may have marked it as well and still remove it. It keeps its names and gets no new one.
Cleanup of pylance deletes the file of a version that only a branch keeps, with the same effect.
Versions of early releases never had the file, and other clients' cleanup does not follow this
protocol: neither can be detected.

**After a commit** (`check_slot`): was its version number used before? The store cannot refuse
a version number that another client committed and cleanup removed. A commit that was delayed for so
long creates this version again. Then the version is part of the history, but newer versions do not
contain its change. So a writer lists the versions after its commit:

| listing | the version number |
| --- | --- |
| no newer version | is new |
| the next version was written earlier, by the store's clock | was used before |
| the next version was written later | is new |
| the times are equal or unknown, and the previous version exists | is new: cleanup that removes a \
version also removes the versions before it, unless a tag or branch keeps them |
| anything else | is unknown |

The times come from the store, because the clocks of writers differ. Object stores return the time
at which an object was created, S3 and Azure in whole seconds. On a local disk, `LocalCommit` sets
the time at which the file got its name. HDFS returns the time at which the file was written under
another name. This can be before other clients committed, so on HDFS the previous version must
exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from lance_spark.errors import (
    LanceError,
    MissingFileError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import check_identity, find_manifest
from lance_spark.table.manifest.manifest import Manifest

#: Stores whose file times do not change when a file gets its final name.
_TIMES_BEFORE_RENAME = frozenset({"hdfs", "viewfs"})


def check_named(store: ObjectStore, manifest: Manifest, undo: Callable[[], object]) -> None:
    """Check a version that was just named (`check_stays`), and undo the naming if the check fails.

    Raises VersionNotFoundError, StorageError: as `check_stays`. Raises UncertainCommitError: the
    naming could not be undone.
    """
    with undo_on_error(undo):
        check_stays(store, manifest)


@contextmanager
def undo_on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Undo an earlier change if the body raises a `LanceError`, and raise that error again.

    Raises UncertainCommitError: `undo` failed as well, so that the change may persist.
    """
    try:
        yield
    except LanceError as error:
        try:
            undo()
        except LanceError as failure:
            raise UncertainCommitError(
                f"{error}; the change that preceded this check could not be undone: {failure}"
            ) from error
        raise


def check_stays(store: ObjectStore, manifest: Manifest) -> None:
    """Check that no cleanup is removing a version.

    - `store`: Root of the version's table or branch.

    Raises CorruptTableError, StorageError. Raises VersionNotFoundError: a cleanup is removing the
    version or was interrupted while it did, or the version belongs to an earlier table in the same
    folder.
    """
    if not manifest.transaction_file or versions.is_detached(manifest.version):
        return
    path = f"{FOLDER}/{manifest.transaction_file}"
    if store.exists(path):
        return
    # Cleanup never removes the newest version: if this is the newest, only its transaction file was
    # lost.
    newest = versions.newest(store)
    if newest is None or newest.version > manifest.version:
        raise VersionNotFoundError(
            f"{store.display}: version {manifest.version} is being removed by a cleanup, or was "
            f"partly removed ({path} not found), so that no tag, branch or restore may use it; "
            "choose another version, or, if no cleanup is running and the version can still be "
            "read, write its rows as a new version"
        )
    current = find_manifest(store, newest)
    if current is not None:
        check_identity(store.display, current, manifest.identity)


class VersionSlot(Enum):
    """Whether a version number was used before."""

    NEW = "no earlier version had the number"
    UNKNOWN = "an earlier version may have had the number"
    REUSED = "an earlier version had the number, and cleanup removed it"


def check_slot(store: ObjectStore, version: int) -> VersionSlot:
    """Return whether the number of a version was used before by a version that cleanup removed.

    - `version`: An existing version.

    Raises StorageError.
    """
    # A manifest store keeps the entries of removed versions, and so refuses their numbers.
    if store.manifest_store is not None:
        return VersionSlot.NEW
    paths = {
        location.version: location.path
        for location in versions.list_since(store, max(version - 1, 1))
    }
    if paths and max(paths) == version:
        return VersionSlot.NEW
    if version not in paths or version + 1 not in paths:
        return VersionSlot.UNKNOWN
    try:
        time, next_time = store.modified(paths[version]), store.modified(paths[version + 1])
    except MissingFileError:
        return VersionSlot.UNKNOWN
    if time is not None and next_time is not None:
        if next_time < time:
            return VersionSlot.REUSED
        if next_time > time and store.scheme not in _TIMES_BEFORE_RENAME:
            return VersionSlot.NEW
    return VersionSlot.NEW if version == 1 or version - 1 in paths else VersionSlot.UNKNOWN
