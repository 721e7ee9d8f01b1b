"""`Dataset.branches`: the branches of a table. Names and results are as in pylance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from lance_spark.dataset._decorators import prefixes_errors
from lance_spark.errors import InvalidInputError
from lance_spark.table.open import OpenTable, check_newest_writable
from lance_spark.table.refs.branch_store import Branch, read_branches

# Named outside of the class because `Branches.list` hides the built-in there.
_Steps = list[tuple[int, str]]


class BranchInfo(TypedDict):
    """A branch, as `Branches.list` returns it.

    Attributes
    ----------
    parent_branch : str or None
        The branch that it was made from; None for the main branch.
    branch_identifier : list of (int, str)
        Parent version and random id of each branch from the main branch to this one.
    parent_version : int
        The version that it was made from.
    create_at : int
        Time of its creation, in seconds since 1970.
    manifest_size : int
        Bytes of the manifest of the parent version.
    metadata : dict of str to str
    """

    parent_branch: str | None
    branch_identifier: _Steps
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


_Ordered = list[tuple[str, BranchInfo]]


@prefixes_errors
class Branches:
    """The branches of a table except the main one. Made by `Dataset.branches`."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def list(self) -> dict[str, BranchInfo]:
        """Return all branches by name.

        Raises
        ------
        CorruptTableError, StorageError
        """
        return {name: _info(branch) for name, branch in read_branches(self._table.main).items()}

    def list_ordered(self, order: str | None = None) -> _Ordered:
        """Return all branches, sorted by parent version and then by name.

        Parameters
        ----------
        order : str, optional
            ``desc`` (newest parent version first; the default) or ``asc``.

        Raises
        ------
        InvalidInputError, CorruptTableError, StorageError
        """
        if order not in (None, "asc", "desc"):
            raise InvalidInputError(f"order must be 'asc' or 'desc', not {order!r}")
        sign = 1 if order == "asc" else -1
        return sorted(
            self.list().items(), key=lambda entry: (sign * entry[1]["parent_version"], entry[0])
        )

    def delete(self, branch: str) -> None:
        """Delete a branch with all its versions.

        Raises
        ------
        VersionNotFoundError
            The branch does not exist.
        InvalidInputError
            The branch has tags, or other branches were made from it.
        UnsupportedFeatureError
            The table has features that this release cannot write.
        UncertainCommitError
            The store failed, and it is unknown whether the branch still exists; or the branch is
            deleted, but not all of its files are.
        CorruptTableError, StorageError
        """
        from lance_spark.table.refs.branches import delete_branch

        check_newest_writable(self._table)
        delete_branch(self._table.main, branch)

    def replace_metadata(self, branch: str, metadata: Mapping[str, str]) -> None:
        """Replace the metadata of a branch.

        Raises
        ------
        VersionNotFoundError, InvalidInputError, UncertainCommitError, CorruptTableError,
        StorageError
        """
        from lance_spark.table.refs.branches import replace_branch_metadata

        check_newest_writable(self._table)
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
