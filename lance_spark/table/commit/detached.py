"""Commits of detached versions: manifests outside of the history, `_versions/d{version}.manifest`.

Their numbers are random, with bit 63 set. A detached version contains the content of the version
that its change was planned on, which may itself be detached, and the change. It cannot conflict
with other commits, does not become the newest version, and is not listed: a user must know its
number to open it. Only tables with names of scheme V2 can have detached versions.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial

from lance_spark.errors import InvalidInputError, LanceError, StorageError, UncertainCommitError
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER, Transaction
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import read_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import NamingScheme
from lance_spark.table.paths import TablePaths
from lance_spark.table.refs.removal_guard import check_named

_DETACHED = 1 << 63


def commit_detached(
    store: ObjectStore, transaction: Transaction, base: Manifest | None
) -> Manifest:
    """Commit a change as a detached version, and return this version.

    - `base`: The version that the change was planned on. It must not be None.

    Raises StorageError. Raises InvalidInputError: the table does not exist, the change does not fit
    it, or its manifests have names of scheme V1. Raises UnsupportedFeatureError: the table needs a
    feature that this release does not write. Raises VersionNotFoundError: cleanup is removing the
    base version. Raises UncertainCommitError: the store failed, and the version may or may not
    exist.
    """
    if base is None:
        raise InvalidInputError(
            f"{store.display}: a detached version needs an existing table; create the table first"
        )
    operation = transaction.operation
    base.check_writable(store.display)
    listing = versions.list_for_commit(
        store, partial(versions.list_manifests, store), complete=True
    )
    if listing.scheme(store) is NamingScheme.V1:
        raise InvalidInputError(
            f"{store.display}: its manifests have names of scheme V1, which does not have detached "
            "versions; call Dataset.migrate_manifest_paths_v2 first"
        )
    older_versions: list[Manifest] = []

    def read_older(version: int) -> Manifest:
        older_versions.append(read_manifest(store, versions.find(store, version)))
        return older_versions[-1]

    builder = ManifestBuilder(
        base,
        read_version=read_older,
        paths=TablePaths(store, base.base_paths, store.options),
    )
    builder.proto.version = _DETACHED | secrets.randbits(63)
    operation.apply(builder)
    message = transaction.encode()
    path = f"{FOLDER}/{transaction.file_name}"
    writes_file = base.flags.writes_transaction_files
    location = versions.detached_location(builder.version)
    file_name = transaction.file_name if writes_file else ""
    manifest, data = builder.encode(store.name(location.path), message, file_name)
    if writes_file:
        store.write_bytes(path, message, durable=False)
    _create(store, manifest.version, location.path, data, path)
    for earlier in [base, *older_versions]:
        # Cleanup keeps the files of detached versions that it sees. If it started earlier and is
        # removing this manifest, the detached version is deleted again.
        check_named(store, earlier, lambda: store.delete([location.path, path]))
    return manifest


def _create(
    store: ObjectStore, version: int, path: str, data: bytes, transaction_path: str
) -> None:
    """Create the manifest; delete the transaction file if the manifest is certainly not created."""
    try:
        created = store.put_if_absent(path, data)
    except StorageError as error:
        if is_refusal(error):
            with suppress(StorageError):
                store.delete([transaction_path])
            raise
        raise _uncertain(store, version, error) from error
    try:
        # Numbers are random, so an existing file with this content is the own one: the answer to
        # the first request was lost, and the request was repeated.
        created = created or store.read_bytes(path) == data
    except LanceError as error:
        raise _uncertain(store, version, error) from error
    if not created:
        with suppress(StorageError):
            store.delete([transaction_path])
        raise StorageError(
            f"{store.display}: the detached version {version} exists already; commit again"
        )


def _uncertain(store: ObjectStore, version: int, error: LanceError) -> UncertainCommitError:
    return UncertainCommitError(
        f"{store.display}: the store failed while detached version {version} was written "
        f"({error}); check whether the version exists"
    )
