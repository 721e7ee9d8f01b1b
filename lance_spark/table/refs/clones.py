"""Clones: the first version of a table or branch, made from a version of another.

| kind | files | base paths |
| --- | --- | --- |
| shallow, and every branch | stay with the source | the source's, and the source itself |
| deep | copied | none, but those that blobs may refer to |

Row ids and versions of rows that stand in files of their own come into the manifest of either: their paths are relative to the
root of the table, and nothing could say that it is the source's.

The manifest comes last and is created only if the target has none, so that there is no half-made table: what a crash
leaves behind is files that nothing refers to, which the next try writes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

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
from lance_spark.table.manifest.codec import encode, find_manifest, read_manifest, read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, NamingScheme
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata.clone import Clone
from lance_spark.table.paths import DATA, DELETIONS, INDICES, TablePaths
from lance_spark.table.rows import ids as row_ids

#: Folders that a deep clone writes to before there is a table.
_COPIED = (DATA, DELETIONS, INDICES)
_MAX_TRIES = 3


def shallow_clone(
    source: OpenTable,
    target: ObjectStore,
    *,
    branch: str | None = None,
    is_taken_up: Callable[[], bool] = lambda: False,
) -> Manifest:
    """Make a table, or a branch, of the rows of a version, whose files stay where they are.

    Parameters
    ----------
    source : OpenTable
    target : ObjectStore
        Root of the new table or branch.
    branch : str, optional
        Name of the branch that is made.
    is_taken_up : callable, optional
        Tells whether somebody else has a branch by now that begins with this version. Who has to give way asks it, once the
        transaction file is gone, by which that one sees whether the version stays.

    Returns
    -------
    Manifest
        Its first version, with the number of the source's.

    Raises
    ------
    TableExistsError
        There is a table already.
    InvalidInputError
        The source is a detached version, which has no number that a table can begin with.
    UnsupportedFeatureError
        The source needs more than this release does.
    UncertainCommitError
        The store failed, and nobody knows whether the clone was made.
    CorruptTableError, StorageError
    """
    operation = _operation(source, branch=branch, is_shallow=True)
    _check_empty(target)
    return _create(source, target, operation, is_taken_up)


def deep_clone(source: OpenTable, target: ObjectStore) -> Manifest:
    """Make a table of copies of all files of a version: data, blobs, deletions, indexes.

    Several files are copied at the same time, in pieces; see `copy_files`.

    Raises
    ------
    TableExistsError
        There is a table already.
    InvalidInputError
        The source is a detached version, or has files at the target.
    UncertainCommitError
        The store failed, and nobody knows whether the clone was made.
    UnsupportedFeatureError, CorruptTableError, StorageError
    """
    target.check_put_if_absent()
    _check_empty(target)
    renamed: dict[tuple[int | None, str], str] = {}
    operation = _operation(
        source, is_shallow=False, renamed=renamed, kept_bases=_bases_of_blobs(source.manifest)
    )
    copied: list[Copy] = []
    # Another table can have files there, and an earlier try.
    present = _present(target)
    try:
        copy_files(_copies(source, target, renamed), copied)
        _copy_again(target, copied)
    except BaseException:
        _remove(target, copied, present)
        raise
    try:
        manifest = _create(source, target, operation)
    except (TableExistsError, UncertainCommitError):
        # The files may be those of the table that is there now.
        raise
    except LanceError:
        # An interrupt, on the other hand, does not tell whether the manifest is on its way.
        _remove(target, copied, present)
        raise
    try:
        # Another try that fails has looked for a table before it deleted the next file.
        _copy_again(target, copied)
    except StorageError as error:
        raise _uncertain(target, error) from error
    return manifest


def _present(target: ObjectStore) -> set[str]:
    return {info.path for folder in _COPIED for info in target.list_tree(folder)}


def _copy_again(target: ObjectStore, copied: list[Copy]) -> None:
    """Copy what another try has taken away that failed meanwhile: its copies had the same names."""
    for _ in range(_MAX_TRIES):
        present = _present(target)
        missing = [copy for copy in copied if copy.target_path not in present]
        if not missing:
            return
        copy_files(missing, [])
    raise StorageError(
        f"{target.display}: somebody else deletes the files that are copied there; choose another path"
    )


def _remove(target: ObjectStore, copied: list[Copy], present: set[str]) -> None:
    """Delete copies that nobody needs, until there is a table that does."""
    with suppress(LanceError):
        for copy in copied:
            if versions.list_manifests(target):
                return
            if copy.target_path not in present:
                # One that cannot be deleted keeps none of the others.
                with suppress(StorageError):
                    target.delete([copy.target_path])


def find_clone(target: ObjectStore, source: OpenTable, branch: str) -> Manifest | None:
    """Return the first version of a branch that was made from a version, and of which nothing but that was written.

    Raises
    ------
    CorruptTableError, StorageError
    """
    located = versions.list_manifests(target)
    if len(located) != 1:
        return None
    try:
        manifest = read_manifest(target, located[0])
    except MissingFileError:
        return None
    transaction = read_transaction(target, manifest)
    same = _operation(source, branch=branch, is_shallow=True)
    if transaction is None or transaction.operation != same or manifest.branch != branch:
        return None
    return manifest


def _operation(source: OpenTable, *, is_shallow: bool, **more: Any) -> Clone:
    manifest = source.manifest
    if versions.is_detached(manifest.version) or not manifest.version:
        raise InvalidInputError(
            f"{source.store.display}: version {manifest.version} is no part of the history, so that no table or branch can begin "
            "with it; choose another version"
        )
    manifest.check_writable(source.store.display)
    check_unique(manifest.message.fragments, manifest.name)
    branch = more.pop("branch", None)
    return Clone(is_shallow, manifest.version, source.store.base_uri, source.branch, branch, **more)


def _check_empty(target: ObjectStore) -> None:
    manifests = versions.list_manifests(target)
    if manifests or target.exists(versions.LATEST):
        there = f", with {versions.describe(manifests)}" if manifests else ""
        raise TableExistsError(
            f"{target.display}: there is a table already{there}; choose another path"
        )


def _create(
    source: OpenTable,
    target: ObjectStore,
    operation: Clone,
    is_taken_up: Callable[[], bool] = lambda: False,
) -> Manifest:
    """Write transaction and manifest."""
    transaction = Transaction.new(source.manifest.version, operation)
    draft = ManifestBuilder(source.manifest, paths=source.paths)
    for fragment in draft.proto.fragments:
        row_ids.take_in(fragment, source.paths)
    operation.make(draft)
    message = transaction.encode()
    path = f"{FOLDER}/{transaction.file_name}"
    writes_file = source.manifest.flags.writes_transaction_files
    proto = draft.finish(transaction.file_name if writes_file else "")
    data = encode(proto, draft.index_section, message, draft.dictionaries)
    location = NamingScheme.V2.locate(proto.version)
    try:
        if writes_file:
            target.write_bytes(path, message, durable=False)
        created = _put(target, location, transaction, data)
    except UncertainCommitError:
        raise
    except StorageError:
        # It can be there, whatever the answer was.
        with suppress(StorageError):
            target.delete([path])
        raise
    try:
        is_alone = created and not _has_another(target, proto.version)
    except StorageError as error:
        raise _uncertain(target, error) from error
    if not is_alone:
        # Somebody else makes a table here; of two that see one another, both give way.
        with suppress(LanceError):
            target.delete([path])
            if created and not is_taken_up():
                target.delete([location.path])
        raise TableExistsError(f"{target.display}: somebody else has just made a table there")
    versions.write_hint(target, proto.version)
    return Manifest(
        proto,
        target.name(location.path),
        index_section=draft.index_section,
        transaction_section=message,
        dictionaries=draft.dictionaries,
        size_bytes=len(data),
    )


def _has_another(target: ObjectStore, version: int) -> bool:
    """Tell whether somebody else has made a table, too: what was committed on top of this one is part of it."""
    others = [one for one in versions.list_manifests(target) if one.version != version]
    if not others:
        return False
    manifest = find_manifest(target, others[0])
    if others[0].version != version + 1 or manifest is None:
        return True
    first = read_transaction(target, manifest)
    return first is None or isinstance(first.operation, Clone)


def _put(
    target: ObjectStore, location: ManifestLocation, transaction: Transaction, data: bytes
) -> bool:
    """Create the manifest; return False if somebody else's is there."""
    doubt: StorageError | None = None
    for _ in range(_MAX_TRIES):
        failure: StorageError | None = None
        try:
            if versions.create_manifest(target, location, data):
                return True
        except StorageError as error:
            failure = error
        # It can be the own one: the store's client repeats a request whose answer was lost.
        is_own = _is_own(target, location.version, transaction, failure or doubt)
        if is_own is not None:
            return is_own
        if failure is not None and is_refusal(failure):
            if doubt is None:
                raise failure
            # The request before can still be carried out.
            break
        doubt = failure or doubt
    raise _uncertain(target, doubt) from doubt


