"""Private names of pyspark and py4j. No other module has them, but the tests.

The functions take objects of pyspark as `Any`: it has no type annotations for what is private.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark

from lance_spark.errors import UnsupportedError

#: The first and the last minor release of Spark that is supported.
FIRST, LAST = (4, 0), (4, 3)
#: The same for messages.
SUPPORTED = "{}.{} to {}.{}".format(*FIRST, *LAST)
#: The minor release of pyspark in this process.
RELEASE = tuple(map(int, pyspark.__version__.split(".")[:2]))

#: First argument of a Python process of Spark: the module that runs a step of planning, or tasks.
PLANNING_MODULES, TASKS_MODULE = "pyspark.sql.worker.", "pyspark.worker"
#: The program that plans the batches of a stream.
STREAM_PROGRAM = "python_streaming_source_runner.py"
#: The variable by which Spark leaves tracebacks out of messages.
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
#: The package of the sessions of Spark Connect.
CONNECT = "pyspark.sql.connect"
#: Variables of the environment by which pyspark connects to a JVM that runs.
_GATEWAY_VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
#: Variables of classes of pyspark that a context and a session set, by the names of the classes.
DRIVER_VARIABLES = {
    "SparkContext": ("_active_spark_context", "_gateway", "_jvm"),
    "SparkSession": ("_instantiatedSession", "_activeSession"),
    "SparkFiles": ("_sc",),
}


def is_supported(version: str) -> bool:
    """Return whether a version of Spark is of a release that is supported."""
    parts = version.split(".")[:2]
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return False
    return FIRST <= (int(parts[0]), int(parts[1])) <= LAST


def check_supported(version: str = pyspark.__version__) -> None:
    """Check a version of Spark; that of pyspark in this process by default.

    Raises UnsupportedError.
    """
    if not is_supported(version):
        raise UnsupportedError(
            f"lance-spark does not support Spark {version}: it supports Spark {SUPPORTED}; install "
            f"pyspark{requirement()}"
        )


def requirement() -> str:
    """Return the versions of pyspark that are supported, as a requirement of pip has them."""
    (first, least), (last, most) = FIRST, LAST
    return f">={first}.{least},<{last}.{most + 1}"


def gateway_of(spark: Any) -> Any:
    """Return py4j's connection to the JVM of a classic session."""
    return spark.sparkContext._gateway


def jvm_of(spark: Any) -> Any:
    """Return the classes of the JVM of a classic session."""
    return spark.sparkContext._jvm


def java_session(spark: Any) -> Any:
    """Return the session in Java."""
    return spark._jsparkSession


def java_context(spark: Any) -> Any:
    """Return the SparkContext of Java."""
    return spark.sparkContext._jsc.sc()


def java_conf(spark: Any) -> Any:
    """Return the settings of the application, which sessions of `newSession()` start with."""
    return java_context(spark).conf()


def java_frame(frame: Any) -> Any:
    """Return the Dataset of Java that a DataFrame has."""
    return frame._jdf


def java_error() -> Any:
    """Return the class of the errors that calls of Java raise."""
    from py4j.protocol import Py4JJavaError

    return Py4JJavaError


def is_instance(gateway: Any, value: Any, name: str) -> bool:
    """Return whether an object of the JVM is of a class."""
    from py4j.java_gateway import is_instance_of

    return bool(is_instance_of(gateway, value, name))


def connect_to(port: int, secret: str) -> Any:
    """Return a connection to a JVM, as a program that Spark starts gets one."""
    from pyspark.java_gateway import launch_gateway

    os.environ.update(zip(_GATEWAY_VARIABLES, (str(port), secret), strict=True))
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in _GATEWAY_VARIABLES:
            del os.environ[name]
    client = gateway._gateway_client
    client.converters = [_NumpyConverter.around(converter) for converter in client.converters]
    return gateway


class _NumpyConverter:
    """Asks a converter of pyspark about values of numpy alone.

    pyspark asks its converters about each argument, also about a string. The converters for numpy
    then import the modules of pyspark's tests, and pandas with them.
    """

    def __init__(self, converter: Any) -> None:
        self._converter = converter
        self.convert = converter.convert

    @classmethod
    def around(cls, converter: Any) -> Any:
        """Return a converter of py4j's list, which asks less if it is one for numpy."""
        from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

        is_numpy = isinstance(converter, (NumpyArrayConverter, NumpyScalarConverter))
        return cls(converter) if is_numpy else converter

    def can_convert(self, value: object) -> bool:
        """Return whether the converter takes a value."""
        of_numpy = any(base.__module__ == "numpy" for base in type(value).__mro__)
        return of_numpy and self._converter.can_convert(value)


@contextmanager
def bare_jvm() -> Iterator[Any]:
    """Start a JVM with Spark's jars. A whole Spark would take ten times as long to start."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from pyspark.find_spark_home import _find_spark_home

    jars = Path(_find_spark_home()) / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j*.jar"))),
        classpath=f"{jars}/*",
        # That of JAVA_HOME, if it is set.
        java_path=None,
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        # The JVM waits for the end of its input, not for that of the gateway.
        process.stdin.close()
        process.wait()


@contextmanager
def restored_driver() -> Iterator[None]:
    """Give the classes of pyspark the session and the context again that they had before."""
    owners = _driver_classes()
    before = [
        (owners[name], variable, getattr(owners[name], variable, None))
        for name, variables in DRIVER_VARIABLES.items()
        for variable in variables
    ]
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def context_of(gateway: Any, session: Any) -> Any:
    """Return a context of pyspark for a session in Java that runs already."""
    from pyspark import SparkConf, SparkContext

    context = gateway.jvm.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    return SparkContext(gateway=gateway, jsc=context, conf=conf)


def set_tasks(context: Any, python: str, archives: Sequence[str]) -> None:
    """Set the program of the tasks of a context, and the names of their archives of modules."""
    context.pythonExec = python
    context._python_includes = list(archives)


def session_of(context: Any, session: Any) -> Any:
    """Return a session of pyspark for a session in Java, and make it the one of this process."""
    from pyspark.sql import SparkSession

    # Without this, pyspark would make the session the default of the whole JVM.
    placeholder = SimpleNamespace(_sc=SimpleNamespace(_jsc=True))
    SparkSession._instantiatedSession = placeholder  # type: ignore[assignment]
    spark = SparkSession(context, session)
    SparkSession._instantiatedSession = SparkSession._activeSession = spark
    return spark


def resources_of(context: Any) -> tuple[Any, str]:
    """Return the server for accumulators of a context, and its folder of temporary files."""
    return context._accumulatorServer, context._temp_dir


def disconnect(gateway: Any) -> None:
    """End the connection of a driver. It may be lost already."""
    with suppress(Exception):
        gateway.shutdown_callback_server()
    with suppress(Exception):
        gateway.close()


def _driver_classes() -> Mapping[str, Any]:
    from pyspark import SparkContext, SparkFiles
    from pyspark.sql import SparkSession

    return {"SparkContext": SparkContext, "SparkFiles": SparkFiles, "SparkSession": SparkSession}
