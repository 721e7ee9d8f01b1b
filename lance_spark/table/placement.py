"""Where the data files of a change go: which base path, or the table itself.

| files | go to |
| --- | --- |
| all, where target bases are chosen | the target bases, one after the other, file by file |
| of new rows | the table itself |
| of rows and columns of a fragment | the base path that the fragment's first data file lies in |

A fragment does not stay in a base path that is the root of another table: the source of a clone, or
the main root of a branch. The cleanup of that table would delete files that its versions do not
refer to. So these files go to the table itself, and such a base path cannot be a target.

pylance writes the files of all changes to the table itself, unless a merge chooses target bases.
Deletion files always go to the table itself, here as there.
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
    """Where the data files of a change go. Can be pickled.

    Attributes
    ----------
    chosen : tuple of int or None, optional
        Target bases: ids of base paths, None for the table itself; used one after the other. None
        if there are none.
    homes : frozenset of int
        Ids of the base paths that fragments stay in.
    """

    chosen: tuple[Target, ...] | None = None
    homes: frozenset[int] = frozenset()

    @property
    def of_new_rows(self) -> tuple[Target, ...]:
        """Where files of new rows go, to be taken in turns."""
        return self.chosen or (None,)

    @property
    def all(self) -> tuple[Target, ...]:
        """Every place that a file of the change can go to."""
        return tuple(dict.fromkeys([None, *sorted(self.homes), *(self.chosen or ())]))

    def home(self, fragment: Fragment) -> Target:
        """Return where files of a fragment go if no target bases are chosen."""
        number = fragment.files[0].base_id if fragment.files else None
        return number if number in self.homes else None

    def of(self, fragment: Fragment) -> tuple[Target, ...]:
        """Return where files of a fragment go, to be taken in turns."""
        return self.chosen or (self.home(fragment),)

    def of_one_file(self, fragment: Fragment) -> tuple[Target, ...]:
        """Return where a single file of a fragment goes: fragments take several target bases in
        turns.
        """
        places = self.of(fragment)
        return (places[fragment.id % len(places)],)

    def groups(
        self, fragments: Iterable[Fragment]
    ) -> list[tuple[tuple[Target, ...], tuple[Fragment, ...]]]:
        """Put fragments together whose files go to the same places; the order of fragments is kept."""
        results: dict[tuple[Target, ...], list[Fragment]] = {}
        for fragment in fragments:
            results.setdefault(self.of(fragment), []).append(fragment)
        return [(places, tuple(group)) for places, group in results.items()]


def placement_of(table: OpenTable) -> Placement:
    """Return where the data files of a change of a version go.

    Raises
    ------
    InvalidOptionError
        Target bases are chosen that the table does not have, or that are roots of other tables.
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
        # Roots of its own table, with no request.
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
    """Tell whether fragments stay in a base path. Where nobody may list its manifests, it is taken
    for another table's.
    """
    try:
        return not _is_foreign(paths, base)
    except StorageError:
        return False


def _is_foreign(paths: TablePaths, base: BasePath) -> bool:
    """Tell whether a base path is the root of another table. Lists its manifests once for each base
    path that could be.
    """
    if not base.is_dataset_root:
        return False
    known = paths.foreign_roots.get(base.id)
    if known is None:
        store = paths.store_of(base)
        known = store.uri != paths.store.uri and versions.newest(store) is not None
        paths.foreign_roots[base.id] = known
    return known
