"""Creation, deletion and metadata of branches.

A branch is a shallow clone in the folder `tree/{name}/` of the table's main root. Its first version
has the number and the rows of its parent version, whose files are shared. Files of later versions
lie in the branch's folder. A branch exists while its branch file exists. `feat/x` and `feat/x/y`
share a folder, but no files.

| create | delete |
| --- | --- |
| 1. write the first manifest in `tree/{name}/` | 1. delete the branch file in `_refs/branches/` |
| 2. create the branch file, if absent | 2. delete the transaction files in `tree/{name}/` |
| | 3. delete the other files there, manifests last |

Concurrent operations detect each other by checks around these steps:

- Deletion looks for tags on the branch and branches made from it, before and after step 1, and
  undoes step 1 if it finds one.
- Creation checks after step 2 that its parent branch and version still exist and are not being
  removed (`removal_guard`), and that the first version still has its transaction file. If not, it
  deletes the new branch.
- Deletion checks after step 2 whether a branch of the same name was created meanwhile, which may
  have adopted the first version. If so, it leaves the remaining files alone.

After a crash: an unfinished creation is adopted by the next creation of that name from the same
version; an unfinished deletion is completed by deleting again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage.parallel import call_all
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import (
    OpenTable,
    canonical,
    check_newest_writable,
    foreign_roots,
    read_latest,
)
from lance_spark.table.operations.metadata import UpdateBases
from lance_spark.table.paths import DATA, DELETIONS, INDICES, LAST_LEGACY, BasePath, TablePaths
from lance_spark.table.refs import json_file as ref_json
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.branch_store import BRANCHES, Branch, check_same, read_branches
from lance_spark.table.refs.clones import find_clone, shallow_clone
from lance_spark.table.refs.names import branch_root, branch_store
from lance_spark.table.refs.removal_guard import check_stays, undo_on_error
from lance_spark.table.refs.tags import manifest_size, read_tags
from lance_spark.table.removal import delete_files

# --------------------------------------------------------------------------------------------------
# Repair of the branches of a table that was copied or moved.
#
# `lance_spark.table.open.check_branch_bases` says why such branches need a repair. A base path may
# change only if the files of a version exist below the new one (`missing_files`).


@dataclass(frozen=True, slots=True)
class BranchRepair:
    """The result of repairing one branch.

    Attributes
    ----------
    branch : str
        Name of the branch.
    version : int or None
        The version that the repair committed; None if the branch was not changed.
    bases : tuple of int
        Ids of the base paths that were changed.
    problem : str
        Why the branch could not be repaired; empty if it needs no further repair.
    """

    branch: str
    version: int | None
    bases: tuple[int, ...] = ()
    problem: str = ""


def repair_branches(
    main: ObjectStore, max_retries: int = DEFAULT_MAX_RETRIES
) -> list[BranchRepair]:
    """Point the base paths of a copied or moved table's branches to the table's present location.

    A base path of a branch is changed if it is the root of a table, is neither a root of this table
    nor a base path of its main branch, and all files that the newest version of the branch has
    below it exist at the same relative paths of this table. Older versions are not changed.

    - `main`: The table's main root.

    Returns one for each branch, in the order of the names. Raises StorageError, CorruptTableError,
    UnsupportedFeatureError. Raises CommitConflictError: another client changed the same branch.
    """
    names = sorted(read_branches(main))
    shared = {canonical(base.path) for base in read_latest(main).base_paths.values()}
    return [_repair(main, name, names, shared, max_retries) for name in names]


def _repair(
    main: ObjectStore, name: str, names: Iterable[str], shared: set[str], max_retries: int
) -> BranchRepair:
    store = ref_names.branch_store(main, name)
    manifest = read_latest(store)
    bases = dict(manifest.base_paths)
    foreign = foreign_roots(main, bases)
    has_native_root = len(foreign) < sum(base.is_dataset_root for base in bases.values())
    paths_in_use = {canonical(base.path) for base in bases.values()}
    changed: list[BasePath] = []
    problem = ""
    for number, base in foreign.items():
        root = _counterpart(main, base, names)
        moved = replace(base, path=root.base_uri)
        # A base path that the main branch has as well is another table: the source of a clone.
        if canonical(moved.path) in paths_in_use or canonical(base.path) in shared:
            continue
        paths = TablePaths(store, {**bases, number: moved}, store.options)
        needed, missing = missing_files(paths, manifest, moved)
        if missing:
            problem = problem or (
                f"{len(missing)} of the {needed} files below {parse_uri(base.path).display} not "
                f"found below {root.display}, for example {missing[0]}"
            )
        elif needed or not has_native_root:
            changed.append(moved)
            paths_in_use.add(canonical(moved.path))
    if problem or not changed:
        return BranchRepair(name, None, problem=problem)
    transaction = Transaction.new(manifest.version, UpdateBases(tuple(changed), replaces=True))
    version = commit(store, transaction, manifest, max_retries=max_retries).version
    return BranchRepair(name, version, tuple(base.id for base in changed))


def _counterpart(main: ObjectStore, base: BasePath, names: Iterable[str]) -> ObjectStore:
    """Return the root in this table that corresponds to a root of the original table.

    A path that ends with the folder of a branch corresponds to that branch's root, any other to the
    main root.
    """
    path = base.path.rstrip("/")
    for name in sorted(names, key=len, reverse=True):
        if path.endswith(f"/{ref_names.branch_root(name)}"):
            return ref_names.branch_store(main, name)
    return main


def missing_files(paths: TablePaths, manifest: Manifest, base: BasePath) -> tuple[int, list[str]]:
    """Return the files of a version that are missing below a base path. Lists its folders.

    Checked are data files, deletion files and the folders of indexes. Sizes of data files are
    checked if the base path is the root of a table. Blob files beside data files, and objects that
    blobs refer to, are not checked.

    - `paths`: Knows the base path.
    - `base`: The base path, with the id that it has in the version.

    Returns the number of files that the version has below the base path, and the names of those
    that are missing or have a size that differs from the manifest. Raises CorruptTableError,
    StorageError.
    """
    expected: dict[str, dict[str, int]] = {DATA: {}, DELETIONS: {}, INDICES: {}}
    for fragment in manifest.fragments:
        for file in fragment.files:
            if file.base_id == base.id:
                expected[DATA][file.path] = _recorded_size(file)
        for overlay in fragment.overlays if fragment.has_overlays else ():
            if overlay.data_file.base_id == base.id:
                expected[DATA][overlay.data_file.path] = _recorded_size(overlay.data_file)
        deletion = fragment.deletion_file
        if deletion is not None and deletion.base_id == base.id:
            expected[DELETIONS][deletion.name(fragment.id)] = 0
    for index in indexes.section_of(manifest).indices:
        if index.HasField("base_id") and index.base_id == base.id:
            expected[INDICES][indexes.uuid_of(index)] = 0
    missing: list[str] = []
    for folder, names in expected.items():
        if names:
            existing = _existing_sizes(paths, base, folder)
            # A size of 0 is unknown.
            missing += [
                name
                for name, size in sorted(names.items())
                if name not in existing or (size and existing[name] not in (0, size))
            ]
    return sum(map(len, expected.values())), missing


def _recorded_size(file: DataFile) -> int:
    """Return the size of a data file as the manifest records it; 0 if it is not the whole size."""
    return file.file_size_bytes if file.version > LAST_LEGACY else 0


def _existing_sizes(paths: TablePaths, base: BasePath, folder: str) -> dict[str, int]:
    """Return the files in a folder, or the folders of indexes, with sizes; 0 = unknown size."""
    store = paths.store_of(base)
    if not base.is_dataset_root:
        # A base path that is a folder may hold folders of other programs: they are not listed.
        names = store.list_folders("") if folder == INDICES else store.list_names("")
        return dict.fromkeys(names, 0)
    if folder == INDICES:
        return dict.fromkeys(store.list_folders(folder), 0)
    return {info.path.removeprefix(f"{folder}/"): info.size for info in store.list_tree(folder)}


# --------------------------------------------------------------------------------------------------
# Creation, deletion and metadata of branches.

_MAX_TRIES = 5


def create_branch(source: OpenTable, name: str) -> Manifest:
    """Create a branch from a version of a table, and return the first version of the branch.

    - `source`: The parent version, on any branch.
    - `name`: Name of the new branch.

    Raises CorruptTableError, StorageError. Raises InvalidInputError: the name is not valid or in
    use, or the version is detached. Raises VersionNotFoundError: the parent branch was deleted, a
    cleanup is removing the parent version, or another client is deleting a branch of the same name.
    Raises UnsupportedFeatureError: the table has features that this release cannot write. Raises
    UncertainCommitError: the store failed, and it is unknown whether the branch was created.
    """
    main = source.main
    path = ref_names.file_of(ref_names.BRANCHES, ref_names.check_new_branch_name(name))
    _, is_used, parent, size = call_all(
        (
            lambda: check_newest_writable(source),
            lambda: main.exists(path),
            lambda: None if source.branch is None else BRANCHES.read(main, source.branch),
            lambda: manifest_size(source.store, source.version),
        ),
        local=main.is_local,
    )
    if is_used:
        raise _exists(main, name)
    steps = () if parent is None else parent.identifier
    store = branch_store(main, name)
    first = _clone_or_adopt(source, main, name)
    branch = Branch(
        parent_branch=source.branch,
        parent_version=source.version,
        identifier=None if steps is None else (*steps, (source.version, uuid.uuid4().hex)),
        created_at=int(time.time()),
        manifest_size=size,
    )
    if not ref_json.create(main, path, branch.encode()):
        raise _exists(main, name)
    with undo_on_error(lambda: _undo_create(main, name, branch)):
        checks = [
            lambda: _check_first(store, first),
            lambda: check_stays(source.store, source.manifest),
        ]
        if source.branch is not None and parent is not None:
            checks.insert(1, partial(check_same, main, source.branch, parent))
        call_all(checks, local=main.is_local)
    return first


def _check_first(store: ObjectStore, first: Manifest) -> None:
    """Check that no other client is deleting the first version of a branch."""
    # A deletion removes the transaction files first.
    if first.transaction_file:
        exists = store.exists(f"{TRANSACTIONS}/{first.transaction_file}")
    else:
        exists = versions.newest(store) is not None
    if not exists:
        raise VersionNotFoundError(
            f"{store.display}: another client deleted the first version of the branch while the "
            "branch was created; create it again"
        )


def _undo_create(main: ObjectStore, name: str, branch: Branch) -> None:
    """Delete a branch that was just created, unless another client deleted or replaced it."""
    current = BRANCHES.find(main, name)
    if current is not None and current.is_same(branch):
        delete_branch(main, name)


def delete_branch(main: ObjectStore, name: str) -> None:
    """Delete a branch with all its versions.

    - `main`: The table's main root.

    Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the branch does not exist,
    and an unfinished creation or deletion left no versions of it. Raises InvalidInputError: the
    branch has tags, or other branches were made from it. Raises UncertainCommitError: the store
    failed, and it is unknown whether the branch still exists; or the branch is deleted, but some of
    its files are not.
    """
    store = branch_store(main, ref_names.check_branch_name(name))
    branches = read_branches(main)
    branch = branches.pop(name, None)
    if branch is None and not _has_versions(store, name):
        raise BRANCHES.not_found(main, name)
    # Also without a branch file: it may have been lost in another way than by a deletion, which
    # would have checked this.
    _check_unused(main, name, branch, branches)
    for _ in range(_MAX_TRIES):
        if branch is not None:
            branches = _delete_branch_file(main, name, branch)
        try:
            if _delete_versions(main, name, branch, branches):
                return
        except (StorageError, CorruptTableError) as error:
            raise UncertainCommitError(
                f"{main.display}: branch {name!r} is deleted, but not all of its files ({error}); "
                "delete it again"
            ) from error
    raise UncertainCommitError(
        f"{main.display}: another client repeatedly changed branch {name!r} during its deletion; "
        "delete it again"
    )


def _delete_branch_file(main: ObjectStore, name: str, branch: Branch) -> dict[str, Branch]:
    """Delete the branch file, and restore it if the branch is in use; return the other branches."""
    ref_json.remove(main, BRANCHES.path(name))
    with undo_on_error(lambda: _restore_branch_file(main, name, branch)):
        # A client that makes a branch or tag of it from now on will see that the branch file is
        # gone.
        other_branches = read_branches(main)
        other_branches.pop(name, None)
        _check_unused(main, name, branch, other_branches)
    return other_branches


def _delete_versions(
    main: ObjectStore, name: str, branch: Branch | None, other_branches: Mapping[str, Branch]
) -> bool:
    """Delete the versions of a branch that has no branch file; return False if it has one again.

    A new branch of the same name may have adopted the versions meanwhile. It is left alone.
    """
    paths = _paths_of(main, name, other_branches)
    main.delete(path for path in paths if path.startswith(f"{branch_root(name)}/{TRANSACTIONS}/"))
    current = BRANCHES.find(main, name)
    if current is not None:
        return branch is None or not current.is_same(branch)
    # Without manifests, the rest could not be recognised as a branch.
    delete_files(main, branch_root(name), paths, [branch_store(main, name)], manifests_first=False)
    _remove_folders_above(main, name)
    if branch is not None:
        # A concurrent change of the metadata may have written the branch file again.
        _remove_same(main, name, branch)
    return True


def _remove_same(main: ObjectStore, name: str, branch: Branch) -> None:
    """Remove the branch file if it still belongs to the same branch."""
    current = BRANCHES.find(main, name)
    if current is not None and current.is_same(branch):
        ref_json.remove(main, BRANCHES.path(name))


def _restore_branch_file(main: ObjectStore, name: str, branch: Branch) -> None:
    if not ref_json.create(main, BRANCHES.path(name), branch.encode()):
        current = BRANCHES.find(main, name)
        if current is None or not current.is_same(branch):
            raise _exists(main, name)
    if versions.newest(branch_store(main, name)) is None:
        # Another client deleted all versions meanwhile.
        _remove_same(main, name, branch)
        raise BRANCHES.not_found(main, name)


def replace_branch_metadata(main: ObjectStore, name: str, metadata: Mapping[str, str]) -> Branch:
    """Replace the metadata of a branch.

    Raises InvalidInputError, CorruptTableError, StorageError. Raises UncertainCommitError: the
    store failed, and it is unknown which metadata the branch has. Raises VersionNotFoundError: the
    branch does not exist, or was deleted meanwhile.
    """
    branch = replace(BRANCHES.read(main, name), metadata=ref_json.check_metadata(metadata))
    ref_json.replace(main, BRANCHES.path(name), branch.encode())
    try:
        is_deleted = versions.newest(branch_store(main, name)) is None
        if is_deleted:
            _remove_same(main, name, branch)
    except StorageError as error:
        raise UncertainCommitError(
            f"{main.display}: the metadata of branch {name!r} was replaced, but the branch may "
            f"have been deleted meanwhile ({error})"
        ) from error
    if is_deleted:
        raise BRANCHES.not_found(main, name)
    return branch


def _clone_or_adopt(source: OpenTable, main: ObjectStore, name: str) -> Manifest:
    """Write the first version of a branch, or adopt the version of an unfinished creation."""
    store = branch_store(main, name)

    def is_adopted() -> bool:
        branch = BRANCHES.find(main, name)
        return branch is not None and branch.parent_version == source.version

    try:
        return shallow_clone(source, store, branch=name, is_adopted=is_adopted)
    except TableExistsError:
        existing = find_clone(store, source, name)
        if existing is None:
            raise InvalidInputError(
                f"{store.display} already has versions, of an unfinished creation or deletion of "
                f"a branch; delete branch {name!r}, or choose another name"
            ) from None
        return existing


def _exists(main: ObjectStore, name: str) -> InvalidInputError:
    return InvalidInputError(
        f"{main.display}: branch {name!r} already exists; delete it or choose another name"
    )


def _has_versions(store: ObjectStore, name: str) -> bool:
    """Return whether a folder has versions of the branch, not of an unrelated table."""
    try:
        manifest: Manifest = read_latest(store)
    except TableNotFoundError:
        return False
    return manifest.branch == name


def _check_unused(
    main: ObjectStore, name: str, branch: Branch | None, other_branches: Mapping[str, Branch]
) -> None:
    """Raise an error if a branch has tags or descendants."""
    tags = sorted(tag for tag, content in read_tags(main).items() if content.branch == name)
    if tags:
        raise InvalidInputError(
            f"{main.display}: branch {name!r} has tags: {_shown(tags)}; delete them first"
        )
    descendants = sorted(
        descendant
        for descendant, content in other_branches.items()
        if content.descends_from(name, branch, other_branches)
    )
    if descendants:
        raise InvalidInputError(
            f"{main.display}: other branches were made from {name!r} and need its files: "
            f"{_shown(descendants)}; delete them first"
        )


def _shown(names: list[str]) -> str:
    suffix = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(repr(name) for name in names[:10]) + suffix


def _paths_of(main: ObjectStore, name: str, other_branches: Mapping[str, Branch]) -> list[str]:
    """Return the files of a branch, without the files of branches inside its folder."""
    root = branch_root(name)
    inner = tuple(
        f"{branch_root(inner_name)}/"
        for inner_name in other_branches
        if inner_name.startswith(f"{name}/")
    )
    return [path for path in _table_paths(main, root) if not path.startswith(inner or "\0")]


def _remove_folders_above(main: ObjectStore, name: str) -> None:
    """Remove the empty folders above a branch whose name has several parts."""
    folder = branch_root(name)
    while (folder := folder.rpartition("/")[0]).count("/"):
        main.remove_folder(folder)


def _table_paths(main: ObjectStore, root: str) -> list[str]:
    """Return the files below a root that lie in folders of tables (`RESERVED`)."""
    if main.is_local:
        # Not folder by folder, since a folder could be a link to another location.
        paths = (info.path for info in main.list_tree(root))
        return [path for path in paths if path[len(root) + 1 :].split("/")[0] in ref_names.RESERVED]
    folders = ref_names.RESERVED.intersection(main.list_folders(root))
    return [info.path for folder in folders for info in main.list_tree(f"{root}/{folder}")]
