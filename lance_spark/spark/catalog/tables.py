"""Tables of a catalog: listed, loaded, dropped, renamed and truncated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql.types import StructType

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.namespace import Namespace, TableEntry
from lance_spark.namespace.base import Identifier, display
from lance_spark.scan.fragment.row_meta import (
    CREATED_AT,
    FRAGMENT_ID,
    ROW_ADDRESS,
    ROW_ID,
    UPDATED_AT,
)
from lance_spark.spark.catalog import constraints, properties
from lance_spark.spark.catalog.names import DEFAULT_NAMESPACE, Catalog, options_of
from lance_spark.spark.catalog.properties import partition_columns
from lance_spark.spark.catalog.times import from_microseconds
from lance_spark.spark.options.declared import DEFAULT_BLOB_HANDLING
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.snapshot import identity_text
from lance_spark.spark.types.mapping import catalog_schema, to_spark_type
from lance_spark.table.primary_key import primary_key

# --------------------------------------------------------------------------------------------------
# Namespaces of a catalog.


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


# --------------------------------------------------------------------------------------------------
# Tables of a catalog: listed, loaded, dropped, renamed and truncated.

#: Least rows of a table that is worth the search for the keys of the source of a merge.
MIN_TABLE_ROWS = 100_000
_ROW_COLUMNS = {
    ROW_ADDRESS: "address of the row: fragment id << 32 | offset in the fragment",
    ROW_ID: "stable id of the row; its address in tables without stable row ids",
    FRAGMENT_ID: "id of the fragment that has the row",
    CREATED_AT: "version that inserted the row",
    UPDATED_AT: "version that changed the row last",
}


def list_tables(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of the tables in a namespace."""
    catalog = Catalog.of(arguments)
    parent = catalog.namespace_identifier(arguments["namespace"])
    return {"names": catalog.namespace.list_tables(parent)}


def load_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns, options and properties of a table.

    - `arguments`: The name, and ``version`` (number, tag or branch), ``timestamp`` (microseconds),
      or ``for_write``, which requests the types that a write expects.
    """
    entry, named = Catalog.of(arguments).describe_reference(arguments)
    return loaded(
        entry,
        version=arguments.get("version"),
        timestamp=arguments.get("timestamp"),
        named=named,
        for_write=bool(arguments.get("for_write")),
    )


def loaded(
    entry: TableEntry,
    *,
    version: str | None = None,
    timestamp: int | None = None,
    named: Mapping[str, str] | None = None,
    for_write: bool = False,
) -> dict[str, Any]:
    """Return the description of a table for the JVM (`NamedTable.java`).

    - `named`: The tag or branch that the name of the table ends with.

    Raises TableNotFoundError, VersionNotFoundError, UnsupportedTypeError. Raises InvalidInputError:
    a tag is written to, or two versions are named.
    """
    if for_write and named is not None and "tag" in named:
        raise InvalidInputError(
            f"{entry.location}: the tag {named['tag']!r} names a version, which cannot change; "
            "write to the table or to a branch"
        )
    dataset, reference = opened(entry, version, timestamp, named)
    options = {**options_of(entry), **reference}
    arrow = dataset._stored_schema(blob_handling=DEFAULT_BLOB_HANDLING)
    description = described(entry, dataset, catalog_schema(arrow), options)
    if for_write:
        description["large"] = dataset._table.manifest.has_rows(MIN_TABLE_ROWS)
        # Only statements that write see partitions: they have no part in a read, and none in the
        # text of SHOW CREATE TABLE, which has the property.
        description["partition_by"] = _partition_by(dataset)
        description["has_key"] = bool(primary_key(dataset._table.schema))
    return description


def _partition_by(dataset: Dataset) -> list[str]:
    """Return the columns of partitions that the property of the table names, as the table does."""
    names = dataset.schema.names
    with suppress(InvalidOptionError):
        named = [find(names, name) for name in partition_columns(dataset.metadata)]
        if -1 not in named:
            return [names[index] for index in named]
    # Another client has set it, or dropped the column: only overwrites of partitions refuse it.
    return []


def described(
    entry: TableEntry, dataset: Dataset, columns: StructType, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the description of a version of a table for the JVM.

    - `columns`: Columns of a read with the options.
    """
    return {
        "schema": columns.json(),
        "options": dict(options),
        "properties": {**properties.of_table(dataset), **properties.of_place(entry)},
        "constraints": constraints.described(dataset._table.manifest),
        "version": dataset.version,
        "identity": identity_text(dataset._table.manifest),
        "row_columns": [
            {
                "name": field.name,
                "type": to_spark_type(field.arrow_field.type, field.name).jsonValue(),
                "nullable": False,
                "comment": comment,
            }
            for field, comment in _ROW_COLUMNS.items()
            if field.name not in columns.names
        ],
    }