def _is_own(
    target: ObjectStore, version: int, transaction: Transaction, failure: StorageError | None
) -> bool | None:
    """Tell whether the version that is there is that of a transaction; None if there is none."""
    try:
        found = read_transaction(target, read_version(target, version))
    except (TableNotFoundError, VersionNotFoundError):
        return None
    except LanceError as error:
        raise _uncertain(target, failure or error) from error
    return found is not None and found.uuid == transaction.uuid


def _uncertain(target: ObjectStore, failure: LanceError | None) -> UncertainCommitError:
    return UncertainCommitError(
        f"{target.display}: the store failed while the clone was made ({failure}); look whether there is a table"
    )


def _bases_of_blobs(manifest: Manifest) -> frozenset[int]:
    """Return the base paths that blobs can refer to: nobody looks into the data to find out."""
    if not any(has_blobs(field) for field in manifest.schema.fields):
        return frozenset()
    return frozenset(
        number for number, base in manifest.base_paths.items() if not base.is_dataset_root
    )


def _copies(
    source: OpenTable, target: ObjectStore, renamed: dict[tuple[int | None, str], str]
) -> Iterator[Copy]:
    manifest, paths = source.manifest, source.paths
    blobs = any(has_blobs(field) for field in manifest.schema.fields)
    names: dict[str, tuple[int | None, str]] = {}
    for fragment in manifest.message.fragments:
        for file in [*fragment.files, *(overlay.data_file for overlay in fragment.overlays)]:
            key = (file.base_id if file.HasField("base_id") else None, file.path)
            if names.get(file.path) == key or key in renamed:
                continue
            name = _checked(file.path, manifest)
            if name in names:
                name = renamed[key] = new_data_file_name()
            names[name] = key
            store, path = paths.locate(key[0], DATA, file.path)
            yield Copy(store, path, target, f"{DATA}/{name}")
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
