"""Enables push-down: adds the optimizer rule of `lance_spark.spark.pushdown.java` to a session.

A session asks `SparkSession.extensions` for its rules for each query. So a rule that is added there
applies from the next query on, in this session and in sessions that `newSession()` makes from it.
Each query also reads the SQL configuration `spark.lance.pushdown.enabled` (default true).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from lance_spark.errors import UnsupportedError
from lance_spark.spark.options.redaction import redact
from lance_spark.spark.pushdown.java_classes import (
    call_static,
    extension_class,
    is_configured,
    is_connect,
    is_known,
    java_error,
    loaded_extension,
)
from lance_spark.spark.pushdown.worker_python import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = "spark.lance.pushdown.enabled"
CONNECT = (
    "push-down cannot be turned on through Spark Connect: configure the server with the output of "
    "`python -m lance_spark conf`, or select columns by .schema(...) or by the option columns"
)


def enable(spark: SparkSession) -> None:
    """Make `format("lance")` read only the columns, rows and counts that a query needs.

    Push-down applies to every query that the session, or a session made from it, plans after this
    call, also on existing DataFrames, views and caches. A second call does nothing, as does a call
    on a session whose configuration enables push-down. `spark.conf.set` of
    `spark.lance.pushdown.enabled` to "false" turns it off, and to "true" on again, at any time. The
    call also redacts secret options in plans (`redaction`). With an unknown version of Spark, it
    warns and changes nothing.

    Parameters
    ----------
    spark : SparkSession

    Raises
    ------
    UnsupportedError
        The session uses Spark Connect and its server is not configured for push-down, the rule
        cannot be compiled in the JVM, or the Python workers do not have this package.

    Examples
    --------
    >>> lance_spark.enable(spark)
    >>> spark.read.format("lance").load(path).where("id = 7").select("name").show()
    """
    if is_connect(spark):
        if not _is_on_server(spark):
            raise UnsupportedError(CONNECT)
        redact(spark)
        return
    if not is_known(spark.version):
        warnings.warn(
            f"lance_spark supports Spark 4.0 to 4.3, not {spark.version}: push-down stays off",
            stacklevel=2,
        )
        return
    check_worker_python(spark)
    redact(spark)
    try:
        extension = extension_class(spark)
    except java_error() as error:
        cause = str(error.java_exception.toString()).splitlines()[0]
        raise UnsupportedError(
            f"push-down is off: the rule cannot be compiled in Spark {spark.version} ({cause})"
        ) from error
    extension.newInstance().apply(spark._jsparkSession.extensions())


def is_enabled(spark: SparkSession) -> bool:
    """Return whether push-down is on for the next query of a session."""
    if not is_known(spark.version) or str(spark.conf.get(CONF, "true")).lower() != "true":
        return False
    if is_connect(spark):
        return _is_on_server(spark)
    extension = loaded_extension(spark)
    if extension is None:
        return False
    extensions = spark._jsparkSession.extensions()
    return bool(call_static(spark, extension, "isIn", extensions))


def _is_on_server(spark: Any) -> bool:
    """Return whether the server of a Spark Connect session has the jar of the rule."""
    from lance_spark.spark.pushdown.java import EXTENSION

    if not is_configured(spark):
        return False
    from pyspark.errors import PySparkException

    try:
        (row,) = spark.sql(f"SELECT java_method('{EXTENSION}', 'isAnywhere')").collect()
    except PySparkException:
        # The server does not have the class (it has logged this), or allows no client to call Java.
        return False
    return bool(row[0] == "true")
