"""Commits with an external manifest store, in four steps that any client can finish.

| step | what is written | by |
| --- | --- | --- |
| 1 | the manifest, to a staging file `{path}-{uuid4}` | the writer |
| 2 | an entry with the staging file, unless the version has one: this is the commit | the writer |
| 3 | a copy of the staging file, to the final path of the manifest | writer or reader |
| 4 | the final path, to the entry; then the staging file is deleted | writer or reader |

After step 2 the version exists, even if the writer fails. Each client that finds an entry with a
staging file does the steps 3 and 4. Several clients can do them at once and repeat them, because
the content is always the same. A missing staging file means that another client has finished.

If step 3 fails, a reader refuses the version: a copy of the table's folder would not contain it.
Only a reader without permission to write reads the staging file. No writer commits on a version
that has not been copied. If step 4 fails, the manifest is in its final path, and the next client
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
    r"(?P<path>_versions/[0-9]{1,20}\.manifest)(-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?",
    re.ASCII,
)


def create(
    store: ObjectStore, external: ManifestStore, version: int, path: str, data: bytes
) -> bool:
    """Commit a version; return False and change nothing if the version exists.

    - `path`: The final path of the manifest.
    - `data`: The manifest.

    Raises StorageError: a store failed. If the error has a cause, the version may or may not be
    committed. If it has no cause, the version is not committed.
    """
    entry = ManifestEntry(version, f"{path}-{uuid.uuid4()}", len(data))
    try:
        store.write_bytes(entry.path, data)
    except StorageError as error:
        # No entry names the file yet, so the version is certainly not committed.
        raise StorageError(str(error)) from None
    root = store.object_uri
    try:
        with translated(store.name(path), store.options):
            created = external.put_if_absent(root, entry)
    except StorageError as error:
        # The store may still execute the request; then the staging file is the version.
        if not is_refusal(error):
            raise
        # The refusal may answer a repeated request after the credentials expired, and the first
        # request may have succeeded.
        if not _has_entry(store, external, entry):
            _delete(store, entry.path)
            raise
        created = True
    if not created:
        # If the answer to the first request was lost, the repeated request finds the own entry.
        created = _has_entry(store, external, entry)
    if not created:
        _delete(store, entry.path)
        return False
    # The version is committed. If it cannot be copied now, the next client copies it.
    with suppress(StorageError):
        _finish(store, external, entry, path)
    return True


def _has_entry(store: ObjectStore, external: ManifestStore, entry: ManifestEntry) -> bool:
    """Return whether the manifest store has exactly this entry for the version.

    Raises StorageError: always with a cause, and the cause is not a refusal.
    """
    try:
        with translated(store.name(entry.path), store.options):
            existing = external.get(store.object_uri, entry.version)
    except LanceError as error:
        # Also a refusal leaves open whether the store has the entry.
        raise StorageError(str(error)) from error
    return existing is not None and existing.path == entry.path


def newest(store: ObjectStore, external: ManifestStore) -> tuple[int, str] | None:
    """Return the newest version and the path of its manifest; None for an unknown table.

    Raises CorruptTableError: the path of the entry is not the path of a manifest. Raises
    StorageError: a store failed, or the manifest could not be copied to its final path.
    """
    with translated(store.display, store.options):
        entry = external.latest(store.object_uri)
    return None if entry is None else _resolve(store, external, entry)


def find(store: ObjectStore, external: ManifestStore, version: int) -> tuple[int, str] | None:
    """Return a version and the path of its manifest; None without an entry. Raises as `newest`."""
    with translated(store.display, store.options):
        entry = external.get(store.object_uri, version)
    return None if entry is None else _resolve(store, external, entry)


def since(store: ObjectStore, external: ManifestStore, version: int) -> list[tuple[int, str]]:
    """Return the versions with an entry, from `version` on, oldest first. Raises as `newest`."""
    with translated(store.display, store.options):
        entries = external.since(store.object_uri, version)
    return [_resolve(store, external, entry) for entry in entries]


def _resolve(store: ObjectStore, external: ManifestStore, entry: ManifestEntry) -> tuple[int, str]:
    """Return the version and manifest path of an entry, after the steps 3 and 4 where needed."""
    match = _STAGING.fullmatch(entry.path)
    if match is None:
        raise CorruptTableError(
            f"{store.display}: the manifest store has the path {entry.path!r} for version "
            f"{entry.version}, which is not a manifest of the table; correct its entry"
        )
    path = match["path"]
    if path == entry.path:
        return entry.version, path
    try:
        _finish(store, external, entry, path)
    except StorageError as error:
        if _is_forbidden(error):
            return entry.version, entry.path
        raise StorageError(
            f"{store.display}: version {entry.version} is committed, but its manifest could not be "
            f"copied to {path} ({error}); try again"
        ) from error
    return entry.version, path


def _finish(store: ObjectStore, external: ManifestStore, entry: ManifestEntry, path: str) -> None:
    """Do the steps 3 and 4 of a commit.

    Raises StorageError: the manifest could not be copied to its final path.
    """
    try:
        store.copy(entry.path, path)
    except MissingFileError:
        # Another client has finished the commit.
        return
    with suppress(LanceError):
        with translated(store.name(path), store.options):
            # The store may give the copy another entity tag.
            external.put_final(store.object_uri, replace(entry, path=path, e_tag=None))
        store.delete([entry.path])


def _is_forbidden(error: StorageError) -> bool:
    """Return whether the error means that this client must not write."""
    cause = error.__cause__
    return isinstance(cause, PermissionError) or (
        isinstance(cause, OSError) and cause.errno == errno.EROFS
    )


def _delete(store: ObjectStore, path: str) -> None:
    # If this fails, cleanup removes the file: no version refers to it.
    with suppress(StorageError):
        store.delete([path])
