"""What is known of a branch: a small JSON file each in `_refs/branches/` of the table's main root.

| key | value |
| --- | --- |
| parentBranch | the branch it was made from, null for the main one |
| identifier.version_mapping | for each branch on the way from the main one to this: version of its parent, and a random id |
| parentVersion | the version it was made from |
| createAt | seconds since 1970 |
| manifestSize | bytes of that version's manifest |
| metadata | an object of strings |

A branch was made from another, or from one made from that, if the other's mapping is the beginning of its own. Files of early
releases have no identifier; of these only the names of parents are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lance_spark.errors import MissingFileError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.refs import json_file as ref_json
from lance_spark.table.refs import names as ref_names

FOLDER = ref_names.BRANCHES
_MAX_U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch.

    Attributes
    ----------
    parent_branch : str, optional
        None for the main one.
    parent_version : int
    identifier : tuple of (int, str), optional
        Version and random id of each branch on the way here; None in files of early releases.
    created_at : int
        Seconds since 1970.
    manifest_size : int
        Bytes of the manifest of the parent's version.
    metadata : mapping of str to str
    """

    parent_branch: str | None
    parent_version: int
    identifier: tuple[tuple[int, str], ...] | None
    created_at: int
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the bytes of the branch's file."""
        content: dict[str, object] = {"parentBranch": self.parent_branch}
        if self.identifier is not None:
            content["identifier"] = {"version_mapping": [list(pair) for pair in self.identifier]}
        content |= {
            "parentVersion": self.parent_version,
            "createAt": self.created_at,
            "manifestSize": self.manifest_size,
            "metadata": dict(self.metadata),
        }
        return ref_json.write(content)

    def is_same(self, other: Branch) -> bool:
        """Tell whether it is another branch only by its metadata, if at all: a name can be deleted and made again."""
        if self.identifier and other.identifier:
            return self.identifier == other.identifier
        return replace(self, metadata=other.metadata) == other

    def descends_from(
        self, name: str, other: Branch | None, branches: Mapping[str, Branch]
    ) -> bool:
        """Tell whether the branch was made from another, or from one made from that.

        Parameters
        ----------
        name : str
            Of the other.
        other : Branch, optional
            None if its file is gone, so that nothing but its name is known.
        branches : mapping of str to Branch
            All of them.
        """
        if self.identifier and other is not None and other.identifier:
            depth = len(other.identifier)
            return len(self.identifier) > depth and self.identifier[:depth] == other.identifier
        seen: set[str] = set()
        parent = self.parent_branch
        while parent is not None and parent not in seen:
            if parent == name:
                return True
            seen.add(parent)
            parent = branches[parent].parent_branch if parent in branches else None
        return False


def branch_path(name: str) -> str:
    """Return the path of a branch's file below the main root.

    Raises
    ------
    InvalidInputError
        No branch can have that name.
    """
    return ref_names.file_of(FOLDER, ref_names.check_branch_name(name))


def branch_names(store: ObjectStore) -> list[str]:
    """Return the names of all branches but the main one, sorted.

    Parameters
    ----------
    store : ObjectStore
        The table's main root, here and in the other functions.

    Raises
    ------
    CorruptTableError
        A file has a name that no branch can have.
    StorageError
    """
    return ref_names.names_in(store, FOLDER)


def read_branch(store: ObjectStore, name: str) -> Branch:
    """Read what is known of a branch.

    Raises
    ------
    VersionNotFoundError
        There is none of that name.
    InvalidInputError, CorruptTableError, StorageError
    """
    found = find_branch(store, name)
    if found is None:
        raise no_branch(store, name)
    return found


def find_branch(store: ObjectStore, name: str) -> Branch | None:
    """Read what is known of a branch; None if there is none of that name.

    Raises
    ------
    InvalidInputError, CorruptTableError, StorageError
    """
    path = branch_path(name)
    try:
        return decode(ref_json.read(store, path), store.name(path))
    except MissingFileError:
        return None


def read_branches(store: ObjectStore) -> dict[str, Branch]:
    """Read all branches, by their names, which are sorted.

    Raises
    ------
    CorruptTableError, StorageError
    """
    branches = {}
    for name in branch_names(store):
        path = branch_path(name)
        try:
            branches[name] = decode(ref_json.read(store, path), store.name(path))
        except MissingFileError:
            # Deleted meanwhile.
            continue
    return branches


def check_exists(store: ObjectStore, name: str) -> None:
    """Refuse a branch that there is not.

    Raises
    ------
    VersionNotFoundError, InvalidInputError, StorageError
    """
    if not store.exists(branch_path(name)):
        raise no_branch(store, name)


def check_same(store: ObjectStore, name: str, known: Branch) -> None:
    """Refuse a branch that has been deleted since it was read, though there may be another of that name.

    Raises
    ------
    VersionNotFoundError, CorruptTableError, StorageError
    """
    found = find_branch(store, name)
    if found is None or not found.is_same(known):
        raise VersionNotFoundError(
            f"{store.display}: the branch {name!r} has been deleted meanwhile"
        )


def no_branch(store: ObjectStore, name: str) -> VersionNotFoundError:
    """Return the error for a branch that there is not."""
    return VersionNotFoundError(
        f"{store.display} has no branch {name!r}: {ref_json.nearest(name, branch_names(store))}"
    )


def decode(data: bytes, name: str) -> Branch:
    """Parse the file of a branch; `name` is what errors call it.

    Raises
    ------
    CorruptTableError
    """
    fields = ref_json.Fields(data, name, "branch")
    return Branch(
        ref_json.branch_in(fields, "parentBranch", name),
        fields.number("parentVersion"),
        _identifier(fields),
        fields.number("createAt"),
        fields.number("manifestSize", 0),
        fields.texts("metadata"),
    )


def _identifier(fields: ref_json.Fields) -> tuple[tuple[int, str], ...] | None:
    found = fields.get("identifier")
    if found is None:
        return None
    mapping = found.get("version_mapping") if isinstance(found, dict) else None
    if not isinstance(mapping, list) or not all(_is_step(step) for step in mapping):
        raise fields.wrong("identifier", "an object with a version_mapping: [[version, id], ...]")
    return tuple((step[0], step[1]) for step in mapping)


def _is_step(step: Any) -> bool:
    return (
        isinstance(step, list)
        and len(step) == 2
        and type(step[0]) is int
        and 0 <= step[0] <= _MAX_U64
        and isinstance(step[1], str)
    )
