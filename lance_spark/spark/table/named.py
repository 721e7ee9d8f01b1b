"""Where the tables of a session's catalogs are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from lance_spark.errors import TableNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST_PART = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^`.\s]+))\s*\.")


def path_and_settings(spark: SparkSession, name: str) -> tuple[str, dict[str, str]]:
    """Return the path of a table by its name in SQL, and the settings of its store.

    Raises
    ------
    TableNotFoundError
        No catalog of Lance tables has the name.
    """
    try:
        # A statement of the catalog: a plain table has the name, too, for Spark alone.
        (row,) = spark.sql(f"DESCRIBE DETAIL {name}").collect()
        path = str(row["uri"])
    except (PySparkException, KeyError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise TableNotFoundError(
            f"{name!r} is not the name of a Lance table of a catalog: {first}; call "
            "lance_spark.enable(spark), or use LanceTable.forPath"
        ) from error
    # SET shows no secrets.
    prefix = f"spark.sql.catalog.{_catalog(spark, name)}."
    return path, {
        key.removeprefix(prefix): str(spark.conf.get(key))
        for (key, *_) in spark.sql("SET").collect()
        if key.startswith(f"{prefix}storage.")
    }


def _catalog(spark: SparkSession, name: str) -> str:
    match = _FIRST_PART.match(name)
    if match is not None:
        first = (match["quoted"] or match["plain"]).replace("``", "`")
        if spark.conf.get(f"spark.sql.catalog.{first}", None) is not None:
            return first
    return str(spark.catalog.currentCatalog())
