"""TBLPROPERTIES: options of the first write, configuration and metadata of the table.

| property | stored as |
| --- | --- |
| `enable_stable_row_ids`, `data_storage_version` (or `file_format_version`) | option of the write |
| `COLUMN.arrow.*`, `COLUMN.lance.*`, such as `e.arrow.fixed-size-list.size` | type of the column, |
| | or metadata of the table until there is such a column |
| `partitionBy`: columns of partitions | metadata of the table |
| starts with `lance.` | configuration of the table (`LanceDataset.config` of pylance) |
| `collation`, which `DEFAULT COLLATION` sets | metadata of the table: `spark.sql.collation` |
| `spark.constraints.NAME`: a constraint, which is neither shown nor set | configuration |
| all others, and `comment` | metadata of the table |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.types import ArrayType, StructField, StructType

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import ARROW_JSON, EXTENSION_NAME
from lance_spark.namespace import TableEntry
from lance_spark.spark.options.declared import (
    COLUMN_KEYS,
    DEFAULT_BLOB_HANDLING,
    PARTITION_BY,
    SYNONYMS,
)
from lance_spark.spark.options.values import column_names
from lance_spark.spark.read.projection import find
from lance_spark.spark.types.field_metadata import JSON_MARK
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.spark.write import new_table
from lance_spark.storage.uri import parse_uri
from lance_spark.table.constraints import is_constraint
from lance_spark.table.sort_order import KEY as SORTED_BY

COMMENT = "comment"
LOCATION = "location"
PROVIDER = "provider"
#: Spark's name of the default collation of a table.
COLLATION = "collation"
#: Properties by which Spark tells whether a table is external, and whether SHOW CREATE TABLE needs
#: its location.
_EXTERNAL, _CHOSEN_LOCATION = "external", "is_managed_location"
#: Properties that are options of the write which creates the table.
WRITE_PROPERTIES = ("enable_stable_row_ids", "data_storage_version")
#: Properties that Spark itself sets and reads.
RESERVED = frozenset(
    {
        *(PROVIDER, LOCATION, "owner", _EXTERNAL, _CHOSEN_LOCATION, "table_type"),
        new_table.COLLATION,
    }
)
_COLUMN_OPTION = re.compile(rf".+\.(?:{'|'.join(map(re.escape, COLUMN_KEYS))})", re.IGNORECASE)
#: Keys of column metadata, and the option that sets each.
_COLUMN_OPTIONS = {metadata: option for option, metadata in COLUMN_KEYS.items()}


def split(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that are options of a write, and those that the table stores."""
    options: dict[str, str] = {}
    stored: dict[str, str] = {}
    for name, value in properties.items():
        if name in RESERVED or name.startswith("option."):
            # Spark repeats each option of the statement under this prefix.
            continue
        if is_write_option(name):
            options[name] = value
        elif is_constraint(name):
            check_changeable(name)
        else:
            stored[stored_name(name)] = value
    return options, stored


def is_write_option(name: str) -> bool:
    """Return whether a property is an option of the write that creates the table."""
    lower = name.lower()
    return SYNONYMS.get(lower, lower) in WRITE_PROPERTIES or is_column_option(name)


def is_column_option(name: str) -> bool:
    """Return whether a property is an option of a column, such as its type in Arrow."""
    return bool(_COLUMN_OPTION.fullmatch(name))


def stored_name(name: str) -> str:
    """Return the key under which a table stores a property."""
    return new_table.COLLATION if name == COLLATION else name


