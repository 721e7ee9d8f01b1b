"""Base paths of a new table, and the choice of the base paths that new data files are written to.

| argument | new files are written to |
| --- | --- |
| none | the table itself |
| `target_bases` | the base paths with these names or paths, in turns, file by file |
| `target_all_bases` true | the table itself and all base paths, in turns |
| `target_all_bases` false | all base paths, in turns |

Names and paths are unique within a table. The ids of a new table begin with 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.paths import BasePath

#: Where a data file is written: the id of a base path, or None for the table itself.
Target = int | None


@dataclass(frozen=True, slots=True)
class TargetBases:
    """The choice of base paths for new data files, before it is resolved by `targets`.

    Falsy if nothing was chosen.

    - `names`: Names or paths of base paths, or the path of the table itself.
    - `all_bases`: True: the table itself and all base paths; False: all base paths.

    Raises InvalidOptionError: both attributes are given, or `names` is a string.
    """

    names: tuple[str, ...] | None = None
    all_bases: bool | None = None

    def __post_init__(self) -> None:
        check_choice(self.names, self.all_bases)

    def __bool__(self) -> bool:
        return bool(self.names) or self.all_bases is not None


class BaseLike(Protocol):
    """A base path of a caller: `BasePath`, or `DatasetBasePath` of pylance."""

    @property
    def id(self) -> int | None:
        """The id; 0 or None if the table assigns it."""

    @property
    def path(self) -> str:
        """A path or URI."""

    @property
    def name(self) -> str | None:
        """The name."""

    @property
    def is_dataset_root(self) -> bool:
        """Whether it has the folders of a table, such as data/ and _deletions/."""


def base_path(argument: str, base: BaseLike) -> BasePath:
    """Convert a base path of a caller; the id is 0 if it does not have one.

    - `argument`: Name of the argument, for errors.

    Raises InvalidInputError: the object is not a base path.
    """
    if not hasattr(base, "path"):
        raise InvalidInputError(f"{argument} must be BasePath objects, not {type(base).__name__}")
    return BasePath(base.id or 0, parse_uri(base.path).uri, bool(base.is_dataset_root), base.name)


def new_bases(new: Iterable[BaseLike]) -> tuple[BasePath, ...]:
    """Return the base paths of a new table. Missing ids are assigned, from 1 on.

    Raises InvalidInputError: two base paths have the same name, path or id.
    """
    bases = [base_path("initial_bases", base) for base in new]
    used_ids = {base.id for base in bases if base.id}
    numbered = []
    for base in bases:
        if base.id:
            numbered.append(base)
        else:
            number = next(n for n in range(1, len(bases) + len(used_ids) + 1) if n not in used_ids)
            used_ids.add(number)
            numbered.append(replace(base, id=number))
    _check_unique("name", [base.name for base in numbered if base.name is not None])
    _check_unique("path", [base.path for base in numbered])
    _check_unique("id", [str(base.id) for base in numbered])
    return tuple(numbered)


def folders(bases: Mapping[int, BasePath]) -> dict[int, str]:
    """Return the paths of the base paths that blobs can refer to, by id."""
    return {number: base.path for number, base in bases.items() if not base.is_dataset_root}


def targets(
    bases: Mapping[int, BasePath],
    target_bases: Sequence[str] | None,
    target_all_bases: bool | None,
    store: ObjectStore,
) -> tuple[Target, ...]:
    """Return the targets of new data files, which a writer takes in turns.

    - `target_bases`: Names or paths of base paths; the path of the table means the table itself.

    Raises InvalidOptionError: both are given, or the table does not have such a base path.
    """
    check_choice(target_bases, target_all_bases)
    if target_all_bases is not None:
        if not target_all_bases and not bases:
            raise InvalidOptionError(
                f"{store.display}: target_all_bases is False, but the table has no base paths; "
                "add base paths, or leave the option out"
            )
        return (None, *sorted(bases)) if target_all_bases else tuple(sorted(bases))
    if not target_bases:
        return (None,)
    return tuple(_resolve(bases, text, store) for text in target_bases)


def check_choice(target_bases: Sequence[str] | None, target_all_bases: bool | None) -> None:
    """Refuse target bases that are a string, or that are given by both arguments.

    Raises InvalidOptionError.
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


def same_bases(expected: Iterable[BaseLike], existing: Iterable[BasePath]) -> bool:
    """Return whether a table has all given base paths, with the same path, name and layout.

    Ids are compared where they are given.
    """
    existing_ids = {(base.path, base.name, base.is_dataset_root): base.id for base in existing}
    for base in expected:
        number = existing_ids.get((parse_uri(base.path).uri, base.name, bool(base.is_dataset_root)))
        if number is None or (base.id and base.id != number):
            return False
    return True


def _resolve(bases: Mapping[int, BasePath], text: str, store: ObjectStore) -> Target:
    """Return the target that a name or path means."""
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
    shown = parse_uri(text).display if "://" in text else text
    raise InvalidOptionError(
        f"{store.display}: base path {shown!r} not found; the table has {names or 'none'}"
    )


def _check_unique(attribute: str, values: list[str]) -> None:
    repeated = [value for value in values if values.count(value) > 1]
    if repeated:
        shown = parse_uri(repeated[0]).display if attribute == "path" else repeated[0]
        raise InvalidInputError(f"two base paths have the same {attribute} {shown!r}")
