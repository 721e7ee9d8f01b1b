"""Branch files: one small JSON file per branch in `_refs/branches/` of the table's main root.

| key | value |
| --- | --- |
| parentBranch | the branch it was made from, null for the main branch |
| identifier.version_mapping | `[parent version, random id]` of each branch, from the main one on |
| parentVersion | the version it was made from |
| createAt | seconds since 1970 |
| manifestSize | bytes of that version's manifest |
| metadata | an object of strings |

Branch B descends from branch A if A's version mapping is a prefix of B's. Files of early releases
have no identifier; for these only the names of parents are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lance_spark.errors import VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.refs import json_file as ref_json
from lance_spark.table.refs import names as ref_names

_MAX_U64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Branch:
    """The content of a branch file.

    - `parent_branch`: None for the main branch.
    - `identifier` (tuple of (int, str), optional): Parent version and random id of each branch from
      the main one to this; None in files of early releases.
    - `created_at`: Seconds since 1970.
    - `manifest_size`: Bytes of the manifest of the parent's version.
    """

    parent_branch: str | None
    parent_version: int
    identifier: tuple[tuple[int, str], ...] | None
    created_at: int
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the bytes of the branch file."""
        content: dict[str, object] = {"parentBranch": self.parent_branch}
        if self.identifier is not None:
            content["identifier"] = {"version_mapping": [list(pair) for pair in self.identifier]}
        content |= {
            "parentVersion": self.parent_version,
            "createAt": self.created_at,
            "manifestSize": self.manifest_size,
            "metadata": dict(self.metadata),
        }
        return ref_json.encode(content)

    def is_same(self, other: Branch) -> bool:
        """Return whether `other` is this branch, not a later one of its name."""
        if self.identifier and other.identifier:
            return self.identifier == other.identifier
        return replace(self, metadata=other.metadata) == other

    def descends_from(
        self, name: str, other: Branch | None, branches: Mapping[str, Branch]
    ) -> bool:
        """Return whether the branch was made from another branch, directly or through other
        branches.

        - `name`: Name of the other branch.
        - `other`: The other branch; None if its file was removed, so that only its name is known.
        - `branches`: All branches of the table.
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


def check_same(store: ObjectStore, name: str, expected: Branch) -> None:
    """Raise an error if a branch was deleted since it was read, even if its name was used again.

    Raises VersionNotFoundError, CorruptTableError, StorageError.
    """
    branch = BRANCHES.find(store, name)
    if branch is None or not branch.is_same(expected):
        raise VersionNotFoundError(
            f"{store.display}: branch {name!r} was deleted by another client during this operation"
        )


def origin_version(name: str, ancestor: str | None, branches: Mapping[str, Branch]) -> int | None:
    """Return the version of an ancestor that a branch was made from, directly or through others.

    - `ancestor`: None for the main branch.
    - `branches`: All branches that have a file.

    None if the branch does not descend from the other branch.
    """
    steps = branches[name].identifier
    start = branches[ancestor].identifier if ancestor is not None and ancestor in branches else ()
    if steps and start is not None and (ancestor is None or start):
        depth = len(start)
        return steps[depth][0] if len(steps) > depth and steps[:depth] == start else None
    # Files of early releases have no identifier: follow the names of the parents.
    seen: set[str] = set()
    while name in branches and name not in seen:
        if branches[name].parent_branch == ancestor:
            return branches[name].parent_version
        seen.add(name)
        name = branches[name].parent_branch or ""
    return None


def branch_folders(main: ObjectStore) -> Iterator[str]:
    """Yield the names of branches that have versions in `tree/`, with or without a branch file.

    A branch without a file is being created or deleted. Raises StorageError.
    """
    pending = main.list_folders(ref_names.TREE)
    while pending:
        name = pending.pop()
        folders = main.list_folders(f"{ref_names.TREE}/{name}")
        if versions.FOLDER in folders:
            yield name
            folders = [folder for folder in folders if folder not in ref_names.RESERVED]
        pending += [f"{name}/{folder}" for folder in folders]


def _parse(fields: ref_json.Fields) -> Branch:
    return Branch(
        fields.branch("parentBranch"),
        fields.number("parentVersion"),
        _identifier(fields),
        fields.number("createAt"),
        fields.number("manifestSize", 0),
        fields.texts("metadata"),
    )


def _identifier(fields: ref_json.Fields) -> tuple[tuple[int, str], ...] | None:
    identifier = fields.get("identifier")
    if identifier is None:
        return None
    mapping = identifier.get("version_mapping") if isinstance(identifier, dict) else None
    if not isinstance(mapping, list) or not all(_is_step(step) for step in mapping):
        raise fields.error("identifier", "an object with a version_mapping: [[version, id], ...]")
    return tuple((step[0], step[1]) for step in mapping)


def _is_step(step: Any) -> bool:
    return (
        isinstance(step, list)
        and len(step) == 2
        and type(step[0]) is int
        and 0 <= step[0] <= _MAX_U64
        and isinstance(step[1], str)
    )


#: The branch files.
BRANCHES = ref_json.RefFiles("branch", ref_names.BRANCHES, ref_names.check_branch_name, _parse)
read_branches = BRANCHES.read_all
check_exists = BRANCHES.check_exists
