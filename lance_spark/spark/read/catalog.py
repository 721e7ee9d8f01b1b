"""Options of tables of Spark's catalog, kept in the metadata of the schema.

`CREATE TABLE t USING lance LOCATION ...` asks the data source for the schema with all options, and
the catalog keeps that schema. A later SELECT passes the schema without the options. The metadata of
its first column therefore holds the options, and a read without a path takes them from there.

A write does not: the metadata stays in every DataFrame that was read from the table, so a write of
such a DataFrame would go to the table that it was read from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType

from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.names import READ_NAMES
from lance_spark.spark.options.options import ReadOptions
from lance_spark.storage.uri import parse_uri

_KEY = "lance_spark.options"
_KEPT = ("path", *READ_NAMES)


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """Return whether the options are those of a table of the catalog."""
    return "provider" in options


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema for the catalog, which holds the options that find the table again.

    Raises
    ------
    InvalidOptionError
        The options have settings of the store, which may be secrets and do not belong in a schema;
        or they are those of a change feed.
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
    kept = {name: options[name] for name in _KEPT if name in options}
    first, *others = schema.fields
    metadata = {**first.metadata, _KEY: json.dumps(kept)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_of(field: StructField | None, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read: the given ones, and others that the catalog's schema holds.

    Parameters
    ----------
    field : StructField or None
        First field of the schema, or the field of a request, which has the metadata of the first.
    """
    given: dict[str, Any] = dict(options)
    if "path" in options or field is None:
        return given
    kept = field.metadata.get(_KEY)
    return {**json.loads(kept), **given} if kept else given
