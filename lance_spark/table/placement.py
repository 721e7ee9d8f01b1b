"""Chooses the base path of the data files of a change.

| files | go to |
| --- | --- |
| all, with target bases | the target bases, in turn for each file |
| of new rows | the root of the table |
| of rows and columns of a fragment | the base path of the first data file of the fragment |

A fragment does not stay in a base path that is the root of another table: the source of a clone, or
the main root of a branch. The cleanup of that table would delete files that its versions do not
refer to. So these files go to the root of the table, and such a base path cannot be a target.

pylance writes the files of all changes to the root of the table, unless a merge chooses target
bases. Deletion files always go to the root of the table, as in pylance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage.uri import parse_uri
from lance_spark.table.bases import Target, targets
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest import versions
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.refs.foreign_branches import canonical, foreign_roots


@dataclass(frozen=True, slots=True)
class Placement:
    """The targets of the data files of a change. Can be pickled.

    Attributes
    ----------
    chosen : tuple of int or None, optional
        Target bases, used in turn: ids of base paths, None for the root of the table. None without
        target bases.
    homes : frozenset of int
        Ids of the base paths whose fragments stay there.
    """

    chosen: tuple[Target, ...] | None = None
    homes: frozenset[int] = frozenset()

    @property
    def of_new_rows(self) -> tuple[Target, ...]:
        """Targets of files of new rows, to be used in turn."""
        return self.chosen or (None,)

    @property
    def all(self) -> tuple[Target, ...]:
        """All possible targets of the change."""
        return tuple(dict.fromkeys([None, *sorted(self.homes), *(self.chosen or ())]))

    def home(self, fragment: Fragment) -> Target:
        """Return the target of files of a fragment without target bases."""
        number = fragment.files[0].base_id if fragment.files else None
        return number if number in self.homes else None

    def of(self, fragment: Fragment) -> tuple[Target, ...]:
        """Return the targets of files of a fragment, to be used in turn."""
        return self.chosen or (self.home(fragment),)

    def of_one_file(self, fragment: Fragment) -> tuple[Target, ...]:
        """Return the target of a single file: fragments use several target bases in turn."""
        places = self.of(fragment)
        return (places[fragment.id % len(places)],)

    def groups(
        self, fragments: Iterable[Fragment]
    ) -> list[tuple[tuple[Target, ...], tuple[Fragment, ...]]]:
        """Group fragments with equal targets, in their order."""
        results: dict[tuple[Target, ...], list[Fragment]] = {}
        for fragment in fragments:
            results.setdefault(self.of(fragment), []).append(fragment)
        return [(places, tuple(group)) for places, group in results.items()]


def placement_of(table: OpenTable) -> Placement:
    """Return the placement of the data files of a change.

    Raises
    ------
    InvalidOptionError
        A target base does not exist, or is the root of another table.
    StorageError
        A target base cannot be opened.
    """
    bases = table.paths.base_paths
    wish = table.target_bases
    if wish:
        chosen = targets(bases, wish.names, wish.all_bases, table.store)
        check_targets(table.paths, bases, chosen)
        return Placement(chosen)
    if not bases:
        return Placement()
    if table.branch is not None:
        # Roots of the same table need no request.
        roots = {number for number, base in bases.items() if base.is_dataset_root}
        own = roots.difference(foreign_roots(table.main, bases))
        for number in own:
            is_itself = canonical(bases[number].path) == canonical(table.store.base_uri)
            table.paths.foreign_roots[number] = not is_itself
    used = {file.base_id for fragment in table.manifest.fragments for file in fragment.files[:1]}
    homes = {
        number for number, base in bases.items() if number in used and _is_home(table.paths, base)
    }
    return Placement(None, frozenset(homes))


def check_targets(
    paths: TablePaths, bases: Mapping[int, BasePath], chosen: Sequence[Target]
) -> None:
    """Refuse target bases that are roots of other tables.

    Raises
    ------
    InvalidOptionError, StorageError
    """
    for number in dict.fromkeys(chosen):
        if number is not None and _is_foreign(paths, bases[number]):
            base = bases[number]
            raise InvalidOptionError(
                f"{paths.store.display}: base path {base.name or parse_uri(base.path).display!r} "
                "is the root of another table, or the "
                "main root of a branch, whose cleanup would delete files that it does not know; "
                "write to another base path, or to "
                "the table itself"
            )


def _is_home(paths: TablePaths, base: BasePath) -> bool:
    """Tell whether fragments stay in a base path. If it cannot be listed, they do not."""
    try:
        return not _is_foreign(paths, base)
    except StorageError:
        return False


def _is_foreign(paths: TablePaths, base: BasePath) -> bool:
    """Tell whether a base path is the root of another table. Lists its manifests once."""
    if not base.is_dataset_root:
        return False
    known = paths.foreign_roots.get(base.id)
    if known is None:
        store = paths.store_of(base)
        known = store.uri != paths.store.uri and versions.newest(store) is not None
        paths.foreign_roots[base.id] = known
    return known
