"""`Dataset.tags` and `Dataset.branches`: the tags and the branches of a table."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TypedDict

from lance_spark.dataset.decorators import prefixes_errors
from lance_spark.errors import InvalidInputError
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, Reference, check_newest_writable, resolve_version
from lance_spark.table.refs import tags
from lance_spark.table.refs.branch_store import Branch, read_branches

# --------------------------------------------------------------------------------------------------
# `Dataset.branches`: the branches of a table. Names and results are as in pylance.

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


# --------------------------------------------------------------------------------------------------
# `Dataset.tags`: the tags of a table. Names and results are as in pylance.


class TagInfo(TypedDict):
    """A tag, as `Tags.list` returns it.

    Attributes
    ----------
    branch : str or None
        The branch of the version; None for the main branch.
    version : int
    created_at, updated_at : datetime or None
        Times in UTC at which the tag was created and last moved; None if they are not recorded.
    manifest_size : int
        Bytes of the version's manifest; 0 if unknown.
    metadata : dict of str to str
    """

    branch: str | None
    version: int
    created_at: datetime.datetime | None
    updated_at: datetime.datetime | None
    manifest_size: int
    metadata: dict[str, str]


# Named outside of the class because `Tags.list` hides the built-in there.
_OrderedTags = list[tuple[str, TagInfo]]


@prefixes_errors
class Tags:
    """The tags of all branches of a table. Made by `Dataset.tags`.

    Methods that change tags raise `UnsupportedFeatureError` if the open version has features that
    this release cannot write.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def list(self) -> dict[str, TagInfo]:
        """Return all tags by name.

        Raises
        ------
        CorruptTableError, StorageError
        """
        return {name: _tag_info(tag) for name, tag in tags.read_tags(self._table.main).items()}

    def list_ordered(self, order: str | None = None) -> _OrderedTags:
        """Return all tags, sorted by version and then by name.

        Parameters
        ----------
        order : str, optional
            ``desc`` (newest version first; the default) or ``asc``.

        Raises
        ------
        InvalidInputError, CorruptTableError, StorageError
        """
        if order not in (None, "asc", "desc"):
            raise InvalidInputError(f"order must be 'asc' or 'desc', not {order!r}")
        sign = 1 if order == "asc" else -1
        return sorted(self.list().items(), key=lambda entry: (sign * entry[1]["version"], entry[0]))

    def get_version(self, tag: str) -> int:
        """Return the version of a tag.

        Raises
        ------
        VersionNotFoundError
            The tag does not exist.
        InvalidInputError, CorruptTableError, StorageError
        """
        return tags.read_tag(self._table.main, tag).version

    def create(self, tag: str, reference: Reference | None = None) -> None:
        """Create a tag on a version.

        Parameters
        ----------
        tag : str
            Name of the tag: letters, digits, ``.``, ``-`` and ``_``.
        reference : int, str or (str or None, int or None), optional
            The version: its number on the open branch, another tag, or (branch, number), where
            branch None is the main branch and number None the newest version. By default the open
            version.

        Raises
        ------
        InvalidInputError
            The name is not valid, or the tag exists already.
        VersionNotFoundError
            The version does not exist, a cleanup is removing it, or its branch was deleted
            meanwhile.
        UncertainCommitError
            The store failed, and it is unknown whether the tag was created.
        CorruptTableError, StorageError
        """
        branch, version = resolve_version(self._table, reference)
        tags.create_tag(
            self._table.main,
            tag,
            version,
            branch,
            manifest=self._manifest_of(branch, version),
            check=self._check_writable,
        )

    def update(self, tag: str, reference: Reference | None = None) -> None:
        """Move a tag to another version; see `create`.

        Raises
        ------
        VersionNotFoundError
            The tag or version does not exist.
        UncertainCommitError
            The store failed, and it is unknown which version has the tag; or the old version was
            removed meanwhile.
        InvalidInputError, CorruptTableError, StorageError
        """
        branch, version = resolve_version(self._table, reference)
        tags.update_tag(
            self._table.main,
            tag,
            version,
            branch,
            manifest=self._manifest_of(branch, version),
            check=self._check_writable,
        )

    def replace_metadata(self, tag: str, metadata: Mapping[str, str]) -> None:
        """Replace the metadata of a tag.

        Raises
        ------
        VersionNotFoundError, InvalidInputError, UncertainCommitError, CorruptTableError,
        StorageError
        """
        tags.replace_tag_metadata(self._table.main, tag, metadata, check=self._check_writable)

    def delete(self, tag: str) -> None:
        """Delete a tag. Its version stays.

        Raises
        ------
        VersionNotFoundError
            The tag does not exist.
        UncertainCommitError
            The store failed, and it is unknown whether the tag still exists.
        InvalidInputError, StorageError
        """
        tags.delete_tag(self._table.main, tag, check=self._check_writable)

    def _check_writable(self) -> None:
        # pylance does not check this. But tags decide what cleanup keeps, so only a client that may
        # write may change them.
        check_newest_writable(self._table)

    def _manifest_of(self, branch: str | None, version: int) -> Manifest | None:
        """Return the manifest of a version if it is the open one."""
        table = self._table
        return table.manifest if (branch, version) == (table.branch, table.version) else None


def _tag_info(tag: tags.Tag) -> TagInfo:
    return TagInfo(
        branch=tag.branch,
        version=tag.version,
        created_at=tag.created_at,
        updated_at=tag.updated_at,
        manifest_size=tag.manifest_size,
        metadata=dict(tag.metadata),
    )
