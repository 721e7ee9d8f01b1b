"""Commits through an external manifest store, in four steps that any client can finish.

| step | what is written | who |
| --- | --- | --- |
| 1 | the manifest, to a staging file `{place}-{uuid4}` | the writer |
| 2 | an entry that names the staging file, if the version has none: the commit | the writer |
| 3 | a copy of the staging file, to the final path of the manifest | writer or reader |
| 4 | the entry names the final path; then the staging file is deleted | writer or reader |

After step 2 the version exists, even if the writer fails: any client that finds an entry of a
staging file performs steps 3 and 4. Several clients can perform them concurrently and repeatedly,
as the content is always the same. A missing staging file means that another client has finished. If
step 3 fails, a reader refuses the version: a copy of the folder of the table would not contain it.
Only a reader without permission to write reads the staging file. Nothing is committed on a version
that has not been copied. If step 4 fails, the manifest is at its final path, and the next client
repeats the step.

Specification: table format, transactions, external manifest store.
"""

from __future__ import annotations

import errno
import re
import uuid
from contextlib import suppress
from dataclasses import replace

from lance_spark.errors import CorruptTableError, LanceError, MissingFileError, StorageError
from lance_spark.storage.commit.manifest_store import ManifestEntry, ManifestStore
from lance_spark.storage.errors import is_refusal, translated
from lance_spark.storage.store import ObjectStore

__all__ = ["ManifestEntry", "ManifestStore", "create", "find", "newest", "since"]

_STAGING = re.compile(
    r"(?P<place>_versions/[0-9]{1,20}\.manifest)(-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?",
    re.ASCII,
)


def create(
    store: ObjectStore, external: ManifestStore, version: int, path: str, data: bytes
) -> bool:
    """Commit a version; return False and change nothing if its number exists.

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    external : ManifestStore
    version : int
    path : str
        Final path of the manifest.
    data : bytes
        The manifest.

    Raises
    ------
    StorageError
        A store failed, and the version may be committed or not. Without a cause of the error, it
        certainly is not.
    """
    entry = ManifestEntry(version, f"{path}-{uuid.uuid4()}", len(data))
    try:
        store.write_bytes(entry.path, data)
    except StorageError as error:
        # No entry refers to the version yet.
        raise StorageError(str(error)) from None
    root = store.object_uri
    try:
        with translated(store.name(path), store.options):
            created = external.put_if_absent(root, entry)
    except StorageError as error:
        # The request may still arrive; then the staging file is the version.
        if not is_refusal(error):
            raise
        # Permissions can expire before a repetition; the first request can have been carried out.
        if not _is_own(store, external, entry):
            _delete(store, entry.path)
            raise
        created = True
    if not created:
        # A client that repeats a request after a lost answer finds its own entry.
        created = _is_own(store, external, entry)
    if not created:
        _delete(store, entry.path)
        return False
    # The version is committed. If the copy fails now, the next client copies it.
    with suppress(StorageError):
        _finish(store, external, entry, path)
    return True


def _is_own(store: ObjectStore, external: ManifestStore, entry: ManifestEntry) -> bool:
    """Tell whether the entry of a version is the given one.

    Raises StorageError, always with a cause that is not a refusal.
    """
    try:
        with translated(store.name(entry.path), store.options):
            present = external.get(store.object_uri, entry.version)
    except LanceError as error:
        # Even if reads are forbidden, the existing entry can be this one.
        raise StorageError(str(error)) from error
    return present is not None and present.path == entry.path


def newest(store: ObjectStore, external: ManifestStore) -> tuple[int, str] | None:
    """Return the newest version and the path of its manifest; None for an unknown table.

    Raises
    ------
    CorruptTableError
        The entry does not name a manifest of that version.
    StorageError
        A store failed, or the manifest cannot be copied to its final path.
    """
    with translated(store.display, store.options):
        entry = external.latest(store.object_uri)
    return None if entry is None else _resolve(store, external, entry)


def find(store: ObjectStore, external: ManifestStore, version: int) -> tuple[int, str] | None:
    """Return a version and the path of its manifest; None if unknown. Raises as `newest`."""
    with translated(store.display, store.options):
        entry = external.get(store.object_uri, version)
    return None if entry is None else _resolve(store, external, entry)


def since(store: ObjectStore, external: ManifestStore, version: int) -> list[tuple[int, str]]:
    """Return the entries of `version` and later ones, oldest first. Raises as `newest`."""
    with translated(store.display, store.options):
        entries = external.since(store.object_uri, version)
    return [_resolve(store, external, entry) for entry in entries]


def _resolve(store: ObjectStore, external: ManifestStore, entry: ManifestEntry) -> tuple[int, str]:
    match = _STAGING.fullmatch(entry.path)
    if match is None:
        raise CorruptTableError(
            f"{store.display}: the manifest store says that version {entry.version} is "
            f"{entry.path!r}, "
            "which is no manifest of the table; correct its entry"
        )
    place = match["place"]
    if place == entry.path:
        return entry.version, place
    try:
        _finish(store, external, entry, place)
    except StorageError as error:
        if _is_forbidden(error):
            return entry.version, entry.path
        raise StorageError(
            f"{store.display}: version {entry.version} is committed, but its manifest could not be "
            f"copied to {place} ({error}); try again"
        ) from error
    return entry.version, place


def _finish(store: ObjectStore, external: ManifestStore, entry: ManifestEntry, place: str) -> None:
    """Perform the steps after the commit.

    Raises
    ------
    StorageError
        The manifest could not be copied to its final path.
    """
    try:
        store.copy(entry.path, place)
    except MissingFileError:
        # Another client has copied it.
        return
    with suppress(LanceError):
        with translated(store.name(place), store.options):
            # A copy may have another tag.
            external.put_final(store.object_uri, replace(entry, path=place, e_tag=None))
        store.delete([entry.path])


def _is_forbidden(error: StorageError) -> bool:
    """Tell whether this client lacks permission to write."""
    cause = error.__cause__
    return isinstance(cause, PermissionError) or (
        isinstance(cause, OSError) and cause.errno == errno.EROFS
    )


def _delete(store: ObjectStore, path: str) -> None:
    # No version refers to a staging file that stays; cleanup removes it.
    with suppress(StorageError):
        store.delete([path])
