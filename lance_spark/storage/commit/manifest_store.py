"""External manifest stores: databases that record the manifest of each version.

They serve stores of files without atomic creation, or users who want a database as the authority.
A database implements four requests (`ManifestStore`). The commit in four steps and its repair are
the same for all of them (`table/manifest/external`). A table uses one if

- its URI names one: `s3+ddb://bucket/path?ddbTableName=name` has files at `s3://bucket/path` and
  manifests in a table of DynamoDB;
- the storage option `manifest_store` names one: a `ManifestStore`, or the text
  `package.module:name` of a callable that receives the other storage options and returns one. The
  text also reaches other processes, such as the Python workers of Spark.

All writers of a table must use the same one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import InvalidOptionError
from lance_spark.storage.options.fsspec_options import import_object

#: The storage option that names a manifest store.
OPTION = "manifest_store"


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """The entry of a version in a manifest store.

    Attributes
    ----------
    version : int
        From 1 on.
    path : str
        Path below the root of the table: that of the manifest, or of a staging file, which has the
        same name followed by "-" and a UUID.
    size : int, optional
        Size of the manifest in bytes.
    e_tag : str, optional
        Tag of this content in the store of files.
    """

    version: int
    path: str
    size: int | None = None
    e_tag: str | None = None


class ManifestStore(ABC):
    """A database that records the path of the manifest of each version of each table.

    Reads must be consistent: every later request of any client sees an entry that was put. An
    exception of a method reaches the caller as a StorageError. A StorageError without a cause means
    that certainly nothing was changed.

    In all methods `root` is the URI of the table's folder, without a slash at the end.
    """

    @abstractmethod
    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Return the entry of a version; None if it is absent."""

    @abstractmethod
    def latest(self, root: str) -> ManifestEntry | None:
        """Return the entry of the newest version; None if the table has no entries."""

    @abstractmethod
    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; return False and change nothing if it exists.

        This call is the commit.
        """

    @abstractmethod
    def put_final(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version, which exists."""

    def since(self, root: str, version: int) -> list[ManifestEntry]:
        """Return the entries of `version` and of all after it, oldest first."""
        newest = self.latest(root)
        last = newest.version if newest is not None else 0
        entries = (self.get(root, number) for number in range(version, last + 1))
        return [entry for entry in entries if entry is not None]

    def forget(self, root: str) -> None:  # noqa: B027 - stores can do without
        """Remove all entries of a deleted table or branch, so that its place can be used again."""


def load(named: object, options: Mapping[str, Any]) -> ManifestStore:
    """Return the manifest store that the option `manifest_store` names.

    - `options`: The other storage options.

    Raises InvalidOptionError: the object cannot be imported, or is not a manifest store.
    """
    store = import_object(OPTION, named, "opened")(options) if isinstance(named, str) else named
    if not isinstance(store, ManifestStore):
        raise InvalidOptionError(
            f"{OPTION}: {type(store).__name__} is not a ManifestStore; derive it from "
            "lance_spark.storage.commit.manifest_store.ManifestStore"
        )
    return store


def with_store(
    options: Mapping[str, Any] | None, named: ManifestStore | str | None
) -> dict[str, Any]:
    """Return storage options that name a manifest store, if one is given."""
    return {**(options or {}), **({} if named is None else {OPTION: named})}
