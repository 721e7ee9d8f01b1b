"""Tables that statements create or replace, with and without the rows of a query.

`CREATE TABLE` without a query, and `REPLACE TABLE`, commit an empty table here. With a query, the
writer of the rows commits schema, properties and rows as one version (`spark/write/planning`); the
statement begins with `stage_table` and ends with `commit_staged` or `abort_staged`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructType

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    TableExistsError,
    TableNotFoundError,
    UncertainCommitError,
    UnsupportedError,
)
from lance_spark.namespace import TableEntry
from lance_spark.namespace.base import Identifier
from lance_spark.spark.catalog import constraints, properties
from lance_spark.spark.catalog.names import Catalog, is_path, options_of
from lance_spark.spark.catalog.tables import loaded
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.types.mapping import table_schema
from lance_spark.spark.write.new_table import NewTable, begin_new_table
from lance_spark.storage.uri import parse_uri

_CREATE, _REPLACE = "create", "replace"


def create_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Create an empty table, and return it as `load_table` does."""
    catalog = Catalog.of(arguments)
    entry, exists = _target(catalog, arguments, _CREATE)
    if exists:
        raise _exists(arguments)
    try:
        _commit_empty(entry, arguments, NewTable(must_create=True))
        _register(catalog, arguments, entry)
    except UncertainCommitError:
        raise
    except Exception:
        _cancel(catalog, arguments, entry)
        raise
    return loaded(entry)


