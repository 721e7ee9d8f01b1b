"""Whether a version is being removed: what those look at who give a name to an old one.

Cleanup takes the transaction file from each version that goes, then looks at tags, branches and newer versions once more, and only then
deletes what readers need. Who gives a name to a version writes it down first, and then looks whether the version still has that file.
So of two that meet, one sees the other: cleanup keeps the version, or the name is taken back. A restore, which nobody can take back,
looks before it commits: its own transaction file is what cleanup sees (`cleanup_restores`).

A version that is kept so does not get its file back, since another cleanup may have taken it, too, and be about to remove the version.
It keeps the name that it has, and gets no other.

Versions without such a file from the beginning, of early releases, cannot tell; nor does the cleanup of other clients.
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


def check_named(store: ObjectStore, manifest: Manifest, take_back: Callable[[], object]) -> None:
    """Do as `check_stays` for a version that has been given a name; if it goes, or nobody knows, take the name back first.

    Raises
    ------
    VersionNotFoundError, StorageError
        As `check_stays`.
    UncertainCommitError
        The name could not be taken back.
    """
    with taken_back(take_back):
        check_stays(store, manifest)


@contextmanager
def taken_back(take_back: Callable[[], object]) -> Iterator[None]:
    """Take a change of a name back if what is looked at afterwards is not as it should be, or cannot be looked at.

    Raises
    ------
    UncertainCommitError
        That failed, too: the change may stay.
    """
    try:
        yield
    except LanceError as error:
        try:
            take_back()
        except LanceError as failure:
            raise UncertainCommitError(
                f"{error}; and what was done before that was seen could not be taken back: {failure}"
            ) from error
        raise


def check_stays(store: ObjectStore, manifest: Manifest) -> None:
    """Make sure that no cleanup removes a version that has just been given a name, or is about to be restored.

    Parameters
    ----------
    store : ObjectStore
        Root of the version's table or branch.
    manifest : Manifest

    Raises
    ------
    VersionNotFoundError
        One does, or did in part; or the version is that of another table, made in the same place.
    CorruptTableError, StorageError
    """
    if not manifest.transaction_file or versions.is_detached(manifest.version):
        return
    if store.exists(f"{FOLDER}/{manifest.transaction_file}"):
        return
    newest = versions.newest(store)
    if newest is None or newest.version > manifest.version:
        raise VersionNotFoundError(
            f"{store.display}: version {manifest.version} is being removed by a cleanup, or was in part "
            f"({FOLDER}/{manifest.transaction_file} is gone), so that nothing can be built on it; choose another version, or, "
            "if no cleanup is running and it can still be read, write its rows as a new version"
        )
    there = find_manifest(store, newest)
    if there is not None:
        check_identity(store.display, there, manifest.identity)
