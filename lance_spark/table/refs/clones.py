"""Shallow and deep clones: a table or branch whose first version has the rows of another version.

| clone | files | base paths of the clone |
| --- | --- | --- |
| shallow clone, branch | shared with the source | the source's, and the source's root |
| deep clone | copied | only those that blobs may refer to |

Row id sequences and row version sequences that the source keeps in external files are stored in the
clone's manifest instead: the paths of external files are relative to the table's root and cannot
refer to the source's.

The manifest is written last, by a conditional put, so a clone exists completely or not at all. A
crash leaves files that no manifest refers to; the next attempt overwrites them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from lance_spark import progress
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.proto import table_pb2
from lance_spark.storage.copies import Copy, copy_files
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import check_relative
from lance_spark.table.commit.transaction import FOLDER, Transaction, read_transaction
from lance_spark.table.fragments.files import DeletionFile
from lance_spark.table.fragments.fragment import check_unique
from lance_spark.table.fragments.writer import new_data_file_name
from lance_spark.table.indexes.sections import section_of, uuid_of
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import (
    check_identity,
    find_manifest,
    read_manifest,
    read_version,
)
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata import Clone
from lance_spark.table.paths import DATA, DELETIONS, INDICES, TablePaths
from lance_spark.table.rows import ids as row_ids

#: Folders that a deep clone copies files to before it writes the manifest.
_COPIED = (DATA, DELETIONS, INDICES)
_MAX_TRIES = 3


def shallow_clone(
    source: OpenTable,
    target: ObjectStore,
    *,
    branch: str | None = None,
    is_adopted: Callable[[], bool] = lambda: False,
) -> Manifest:
    """Create a table or a branch that shares the files of a version.

    - `target`: Root of the new table or branch.
    - `branch`: Name of the new branch; None for a table.
    - `is_adopted`: Returns whether another client's branch has adopted the manifest that this call
      wrote. Called when this call gives up because of a concurrent clone, after it deleted its
      transaction file, which the other client checks.

    Returns the first version of the clone. It has the number of the source's version. Raises
    CorruptTableError, StorageError. Raises TableExistsError: the target has versions already.
    Raises InvalidInputError: the source is a detached version. Raises UnsupportedFeatureError: the
    source has features that this release cannot write. Raises VersionNotFoundError: cleanup has
    removed the source's version. Raises UncertainCommitError: the store failed, and it is unknown
    whether the clone was created.
    """
    operation = _operation(source, branch=branch, is_shallow=True)
    _check_empty(target)
    if branch is None:
        target.check_new_table()
        # The source may have been opened long ago. A branch is checked after its creation.
        stored = read_version(source.store, source.version)
        check_identity(source.store.display, stored, source.manifest.identity)
    return _create(source, target, operation, is_adopted)


def deep_clone(source: OpenTable, target: ObjectStore) -> Manifest:
    """Create a table with copies of all files of a version: data, blobs, deletions, indexes.

    Several files are copied at the same time, in pieces; see `copy_files`. Raises
    UnsupportedFeatureError, CorruptTableError, StorageError. Raises TableExistsError: the target
    has versions already. Raises InvalidInputError: the source is a detached version, or has files
    at the target. Raises UncertainCommitError: the store failed, and it is unknown whether the
    clone was created.
    """
    target.check_put_if_absent()
    target.check_new_table()
    _check_empty(target)
    renamed: dict[tuple[int | None, str], str] = {}
    operation = _operation(
        source, is_shallow=False, renamed=renamed, kept_bases=_bases_of_blobs(source.manifest)
    )
    copied: list[Copy] = []
    # Files of an unfinished clone, or of an unrelated table: a failure must not delete them.
    present = _list_copied_folders(target)
    try:
        with progress.stage("copy", _known_bytes(source.manifest), "bytes"):
            copy_files(_copies(source, target, renamed), copied)
        _copy_again(target, copied)
    except BaseException:
        _remove(target, copied, present)
        raise
    try:
        manifest = _create(source, target, operation)
    except (TableExistsError, UncertainCommitError):
        # The files may belong to the table that exists now.
        raise
    except LanceError:
        # Not after an interrupt: the request for the manifest may still be under way then.
        _remove(target, copied, present)
        raise
    try:
        # A concurrent attempt that failed may have deleted files until it saw the manifest.
        _copy_again(target, copied)
    except StorageError as error:
        raise _uncertain(target, error) from error
    return manifest


def _list_copied_folders(target: ObjectStore) -> set[str]:
    return {info.path for folder in _COPIED for info in target.list_tree(folder)}


def _copy_again(target: ObjectStore, copied: list[Copy]) -> None:
    """Copy files again that a concurrent attempt deleted when it failed."""
    # The copies of both attempts have the same names.
    for _ in range(_MAX_TRIES):
        present = _list_copied_folders(target)
        missing = [copy for copy in copied if copy.target_path not in present]
        if not missing:
            return
        copy_files(missing, [])
    raise StorageError(
        f"{target.display}: another client deletes the files that are copied there; choose "
        "another path"
    )


def _remove(target: ObjectStore, copied: list[Copy], present: set[str]) -> None:
    """Delete the copies of a failed attempt, until there is a manifest, which may need them."""
    with suppress(LanceError):
        for copy in copied:
            if versions.list_manifests(target):
                return
            if copy.target_path not in present:
                # A failed deletion must not keep the other copies.
                with suppress(StorageError):
                    target.delete([copy.target_path])


def find_clone(target: ObjectStore, source: OpenTable, branch: str) -> Manifest | None:
    """Return the only version of an unfinished branch, if it is a clone of this source version.

    Raises CorruptTableError, StorageError.
    """
    located = versions.list_manifests(target)
    if len(located) != 1:
        return None
    try:
        manifest = read_manifest(target, located[0])
    except MissingFileError:
        return None
    transaction = read_transaction(target, manifest)
    expected = _operation(source, branch=branch, is_shallow=True)
    if transaction is None or transaction.operation != expected or manifest.branch != branch:
        return None
    return manifest


def _operation(source: OpenTable, *, is_shallow: bool, **attributes: Any) -> Clone:
    manifest = source.manifest
    if versions.is_detached(manifest.version) or not manifest.version:
        raise InvalidInputError(
            f"{source.store.display}: version {manifest.version} is detached, so it cannot be the "
            "first version of a table or branch; choose another version"
        )
    manifest.check_writable(source.store.display)
    check_unique(manifest.message.fragments, manifest.name)
    branch = attributes.pop("branch", None)
    return Clone(
        is_shallow, manifest.version, source.store.base_uri, source.branch, branch, **attributes
    )


def _check_empty(target: ObjectStore) -> None:
    manifests = versions.list_manifests(target)
    if manifests or target.exists(versions.LATEST):
        existing = f", with {versions.describe(manifests)}" if manifests else ""
        raise TableExistsError(
            f"{target.display}: the table already exists{existing}; choose another path"
        )


def _create(
    source: OpenTable,
    target: ObjectStore,
    operation: Clone,
    is_adopted: Callable[[], bool] = lambda: False,
) -> Manifest:
    """Write the transaction file and the manifest of the clone."""
    transaction = Transaction.new(source.manifest.version, operation)
    builder = ManifestBuilder(source.manifest, paths=source.paths)
    for fragment in builder.proto.fragments:
        row_ids.inline_external_sequences(fragment, source.paths)
    operation.apply_to_source(builder)
    message = transaction.encode()
    path = f"{FOLDER}/{transaction.file_name}"
    writes_file = source.manifest.flags.writes_transaction_files
    location = NamingScheme.V2.locate(builder.version)
    file_name = transaction.file_name if writes_file else ""
    manifest, data = builder.encode(target.name(location.path), message, file_name)
    try:
        if writes_file:
            target.write_bytes(path, message, durable=False)
        created = _put(target, location, transaction, data)
    except UncertainCommitError:
        raise
    except StorageError:
        # The transaction file may exist even if its own write failed.
        with suppress(StorageError):
            target.delete([path])
        raise
    try:
        is_alone = created and not _has_another(target, location.version)
    except StorageError as error:
        raise _uncertain(target, error) from error
    if not is_alone:
        # Another client creates a table in the same folder. If each sees the other, both give up.
        with suppress(LanceError):
            target.delete([path])
            if created and not is_adopted():
                target.delete([location.path])
        raise TableExistsError(f"{target.display}: another client has just created a table there")
    versions.write_hint(target, location.version)
    return manifest


def _has_another(target: ObjectStore, version: int) -> bool:
    """Return whether the target has versions other than this one and its successors."""
    other_locations = [
        location for location in versions.list_manifests(target) if location.version != version
    ]
    if not other_locations:
        return False
    manifest = find_manifest(target, other_locations[0])
    if other_locations[0].version != version + 1 or manifest is None:
        return True
    # Another client may already have committed on top of this version.
    successor = read_transaction(target, manifest)
    return successor is None or isinstance(successor.operation, Clone)


def _put(
    target: ObjectStore, location: ManifestLocation, transaction: Transaction, data: bytes
) -> bool:
    """Create the manifest; return False if another client's manifest has its name."""
    # The failure of an earlier request that may still be carried out.
    doubt: StorageError | None = None
    for _ in range(_MAX_TRIES):
        failure: StorageError | None = None
        try:
            if versions.create_manifest(target, location, data):
                return True
        except StorageError as error:
            failure = error
        # An existing manifest may be our own: the store's client repeats a request whose answer was
        # lost.
        is_own = _is_own(target, location.version, transaction, failure or doubt)
        if is_own is not None:
            return is_own
        if failure is not None and is_refusal(failure):
            if doubt is None:
                raise failure
            break
        doubt = failure or doubt
    raise _uncertain(target, doubt) from doubt


