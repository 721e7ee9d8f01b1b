"""Names of a catalog: its options, and the namespaces and tables that Spark's identifiers mean.

| option | meaning |
| --- | --- |
| `impl` | `dir` (the default), `rest`, or an implementation of the package lance-namespace |
| `root` | folder of `dir`; by default the warehouse folder of the session |
| `uri`, `headers.NAME` | server of `rest`, and headers of its requests |
| `storage.NAME` | settings of the store |
| `single_level_ns` | true if the catalog shows one namespace, `default`: the root of the others |
| `parent`, `parent_delimiter` | a namespace in which all names of the catalog are; `.` divides it |

The names are the names of the Java connector.

A name with a slash is a path or a URI: ``lance.`/data/t.lance` ``. Such a table is in no namespace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    NamespaceNotFoundError,
    TableNotFoundError,
)
from lance_spark.namespace import Namespace, TableEntry, connect
from lance_spark.namespace.base import Identifier, display
from lance_spark.storage.options import parse_flag

DEFAULT_IMPL = "dir"
#: The only namespace of a catalog with `single_level_ns`.
DEFAULT_NAMESPACE = "default"
#: The last part of a name that means a tag or a branch of the table before it.
_REFERENCE = re.compile(r"(?P<category>tag|branch)_(?P<name>.+)", re.IGNORECASE)
_OWN = ("impl", "single_level_ns", "parent", "parent_delimiter")


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog as its options describe it.

    - `namespace`: Has the tables.
    - `parent`: Namespace in which all names of the catalog are.
    - `single_level`: Whether the catalog shows one namespace.
    """

    namespace: Namespace
    parent: Identifier
    single_level: bool
    _storage: Mapping[str, str]

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Catalog:
        """Return the catalog of a call. Raises InvalidOptionError."""
        options: dict[str, str] = dict(arguments["catalog"])
        impl = options.get("impl", DEFAULT_IMPL)
        properties = {name: value for name, value in options.items() if name not in _OWN}
        if impl == DEFAULT_IMPL:
            properties.setdefault("root", arguments["warehouse"])
        storage = {name: value for name, value in options.items() if name.startswith("storage.")}
        delimiter = options.get("parent_delimiter", ".")
        if not delimiter:
            raise InvalidOptionError("option parent_delimiter must not be empty")
        parent = tuple(options["parent"].split(delimiter)) if options.get("parent") else ()
        single = parse_flag("single_level_ns", options.get("single_level_ns", "false"))
        return cls(connect(impl, properties), parent, single, storage)

    def namespace_identifier(self, names: Sequence[str]) -> Identifier:
        """Return the namespace that Spark's name means.

        Raises NamespaceNotFoundError: the catalog shows one namespace, and the name is of another.
        """
        if self.single_level and names:
            if list(names) != [DEFAULT_NAMESPACE]:
                raise NamespaceNotFoundError(
                    f"namespace {display(tuple(names))} was not found: the option single_level_ns "
                    f"leaves the namespace {DEFAULT_NAMESPACE!r} only"
                )
            return self.parent
        return (*self.parent, *names)

    def table_identifier(self, arguments: Mapping[str, Any]) -> Identifier:
        """Return the identifier of the table of a call, which must not be a path.

        Raises InvalidInputError: the table is named by its path.
        """
        name = arguments["name"]
        if is_path(arguments):
            raise InvalidInputError(
                f"{name} is a path: the statement needs the name of a table in a namespace"
            )
        return (*self.namespace_identifier(arguments["namespace"]), name)

    def describe(self, arguments: Mapping[str, Any]) -> TableEntry:
        """Return where the table of a call is. Raises TableNotFoundError."""
        if is_path(arguments):
            return self.path_entry(arguments["name"])
        return self.namespace.describe_table(self.table_identifier(arguments))

    def describe_reference(self, arguments: Mapping[str, Any]) -> tuple[TableEntry, dict[str, str]]:
        """Return where the table of a call is, and the tag or branch that the name ends with.

        As in Iceberg, ``t.tag_x`` is the tag ``x`` of the table ``t``, and ``t.branch_x`` its
        branch, unless a table has the name. The options are empty for other names. The catalog of
        the session gives the path of the table for ``t``. Raises TableNotFoundError,
        NamespaceNotFoundError.
        """
        match = _REFERENCE.fullmatch(arguments["name"])
        *namespace, name = arguments["namespace"] or [""]
        of_path = not namespace and "/" in name
        try:
            return self.describe(arguments), {}
        except (TableNotFoundError, NamespaceNotFoundError, InvalidInputError) as error:
            if match is None or not name or (isinstance(error, InvalidInputError) and not of_path):
                raise
            with suppress(TableNotFoundError, NamespaceNotFoundError):
                entry = self.describe({**arguments, "namespace": namespace, "name": name})
                return entry, {match["category"].lower(): match["name"]}
            raise

    def path_entry(self, path: str) -> TableEntry:
        """Return the entry of a table that is named by its path."""
        storage = {name.removeprefix("storage."): v for name, v in self._storage.items()}
        return TableEntry(path, {}, storage, is_external=True)


def entry_of(function: str, arguments: Mapping[str, Any]) -> TableEntry:
    """Return where the table is that a table function names, in a catalog or by its path.

    Raises TableNotFoundError. Raises InvalidInputError: it is a table of another catalog.
    """
    if "catalog" in arguments:
        return Catalog.of(arguments).describe(arguments)
    if is_path(arguments):
        return TableEntry(arguments["name"], {}, {}, is_external=True)
    raise InvalidInputError(
        f"{function}: {arguments['name']} is not a table of a catalog of Lance tables; write its "
        "name with its catalog, such as 'lance.db.t', or its path"
    )


def is_path(arguments: Mapping[str, Any]) -> bool:
    """Return whether the name of a call is a path or a URI."""
    return not arguments["namespace"] and "/" in arguments["name"]


def options_of(entry: TableEntry) -> dict[str, str]:
    """Return the options by which Spark reads and writes a table."""
    storage = {f"storage.{name}": str(value) for name, value in entry.storage_options.items()}
    return {"path": entry.location, **storage}
