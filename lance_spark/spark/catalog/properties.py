"""TBLPROPERTIES: options of the first write, configuration and metadata of the table.

| property | stored as |
| --- | --- |
| `enable_stable_row_ids`, `data_storage_version` (or `file_format_version`) | option of the write |
| `COLUMN.arrow.*`, `COLUMN.lance.*`, such as `e.arrow.fixed-size-list.size` | type of the column |
| starts with `lance.` | configuration of the table (`LanceDataset.config` of pylance) |
| all others, and `comment` | metadata of the table |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.names import COLUMN_KEYS, SYNONYMS
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.storage.uri import parse_uri
from lance_spark.table.sort_order import KEY as SORTED_BY

COMMENT = "comment"
LOCATION = "location"
PROVIDER = "provider"
#: Properties that are options of the write which creates the table.
WRITE_PROPERTIES = ("enable_stable_row_ids", "data_storage_version")
#: Properties that Spark itself sets and reads.
RESERVED = frozenset(
    {PROVIDER, LOCATION, "owner", "external", "is_managed_location", "table_type", "collation"}
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
        else:
            stored[name] = value
    return options, stored


def is_write_option(name: str) -> bool:
    """Return whether a property is an option of the write that creates the table."""
    lower = name.lower()
    return SYNONYMS.get(lower, lower) in WRITE_PROPERTIES or is_column_option(name)


def is_column_option(name: str) -> bool:
    """Return whether a property is an option of a column, such as its type in Arrow."""
    return bool(_COLUMN_OPTION.fullmatch(name))


def is_config(name: str) -> bool:
    """Return whether a property is stored as configuration, and not as metadata."""
    return name.startswith("lance.") or name == SORTED_BY


def of_table(dataset: Dataset, schema: pa.Schema) -> dict[str, str]:
    """Return the properties of a table, as SHOW TBLPROPERTIES and SHOW CREATE TABLE show them."""
    return {
        **dataset.metadata,
        **dataset.config(),
        **dict(_column_options(schema)),
        "data_storage_version": dataset.data_storage_version,
        "enable_stable_row_ids": str(dataset._table.manifest.flags.stable_row_ids).lower(),
        PROVIDER: "lance",
        LOCATION: parse_uri(dataset.uri).display,
    }


def check_changeable(name: str) -> None:
    """Refuse to set or remove a property that a table has from its creation.

    Raises
    ------
    InvalidOptionError
    """
    if is_write_option(name) or name in RESERVED:
        raise InvalidOptionError(
            f"property {name} cannot be changed: it is set when the table is created; create the "
            "table again by CREATE OR REPLACE TABLE"
        )


def _column_options(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    for field in to_spark_schema(schema):
        for key, value in field.metadata.items():
            option = _COLUMN_OPTIONS.get(key)
            if option == "lance.encoding":
                yield f"{field.name}.{option}", "blob"
            elif option is not None:
                yield f"{field.name}.{option}", str(value)