def _is_own(
    target: ObjectStore, version: int, transaction: Transaction, failure: StorageError | None
) -> bool | None:
    """Return whether a version was created by a transaction; None if the version does not exist."""
    try:
        existing = read_transaction(target, read_version(target, version))
    except (TableNotFoundError, VersionNotFoundError):
        return None
    except LanceError as error:
        raise _uncertain(target, failure or error) from error
    return existing is not None and existing.uuid == transaction.uuid


def _uncertain(target: ObjectStore, failure: LanceError | None) -> UncertainCommitError:
    return UncertainCommitError(
        f"{target.display}: the store failed while the clone was created ({failure}); check "
        "whether the table exists"
    )


def _bases_of_blobs(manifest: Manifest) -> frozenset[int]:
    """Return the ids of the base paths that blobs may refer to."""
    # All base paths: to find out which of them are used, the data would have to be read.
    if not any(has_blobs(field) for field in manifest.schema.fields):
        return frozenset()
    return frozenset(
        number for number, base in manifest.base_paths.items() if not base.is_dataset_root
    )


def _known_bytes(manifest: Manifest) -> int:
    """Return the bytes of the data files whose sizes a version records."""
    sizes = {
        (file.base_id, file.path): file.file_size_bytes
        for fragment in manifest.message.fragments
        for file in _data_files(fragment)
    }
    return sum(sizes.values())


