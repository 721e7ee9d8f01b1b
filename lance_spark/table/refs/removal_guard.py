"""Checks that cleanup is not removing a version before a tag, a branch or a restore relies on it.

Cleanup and a client that gives a name to a version exclude each other without a lock:

| cleanup | client |
| --- | --- |
| 1. deletes the version's transaction file (the *removal mark*) | 1. writes the tag or branch |
| 2. reads tags, branches and newer versions again | 2. checks that the file still exists |
| 3. keeps a version that has a name now, else deletes it | 3. takes the name back if not |

Whichever order the steps take, at least one of the two sees the other. A restore cannot be taken
back, so it checks before it commits; cleanup sees the transaction file of the restore
(`lance_spark.table.cleanup.restores`).

Limits: a version that cleanup marked and then kept does not get its file back, since another
cleanup may have marked it as well and still remove it. It keeps its names and gets no new one.
Versions of early releases never had the file, and other clients' cleanup does not follow this
protocol: neither can be detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lance_spark.errors import LanceError, UncertainCommitError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import check_identity, find_manifest
from lance_spark.table.manifest.manifest import Manifest


def check_named(store: ObjectStore, manifest: Manifest, undo: Callable[[], object]) -> None:
    """Check a version that was just named (`check_stays`), and undo the naming if the check fails.

    Raises
    ------
    VersionNotFoundError, StorageError
        As `check_stays`.
    UncertainCommitError
        The naming could not be undone.
    """
    with undo_on_error(undo):
        check_stays(store, manifest)


@contextmanager
def undo_on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Undo an earlier change if the body raises a `LanceError`, and raise that error again.

    Raises
    ------
    UncertainCommitError
        `undo` failed as well, so that the change may persist.
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

    Parameters
    ----------
    store : ObjectStore
        Root of the version's table or branch.
    manifest : Manifest

    Raises
    ------
    VersionNotFoundError
        A cleanup is removing the version or was interrupted while it did, or the version belongs to
        an earlier table in the same folder.
    CorruptTableError, StorageError
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
