"""Options of a query of a table by name: `spark.read.option(...).table(...)`, and SQL's `WITH`.

Spark 4.3 passes them when it loads the table. Earlier versions pass them when the columns are
resolved already, so that an option which changes the columns is refused there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructType

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidOptionError, UnsupportedError
from lance_spark.spark.catalog import tables
from lance_spark.spark.catalog.names import Catalog, options_of
from lance_spark.spark.options.declared import canonical
from lance_spark.spark.options.read import ReadOptions, with_offsets
from lance_spark.spark.types.mapping import catalog_schema, to_spark_schema

#: Options that name the version that a query reads.
_REFERENCES = frozenset({"version", "tag", "branch", "timestamp"})


def load_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns, options and properties of a table.

    - `arguments`: As of `tables.load_table`, and ``query``: options of the query.

    Raises TableNotFoundError, VersionNotFoundError. Raises InvalidOptionError: also if the query
    names two versions.
    """
    # The class of the table checks a path, and lets that of the table pass.
    query = {k: v for k, v in (arguments.get("query") or {}).items() if k.lower() != "path"}
    query = with_offsets(query, arguments["timezone"]) if query else query
    if not query or arguments.get("for_write"):
        return tables.load_table(arguments)
    from lance_spark.spark.read.reader import open_table

    entry, named = Catalog.of(arguments).describe_reference(arguments)
    reference: dict[str, Any] = {}
    version, timestamp = arguments.get("version"), arguments.get("timestamp")
    if version is not None or timestamp is not None or named:
        # Says whether the text is a version, a tag or a branch.
        _, reference = tables.opened(entry, version, timestamp, named)
    _check_one_version(arguments["name"], reference, query)
    options = {**options_of(entry), **reference, **query}
    parsed = ReadOptions.parse(options)
    dataset = open_table(parsed)
    return tables.described(entry, dataset, _schema(parsed, dataset), options)


def check_query_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse options that change the columns of a table that is loaded already.

    - `arguments`: ``name``, ``options`` and ``schema`` of the table, and ``query``, the options of
      the query.

    Raises UnsupportedError. Raises InvalidOptionError: an option is not known, has an invalid
    value, or names another version than the statement.
    """
    from lance_spark.spark.read.reader import open_table

    query = with_offsets(arguments["query"], arguments["timezone"])
    _check_one_version(arguments["name"], arguments["options"], query)
    options = {**arguments["options"], **query}
    parsed = ReadOptions.parse(options)
    known = StructType.fromJson(json.loads(arguments["schema"]))
    if _shown(_schema(parsed, open_table(parsed))) != _shown(known):
        raise UnsupportedError(
            f"{arguments['name']}: the options {', '.join(sorted(arguments['query']))} change the "
            "columns of the table, and Spark passes them after it has resolved the columns; use "
            "Spark 4.3, or read the table by its path: "
            f"spark.read.format('lance').options(...).load({parsed.path!r})"
        )
    return {}


def _check_one_version(name: str, chosen: Mapping[str, Any], query: Mapping[str, Any]) -> None:
    """Refuse options that name another version than the statement, or the option versionAsOf."""
    for option, value in query.items():
        name_of_option = canonical(option)
        existing = chosen.get(name_of_option)
        if name_of_option in _REFERENCES and existing not in (None, value):
            raise InvalidOptionError(
                f"{name}: the option {option} is {value}, and VERSION AS OF, TIMESTAMP AS OF or "
                f"the option versionAsOf or timestampAsOf says {existing}; give one of them"
            )


def _schema(options: ReadOptions, dataset: Dataset) -> StructType:
    from lance_spark.spark.read.projection import visible_schema

    if options.feed:
        from lance_spark.spark.options.feed import FeedOptions

        feed = FeedOptions.parse(options)
        if feed.read_change_feed:
            from lance_spark.spark.streaming.change_feed import feed_schema

            return to_spark_schema(feed_schema(options, feed))
    return catalog_schema(visible_schema(dataset, options))


def _shown(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]
