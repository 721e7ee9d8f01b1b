"""Turning push-down on: the rule of `lance_spark.spark.pushdown.java` in a session that runs.

A session asks the object `SparkSession.extensions` for its rules once for each query, so a rule
that is added there counts from the next query on, in this session and in those that `newSession()`
makes of it. The SQL configuration `spark.lance.pushdown.enabled` (default true) is looked up for
each query too.
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
    "push-down cannot be turned on through Spark Connect: have the server configured by `python -m "
    "lance_spark conf`, or name "
    "the columns by .schema(...) or by the option columns"
)


def enable(spark: SparkSession) -> None:
    """Have `format("lance")` read the columns, rows and counts that a query needs, and no more.

    Holds for every query that the session, or a session made from it, plans from now on; frames,
    views and caches that exist already are fine. A second call does nothing, nor does one where it
    is on by configuration. `spark.conf.set("spark.lance.pushdown.enabled", "false")` turns it off,
    and "true" on again, at any time. Plans show no secrets among options from then on
    (`redaction`). Under a version of Spark that this release does not know, there is a warning and
    nothing changes.

    Parameters
    ----------
    spark : SparkSession

    Raises
    ------
    UnsupportedError
        The session is one of Spark Connect whose server is not configured so, the rule cannot be
        compiled in its JVM, or the Python of its workers does not have this package, which is
        looked up once.

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
            f"lance_spark knows Spark 4.0 to 4.3, and this is {spark.version}: push-down stays off",
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
    """Tell whether push-down is on for the next query of a session, by `enable` or by
    configuration.
    """
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
    """Tell whether the server of a session of Spark Connect was configured with the rule's jar."""
    from lance_spark.spark.pushdown.java import EXTENSION

    if not is_configured(spark):
        return False
    from pyspark.errors import PySparkException

    try:
        (row,) = spark.sql(f"SELECT java_method('{EXTENSION}', 'isAnywhere')").collect()
    except PySparkException:
        # The server found no such class, and has said so in its log; or it lets nobody call Java.
        return False
    return bool(row[0] == "true")
