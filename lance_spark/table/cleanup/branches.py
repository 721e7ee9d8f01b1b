"""The branches that a table has, wherever there is a trace of them: what cleanup asks before it removes anything.

A branch that is being made has a folder in `tree/` and no file in `_refs/branches/` yet; one that is being deleted has a
folder and no file any more. Both count as branches here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.refs.branch_store import Branch
from lance_spark.table.refs.names import RESERVED, TREE


def origin(name: str, own: str | None, branches: Mapping[str, Branch]) -> int | None:
    """Return the version of a branch that another was made from, be it by way of others; None if it was not.

    Parameters
    ----------
    name : str
        The other one.
    own : str, optional
        None for the main one.
    branches : mapping of str to Branch
        All that have a file.
    """
    steps = branches[name].identifier
    start = branches[own].identifier if own is not None and own in branches else ()
    if steps and start is not None and (own is None or start):
        depth = len(start)
        return steps[depth][0] if len(steps) > depth and steps[:depth] == start else None
    # Files of early releases know only their parent.
    seen: set[str] = set()
    while name in branches and name not in seen:
        if branches[name].parent_branch == own:
            return branches[name].parent_version
        seen.add(name)
        name = branches[name].parent_branch or ""
    return None


def branch_folders(main: ObjectStore) -> Iterator[str]:
    """Yield the branches that have versions in `tree/`, whether or not they have a file.

    Raises
    ------
    StorageError
    """
    pending = main.list_folders(TREE)
    while pending:
        name = pending.pop()
        folders = main.list_folders(f"{TREE}/{name}")
        if versions.FOLDER in folders:
            yield name
            folders = [folder for folder in folders if folder not in RESERVED]
        pending += [f"{name}/{folder}" for folder in folders]
