"""Placement of the data files of a mutation: in the table itself, or below a base path.

| files | are written to |
| --- | --- |
| all files, if target bases are chosen | the target bases in turns, file by file |
| files of new rows | the table itself |
| files of rows or columns of a fragment | the base path of the fragment's first data file |

A fragment does not stay in a base path that is the root of another table: the source of a clone, or
the main root of a branch. Cleanup of that table would delete the files, as its versions do not
refer to them. Files of such a fragment are written to the table itself, and such a base path cannot
be a target.

pylance writes the files of all changes to the table itself, unless a merge chooses target bases.
Both write deletion files to the table itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage.uri import parse_uri
from lance_spark.table.bases import Target, targets
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest import versions
from lance_spark.table.open import OpenTable, canonical, foreign_roots
from lance_spark.table.paths import BasePath, TablePaths


@dataclass(frozen=True, slots=True)
class Placement:
    """The targets of the data files of a mutation. Can be pickled.

    Where a tuple of targets is returned, a writer takes them in turns, file by file.

    - `chosen`: The target bases: ids of base paths, or None for the table itself. None if the user
      did not choose target bases.
    - `homes`: Ids of the base paths in which fragments stay.
    """

    chosen: tuple[Target, ...] | None = None
    homes: frozenset[int] = frozenset()

    @property
    def of_new_rows(self) -> tuple[Target, ...]:
        """The targets of files of new rows."""
        return self.chosen or (None,)

    @property
    def all(self) -> tuple[Target, ...]:
        """All targets that a file of the mutation can have."""
        return tuple(dict.fromkeys([None, *sorted(self.homes), *(self.chosen or ())]))

    def home(self, fragment: Fragment) -> Target:
        """Return the target of files of a fragment, if no target bases are chosen."""
        base_id = fragment.files[0].base_id if fragment.files else None
        return base_id if base_id in self.homes else None

    def of(self, fragment: Fragment) -> tuple[Target, ...]:
        """Return the targets of files of a fragment."""
        return self.chosen or (self.home(fragment),)

    def of_one_file(self, fragment: Fragment) -> tuple[Target, ...]:
        """Return the target of the only new file of a fragment, as a tuple.

        The fragment id selects one of the target bases, so that files of several fragments are
        spread over them.
        """
        fragment_targets = self.of(fragment)
        return (fragment_targets[fragment.id % len(fragment_targets)],)

    def groups(
        self, fragments: Iterable[Fragment]
    ) -> list[tuple[tuple[Target, ...], tuple[Fragment, ...]]]:
        """Group fragments by the targets of their files; keeps the order of the fragments."""
        by_targets: dict[tuple[Target, ...], list[Fragment]] = {}
        for fragment in fragments:
            by_targets.setdefault(self.of(fragment), []).append(fragment)
        return [(key, tuple(group)) for key, group in by_targets.items()]


def placement_of(table: OpenTable) -> Placement:
    """Return the placement of the data files of a mutation of an open table.

    Raises InvalidOptionError: the table does not have a chosen target base, or it is the root of
    another table. Raises StorageError: a target base cannot be opened.
    """
    bases = table.paths.base_paths
    choice = table.target_bases
    if choice:
        chosen = targets(bases, choice.names, choice.all_bases, table.store)
        check_targets(table.paths, bases, chosen)
        return Placement(chosen)
    if not bases:
        return Placement()
    if table.branch is not None:
        # Of the roots of the branch's own table, only the root of the branch is a home. This needs
        # no request to the store.
        roots = {base_id for base_id, base in bases.items() if base.is_dataset_root}
        for base_id in roots.difference(foreign_roots(table.main, bases)):
            is_own_root = canonical(bases[base_id].path) == canonical(table.store.base_uri)
            table.paths.foreign_roots[base_id] = not is_own_root
    used = {file.base_id for fragment in table.manifest.fragments for file in fragment.files[:1]}
    homes = {
        base_id
        for base_id, base in bases.items()
        if base_id in used and _is_home(table.paths, base)
    }
    return Placement(None, frozenset(homes))


def check_targets(
    paths: TablePaths, bases: Mapping[int, BasePath], chosen: Sequence[Target]
) -> None:
    """Refuse target bases that are roots of other tables.

    Raises InvalidOptionError, StorageError.
    """
    for base_id in dict.fromkeys(chosen):
        if base_id is not None and _is_foreign(paths, bases[base_id]):
            base = bases[base_id]
            raise InvalidOptionError(
                f"{paths.store.display}: base path {base.name or parse_uri(base.path).display!r} "
                "is the root of another table, or the main root of a branch, whose cleanup would "
                "delete files that it does not know; write to another base path, or to the table "
                "itself"
            )


def _is_home(paths: TablePaths, base: BasePath) -> bool:
    """Return whether fragments stay in a base path.

    A base path whose manifests cannot be listed is treated as the root of another table.
    """
    try:
        return not _is_foreign(paths, base)
    except StorageError:
        return False


def _is_foreign(paths: TablePaths, base: BasePath) -> bool:
    """Return whether a base path is the root of another table.

    Lists its manifests once, if it is a root at all.
    """
    if not base.is_dataset_root:
        return False
    is_foreign = paths.foreign_roots.get(base.id)
    if is_foreign is None:
        store = paths.store_of(base)
        is_foreign = store.uri != paths.store.uri and versions.newest(store) is not None
        paths.foreign_roots[base.id] = is_foreign
    return is_foreign
