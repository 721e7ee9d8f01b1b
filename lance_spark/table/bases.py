"""Base paths of a new table, and the base paths that new data files go to.

| argument | new files go to |
| --- | --- |
| none | the root of the table |
| `target_bases` | the base paths of these names or paths, in turn for each file |
| `target_all_bases` true | the root of the table and all base paths, in turn |
| `target_all_bases` false | all base paths, in turn |

Names and paths are unique within a table. Ids of a new table begin with 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.paths import BasePath

#: Target of a data file: the id of its base path, or None for the root of the table.
Target = int | None


@dataclass(frozen=True, slots=True)
class TargetBases:
    """The requested base paths of new data files; see `targets`. False without a request.

    Attributes
    ----------
    names : tuple of str, optional
        Names or paths of base paths, or the path of the table.
    all_bases : bool, optional
        True: the root of the table and all base paths; False: all base paths.

    Raises
    ------
    InvalidOptionError
        Both are given, or the names are one string.
    """

    names: tuple[str, ...] | None = None
    all_bases: bool | None = None

    def __post_init__(self) -> None:
        check_choice(self.names, self.all_bases)

    def __bool__(self) -> bool:
        return bool(self.names) or self.all_bases is not None


class BaseLike(Protocol):
    """The attributes of a base path: of `BasePath` and of `DatasetBasePath` of pylance."""

    @property
    def id(self) -> int | None:
        """Id; 0 or None to assign a new id."""

    @property
    def path(self) -> str:
        """Path or URI."""

    @property
    def name(self) -> str | None:
        """Its name."""

    @property
    def is_dataset_root(self) -> bool:
        """Whether files are in data/ and _deletions/ below it."""


def base_path(argument: str, given: BaseLike) -> BasePath:
    """Convert a base path of a caller; its id is 0 if it has none.

    Parameters
    ----------
    argument : str
        Name of the argument, for errors.
    given : BaseLike

    Raises
    ------
    InvalidInputError
        The value is not a base path.
    """
    if not hasattr(given, "path"):
        raise InvalidInputError(f"{argument} must be BasePath objects, not {type(given).__name__}")
    return BasePath(
        given.id or 0, parse_uri(given.path).uri, bool(given.is_dataset_root), given.name
    )


def new_bases(given: Iterable[BaseLike]) -> tuple[BasePath, ...]:
    """Return the base paths of a new table, with ids from 1 on where none are given.

    Raises
    ------
    InvalidInputError
        Two base paths have the same name, path or id.
    """
    results: list[BasePath] = []
    for base in given:
        results.append(base_path("initial_bases", base))
    taken = {base.id for base in results if base.id}
    numbered = []
    for base in results:
        if not base.id:
            number = next(n for n in range(1, len(results) + len(taken) + 1) if n not in taken)
            taken.add(number)
            base = replace(base, id=number)  # noqa: PLW2901
        numbered.append(base)
    _check_unique("name", [base.name for base in numbered if base.name is not None])
    _check_unique("path", [base.path for base in numbered])
    _check_unique("id", [str(base.id) for base in numbered])
    return tuple(numbered)


def folders(bases: Mapping[int, BasePath]) -> dict[int, str]:
    """Return the base paths that blobs can refer to, by id."""
    return {number: base.path for number, base in bases.items() if not base.is_dataset_root}


def targets(
    bases: Mapping[int, BasePath],
    target_bases: Sequence[str] | None,
    target_all_bases: bool | None,
    store: ObjectStore,
) -> tuple[Target, ...]:
    """Return the targets of new data files, to be used in turn.

    Parameters
    ----------
    bases : mapping of int to BasePath
    target_bases : sequence of str, optional
        Names or paths; the path of the table stands for its root.
    target_all_bases : bool, optional
    store : ObjectStore
        Root of the table.

    Raises
    ------
    InvalidOptionError
        Both are given, or the table lacks a named base path.
    """
    check_choice(target_bases, target_all_bases)
    if target_all_bases is not None:
        if not target_all_bases and not bases:
            raise InvalidOptionError(f"{store.display} has no base paths that files could go to")
        return (None, *sorted(bases)) if target_all_bases else tuple(sorted(bases))
    if not target_bases:
        return (None,)
    return tuple(_find(bases, text, store) for text in target_bases)


def check_choice(target_bases: Sequence[str] | None, target_all_bases: bool | None) -> None:
    """Refuse target bases that are a single string, or that are given in two ways.

    Raises
    ------
    InvalidOptionError
    """
    if isinstance(target_bases, str):
        raise InvalidOptionError(
            f"target_bases must be a list of names, not the string {target_bases!r}"
        )
    if target_all_bases not in (None, True, False):
        raise InvalidOptionError(
            f"target_all_bases must be True or False, not {target_all_bases!r}"
        )
    if target_bases and target_all_bases is not None:
        raise InvalidOptionError("give target_bases or target_all_bases, not both")


def same_bases(given: Iterable[BaseLike], existing: Iterable[BasePath]) -> bool:
    """Tell whether a table has all given base paths, by path, name, layout and given ids."""
    known = {(base.path, base.name, base.is_dataset_root): base.id for base in existing}
    for base in given:
        number = known.get((parse_uri(base.path).uri, base.name, bool(base.is_dataset_root)))
        if number is None or (base.id and base.id != number):
            return False
    return True


def _find(bases: Mapping[int, BasePath], text: str, store: ObjectStore) -> Target:
    for number, base in bases.items():
        if base.name == text:
            return number
    path = parse_uri(text).uri
    for number, base in bases.items():
        if base.path == path:
            return number
    if path in (store.uri, store.base_uri):
        return None
    names = ", ".join(repr(base.name or parse_uri(base.path).display) for base in bases.values())
    wanted = parse_uri(text).display if "://" in text else text
    raise InvalidOptionError(
        f"{store.display} has no base path {wanted!r}: it has {names or 'none'}"
    )


def _check_unique(what: str, values: list[str]) -> None:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        shown = parse_uri(twice[0]).display if what == "path" else twice[0]
        raise InvalidInputError(f"two base paths have the {what} {shown!r}")
