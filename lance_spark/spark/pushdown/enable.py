"""Enabling push-down in a running session.

A session asks the object `SparkSession.extensions` for its rules once for each query. A rule that
is added there is used from the next query on, in this session and in those that `newSession()`
makes. The setting `spark.lance.pushdown.enabled` (default true) is read for each query too.
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
    "push-down cannot be enabled from a client of Spark Connect: configure the server by "
    "`python -m lance_spark conf`, or select columns by .schema(...) or the option columns"
)


def enable(spark: SparkSession) -> None:
    """Enable push-down: ``format("lance")`` reads only the columns, rows and counts of a query.

    Applies to all queries that the session, or a session made from it, plans from now on, including
    those over existing frames, views and caches. Plans also stop to show secrets among options. The
    setting ``spark.lance.pushdown.enabled`` turns push-down off ("false") and on again ("true") at
    any time. A call has no effect if push-down is enabled already. Under an unsupported version of
    Spark it only warns.

    Parameters
    ----------
    spark : SparkSession

    Raises
    ------
    UnsupportedError
        The session is a client of Spark Connect and the server is not configured for push-down, the
        JVM cannot compile the rule, or the Python of Spark's workers lacks this package.

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
            f"push-down is off: Spark {spark.version} cannot compile the rule ({cause})"
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
    """Return whether the server of a client of Spark Connect was configured with the rule's jar."""
    from lance_spark.spark.pushdown.compile_java import EXTENSION

    if not is_configured(spark):
        return False
    from pyspark.errors import PySparkException

    try:
        (row,) = spark.sql(f"SELECT java_method('{EXTENSION}', 'isAnywhere')").collect()
    except PySparkException:
        # The server did not find the class, which its log says, or does not allow calls of Java.
        return False
    return bool(row[0] == "true")
