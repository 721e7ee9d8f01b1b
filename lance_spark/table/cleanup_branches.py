"""The branches that a table has, wherever there is a trace of them: what cleanup asks before it removes anything.

| place | holds |
| --- | --- |
| `_refs/branches/{name, percent-encoded}.json` | `identifier.version_mapping`: version and id of each branch on the way from the main one |
| `tree/{name}/` | a table of its own |

A branch that is being made has a folder and no file yet, one that is being deleted the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from lance_spark.errors import CorruptTableError, MissingFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import check_relative
from lance_spark.table import versions
from lance_spark.table.refs import branch_root

Lineage = tuple[tuple[int, str], ...]

_BRANCHES = "_refs/branches"
_TREE = "tree"
_OWN_FOLDERS = frozenset(
    ("data", "_deletions", "_indices", "_transactions", "_versions", "_refs", "_fri", "_blobs")
)


def main_root(store: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the main root of the table that a branch belongs to."""
    return (store.above(branch_root(branch)) if branch else None) or store


def root_of(main: ObjectStore, branch: str) -> ObjectStore:
    """Return the root of a branch; "" is the main one."""
    if not branch:
        return main
    return main.below(branch_root(branch))


def lineages(main: ObjectStore) -> dict[str, Lineage]:
    """Return the lineage of every branch that has a file: version and id of each branch on the way from the main one."""
    found = {}
    for file in main.list_names(_BRANCHES):
        if not file.endswith(".json") or file.startswith("."):
            continue
        path = f"{_BRANCHES}/{file}"
        name = unquote(file.removesuffix(".json"))
        try:
            check_relative(name)
            found[name] = _lineage(json.loads(main.read_bytes(path)))
        except MissingFileError:
            continue
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise CorruptTableError(f"{main.name(path)}: no readable branch: {error}") from None
    return found


def _lineage(content: Any) -> Lineage:
    identifier = content.get("identifier") if isinstance(content, dict) else None
    if identifier is None:
        # Early releases noted only the version of the branch that a branch was made from.
        return ((int(content["parentVersion"]), ""),) if not content.get("parentBranch") else ()
    return tuple((int(version), str(uuid)) for version, uuid in identifier["version_mapping"])


def branch_folders(main: ObjectStore) -> Iterator[str]:
    """Yield the branches that have versions in `tree/`, whether or not they have a file."""
    pending = main.list_folders(_TREE)
    while pending:
        name = pending.pop()
        folders = main.list_folders(f"{_TREE}/{name}")
        if versions.FOLDER in folders:
            yield name
            folders = [one for one in folders if one not in _OWN_FOLDERS]
        pending += [f"{name}/{folder}" for folder in folders]