def path_exists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the path among the options of a write has a table."""
    from lance_spark.spark.options.write import WriteOptions

    options = WriteOptions.parse(arguments["options"])
    entry = TableEntry(options.path, {}, options.storage_options)
    try:
        _open(entry)
    except TableNotFoundError:
        return {"exists": False}
    return {"exists": True}


def path_constraints(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constraints of the table at the path among the options of a write."""
    from lance_spark.spark.options.write import WriteOptions

    try:
        options = WriteOptions.parse(arguments["options"])
        entry = TableEntry(options.path, {}, options.storage_options)
        table = _open(entry, branch=options.branch)._table
    except LanceError:
        # The write itself raises the error.
        return {"constraints": []}
    return {"constraints": constraints.described(table.manifest)}


def columns_left_out(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with defaults that a write by path leaves out, as a schema of Spark.

    The entry "opened_version" is the option by which an append finds the version that was read.
    """
    from lance_spark.spark.options.write import WriteOptions
    from lance_spark.spark.write.planning import columns_left_out

    try:
        options = WriteOptions.parse(arguments["options"])
        columns, opened, table = columns_left_out(
            options, arguments["columns"], arguments["overwrite"]
        )
    except LanceError:
        # The write itself raises the error.
        columns, opened, table = StructType(), None, None
    known = [] if table is None else constraints.described(table)
    return {"schema": columns.json(), "opened_version": opened, "constraints": known}


def drop_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a table and its files; return whether it existed."""
    catalog = Catalog.of(arguments)
    identifier = catalog.table_identifier(arguments)
    try:
        catalog.namespace.drop_table(identifier)
    except (TableNotFoundError, NamespaceNotFoundError):
        _refuse_drop_of_reference(catalog, arguments)
        return {"dropped": False}
    return {"dropped": True}


def _refuse_drop_of_reference(catalog: Catalog, arguments: Mapping[str, Any]) -> None:
    with suppress(TableNotFoundError, NamespaceNotFoundError):
        entry, named = catalog.describe_reference(arguments)
        for category, name in named.items():
            raise InvalidInputError(
                f"{entry.location}: DROP TABLE does not drop the {category} {name!r}; use ALTER "
                f"TABLE t DROP {category.upper()} {name}"
            )


def rename_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give a table another name."""
    catalog = Catalog.of(arguments)
    target = {"namespace": arguments["new_namespace"], "name": arguments["new_name"]}
    catalog.namespace.rename_table(
        catalog.table_identifier(arguments), catalog.table_identifier(target)
    )
    return {}


def opened(
    entry: TableEntry,
    version: str | None,
    timestamp: int | None,
    named: Mapping[str, str] | None = None,
) -> tuple[Dataset, dict[str, Any]]:
    """Open a version by its number, tag, branch or time; return it and the options that name it.

    - `named`: The tag or branch that the name of the table ends with.
    """
    if named:
        if version is not None or timestamp is not None:
            ((category, name),) = named.items()
            raise InvalidInputError(
                f"{entry.location}: the name of the table ends with the {category} {name!r}, and "
                "the statement names a version or a time, too; remove one of them"
            )
        return _open(entry, **named), dict(named)
    if timestamp is not None:
        time = from_microseconds(timestamp)
        return _open(entry, timestamp=time), {"timestamp": time.isoformat()}
    if version is None:
        return _open(entry), {}
    if version.isascii() and version.isdecimal():
        return _open(entry, version=int(version)), {"version": version}
    for name in ("tag", "branch"):
        with suppress(VersionNotFoundError):
            return _open(entry, **{name: version}), {name: version}
    raise VersionNotFoundError(
        f"{version!r} is not a version, a tag or a branch of the table; list them by "
        "LanceTable.history(), tags() and branches()"
    )


def _open(entry: TableEntry, **reference: Any) -> Dataset:
    storage = dict(entry.storage_options) or None
    return open_dataset(entry.location, storage_options=storage, **reference)
