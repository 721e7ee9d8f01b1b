"""Java classes of this package in the JVM of a classic session: from a jar, or compiled once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from weakref import WeakKeyDictionary

from lance_spark.spark.pushdown.compile_java import EXTENSION, PACKAGE, compile_rule

#: The sources that `Conditions` needs, which compile in a third of the time of all.
_CONDITIONS = ("Conditions.java", "Expressions.java", "Forms.java", "Log.java")

#: The class Extension by the gateway of its JVM.
_extensions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
#: The class Conditions by the gateway of its JVM; None if it is not available.
_conditions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def is_connect(spark: Any) -> bool:
    """Return whether a session is a client of Spark Connect, which has no JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_known(version: str) -> bool:
    """Return whether the Java sources support a version of Spark."""
    return version.split(".")[:2] in (["4", "0"], ["4", "1"], ["4", "2"], ["4", "3"])


def is_configured(spark: Any) -> bool:
    """Return whether `spark.sql.extensions` names the class Extension."""
    named = str(spark.conf.get("spark.sql.extensions", ""))
    return EXTENSION in [name.strip() for name in named.split(",")]


def loaded_extension(spark: Any) -> Any:
    """Return the class Extension of the session's JVM; None if it is not loaded yet."""
    gateway = spark.sparkContext._gateway
    if gateway not in _extensions:
        # A configured session has the class from the jar.
        if not is_configured(spark):
            return None
        try:
            _extensions[gateway] = _spark_loader(spark).loadClass(EXTENSION)
        except java_error():
            # Spark has warned that the class is not on the driver's class path.
            return None
    return _extensions[gateway]


def extension_class(spark: Any) -> Any:
    """Return the class Extension of the session's JVM. The first call compiles it.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        It cannot be compiled.
    """
    extension = loaded_extension(spark)
    if extension is None:
        extension = _compiled(spark, EXTENSION)
        _extensions[spark.sparkContext._gateway] = extension
    return extension


def conditions_class(spark: Any) -> Any:
    """Return the class Conditions of the session's JVM.

    Returns
    -------
    java.lang.Class or None
        None if this version of Spark is not supported, or cannot compile the class.
    """
    gateway = spark.sparkContext._gateway
    if gateway not in _conditions:
        _conditions[gateway] = _conditions_class(spark)
    return _conditions[gateway]


def call_static(spark: Any, owner: Any, name: str, argument: Any) -> Any:
    """Call a static method by reflection: py4j's class loader does not find compiled classes.

    Raises
    ------
    py4j.protocol.Py4JJavaError
        The method raises.
    """
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = jvm.java.lang.Class.forName("java.lang.Object")
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = argument
    return owner.getMethod(name, types).invoke(None, arguments)


def java_error() -> Any:
    """Return the class of the errors that calls of Java raise."""
    from py4j.protocol import Py4JJavaError

    return Py4JJavaError


def _conditions_class(spark: Any) -> Any:
    if not is_known(spark.version):
        return None
    name = f"{PACKAGE}.Conditions"
    try:
        extension = loaded_extension(spark)
        if extension is not None:
            return extension.getClassLoader().loadClass(name)
        return _compiled(spark, name, _CONDITIONS)
    except java_error():
        # The jar is of another release, or this Spark differs from the release of its version.
        return None


def _compiled(spark: Any, name: str, sources: Collection[str] | None = None) -> Any:
    jvm = spark.sparkContext._jvm
    parent = _spark_loader(spark)
    classes = compile_rule(jvm, parent, sources)
    by_name = jvm.java.util.HashMap()
    for file in list(classes):
        by_name.put(file.removesuffix(".class").replace("/", "."), classes.get(file))
    reflect = jvm.org.codehaus.commons.compiler.util.reflect
    return reflect.ByteArrayClassLoader(by_name, parent).loadClass(name)


def _spark_loader(spark: Any) -> Any:
    return spark.sparkContext._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