def partition_columns(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of partitions, if a property names them.

    - `metadata`: Metadata of a table, or properties of a statement.

    Raises InvalidOptionError: the value is not a list of names.
    """
    for name, value in metadata.items():
        if SYNONYMS.get(name.lower(), name.lower()) == PARTITION_BY:
            return column_names(f"(property) {name}", value) or ()
    return ()


def check_partition_columns(properties: Mapping[str, str], schema: pa.Schema, table: str) -> None:
    """Refuse a property that names columns which cannot be columns of partitions.

    Raises InvalidOptionError.
    """
    from lance_spark.mutations.rows.partial_overwrite import partition_columns as checked

    if columns := partition_columns(properties):
        found = [find(schema.names, name) for name in columns]
        names = [
            name if index < 0 else schema.names[index]
            for name, index in zip(columns, found, strict=True)
        ]
        checked(Schema.from_arrow(schema), names, f"table {table}: property partitionBy: it")


def is_config(name: str) -> bool:
    """Return whether a property is stored as configuration, and not as metadata."""
    return name.startswith("lance.") or name == SORTED_BY or is_constraint(name)


def of_table(dataset: Dataset) -> dict[str, str]:
    """Return the properties of a table, as SHOW TBLPROPERTIES and SHOW CREATE TABLE show them."""
    metadata = dict(dataset.metadata)
    # Other clients may use Spark's name for something else.
    metadata.pop(COLLATION, None)
    collation = metadata.pop(new_table.COLLATION, None)
    return {
        **metadata,
        **({} if collation is None else {COLLATION: collation}),
        # Spark shows constraints by themselves: SHOW CREATE TABLE has a clause for each.
        **{key: value for key, value in dataset.config().items() if not is_constraint(key)},
        **dict(_column_options(dataset._stored_schema(blob_handling=DEFAULT_BLOB_HANDLING))),
        "data_storage_version": dataset.data_storage_version,
        "enable_stable_row_ids": str(dataset._table.manifest.flags.stable_row_ids).lower(),
        PROVIDER: "lance",
        LOCATION: parse_uri(dataset.uri).display,
    }


def of_place(entry: TableEntry) -> dict[str, str]:
    """Return the properties that say what Spark may tell of the location of a table."""
    names = {_EXTERNAL: entry.is_external, _CHOSEN_LOCATION: entry.chosen}
    return {name: "true" for name, is_so in names.items() if is_so}


def of_new_columns(stored: Mapping[str, str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the options of new columns that properties of the table have set before.

    - `stored`: Metadata of the table.

    Returns field metadata as of `WriteOptions.column_metadata`.
    """
    options = {name: value for name, value in stored.items() if is_column_option(name)}
    if not options:
        return {}

    from lance_spark.spark.options.read import split_options

    wanted = {name.lower() for name in names}
    columns = split_options(options).columns
    return {path: keys for path, keys in columns.items() if path.partition(".")[0] in wanted}


def is_of_creation(name: str) -> bool:
    """Return whether a table has a property from its creation."""
    return is_write_option(name) or name in RESERVED


def check_changeable(name: str) -> None:
    """Refuse to set or remove a property that a table has from its creation.

    Raises InvalidOptionError.
    """
    if is_constraint(name):
        raise InvalidOptionError(
            f"property {name} cannot be changed: it is a constraint; use ALTER TABLE ... ADD "
            "CONSTRAINT or DROP CONSTRAINT"
        )
    if is_of_creation(name):
        raise InvalidOptionError(
            f"property {name} cannot be changed: it is set when the table is created; create the "
            "table again by CREATE OR REPLACE TABLE"
        )


def _column_options(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    for field in to_spark_schema(schema):
        yield from _options_of(field, field.name)


def _options_of(field: StructField, path: str) -> Iterator[tuple[str, str]]:
    if field.metadata.get(EXTENSION_NAME) == ARROW_JSON:
        yield f"{path}.{JSON_MARK}", "true"
    for key, value in field.metadata.items():
        option = _COLUMN_OPTIONS.get(key)
        if option == "lance.encoding":
            yield f"{path}.{option}", "blob"
        elif option is not None:
            yield f"{path}.{option}", str(value)
    dtype = field.dataType
    while isinstance(dtype, ArrayType):
        dtype, path = dtype.elementType, f"{path}.element"
    for child in dtype if isinstance(dtype, StructType) else ():
        yield from _options_of(child, f"{path}.{child.name}")
