"""`Dataset.tags`: the tags of a table, as pylance's handle has them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TypedDict

from lance_spark.dataset.error_paths import names_table
from lance_spark.errors import InvalidInputError
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.refs import tag_store
from lance_spark.table.refs.resolve import Reference, resolve_version


class TagInfo(TypedDict):
    """A tag: the version it names, when it was made and last moved (UTC), bytes of the manifest, metadata."""

    branch: str | None
    version: int
    created_at: datetime.datetime | None
    updated_at: datetime.datetime | None
    manifest_size: int
    metadata: dict[str, str]


# Named here because `Tags.list` hides the built-in inside the class.
_Ordered = list[tuple[str, TagInfo]]


@names_table
class Tags:
    """The tags of a table, of all its branches. Made by `Dataset.tags`.

    Changes raise UnsupportedFeatureError if the open version needs a writer that does more than this release.

    Parameters
    ----------
    table : OpenTable
        The version that is named if no reference is given.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def list(self) -> dict[str, TagInfo]:
        """Return all tags.

        Raises
        ------
        CorruptTableError, StorageError
        """
        return {name: _info(tag) for name, tag in tag_store.read_tags(self._table.main).items()}

    def list_ordered(self, order: str | None = None) -> _Ordered:
        """Return all tags by their versions, tags of one version by their names.

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
        return sorted(self.list().items(), key=lambda entry: (sign * entry[1]["version"], entry[0]))

    def get_version(self, tag: str) -> int:
        """Return the version that a tag names.

        Raises
        ------
        VersionNotFoundError
            There is no such tag.
        InvalidInputError, CorruptTableError, StorageError
        """
        return tag_store.read_tag(self._table.main, tag).version

    def create(self, tag: str, reference: Reference | None = None) -> None:
        """Name a version.

        Parameters
        ----------
        tag : str
        reference : int, str or (str or None, int or None), optional
            The version: its number on the branch that is open, another tag, or (branch, number), where no branch is the main
            one and no number the newest. By default the version that is open.

        Raises
        ------
        InvalidInputError
            No tag can have that name, or there is one already.
        VersionNotFoundError
            There is no such version, a cleanup is removing it, or its branch has been deleted meanwhile.
        UncertainCommitError
            The store failed, and nobody knows whether the tag was made.
        CorruptTableError, StorageError
        """
        self._check_writable()
        branch, version = resolve_version(self._table, reference)
        known = self._known(branch, version)
        tag_store.create_tag(self._table.main, tag, version, branch, manifest=known)

    def update(self, tag: str, reference: Reference | None = None) -> None:
        """Put a tag on another version; see `create`.

        Raises
        ------
        VersionNotFoundError
            There is no such tag or version.
        UncertainCommitError
            The store failed, and nobody knows which version the tag names; or the version that it named was removed meanwhile.
        InvalidInputError, CorruptTableError, StorageError
        """
        self._check_writable()
        branch, version = resolve_version(self._table, reference)
        known = self._known(branch, version)
        tag_store.update_tag(self._table.main, tag, version, branch, manifest=known)

    def replace_metadata(self, tag: str, metadata: Mapping[str, str]) -> None:
        """Give a tag other metadata instead of what it has.

        Raises
        ------
        VersionNotFoundError, InvalidInputError, UncertainCommitError, CorruptTableError, StorageError
        """
        self._check_writable()
        tag_store.replace_tag_metadata(self._table.main, tag, metadata)

    def delete(self, tag: str) -> None:
        """Take a name from its version.

        Raises
        ------
        VersionNotFoundError
            There is no such tag.
        UncertainCommitError
            The store failed, and nobody knows whether the tag is there.
        InvalidInputError, StorageError
        """
        self._check_writable()
        tag_store.delete_tag(self._table.main, tag)

    def _check_writable(self) -> None:
        # pylance does not ask, but a client that must not write must not change what cleanup keeps either.
        self._table.manifest.check_writable(self._table.store.display)

    def _known(self, branch: str | None, version: int) -> Manifest | None:
        table = self._table
        return table.manifest if (branch, version) == (table.branch, table.version) else None


def _info(tag: tag_store.Tag) -> TagInfo:
    return TagInfo(
        branch=tag.branch,
        version=tag.version,
        created_at=tag.created_at,
        updated_at=tag.updated_at,
        manifest_size=tag.manifest_size,
        metadata=dict(tag.metadata),
    )
