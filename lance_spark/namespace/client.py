"""Namespaces that another program manages: requests to the program, and its answers.

The specification of namespaces (docs/src/spec.yaml) has the same fields for the requests of the
REST protocol and of the Python package lance-namespace. A request is the name of an operation and a
mapping of fields. An answer is a mapping of fields.

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

#: Errors by their code in the specification. All other codes mean an error of the store.
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
    """A namespace that another program manages.

    - `label`: Name of the program in errors.
    - `impl`, `properties`: Arguments with which `lance_spark.namespace.connect` opens this
      namespace in another process. Without `impl`, nothing renews the credentials of tables.
    - `storage_options`: Settings of the stores of the tables. Settings that the program returns for
      a table replace them.
    """

    def __init__(
        self,
        label: str,
        impl: str | None,
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
        """Return the entry of a table; see `Namespace`."""
        text_of(identifier)
        return self._entry(
            self._ask("describe_table", identifier, {"vend_credentials": True}), identifier
        )

    def new_table(self, identifier: Identifier) -> TableEntry:
        """Declare a table, and return where to write it; see `Namespace`."""
        text_of(identifier)
        return self._entry(
            self._ask("declare_table", identifier, {"vend_credentials": True}), identifier
        )

    def check_location(self, identifier: Identifier, location: str) -> None:
        """Refuse all locations: the program chooses them; see `Namespace`."""
        raise InvalidInputError(
            f"{self._label}: table {display(identifier)} cannot be at {location}: the namespace "
            "chooses where a new table is; remove LOCATION"
        )

    def cancel_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Remove the declaration of a table that was not written; see `Namespace`.

        The name stays if there is a table: another client may have written to the declared name.
        """
        if not entry.has_version():
            with suppress(TableNotFoundError):
                self._ask("deregister_table", identifier, {})

    def register_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Give a table a name, unless `new_table` has declared it; see `Namespace`."""
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
        """Remove the name of a table, and keep its files; see `Namespace`."""
        entry = self.describe_table(identifier)
        self._ask("deregister_table", identifier, {})
        return entry

    def drop_table(self, identifier: Identifier) -> None:
        """Remove the name of a table, and delete its files; see `Namespace`."""
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
        returned = _texts(answer.get("storage_options"))
        renewable = with_source(returned, self._impl, self._properties, identifier)
        options = {**self._options, **renewable}
        return TableEntry(location, _texts(answer.get("properties")), options, chosen=True)

    def _listed(self, operation: str, parent: Identifier, key: str) -> list[str]:
        names: set[str] = set()
        token = None
        sent: set[str] = set()
        while True:
            fields = {"limit": _PAGE, **({"page_token": token} if token else {})}
            answer = self._ask(operation, parent, fields)
            names.update(answer.get(key) or ())
            following = answer.get("page_token")
            # A program that returns a token again must not cause an endless loop.
            if not following or following in sent:
                return sorted(names)
            token = following
            sent.add(token)


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(item) for name, item in value.items()} if value else {}