def like_properties(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a new table that is like another table.

    If the source is a Lance table, the new table stores its columns in the same way: vectors stay
    vectors. Other properties are not copied, as in Spark.

    - `arguments`: ``properties`` of the statement; properties of the ``source``, and its
      ``columns``; ``keeps_format``: whether the new table has the format of the source.
    """
    source = arguments["source"]
    provider = source.get(properties.PROVIDER)
    copied: dict[str, str] = {}
    if arguments["keeps_format"] and provider is not None:
        copied[properties.PROVIDER] = provider
    if provider == "lance":
        # The source can have options of columns that it does not have yet.
        columns = {column.lower() for column in arguments["columns"]}
        copied |= {
            name: value
            for name, value in source.items()
            if properties.is_write_option(name)
            and (not properties.is_column_option(name) or name.lower().split(".")[0] in columns)
        }
    combined = {**copied, **arguments["properties"]}
    if combined.get(properties.PROVIDER, "lance").lower() != "lance":
        combined = dict(arguments["properties"])
    return {"properties": combined}


def stage_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the write of a new table, and the state of the statement.

    The JVM passes the state to `commit_staged` or `abort_staged` at the end of the statement.

    - `arguments`: Arguments of `create_table`, and ``mode``: ``create``, ``replace`` or
      ``create_or_replace``.
    """
    catalog = Catalog.of(arguments)
    mode = arguments["mode"]
    entry, exists = _target(catalog, arguments, mode)
    if exists and mode == _CREATE:
        raise _exists(arguments)
    write_options, stored = properties.split(arguments["properties"])
    new_table = NewTable(must_create=not exists, properties=stored, replaces=mode != _CREATE)
    # The state stays in the JVM, and is not part of a plan.
    state = {
        "location": entry.location,
        "storage_options": dict(entry.storage_options),
        "exists": exists,
        "replaces": new_table.replaces,
        "properties": arguments["properties"],
        "constraints": arguments["constraints"],
    }
    place = options_of(entry)
    options = {**place, **write_options, **new_table.options()}
    return {"options": options, "place": place, "state": state}


def commit_staged(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Finish a statement: commit an empty table if no rows were written, register a new name."""
    catalog = Catalog.of(arguments)
    state = arguments["state"]
    entry = TableEntry(state["location"], {}, state["storage_options"])
    if not arguments["written"]:
        staged = {**arguments, **{key: state[key] for key in ("properties", "constraints")}}
        new_table = NewTable(must_create=not state["exists"], replaces=state["replaces"])
        _commit_empty(entry, staged, new_table)
    if not state["exists"]:
        try:
            _register(catalog, arguments, entry)
        except TableExistsError as error:
            if not state["replaces"]:
                raise
            raise CommitConflictError(
                f"table {arguments['name']}: another client created the table during this "
                "statement, which would replace it; run the statement again",
                retryable=True,
            ) from error
    return {}


def abort_staged(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Clean up after a statement that failed. The writer has deleted its files."""
    state = arguments["state"]
    if not state["exists"]:
        entry = TableEntry(state["location"], {}, state["storage_options"])
        _cancel(Catalog.of(arguments), arguments, entry)
    return {}


def _exists(arguments: Mapping[str, Any]) -> TableExistsError:
    return TableExistsError(
        f"table {arguments['name']} exists already; choose another name, or use CREATE OR REPLACE "
        "TABLE"
    )


def _absent(arguments: Mapping[str, Any]) -> TableNotFoundError:
    return TableNotFoundError(
        f"table {arguments['name']} was not found; use CREATE TABLE, or CREATE OR REPLACE TABLE"
    )


def _target(catalog: Catalog, arguments: Mapping[str, Any], mode: str) -> tuple[TableEntry, bool]:
    """Return where a table is or will be, and whether it exists.

    - `mode`: ``create``, ``replace`` or ``create_or_replace``.

    A namespace may take the name of a new table here: the caller calls `_cancel` if the statement
    fails.
    """
    provider = arguments["properties"].get(properties.PROVIDER, "lance").lower()
    # Without a format, DataFrameWriter.saveAsTable names the default format of the session.
    if provider not in ("lance", arguments["default_provider"].lower()):
        raise InvalidInputError(
            f"table {arguments['name']}: the catalog has Lance tables, and the statement asks for "
            f"{provider}; write USING lance, or leave USING out"
        )
    if arguments["partitions"]:
        raise UnsupportedError(
            f"table {arguments['name']}: Lance tables have no partitions, and the statement has "
            f"{', '.join(arguments['partitions'])}; remove PARTITIONED BY or CLUSTER BY: scans "
            "skip fragments and pages by the values they have, and the property partitionBy names "
            "the columns of partitions that INSERT OVERWRITE replaces"
        )
    if is_path(arguments):
        entry = catalog.path_entry(arguments["name"])
        exists = entry.has_version()
        if mode == _REPLACE and not exists:
            raise _absent(arguments)
        return entry, exists
    identifier = catalog.table_identifier(arguments)
    location = arguments["properties"].get(properties.LOCATION)
    try:
        entry, exists = catalog.namespace.describe_table(identifier), True
    except TableNotFoundError:
        if mode == _REPLACE:
            raise _absent(arguments) from None
        entry, exists = _new_entry(catalog, identifier, mode)
    # Spark adds the scheme file: to a LOCATION without one.
    uri = None if location is None else parse_uri(location).uri
    if uri is not None and uri != parse_uri(entry.location).uri:
        if exists:
            raise InvalidInputError(
                f"table {arguments['name']} is at {entry.location}, not at {location}; remove "
                "LOCATION, or drop the table first"
            )
        try:
            catalog.namespace.check_location(identifier, uri)
        except LanceError:
            _cancel(catalog, arguments, entry)
            raise
        entry = TableEntry(uri, entry.properties, entry.storage_options)
    return entry, exists


def _new_entry(catalog: Catalog, identifier: Identifier, mode: str) -> tuple[TableEntry, bool]:
    """Return where a table that was not found will be, and whether it exists by now."""
    try:
        return catalog.namespace.new_table(identifier), False
    except TableExistsError:
        if mode == _CREATE:
            raise
        # Another client may have created the table that this statement replaces.
        with suppress(TableNotFoundError):
            return catalog.namespace.describe_table(identifier), True
        raise


def _register(catalog: Catalog, arguments: Mapping[str, Any], entry: TableEntry) -> None:
    if not is_path(arguments):
        catalog.namespace.register_table(catalog.table_identifier(arguments), entry)


def _cancel(catalog: Catalog, arguments: Mapping[str, Any], entry: TableEntry) -> None:
    """Release the name of a new table that was not written."""
    if not is_path(arguments):
        catalog.namespace.cancel_table(catalog.table_identifier(arguments), entry)


def _commit_empty(entry: TableEntry, arguments: Mapping[str, Any], new_table: NewTable) -> None:
    write_options, stored = properties.split(arguments["properties"])
    options = WriteOptions.parse({**options_of(entry), **write_options})
    schema = StructType.fromJson(json.loads(arguments["schema"]))
    arrow = table_schema(schema, options.column_metadata, large_var_types=options.large_var_types)
    properties.check_partition_columns(stored, arrow, arguments["name"])
    arrow, known = constraints.of_new_table(arguments["constraints"], arrow, arguments["name"])
    new_table = replace(new_table, properties=stored, constraints=known)
    begin_new_table(options, arrow, new_table).commit([])
