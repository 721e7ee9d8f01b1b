"""Tables of Spark's catalog, which tells a Python data source where they are only once.

`CREATE TABLE t USING lance LOCATION ...` asks for the schema with all options, and keeps that
schema. A later SELECT comes with the kept schema and without options. So the schema that goes into
the catalog says, in the metadata of its first column, where the table is; a read without a path
looks there. Writes do not: the metadata travels with every DataFrame that came from the table, and
would lead a write of one to the table it was read from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType

from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.options import READ_NAMES, ReadOptions
from lance_spark.storage.uri import parse_uri

_KEY = "lance_spark.options"
_CARRIED = ("path", *READ_NAMES)


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """Tell whether Spark asks on behalf of its catalog."""
    return "provider" in options


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema for the catalog, which says how to find the table again.

    Raises
    ------
    InvalidOptionError
        There are settings of the store: they may be secrets, and a schema is no place for them. Or
        it is a change feed.
    """
    parsed = ReadOptions.parse(options)
    if parsed.feed:
        raise InvalidOptionError(
            f"option {next(iter(parsed.feed))} is not for tables of Spark's catalog: read a change "
            "feed by "
            "spark.read, a stream by spark.readStream, with the table's path"
        )
    location = parse_uri(parsed.path)
    if parsed.storage_options or location.display != location.uri:
        raise InvalidOptionError(
            "a table of Spark's catalog cannot keep settings of the store: let the cluster's "
            "environment give them, or use "
            "CREATE TEMPORARY VIEW v USING lance OPTIONS (...)"
        )
    carried = {name: options[name] for name in _CARRIED if name in options}
    first, *others = schema.fields
    metadata = {**first.metadata, _KEY: json.dumps(carried)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_of(field: StructField | None, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read: those given, and below them those that the catalog's schema
    carries.

    Parameters
    ----------
    field : StructField or None
        First of the schema, or that of a request, which has the metadata of the first.
    options : mapping
    """
    results: dict[str, Any] = dict(options)
    if "path" in options or field is None:
        return results
    carried = field.metadata.get(_KEY)
    return {**json.loads(carried), **results} if carried else results
