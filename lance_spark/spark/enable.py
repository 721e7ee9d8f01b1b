"""Turning push-down on: the rule of `lance_spark.spark.rule` in a session that runs.

A session asks the object `SparkSession.extensions` for its rules once for each query, so a rule that is added there counts
from the next query on, in this session and in those that `newSession()` makes of it. The SQL configuration
`spark.lance.pushdown.enabled` (default true) is looked up for each query too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lance_spark.errors import UnsupportedError
from lance_spark.spark.redaction import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = "spark.lance.pushdown.enabled"
CONNECT = (
    "push-down cannot be turned on through Spark Connect: have the server configured by `python -m lance_spark conf`, or name "
    "the columns by .schema(...) or by the option columns"
)

#: The class Extension, as py4j has it, of each JVM that has one.
_extensions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def enable(spark: SparkSession) -> None:
    """Have `format("lance")` read the columns, rows and counts that a query needs, and no more.

    Holds for every query that the session, or a session made from it, plans from now on; frames, views and caches that
    exist already are fine. A second call does nothing, nor does one where it is on by configuration. `spark.conf.set("spark.lance.pushdown.enabled", "false")` turns it
    off, and "true" on again, at any time. Plans show no secrets among options from then on (`redaction`). Under a version of Spark that this release does not know, there is a warning and
    nothing changes.

    Parameters
    ----------
    spark : SparkSession

    Raises
    ------
    UnsupportedError
        The session is one of Spark Connect whose server is not configured so, or the rule cannot be compiled in its JVM.

    Examples
    --------
    >>> lance_spark.enable(spark)
    >>> spark.read.format("lance").load(path).where("id = 7").select("name").show()
    """
    if _is_connect(spark):
        if not _is_on_server(spark):
            raise UnsupportedError(CONNECT)
        redact(spark)
        return
    if not _is_known(spark.version):
        warnings.warn(
            f"lance_spark knows Spark 4.0 to 4.3, and this is {spark.version}: push-down stays off",
            stacklevel=2,
        )
        return
    redact(spark)
    extension = _extension(spark)
    extension.newInstance().apply(spark._jsparkSession.extensions())


def is_enabled(spark: SparkSession) -> bool:
    """Tell whether push-down is on for the next query of a session, by `enable` or by configuration."""
    if not _is_known(spark.version) or str(spark.conf.get(CONF, "true")).lower() != "true":
        return False
    if _is_connect(spark):
        return _is_on_server(spark)
    extension = _loaded(spark)
    if extension is None:
        return False
    extensions = spark._jsparkSession.extensions()
    return bool(_static(spark, extension, "isIn", extensions))


def _is_connect(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _is_on_server(spark: Any) -> bool:
    """Tell whether the server of a session of Spark Connect was configured with the rule's jar."""
    from lance_spark.spark.rule import EXTENSION

    if not _is_named(spark):
        return False
    from pyspark.errors import PySparkException

    try:
        (row,) = spark.sql(f"SELECT java_method('{EXTENSION}', 'isAnywhere')").collect()
    except PySparkException:
        # The server found no such class, and has said so in its log; or it lets nobody call Java.
        return False
    return bool(row[0] == "true")


def _is_named(spark: Any) -> bool:
    from lance_spark.spark.rule import EXTENSION

    named = str(spark.conf.get("spark.sql.extensions", ""))
    return EXTENSION in [name.strip() for name in named.split(",")]


def _is_known(version: str) -> bool:
    return version.split(".")[:2] in (["4", "0"], ["4", "1"], ["4", "2"], ["4", "3"])


def _loaded(spark: Any) -> Any:
    """Return the class Extension of the session's JVM, or None if it has none yet."""
    gateway = spark.sparkContext._gateway
    if gateway not in _extensions:
        # A session that was configured has the class of the jar.
        from lance_spark.spark.rule import EXTENSION

        if not _is_named(spark):
            return None
        try:
            _extensions[gateway] = _spark_loader(spark).loadClass(EXTENSION)
        except _java_error():
            # Spark has warned that there is no such class on the driver's class path.
            return None
    return _extensions[gateway]


def _extension(spark: Any) -> Any:
    """Return the class Extension of the session's JVM: compiled once."""
    extension = _loaded(spark)
    if extension is not None:
        return extension
    from lance_spark.spark.rule import EXTENSION, compile_rule

    jvm = spark.sparkContext._jvm
    try:
        parent = _spark_loader(spark)
        classes = compile_rule(jvm, parent)
        by_name = jvm.java.util.HashMap()
        for file in list(classes):
            by_name.put(file.removesuffix(".class").replace("/", "."), classes.get(file))
        reflect = jvm.org.codehaus.commons.compiler.util.reflect
        extension = reflect.ByteArrayClassLoader(by_name, parent).loadClass(EXTENSION)
    except _java_error() as error:
        cause = str(error.java_exception.toString()).splitlines()[0]
        raise UnsupportedError(
            f"push-down is off: the rule cannot be compiled in Spark {spark.version} ({cause})"
        ) from error
    _extensions[spark.sparkContext._gateway] = extension
    return extension


def _static(spark: Any, owner: Any, name: str, argument: Any) -> Any:
    """Call a static method of a class that py4j's own class loader does not find."""
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = jvm.java.lang.Class.forName("java.lang.Object")
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = argument
    return owner.getMethod(name, types).invoke(None, arguments)


def _spark_loader(spark: Any) -> Any:
    return spark.sparkContext._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()


def _java_error() -> Any:
    from py4j.protocol import Py4JJavaError

    return Py4JJavaError
