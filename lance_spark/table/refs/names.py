"""Naming rules for tags and branches, the paths of their files, and the roots of branches.

| | tag | branch |
| --- | --- | --- |
| characters | letters, digits, `.`, `-`, `_` | the same, and `/` between parts |
| forbidden | `.` at either end, `..`, `.lock` at the end | `..`, `.lock` at the end, `main` |
| file | `_refs/tags/{name}.json` | `_refs/branches/{name}.json` |
| root of its versions | that of its branch | `tree/{name}/` |

File names percent-encode all characters except ASCII letters, digits, `.`, `-` and `_`. This
includes "/", so `_refs/branches/` has no subfolders. The folder in `tree/` has the unencoded name.
"main" is the main branch, which has neither a file nor a folder.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from lance_spark.errors import InvalidInputError
from lance_spark.storage.store import ObjectStore

MAIN = "main"
TREE = "tree"
REFS = "_refs"
TAGS = f"{REFS}/tags"
BRANCHES = f"{REFS}/branches"
SUFFIX = ".json"
#: Folders that tables keep files in. A branch with such a part in its name could mix its files with
#: files of another branch.
RESERVED = frozenset(
    {"data", "_versions", "_transactions", "_deletions", "_indices", REFS, TREE}
    | {"_fri", "_bt", "_mem_wal"}
)


def check_tag_name(name: str) -> str:
    """Return `name` if it is a valid name of a tag. Raises InvalidInputError."""
    if not _is_word(name) or name.startswith(".") or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidInputError(
            f"{name!r} cannot be the name of a tag: use letters, digits, '.', '-' and '_', with "
            "no '.' at either end, no '..' and no '.lock' at the end"
        )
    return name


def check_branch_name(name: str) -> str:
    """Return `name` if it is a valid name of a branch other than the main one.

    Raises InvalidInputError.
    """
    if name == MAIN:
        raise InvalidInputError(f"{MAIN!r} is the main branch: choose another name")
    parts = name.split("/")
    if (
        not all(_is_word(part) and part != "." for part in parts)
        or name.endswith(".lock")
        or ".." in name
    ):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a branch: use letters, digits, '.', '-' and '_', "
            "with '/' between parts, no '..' and no '.lock' at the end"
        )
    return name


def check_new_branch_name(name: str) -> str:
    """Return `name` if a new branch can have it: no part may be a folder that tables keep files in.

    Raises InvalidInputError.
    """
    check_branch_name(name)
    if not RESERVED.isdisjoint(name.split("/")[1:]):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a new branch: tables keep their own files in folders "
            f"named {', '.join(sorted(RESERVED))}; choose another name"
        )
    return name


def file_of(folder: str, name: str) -> str:
    """Return the path of the file of a tag or branch."""
    return f"{folder}/{quote(name, safe='')}{SUFFIX}"


def branch_root(branch: str) -> str:
    """Return the folder of a branch, relative to the table's main root."""
    return f"{TREE}/{branch}"


def branch_store(main: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the root of a branch, given the main root.

    - `branch`: None for the main branch.
    """
    return main if branch is None else main.below(branch_root(branch))


def main_store(store: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the main root of a table, given the root of a branch.

    If the folder of a branch was copied out of its table, the copy is an independent table: then
    `store` itself is returned.

    - `branch`: The branch that the manifests in `store` belong to; None for the main branch.
    """
    if not branch:
        return store
    above = store.above(branch_root(branch))
    if above is None and store.is_local:
        # The path may be a link to the folder of the branch.
        above = ObjectStore.from_uri(os.path.realpath(store.uri)).above(branch_root(branch))
    return above or store


def _is_word(text: str) -> bool:
    return bool(text) and all(char.isalnum() or char in "._-" for char in text)
