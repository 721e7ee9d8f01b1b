"""`Dataset.branches`: the branches of a table, as pylance's handle has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from lance_spark.dataset.error_paths import names_table
from lance_spark.errors import InvalidInputError
from lance_spark.table.open import OpenTable
from lance_spark.table.refs.branch_store import Branch, read_branches

# Named here because `Branches.list` hides the built-in inside the class.
_Steps = list[tuple[int, str]]


class BranchInfo(TypedDict):
    """A branch: what it was made from, when (seconds since 1970), bytes of that version's manifest, metadata.

    `branch_identifier` has the version of the parent and a random id for each branch on the way from the main one.
    """

    parent_branch: str | None
    branch_identifier: _Steps
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


_Ordered = list[tuple[str, BranchInfo]]


@names_table
class Branches:
    """The branches of a table but for the main one. Made by `Dataset.branches`.

    Parameters
    ----------
    table : OpenTable
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def list(self) -> dict[str, BranchInfo]:
        """Return all branches.

        Raises
        ------
        CorruptTableError, StorageError
        """
        return {name: _info(branch) for name, branch in read_branches(self._table.main).items()}

    def list_ordered(self, order: str | None = None) -> _Ordered:
        """Return all branches by the versions they were made from, those of one version by their names.

        Parameters
        ----------
        order : str, optional
            ``desc`` (the newest first; the default) or ``asc``.

        Raises
        ------
        InvalidInputError, CorruptTableError, StorageError
        """
        if order not in (None, "asc", "desc"):
            raise InvalidInputError(f"{order!r} is no order: choose asc or desc")
        sign = 1 if order == "asc" else -1
        return sorted(
            self.list().items(), key=lambda entry: (sign * entry[1]["parent_version"], entry[0])
        )

    def delete(self, branch: str) -> None:
        """Delete a branch with all its versions.

        Raises
        ------
        VersionNotFoundError
            There is no such branch.
        InvalidInputError
            Tags name versions of it, or other branches were made from it.
        UncertainCommitError
            The store failed, and nobody knows whether the branch is there; or it is deleted, and some of its files are left.
        CorruptTableError, StorageError
        """
        from lance_spark.table.refs.branches import delete_branch

        delete_branch(self._table.main, branch)

    def replace_metadata(self, branch: str, metadata: Mapping[str, str]) -> None:
        """Give a branch other metadata instead of what it has.

        Raises
        ------
        VersionNotFoundError, InvalidInputError, UncertainCommitError, CorruptTableError, StorageError
        """
        from lance_spark.table.refs.branches import replace_branch_metadata

        replace_branch_metadata(self._table.main, branch, metadata)


def _info(branch: Branch) -> BranchInfo:
    return BranchInfo(
        parent_branch=branch.parent_branch,
        branch_identifier=list(branch.identifier or ()),
        parent_version=branch.parent_version,
        create_at=branch.created_at,
        manifest_size=branch.manifest_size,
        metadata=dict(branch.metadata),
    )
