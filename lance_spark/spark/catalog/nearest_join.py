"""Joins with `APPROX NEAREST k BY` a distance of a table: planned as `LanceTable.nearest_join`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from lance_spark.errors import UnsupportedError
from lance_spark.spark.catalog.procedures.attached_session import (
    attached_session,
    call_argument,
    give_back,
)
from lance_spark.spark.jvm.shims.pyspark_names import java_frame
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.pushdown.request import approximate_settings
from lance_spark.spark.table import LanceTable
from lance_spark.spark.types.mapping import batch_schema

#: Name of the column of vectors in the queries.
_VECTOR = "vector"
#: Options of a read that choose rows or columns.
_REFUSED = (
    "columns",
    "filter",
    "filter_tree",
    "full_text_query",
    "nearest",
    "with_row_id",
    "with_row_address",
    "fragment_ids",
    "whole_fragments",
    "feed",
)


def join_nearest(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give a DataFrame back: queries with the columns of their nearest rows.

    - `arguments`: ``options`` of the table, with its path; ``column`` of vectors, and ``columns``
      of the result; ``k``, ``metric`` and ``how``, as `LanceTable.nearest_join` has them;
      ``settings`` of the session (`approximate_settings`); ``nearest``, other arguments of the
      search, and its ``filter``, if it has them; and ``driver`` of the call. The call is given the
      queries, whose last column has the vectors.

    Raises UnsupportedError: an option of the table chooses rows or columns, a name is a path, or
    the queries have a type that tasks in Python do not get. Raises LanceError: as
    `LanceTable.nearest_join`.
    """
    options = dict(arguments["options"])
    parsed = ReadOptions.parse(options)
    for name in _REFUSED:
        if getattr(parsed, name):
            raise UnsupportedError(f"option {name} cannot be combined with NEAREST BY")
    names = [arguments["column"], *arguments["columns"]]
    for name in names:
        if "." in name:
            raise UnsupportedError(f"NEAREST BY does not take column {name!r}, which has a dot")
    settings = approximate_settings(arguments["settings"]) or {}
    driver = arguments["driver"]
    with attached_session(driver) as spark:
        from pyspark.sql import DataFrame

        context = spark.sparkContext
        # The plan must not refer to this process, which ends the call before tasks run.
        context._javaAccumulator = None
        context.broadcast = _refuse_broadcast
        queries = DataFrame(call_argument(spark, driver), spark)
        # Refuses types that tasks in Python do not get.
        batch_schema(queries.schema)
        options = {name: value for name, value in options.items() if name.lower() != "path"}
        joined = LanceTable.forPath(spark, parsed.path, **options).nearest_join(
            queries,
            (_VECTOR, arguments["column"]),
            arguments["k"],
            how=arguments["how"],
            columns=arguments["columns"],
            aliases={name: f"found{n}" for n, name in enumerate(arguments["columns"])},
            metric=arguments["metric"],
            blob_handling=parsed.blob_handling,
            filter=arguments.get("filter"),
            **{
                "nprobes": settings.get("nprobes"),
                "refine_factor": settings.get("refine_factor"),
                **arguments.get("nearest", {}),
            },
        )
        give_back(spark, driver, java_frame(joined))
    return {}


def _refuse_broadcast(value: Any) -> NoReturn:
    raise UnsupportedError("the table has too many fragments for NEAREST BY; use nearest_join")
