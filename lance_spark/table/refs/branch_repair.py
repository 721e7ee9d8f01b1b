"""Repairing the branches of a table that was copied or moved; see `lance_spark.table.refs.foreign_branches`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.base_files import missing_files
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.open import read_latest
from lance_spark.table.operations.metadata.update_bases import UpdateBases
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.branch_store import read_branches
from lance_spark.table.refs.foreign_branches import canonical, foreign_roots


@dataclass(frozen=True, slots=True)
class BranchRepair:
    """What became of a branch.

    Attributes
    ----------
    branch : str
    version : int or None
        The new version of the branch; None if it was not changed.
    bases : tuple of int
        Ids of the base paths that name the table's own place now.
    problem : str
        Why the branch could not be repaired; empty if it is sound.
    """

    branch: str
    version: int | None
    bases: tuple[int, ...] = ()
    problem: str = ""


def repair_branches(
    main: ObjectStore, max_retries: int = DEFAULT_MAX_RETRIES
) -> list[BranchRepair]:
    """Have the branches of a table that was copied or moved find its files where it is now.

    A base path of a branch changes if it is the root of a table, names neither a root of this one nor a base path of the main line, and all
    files that the newest version of the branch has there are at the same place of this table. Older versions stay as they are.

    Parameters
    ----------
    main : ObjectStore
        The table's main root.
    max_retries : int

    Returns
    -------
    list of BranchRepair
        One for each branch, by name.

    Raises
    ------
    CommitConflictError
        Somebody changes a branch at the same time.
    StorageError, CorruptTableError, UnsupportedFeatureError
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
    has_own = len(foreign) < sum(base.is_dataset_root for base in bases.values())
    taken = {canonical(base.path) for base in bases.values()}
    changed: list[BasePath] = []
    problem = ""
    for number, base in foreign.items():
        root = _counterpart(main, base, names)
        moved = replace(base, path=root.base_uri)
        # What the main line has too is another table: the source of a clone.
        if canonical(moved.path) in taken or canonical(base.path) in shared:
            continue
        paths = TablePaths(store, {**bases, number: moved}, store.options)
        needed, missing = missing_files(paths, manifest, moved)
        if missing:
            problem = problem or (
                f"{len(missing)} of the {needed} files below {parse_uri(base.path).display} are not below {root.display}, "
                f"{missing[0]} for one"
            )
        elif needed or not has_own:
            changed.append(moved)
            taken.add(canonical(moved.path))
    if problem or not changed:
        return BranchRepair(name, None, problem=problem)
    transaction = Transaction.new(manifest.version, UpdateBases(tuple(changed), replaces=True))
    version = commit(store, transaction, manifest, max_retries=max_retries).version
    return BranchRepair(name, version, tuple(base.id for base in changed))


def _counterpart(main: ObjectStore, base: BasePath, names: Iterable[str]) -> ObjectStore:
    """Return the root of this table that a root of the original stands for: of a branch, by its name, or the main one."""
    path = base.path.rstrip("/")
    for name in sorted(names, key=len, reverse=True):
        if path.endswith(f"/{ref_names.branch_root(name)}"):
            return ref_names.branch_store(main, name)
    return main
