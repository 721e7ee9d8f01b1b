"""The change feed of a table by name: for the function `lance_changes`, and Spark's CHANGES."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.errors import InvalidInputError, UnsupportedError
from lance_spark.spark.catalog.names import entry_of, options_of
from lance_spark.spark.catalog.times import from_microseconds
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions, with_offsets
from lance_spark.spark.streaming.change_feed import Span, feed_schema
from lance_spark.spark.types.mapping import to_spark_schema

FUNCTION = "lance_changes"
_USAGE = f"{FUNCTION}('table', start[, end]), where start and end are versions or timestamps"


def load_changes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns and options of the change feed of a table.

    - `arguments`: The name, and ``bounds``: one or two numbers of versions or texts of timestamps,
      both inclusive, and ``timezone``, the zone of such texts. For Spark's clause, ``starting`` and
      ``ending`` instead of ``bounds``: each has ``version`` or ``timestamp`` (microseconds), and
      ``inclusive``; and ``deduplication``, Spark's name of the requested changes.

    Raises TableNotFoundError, VersionNotFoundError, InvalidInputError, InvalidOptionError. Raises
    UnsupportedError: the statement asks for net changes.
    """
    if arguments.get("deduplication") == "NET_CHANGES":
        raise UnsupportedError(
            f"table {arguments['name']}: the change feed has the changes of each version, and does "
            "not merge several changes of a row; leave out deduplicationMode, and aggregate the "
            "changes"
        )
    entry = entry_of(FUNCTION, arguments)
    options = {**options_of(entry), "readChangeFeed": "true", **_span(arguments)}
    parsed = ReadOptions.parse(options)
    feed = FeedOptions.parse(parsed).of_batch(parsed)
    # Errors of versions are raised here: Spark shows errors of a planned scan with a traceback.
    Span.of(parsed, feed)
    schema = to_spark_schema(feed_schema(parsed, feed))
    return {"schema": schema.json(), "options": options}


def _span(arguments: Mapping[str, Any]) -> dict[str, str]:
    options: dict[str, str] = {}
    bounds = arguments.get("bounds")
    if bounds is not None:
        if len(bounds) not in (1, 2):
            raise InvalidInputError(f"{FUNCTION} has {len(bounds)} bounds: {_USAGE}")
        for end, value in zip(("starting", "ending"), bounds, strict=False):
            if value is None:
                raise InvalidInputError(f"{FUNCTION}: a bound is null: {_USAGE}")
            is_version = isinstance(value, int) or value.strip().isdecimal()
            options[f"{end}{'Version' if is_version else 'Timestamp'}"] = str(value)
        return with_offsets(options, arguments["timezone"])
    for end, step in (("starting", 1), ("ending", -1)):
        bound = arguments.get(end)
        if bound is None:
            continue
        moved = 0 if bound["inclusive"] else step
        if bound.get("version") is not None:
            options[f"{end}Version"] = str(_number(bound["version"]) + moved)
        else:
            moment = from_microseconds(bound["timestamp"] + moved)
            options[f"{end}Timestamp"] = moment.isoformat()
    return options


def _number(version: str) -> int:
    if not (version.isascii() and version.isdecimal()):
        raise InvalidInputError(
            f"{version!r} is not a version: name the number of a version, or a timestamp"
        )
    return int(version)
