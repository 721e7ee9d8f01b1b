"""Names of tags and branches, the files that they stand for, and the roots of branches.

| what | rule | place below the main root |
| --- | --- | --- |
| tag | letters, digits, `.`, `-`, `_`; no `.` at either end, no `..`, no `.lock` at the end | `_refs/tags/{name}.json` |
| branch | parts of the same characters with `/` between; no `..`, no `.lock` at the end, not `main` | `_refs/branches/{name}.json`, `tree/{name}/` |

In names of files everything but ASCII letters, digits, `.`, `-`, `_` is percent-encoded, "/" included, so that there are
no folders in `_refs/branches/`; the folder in `tree/` has the name as it is. "main" stands for the main branch, which has
neither file nor folder.
"""

from __future__ import annotations

import os
from urllib.parse import quote, unquote

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.storage.store import ObjectStore

MAIN = "main"
TREE = "tree"
TAGS = "_refs/tags"
BRANCHES = "_refs/branches"
SUFFIX = ".json"
#: What a table's root has folders for. A branch in one of them would lie among the files of another.
RESERVED = frozenset(
    {"data", "_versions", "_transactions", "_deletions", "_indices", "_refs", "tree"}
    | {"_fri", "_bt", "_mem_wal"}
)


def check_tag_name(name: str) -> str:
    """Return `name` if a tag can have it.

    Raises
    ------
    InvalidInputError
    """
    if not _is_word(name) or name.startswith(".") or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidInputError(
            f"{name!r} cannot be the name of a tag: letters, digits, '.', '-' and '_' can be in it, "
            "but no '.' at either end, no '..', and no '.lock' at the end"
        )
    return name


def check_branch_name(name: str) -> str:
    """Return `name` if a branch can have it.

    Raises
    ------
    InvalidInputError
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
            f"{name!r} cannot be the name of a branch: letters, digits, '.', '-' and '_' can be in it, and '/' between its "
            "parts, but no '..', and no '.lock' at the end"
        )
    return name


def check_new_branch_name(name: str) -> str:
    """Return `name` if a new branch can have it: none that would lie among the files of another branch.

    Raises
    ------
    InvalidInputError
    """
    check_branch_name(name)
    if not RESERVED.isdisjoint(name.split("/")[1:]):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a new branch: tables keep files of their own in folders called "
            f"{', '.join(sorted(RESERVED))}"
        )
    return name


def file_of(folder: str, name: str) -> str:
    """Return the path of the file of a tag or branch."""
    return f"{folder}/{quote(name, safe='')}{SUFFIX}"


def names_in(store: ObjectStore, folder: str) -> list[str]:
    """Return the names that there are files of, sorted.

    Raises
    ------
    CorruptTableError
        A file has a name that no tag or branch can have.
    StorageError
    """
    check = check_tag_name if folder == TAGS else check_branch_name
    found = []
    for file in store.list_names(folder):
        if not file.endswith(SUFFIX) or (file.startswith(".") and file.endswith(".tmp")):
            continue
        name = unquote(file.removesuffix(SUFFIX))
        try:
            check(name)
            if file_of(folder, name) != f"{folder}/{file}":
                raise InvalidInputError(f"the file of {name!r} has another name")
        except InvalidInputError as error:
            raise CorruptTableError(f"{store.name(f'{folder}/{file}')}: {error}") from None
        found.append(name)
    return sorted(found)


def branch_root(branch: str) -> str:
    """Return the folder of a branch below the table's main root."""
    return f"{TREE}/{branch}"


def branch_store(main: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the root of a branch, from the main root.

    Parameters
    ----------
    main : ObjectStore
    branch : str, optional
        None for the main one.
    """
    return main if branch is None else below(main, branch_root(branch))


def main_store(store: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the main root of a table, from the root of a branch.

    A branch's folder that was copied to another place is a table of its own there; one that a link leads to is not.

    Parameters
    ----------
    store : ObjectStore
    branch : str, optional
        The branch whose root `store` is, as its manifests say; None for the main one.
    """
    if not branch:
        return store
    above = store.above(branch_root(branch))
    if above is None and store.is_local:
        above = ObjectStore.from_uri(os.path.realpath(store.uri)).above(branch_root(branch))
    return above or store


def below(store: ObjectStore, folder: str) -> ObjectStore:
    """Return the store whose root is a folder of another."""
    return store.below(folder)


def _is_word(text: str) -> bool:
    return bool(text) and all(char.isalnum() or char in "._-" for char in text)
