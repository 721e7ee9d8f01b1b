"""Namespaces of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.errors import NamespaceNotEmptyError, NamespaceNotFoundError, UnsupportedError
from lance_spark.namespace import Namespace
from lance_spark.namespace.identifiers import Identifier, display
from lance_spark.spark.catalog.names import DEFAULT_NAMESPACE, Catalog


def list_namespaces(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of the namespaces that are directly in a namespace."""
    catalog = Catalog.of(arguments)
    names = arguments["namespace"]
    if catalog.single_level:
        return {"names": [] if names else [DEFAULT_NAMESPACE]}
    return {"names": catalog.namespace.list_namespaces(catalog.namespace_identifier(names))}


def namespace_exists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether a namespace exists."""
    try:
        load_namespace(arguments)
    except NamespaceNotFoundError:
        return {"exists": False}
    return {"exists": True}


def load_namespace(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a namespace."""
    catalog = Catalog.of(arguments)
    identifier = catalog.namespace_identifier(arguments["namespace"])
    return {"properties": catalog.namespace.describe_namespace(identifier)}


def create_namespace(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Create a namespace."""
    catalog = Catalog.of(arguments)
    identifier = catalog.namespace_identifier(arguments["namespace"])
    catalog.namespace.create_namespace(identifier, arguments["properties"])
    return {}


def alter_namespace(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to change the properties of a namespace: other clients cannot."""
    name = ".".join(arguments["namespace"])
    raise UnsupportedError(
        f"namespace {name}: its properties cannot be changed; set them by CREATE NAMESPACE"
    )


def drop_namespace(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Remove a namespace; with ``cascade``, its tables and namespaces first."""
    catalog = Catalog.of(arguments)
    identifier = catalog.namespace_identifier(arguments["namespace"])
    if identifier == catalog.parent:
        raise NamespaceNotEmptyError(
            f"namespace {display(identifier)} is the root of the catalog, which cannot be dropped"
        )
    try:
        if arguments["cascade"]:
            _empty(catalog.namespace, identifier)
        catalog.namespace.drop_namespace(identifier)
    except NamespaceNotFoundError:
        return {"dropped": False}
    return {"dropped": True}


def _empty(namespace: Namespace, identifier: Identifier) -> None:
    for name in namespace.list_tables(identifier):
        namespace.drop_table((*identifier, name))
    for name in namespace.list_namespaces(identifier):
        _empty(namespace, (*identifier, name))
        namespace.drop_namespace((*identifier, name))