def _data_files(fragment: table_pb2.DataFragment) -> list[table_pb2.DataFile]:
    return [*fragment.files, *(overlay.data_file for overlay in fragment.overlays)]


def _copies(
    source: OpenTable, target: ObjectStore, renamed: dict[tuple[int | None, str], str]
) -> Iterator[Copy]:
    """Yield the copies of all files of a version; note renamed data files in `renamed`."""
    # Data files of several base paths can have the same name.
    manifest, paths = source.manifest, source.paths
    blobs = any(has_blobs(field) for field in manifest.schema.fields)
    names: dict[str, tuple[int | None, str]] = {}
    for fragment in manifest.message.fragments:
        for file in _data_files(fragment):
            key = (file.base_id if file.HasField("base_id") else None, file.path)
            if names.get(file.path) == key or key in renamed:
                continue
            name = _checked(file.path, manifest)
            if name in names:
                name = renamed[key] = new_data_file_name()
            names[name] = key
            store, path = paths.locate(key[0], DATA, file.path)
            yield Copy(store, path, target, f"{DATA}/{name}", file.file_size_bytes)
            if blobs:
                yield from _folder(
                    store,
                    path.removesuffix(".lance"),
                    target,
                    f"{DATA}/{name.removesuffix('.lance')}",
                )
        if fragment.HasField("deletion_file"):
            deletion = DeletionFile.from_proto(fragment.deletion_file)
            name = deletion.name(fragment.id)
            store, path = paths.locate(deletion.base_id, DELETIONS, name)
            yield Copy(store, path, target, f"{DELETIONS}/{name}")
    yield from _index_copies(manifest, paths, target)


def _index_copies(manifest: Manifest, paths: TablePaths, target: ObjectStore) -> Iterator[Copy]:
    if manifest.index_section is None:
        return
    for index in section_of(manifest).indices:
        name = uuid_of(index)
        base = index.base_id if index.HasField("base_id") else None
        store, path = paths.locate(base, INDICES, name)
        yield from _folder(store, path, target, f"{INDICES}/{name}")


def _folder(
    store: ObjectStore, folder: str, target: ObjectStore, target_folder: str
) -> Iterator[Copy]:
    for info in store.list_tree(folder):
        name = info.path[len(folder) + 1 :]
        yield Copy(store, info.path, target, f"{target_folder}/{name}")


def _checked(path: str, manifest: Manifest) -> str:
    try:
        return check_relative(path)
    except InvalidInputError as error:
        raise CorruptTableError(f"{manifest.name}: data file {path!r}: {error}") from None
