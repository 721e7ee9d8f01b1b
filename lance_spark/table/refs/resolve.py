"""Resolution of version references that users pass to `Dataset` methods.

| reference | version |
| --- | --- |
| `None` | the open version |
| number | that version of the open branch; may be a detached version |
| string | the version with the tag of that name |
| `(branch, number)` | that version of that branch; branch None or "main" is the main branch |
| `(branch, None)` | the newest version of that branch |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from lance_spark.errors import InvalidInputError
from lance_spark.table.manifest import versions
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.refs.branch_store import check_exists
from lance_spark.table.refs.names import MAIN, branch_store
from lance_spark.table.refs.tag_store import read_tag

Reference: TypeAlias = int | str | tuple[str | None, int | None]


def resolve(table: OpenTable, reference: Reference | None) -> tuple[str | None, int | None]:
    """Return the branch and version number of a reference; version None stands for the newest.

    Raises
    ------
    VersionNotFoundError
        The tag or branch does not exist.
    InvalidInputError
        The reference has another form, or is not a valid name.
    CorruptTableError, StorageError
    """
    if reference is None:
        return table.branch, table.version
    if isinstance(reference, str):
        tag = read_tag(table.main, reference)
        return tag.branch, tag.version
    if _is_number(reference):
        return table.branch, reference  # type: ignore[return-value]
    if isinstance(reference, tuple) and len(reference) == 2:
        branch, version = reference
        if (branch is None or isinstance(branch, str)) and (version is None or _is_number(version)):
            if branch is None or branch == MAIN:
                return None, version
            check_exists(table.main, branch)
            return branch, version
    raise InvalidInputError(
        "reference must be a version number, the name of a tag, or (branch, number), not "
        f"{reference!r}"
    )


def resolve_version(table: OpenTable, reference: Reference | None) -> tuple[str | None, int]:
    """Return the branch and version number of a reference; looks up the number of the newest."""
    branch, version = resolve(table, reference)
    if version is None:
        version = versions.latest(branch_store(table.main, branch)).version
    return branch, version


def open_reference(
    table: OpenTable,
    reference: Reference | None,
    storage_options: Mapping[str, Any] | None = None,
) -> OpenTable:
    """Open the version of a reference.

    Raises
    ------
    VersionNotFoundError, InvalidInputError, UnsupportedFeatureError, CorruptTableError,
    StorageError
    """
    if reference is None:
        return table
    branch, version = resolve(table, reference)
    store = table.store if branch == table.branch else branch_store(table.main, branch)
    return open_table(store.uri, version=version, storage_options=storage_options)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
