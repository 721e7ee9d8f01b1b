"""Repair of the branches of a table that was copied or moved.

`lance_spark.table.open.check_branch_bases` says why such branches need a repair. A base path may
change only if the files of a version exist below the new one (`missing_files`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import canonical, foreign_roots, read_latest
from lance_spark.table.operations.metadata.update_bases import UpdateBases
from lance_spark.table.paths import DATA, DELETIONS, INDICES, LAST_LEGACY, BasePath, TablePaths
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.branch_store import read_branches


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
