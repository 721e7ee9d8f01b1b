"""External manifest stores: a database that says which manifest is the one of a version.

For stores of files that cannot create a file only if it is absent, or where a database shall be the
truth. A database takes part by four requests (`ManifestStore`); the commit in four steps and its
repair are the same for all (`table.manifest_store`).

A table uses one if

- its URI says so: `s3+ddb://bucket/path?ddbTableName=name` keeps the files at `s3://bucket/path`
  and the manifests in a table of DynamoDB;
- the storage option `manifest_store` names one: a `ManifestStore`, or the text
  `package.module:name` of something that is called with the other storage options and returns one.
  The text also works where programs are not shared, as between Spark's driver and its Python
  workers.

All writers of a table have to use the same one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import InvalidOptionError
from lance_spark.storage.options.user_objects import import_object

#: The storage option that names a manifest store.
OPTION = "manifest_store"


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """What a manifest store knows of a version.

    Attributes
    ----------
    version : int
        From 1 on.
    path : str
        Below the root of the table: the manifest's own place, or that of a staging file, which is
        the same followed by "-" and a UUID.
    size : int, optional
        Bytes of the manifest.
    e_tag : str, optional
        What the store of files calls this content.
    """

    version: int
    path: str
    size: int | None = None
    e_tag: str | None = None


class ManifestStore(ABC):
    """A database that remembers, for each version of each table, where its manifest is.

    It must read what it has written: an entry that was put is seen by every request that starts
    later, anywhere. Whatever a method raises reaches the caller as a StorageError; one that carries
    no cause says that certainly nothing was changed.

    In all methods `root` is the URI of the table's folder, without a slash at the end.
    """

    @abstractmethod
    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Return the entry of a version; None if there is none."""

    @abstractmethod
    def latest(self, root: str) -> ManifestEntry | None:
        """Return the entry of the newest version; None if there is none of the table."""

    @abstractmethod
    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add the entry of a version in one atomic step; return False and change nothing if there
        is one. This is the commit.
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
        """Remove all entries of a table that is deleted: of a branch. Without, there can be no
        other of that name.
        """


def load(named: object, options: Mapping[str, Any]) -> ManifestStore:
    """Return the manifest store that the option `manifest_store` names.

    Parameters
    ----------
    named : ManifestStore or str
    options : mapping
        The other storage options.

    Raises
    ------
    InvalidOptionError
        There is no such thing, or it is no manifest store.
    """
    made = import_object(OPTION, named, "opened")(options) if isinstance(named, str) else named
    if not isinstance(made, ManifestStore):
        raise InvalidOptionError(
            f"{OPTION}: {type(made).__name__} is no ManifestStore; derive it from "
            "lance_spark.storage.commit.manifest_store.ManifestStore"
        )
    return made


def with_store(
    options: Mapping[str, Any] | None, named: ManifestStore | str | None
) -> dict[str, Any]:
    """Return storage options that name a manifest store, if one is given."""
    return {**(options or {}), **({} if named is None else {OPTION: named})}
