"""Namespaces that other programs keep: what they are asked, and what their answers mean.

The specification of namespaces (docs/src/spec.yaml) has the same fields for the requests of the
REST protocol and of the Python package lance-namespace. A request is a name of an operation and a
mapping of fields, and so is an answer.

A new table is declared before it is written: the name is taken from then on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from lance_spark.namespace.base import Namespace, TableEntry
from lance_spark.namespace.identifiers import Identifier, display, text_of
from lance_spark.namespace.renewal import with_source
from lance_spark.storage.uri import parse_uri

#: Errors by their code in the specification. Others are of the store.
_ERRORS: Mapping[int, type[LanceError]] = {
    0: UnsupportedError,
    1: NamespaceNotFoundError,
    2: NamespaceExistsError,
    3: NamespaceNotEmptyError,
    4: TableNotFoundError,
    5: TableExistsError,
    13: InvalidInputError,
}
_CONCURRENT = 14
_PAGE = 1_000


def error_of(code: int, message: str) -> LanceError:
    """Return the error of a code."""
    if code == _CONCURRENT:
        return CommitConflictError(message, retryable=True)
    return _ERRORS.get(code, StorageError)(message)


class ClientNamespace(Namespace):
    """A namespace that another program keeps.

    Parameters
    ----------
    label : str
        The program, for errors.
    impl, properties
        By which `lance_spark.namespace.connect` makes this namespace again, in another process.
    storage_options : mapping
        Settings of the stores of the tables. What the program gives for a table comes first.
    """

    def __init__(
        self,
        label: str,
        impl: str,
        properties: Mapping[str, str],
        storage_options: Mapping[str, Any],
    ) -> None:
        self._label = label
        self._impl = impl
        self._properties = dict(properties)
        self._options = dict(storage_options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._label!r})"

    @abstractmethod
    def _ask(
        self, operation: str, identifier: Identifier, fields: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Send a request; return the fields of the answer."""

    def list_namespaces(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the namespaces in a parent; see `Namespace`."""
        return self._listed("list_namespaces", parent, "namespaces")

    def describe_namespace(self, identifier: Identifier) -> dict[str, str]:
        """Return the properties of a namespace; see `Namespace`."""
        return _texts(self._ask("describe_namespace", identifier, {}).get("properties"))

    def create_namespace(
        self, identifier: Identifier, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace; see `Namespace`."""
        text_of(identifier)
        fields = {"mode": "Create", "properties": dict(properties or {})}
        self._ask("create_namespace", identifier, fields)

    def drop_namespace(self, identifier: Identifier) -> None:
        """Remove an empty namespace; see `Namespace`."""
        text_of(identifier)
        self._ask("drop_namespace", identifier, {})

    def list_tables(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the tables in a namespace; see `Namespace`."""
        return self._listed("list_tables", parent, "tables")

    def describe_table(self, identifier: Identifier) -> TableEntry:
        """Return where a table is; see `Namespace`."""
        text_of(identifier)
        return self._entry(
            self._ask("describe_table", identifier, {"vend_credentials": True}), identifier
        )

    def new_table(self, identifier: Identifier) -> TableEntry:
        """Declare a table, and return where it is to be written; see `Namespace`."""
        text_of(identifier)
        return self._entry(
            self._ask("declare_table", identifier, {"vend_credentials": True}), identifier
        )

    def cancel_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Give a declared table up; see `Namespace`."""
        with suppress(TableNotFoundError):
            self._ask("deregister_table", identifier, {})

    def register_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Make a table known by a name, unless `new_table` has declared it; see `Namespace`."""
        try:
            existing = self.describe_table(identifier)
        except TableNotFoundError:
            fields = {"location": entry.location, "properties": dict(entry.properties)}
            self._ask("register_table", identifier, fields)
            return
        # A client may give the same place as a path and as a URI.
        if parse_uri(existing.location) != parse_uri(entry.location):
            raise TableExistsError(
                f"{self._label}: {display(identifier)} exists already; choose another name"
            )

    def deregister_table(self, identifier: Identifier) -> TableEntry:
        """Forget the name of a table, and keep its files; see `Namespace`."""
        entry = self.describe_table(identifier)
        self._ask("deregister_table", identifier, {})
        return entry

    def drop_table(self, identifier: Identifier) -> None:
        """Forget the name of a table, and delete its files; see `Namespace`."""
        text_of(identifier)
        self._ask("drop_table", identifier, {})

    def rename_table(self, identifier: Identifier, new: Identifier) -> None:
        """Give a table another name; see `Namespace`."""
        text_of(identifier)
        text_of(new)
        fields = {"new_table_name": new[-1], "new_namespace_id": list(new[:-1])}
        self._ask("rename_table", identifier, fields)

    def _entry(self, answer: Mapping[str, Any], identifier: Identifier) -> TableEntry:
        if answer.get("managed_versioning"):
            raise UnsupportedFeatureError(
                f"{self._label}: versions of table {display(identifier)} are managed by the "
                "namespace, which this release does not support; use another client"
            )
        location = answer.get("location") or answer.get("table_uri")
        if not isinstance(location, str) or not location:
            raise StorageError(
                f"{self._label}: the answer has no location of table {display(identifier)}"
            )
        given = _texts(answer.get("storage_options"))
        handed_out = with_source(given, self._impl, self._properties, identifier)
        options = {**self._options, **handed_out}
        return TableEntry(location, _texts(answer.get("properties")), options)

    def _listed(self, operation: str, parent: Identifier, key: str) -> list[str]:
        names: set[str] = set()
        token = None
        while True:
            fields = {"limit": _PAGE, **({"page_token": token} if token else {})}
            answer = self._ask(operation, parent, fields)
            names.update(answer.get(key) or ())
            following = answer.get("page_token")
            # A program that returns the same token for ever must not be asked for ever.
            if not following or following == token:
                return sorted(names)
            token = following


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(item) for name, item in value.items()} if value else {}
