"""Detached versions: manifests beside the history, `_versions/d{version}.manifest`.

Their numbers are random, with bit 63 set. A detached version is built on the version that the
change was planned on, which can be detached as well. It is not part of the history: it has no
conflicts, listings do not show it, and a reader needs its number to open it. Only tables with the
naming scheme V2 can have detached versions.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from lance_spark.errors import InvalidInputError, LanceError, StorageError, UncertainCommitError
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER, Transaction
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import NamingScheme
from lance_spark.table.paths import TablePaths
from lance_spark.table.refs.removal_guard import check_named

_DETACHED = 1 << 63


def commit_detached(
    store: ObjectStore, transaction: Transaction, base: Manifest | None
) -> Manifest:
    """Commit a change as a detached version.

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    transaction : Transaction
    base : Manifest, optional
        The version that the change was planned on; required.

    Returns
    -------
    Manifest
        The detached version.

    Raises
    ------
    InvalidInputError
        The change does not match the table, or its manifests have names of scheme V1.
    UnsupportedFeatureError
        The table needs more than this release does.
    VersionNotFoundError
        Cleanup is removing the version that the change was planned on.
    UncertainCommitError
        The store failed, and the version may exist or not.
    StorageError
    """
    if base is None:
        raise InvalidInputError(f"{store.display}: a detached version needs a table, there is none")
    operation = transaction.operation
    base.check_writable(store.display)
    manifests = versions.list_manifests(store)
    if versions.scheme_for_commit(store, manifests) is NamingScheme.V1:
        raise InvalidInputError(
            f"{store.display}: its manifests have names of scheme V1, beside which there are no "
            "detached versions; "
            "call Dataset.migrate_manifest_paths_v2 first"
        )
    called_back: list[Manifest] = []

    def read_older(version: int) -> Manifest:
        called_back.append(read_manifest(store, versions.find(store, version)))
        return called_back[-1]

    draft = ManifestBuilder(
        base,
        read_version=read_older,
        paths=TablePaths(store, base.base_paths, store.options),
    )
    draft.proto.version = _DETACHED | secrets.randbits(63)
    operation.apply(draft)
    message = transaction.encode()
    path = f"{FOLDER}/{transaction.file_name}"
    writes_file = base.flags.writes_transaction_files
    proto = draft.finish(transaction.file_name if writes_file else "")
    data = encode(proto, draft.index_section, message, draft.dictionaries)
    location = versions.detached_location(proto.version)
    if writes_file:
        store.write_bytes(path, message, durable=False)
    try:
        created = store.put_if_absent(location.path, data)
    except StorageError as error:
        if is_refusal(error):
            with suppress(StorageError):
                store.delete([path])
            raise
        raise _uncertain(store, proto.version, error) from error
    try:
        # No number comes twice: what is there already is a request that was repeated because its
        # answer was lost.
        created = created or store.read_bytes(location.path) == data
    except LanceError as error:
        raise _uncertain(store, proto.version, error) from error
    if not created:
        with suppress(StorageError):
            store.delete([path])
        raise StorageError(f"{store.display}: there is a detached version {proto.version} already")
    for manifest in [base, *called_back]:
        # Cleanup keeps what detached versions need that it sees.
        check_named(store, manifest, lambda: store.delete([location.path, path]))
    return Manifest(
        proto,
        store.name(location.path),
        index_section=draft.index_section,
        transaction_section=message,
        dictionaries=draft.dictionaries,
        size_bytes=len(data),
    )


def _uncertain(store: ObjectStore, version: int, error: LanceError) -> UncertainCommitError:
    return UncertainCommitError(
        f"{store.display}: the store failed while detached version {version} was written "
        f"({error}); look whether it is there"
    )
