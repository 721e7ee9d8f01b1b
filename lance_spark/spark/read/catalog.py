"""Tables of Spark's session catalog: their location is stored in the schema.

`CREATE TABLE t USING lance LOCATION ...` requests the schema with all options, and stores it. A
later SELECT passes the stored schema without options. So the metadata of the first column in the
catalog has the location, and a read without a path uses it. Writes do not: a DataFrame that was
read from the table has the same metadata, and would be written to that table.
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
    """Return whether Spark requests the schema for its catalog."""
    return "provider" in options


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema for the catalog, with the location of the table.

    Raises
    ------
    InvalidOptionError
        Storage options are given, which may be secret and must not be in a schema; or it is a
        change feed.
    """
    parsed = ReadOptions.parse(options)
    if parsed.feed:
        raise InvalidOptionError(
            f"option {next(iter(parsed.feed))} does not apply to tables of Spark's catalog: read "
            "a change feed by spark.read, or a stream by spark.readStream, with the table's path"
        )
    location = parse_uri(parsed.path)
    if parsed.storage_options or location.display != location.uri:
        raise InvalidOptionError(
            "a table of Spark's catalog cannot store storage options: set them in the environment "
            "of the cluster, or use CREATE TEMPORARY VIEW v USING lance OPTIONS (...)"
        )
    carried = {name: options[name] for name in _CARRIED if name in options}
    first, *others = schema.fields
    metadata = {**first.metadata, _KEY: json.dumps(carried)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_of(field: StructField | None, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read; given options override those of the catalog schema.

    Parameters
    ----------
    field : StructField or None
        First field of the schema, or the field of a request, which has the metadata of the first.
    options : mapping
    """
    results: dict[str, Any] = dict(options)
    if "path" in options or field is None:
        return results
    carried = field.metadata.get(_KEY)
    return {**json.loads(carried), **results} if carried else results
