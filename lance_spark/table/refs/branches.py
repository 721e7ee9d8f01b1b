"""Branches: histories of their own, each in a folder `tree/{name}/` of the table's main root.

A branch is a shallow clone: its first version has the number and the rows of the version it was made from, whose files stay
where they are, and its own files lie in its own folder. Steps:

| create | delete |
| --- | --- |
| 1. the first manifest, in `tree/{name}/` | 1. the file in `_refs/branches/` goes |
| 2. the file in `_refs/branches/`, if there is none | 2. the transaction files in `tree/{name}/` go |
| | 3. the other files there go, manifests last |

Of two that meet, one sees the other. Deletion looks for branches made from it, and for tags, before and after step 1, and takes the step
back if there are any; creation looks for its parent after step 2, and gives way if it is gone, or goes (`marks`). After its step 2
deletion looks whether there is a branch of that name again, which has taken up the first version: then it leaves the rest to that one. Creation
looks after its step 2 whether the first version has its transaction file, and gives way if it has not.

A branch exists while its file does. What a crash leaves of a creation is taken up by the next one from the same version, what
it leaves of a deletion is removed by deleting once more. `feat/x` and `feat/x/y` share a folder, but no files.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage.errors import translated
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.refs import json_file as ref_json
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.branch_store import (
    Branch,
    branch_path,
    check_same,
    find_branch,
    no_branch,
    read_branch,
    read_branches,
)
from lance_spark.table.refs.clones import find_clone, shallow_clone
from lance_spark.table.refs.names import branch_root, branch_store
from lance_spark.table.refs.removal_guard import check_named, taken_back
from lance_spark.table.refs.tag_store import manifest_size, read_tags

_MAX_TRIES = 5


def create_branch(source: OpenTable, name: str) -> Manifest:
    """Make a branch from a version of a table.

    Parameters
    ----------
    source : OpenTable
        The version, on whatever branch.
    name : str

    Returns
    -------
    Manifest
        Its first version.

    Raises
    ------
    InvalidInputError
        No branch can have that name, or there is one already, or the version is a detached one.
    VersionNotFoundError
        The branch of the version has been deleted meanwhile, or a cleanup is removing the version; or somebody deletes a branch of that
        name, or what was left of one.
    UnsupportedFeatureError
        The table needs more than this release does.
    UncertainCommitError
        The store failed, and nobody knows whether the branch was made.
    CorruptTableError, StorageError
    """
    main = source.main
    path = ref_names.file_of(ref_names.BRANCHES, ref_names.check_new_branch_name(name))
    if main.exists(path):
        raise _exists(main, name)
    parent = None if source.branch is None else read_branch(main, source.branch)
    steps = () if parent is None else parent.identifier
    size = manifest_size(source.store, source.version)
    store = branch_store(main, name)
    first = _make(source, main, name)
    branch = Branch(
        parent_branch=source.branch,
        parent_version=source.version,
        identifier=None if steps is None else (*steps, (source.version, uuid.uuid4().hex)),
        created_at=int(time.time()),
        manifest_size=size,
    )
    if not ref_json.create(main, path, branch.encode()):
        raise _exists(main, name)
    with taken_back(lambda: _take_back(main, name, branch)):
        _check_first(store, first)
        if source.branch is not None and parent is not None:
            check_same(main, source.branch, parent)
    check_named(source.store, source.manifest, lambda: _take_back(main, name, branch))
    return first


def _check_first(store: ObjectStore, first: Manifest) -> None:
    """Make sure that nobody deletes the first version of a branch that has its name: a deletion takes the transaction files first."""
    if first.transaction_file:
        stays = store.exists(f"{TRANSACTIONS}/{first.transaction_file}")
    else:
        stays = versions.newest(store) is not None
    if not stays:
        raise VersionNotFoundError(
            f"{store.display}: the first version of the branch has been deleted while it was made; make it again"
        )


def _take_back(main: ObjectStore, name: str, branch: Branch) -> None:
    """Delete a branch that has just been made, unless somebody else has deleted it, and maybe made another of that name."""
    found = find_branch(main, name)
    if found is not None and found.is_same(branch):
        delete_branch(main, name)


def delete_branch(main: ObjectStore, name: str) -> None:
    """Delete a branch with all its versions.

    Parameters
    ----------
    main : ObjectStore
        The table's main root.
    name : str

    Raises
    ------
    VersionNotFoundError
        There is no such branch, and nothing is left of one.
    InvalidInputError
        Tags name versions of it, or other branches were made from it.
    UncertainCommitError
        The store failed, and nobody knows whether the branch is there; or it is deleted, and some of its files are left.
    CorruptTableError, StorageError
    """
    store = branch_store(main, ref_names.check_branch_name(name))
    branches = read_branches(main)
    branch = branches.pop(name, None)
    # The file can have been lost otherwise than by a deletion, which would have looked.
    if branch is None and not _is_left(store, name):
        raise no_branch(main, name)
    _check_unused(main, name, branch, branches)
    for _ in range(_MAX_TRIES):
        if branch is not None:
            branches = _take_name(main, name, branch)
        try:
            if _delete_rest(main, name, branch, branches):
                return
        except (StorageError, CorruptTableError) as error:
            raise UncertainCommitError(
                f"{main.display}: the branch {name!r} is deleted, but not all of its files ({error}); delete it once more"
            ) from error
    raise UncertainCommitError(
        f"{main.display}: somebody changes the branch {name!r} again and again while it is deleted; delete it once more"
    )


def _take_name(main: ObjectStore, name: str, branch: Branch) -> dict[str, Branch]:
    """Delete the file of a branch, and put it back if something needs the branch; return the other branches."""
    ref_json.remove(main, branch_path(name))
    with taken_back(lambda: _put_back(main, name, branch)):
        # Whoever makes a branch of it from now on will see that it is gone.
        others = read_branches(main)
        others.pop(name, None)
        _check_unused(main, name, branch, others)
    return others


def _delete_rest(
    main: ObjectStore, name: str, branch: Branch | None, others: Mapping[str, Branch]
) -> bool:
    """Delete the files of a branch that has no name; return False if it has got its name back.

    There can be another of that name by then, which begins with what is left of this one: that is left alone.
    """
    paths = _paths_of(main, name, others)
    main.delete(path for path in paths if path.startswith(f"{branch_root(name)}/{TRANSACTIONS}/"))
    found = find_branch(main, name)
    if found is not None:
        return branch is None or not found.is_same(branch)
    _delete_files(main, name, paths)
    if branch is not None:
        # A change of the metadata that was under way can have brought it back.
        _drop_name(main, name, branch)
    return True


def _drop_name(main: ObjectStore, name: str, branch: Branch) -> None:
    found = find_branch(main, name)
    if found is not None and found.is_same(branch):
        ref_json.remove(main, branch_path(name))


def _put_back(main: ObjectStore, name: str, branch: Branch) -> None:
    if not ref_json.create(main, branch_path(name), branch.encode()):
        found = find_branch(main, name)
        if found is None or not found.is_same(branch):
            raise _exists(main, name)
    if versions.newest(branch_store(main, name)) is None:
        # Somebody else has deleted all of it meanwhile.
        _drop_name(main, name, branch)
        raise no_branch(main, name)


def replace_branch_metadata(main: ObjectStore, name: str, metadata: Mapping[str, str]) -> Branch:
    """Give a branch other metadata instead of what it has.

    Raises
    ------
    UncertainCommitError
        The store failed, and nobody knows which metadata the branch has.
    VersionNotFoundError
        There is no such branch, or it has been deleted meanwhile.
    InvalidInputError, CorruptTableError, StorageError
    """
    branch = replace(read_branch(main, name), metadata=ref_json.check_metadata(metadata))
    ref_json.replace(main, branch_path(name), branch.encode())
    try:
        is_deleted = versions.newest(branch_store(main, name)) is None
        if is_deleted:
            _drop_name(main, name, branch)
    except StorageError as error:
        raise UncertainCommitError(
            f"{main.display}: the branch {name!r} has other metadata, unless it was deleted meanwhile ({error})"
        ) from error
    if is_deleted:
        raise no_branch(main, name)
    return branch


def _make(source: OpenTable, main: ObjectStore, name: str) -> Manifest:
    """Make the first version, or take up the one that an earlier try has left."""
    store = branch_store(main, name)

    def is_taken_up() -> bool:
        found = find_branch(main, name)
        return found is not None and found.parent_version == source.version

    try:
        return shallow_clone(source, store, branch=name, is_taken_up=is_taken_up)
    except TableExistsError:
        left = find_clone(store, source, name)
        if left is None:
            raise InvalidInputError(
                f"{store.display} has versions already, as a branch that was not made or not deleted to the end leaves them; "
                f"delete the branch {name!r}, or choose another name"
            ) from None
        return left


def _exists(main: ObjectStore, name: str) -> InvalidInputError:
    return InvalidInputError(
        f"{main.display} has a branch {name!r} already; delete it or choose another name"
    )


def _is_left(store: ObjectStore, name: str) -> bool:
    """Tell whether the folder has versions of a branch of that name: it could be a table that somebody put there."""
    try:
        manifest: Manifest = read_latest(store)
    except TableNotFoundError:
        return False
    return manifest.branch == name


def _check_unused(
    main: ObjectStore, name: str, branch: Branch | None, others: Mapping[str, Branch]
) -> None:
    tags = sorted(tag for tag, found in read_tags(main).items() if found.branch == name)
    if tags:
        raise InvalidInputError(
            f"{main.display}: tags name versions of the branch {name!r}: {_shown(tags)}; delete them first"
        )
    made = sorted(
        other for other, found in others.items() if found.descends_from(name, branch, others)
    )
    if made:
        raise InvalidInputError(
            f"{main.display}: other branches were made from {name!r} and need its files: {_shown(made)}; delete them first"
        )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(repr(name) for name in names[:10]) + more


def _paths_of(main: ObjectStore, name: str, others: Mapping[str, Branch]) -> list[str]:
    """Return the files of a branch, but none of those that lie in folders of others below its own."""
    root = branch_root(name)
    inner = tuple(f"{branch_root(other)}/" for other in others if other.startswith(f"{name}/"))
    return [path for path in _own_paths(main, root) if not path.startswith(inner or "\0")]


def _delete_files(main: ObjectStore, name: str, paths: list[str]) -> None:
    root = branch_root(name)
    # Without manifests nobody could tell that the rest was a branch: they go last, the newest last of all.
    manifests = [path for path in paths if path.startswith(f"{root}/{versions.FOLDER}/")]
    main.delete(sorted(set(paths).difference(manifests)))
    store = branch_store(main, name)
    if store.manifest_store is not None:
        with translated(store.display, store.options):
            store.manifest_store.forget(store.object_uri)
    main.delete(sorted(manifests, reverse=True))
    # That of the transaction files can have been emptied before.
    folders = {root, f"{root}/{TRANSACTIONS}"}
    for path in paths:
        parts = path.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(2, len(parts)))
    for folder in sorted(folders, key=len, reverse=True):
        main.remove_folder(folder)


def _own_paths(main: ObjectStore, root: str) -> list[str]:
    """Return the files in the folders that a table has below a root."""
    if main.is_local:
        # Not folder by folder, since one could be a link to somewhere else.
        found = (info.path for info in main.list_tree(root))
        return [path for path in found if path[len(root) + 1 :].split("/")[0] in ref_names.RESERVED]
    folders = ref_names.RESERVED.intersection(main.list_folders(root))
    return [info.path for folder in folders for info in main.list_tree(f"{root}/{folder}")]
