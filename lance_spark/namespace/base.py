"""The base class of namespaces, and the entry of a table in a namespace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lance_spark.errors import InvalidInputError, TableNotFoundError

# --------------------------------------------------------------------------------------------------
# Identifiers of namespaces and tables: tuples of names, and their text in the catalog table.
#
# `("prod", "users")` is the table or namespace `users` in the namespace `prod`. Its text is
# `prod$users`. The root namespace is `()`.

Identifier = tuple[str, ...]
DELIMITER = "$"
#: Characters that a name must not contain: it would mean another object, or a folder outside of the
#: root.
_RESERVED = frozenset("$/\\\x00")


def text_of(identifier: Identifier) -> str:
    """Return the text of an identifier that is not the root.

    Raises InvalidInputError: a name is empty, or has a reserved character.
    """
    if not identifier:
        raise InvalidInputError("the root namespace has no name; name a table or a namespace")
    for name in identifier:
        if not name or name in (".", "..") or not _RESERVED.isdisjoint(name):
            raise InvalidInputError(
                f"{name!r} is not a name of a table or namespace: it must not be empty, '.' or "
                "'..', or contain '$', '/', '\\' or a zero byte; choose another name"
            )
    return DELIMITER.join(identifier)


def child_name(text: str, parent: Identifier) -> str | None:
    """Return the last name of a text that is directly in a parent; None for other texts."""
    prefix = "".join(f"{name}{DELIMITER}" for name in parent)
    name = text.removeprefix(prefix)
    return name if text.startswith(prefix) and name and DELIMITER not in name else None


def display(identifier: Identifier) -> str:
    """Return the identifier as errors show it."""
    return ".".join(identifier) or "(root)"


# --------------------------------------------------------------------------------------------------
# The base class of namespaces, and the entry of a table in a namespace.


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as a namespace knows it.

    - `location`: Path or URI of the table. There may be no version yet.
    - `properties`: Properties in the namespace, not the properties of the table itself.
    - `storage_options`: Settings of the store of the table.
    - `is_external`: Whether the table is named by its path, and not by the namespace.
    - `chosen`: Whether the namespace has chosen the location, so that a new table of the name would
      be there or at another location that the namespace chooses.
    """

    location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    is_external: bool = False
    chosen: bool = False

    def has_version(self) -> bool:
        """Return whether there is a table, of any client.

        Raises UnsupportedFeatureError, CorruptTableError, StorageError.
        """
        from lance_spark.table.open import open_table

        try:
            open_table(self.location, storage_options=dict(self.storage_options) or None)
        except TableNotFoundError:
            return False
        return True


class Namespace(ABC):
    """Names of tables, and of namespaces in namespaces.

    Identifiers are tuples of names. `()` is the root namespace, which always exists.
    """

    @abstractmethod
    def list_namespaces(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the namespaces that are directly in a parent.

        Raises NamespaceNotFoundError, StorageError.
        """

    @abstractmethod
    def describe_namespace(self, identifier: Identifier) -> dict[str, str]:
        """Return the properties of a namespace. Raises NamespaceNotFoundError, StorageError."""

    @abstractmethod
    def create_namespace(
        self, identifier: Identifier, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace.

        Raises NamespaceExistsError, InvalidInputError, CommitConflictError, StorageError. Raises
        NamespaceNotFoundError: the parent does not exist.
        """

    @abstractmethod
    def drop_namespace(self, identifier: Identifier) -> None:
        """Remove an empty namespace.

        Raises NamespaceNotFoundError, NamespaceNotEmptyError, CommitConflictError, StorageError.
        """

    @abstractmethod
    def list_tables(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the tables that are directly in a namespace.

        Raises NamespaceNotFoundError, StorageError.
        """

    @abstractmethod
    def describe_table(self, identifier: Identifier) -> TableEntry:
        """Return where a table is. Raises TableNotFoundError, StorageError."""

    @abstractmethod
    def new_table(self, identifier: Identifier) -> TableEntry:
        """Return where to write a new table. Afterwards, `register_table` adds its name.

        Raises TableExistsError, InvalidInputError, StorageError. Raises NamespaceNotFoundError: the
        namespace of the table does not exist.
        """

    @abstractmethod
    def check_location(self, identifier: Identifier, location: str) -> None:
        """Check that a new table of this name can be written to a location of the user.

        Raises InvalidInputError.
        """

    @abstractmethod
    def cancel_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Release the name that `new_table` took, because the table was not written.

        Raises StorageError.
        """

    @abstractmethod
    def register_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Give an existing table a name in the namespace.

        Raises NamespaceNotFoundError, InvalidInputError, CommitConflictError, StorageError. Raises
        TableExistsError: the name has a table. The files of the entry are still there.
        """

    @abstractmethod
    def deregister_table(self, identifier: Identifier) -> TableEntry:
        """Remove the name of a table, and keep its files; return where they are.

        Raises TableNotFoundError, CommitConflictError, StorageError.
        """

    @abstractmethod
    def drop_table(self, identifier: Identifier) -> None:
        """Remove the name of a table, and delete its files.

        Raises TableNotFoundError, CommitConflictError, StorageError.
        """

    @abstractmethod
    def rename_table(self, identifier: Identifier, new: Identifier) -> None:
        """Give a table another name. Its files stay where they are, if the new name allows it.

        Raises TableNotFoundError, NamespaceNotFoundError, UnsupportedError, CommitConflictError,
        StorageError. Raises TableExistsError: the new name has a table.
        """
