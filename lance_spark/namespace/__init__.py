"""Namespaces: tables by name, in a folder, on a server, or in another catalog."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lance_spark.errors import InvalidOptionError, UncertainCommitError
from lance_spark.namespace.base import Namespace, TableEntry

__all__ = ["Namespace", "TableEntry", "connect"]

_STORAGE, _HEADERS = "storage.", "headers."


def connect(impl: str, properties: Mapping[str, str]) -> Namespace:
    """Return a namespace.

    - `impl`: ``dir`` (tables in a folder), ``rest`` (a server), or an implementation of the package
      lance-namespace.
    - `properties`: ``root`` of ``dir``, ``uri`` and ``headers.NAME`` of ``rest``, ``storage.NAME``
      for settings of stores. Other properties are for implementations of lance-namespace.

    Raises InvalidOptionError: a property is missing or unknown, or the implementation was not
    found.

    Examples
    --------
    >>> names = connect("dir", {"root": "s3://bucket/tables", "storage.region": "eu-west-1"})
    >>> names.list_tables(("db",))
    """
    storage = _below(properties, _STORAGE)
    if impl == "dir":
        from lance_spark.namespace.directory import DirectoryNamespace

        _check_known(impl, properties, "root", _STORAGE)
        return DirectoryNamespace(_needed(impl, properties, "root"), storage)
    if impl == "rest":
        from lance_spark.namespace.client import RestNamespace

        _check_known(impl, properties, "uri", _STORAGE, _HEADERS)
        uri = _needed(impl, properties, "uri")
        return RestNamespace(uri, _below(properties, _HEADERS), storage)
    from lance_spark.namespace.external import ExternalNamespace

    return ExternalNamespace(impl, properties, storage)


def storage_options_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the storage options that a namespace gives a table.

    Other processes call it to renew credentials; see `lance_spark.namespace.client`.

    - `request`: `impl` and `properties` of the namespace, and `id`, the names of the table.

    Raises LanceError: the namespace does not answer, or no longer has the table.
    """
    namespace = connect(request["impl"], request["properties"])
    return namespace.describe_table(tuple(request["id"])).storage_options


@contextmanager
def table_entry(
    uri: str | os.PathLike[str] | None,
    client: object | None,
    table_id: Sequence[str] | None,
    storage_options: Mapping[str, Any],
    *,
    is_new: bool = False,
) -> Iterator[TableEntry]:
    """Return where a table is: at a URI, or where a namespace says.

    - `client`: The namespace of the table, if no URI is given.
    - `table_id`: The names of the table in the namespace.
    - `storage_options`: Settings of the store. Settings that the namespace gives replace them.
    - `is_new`: Whether the block creates the table. The name is released if the block fails.

    Raises InvalidOptionError: not exactly one of `uri` and the other two is given, or the client is
    of another class. Raises LanceError: errors of `Namespace.describe_table`, `new_table` and
    `register_table`.
    """
    if client is None and table_id is None and uri is not None:
        yield TableEntry(os.fspath(uri), storage_options=storage_options)
        return
    if client is None or table_id is None or uri is not None:
        raise InvalidOptionError(
            "give either uri, a path of a table, or namespace_client and table_id"
        )
    if not isinstance(client, Namespace):
        from lance_spark.namespace.external import GivenNamespace

        client = GivenNamespace(client)
    identifier = tuple(table_id)
    description = client.new_table(identifier) if is_new else client.describe_table(identifier)
    entry = TableEntry(
        description.location,
        description.properties,
        {**storage_options, **description.storage_options},
    )
    try:
        yield entry
        if is_new:
            client.register_table(identifier, description)
    except UncertainCommitError:
        raise
    except Exception:  # Also an error of the program whose rows are written.
        if is_new:
            client.cancel_table(identifier, description)
        raise


def _below(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in properties.items()
        if name.startswith(prefix)
    }


def _needed(impl: str, properties: Mapping[str, str], name: str) -> str:
    value = properties.get(name)
    if not value:
        raise InvalidOptionError(f"namespace {impl!r} needs the property {name!r}; set it")
    return value


def _check_known(impl: str, properties: Mapping[str, str], *known: str) -> None:
    for name in properties:
        if not any(
            name == known_name or (known_name.endswith(".") and name.startswith(known_name))
            for known_name in known
        ):
            names = ", ".join(
                f"{known_name}*" if known_name.endswith(".") else known_name for known_name in known
            )
            raise InvalidOptionError(
                f"namespace {impl!r} has no property {name!r}; its properties are {names}"
            )
