"""The session of a statement, for functions that run Spark jobs (`DrivingCall.java`).

The function runs in the Python process in which Spark plans data sources. It connects to the JVM as
a pyspark application does, and has the session of the statement as a classic `SparkSession`. Spark
uses the process again: at the end, all variables of pyspark are as they were.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from lance_spark.spark.jvm import classes, startup

_VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
#: Variables of classes of pyspark that a context and a session set.
_CONTEXT = ("_active_spark_context", "_gateway", "_jvm")
_SESSION = ("_instantiatedSession", "_activeSession")


@contextmanager
def driving_session(driver: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the session of a statement.

    Parameters
    ----------
    driver : mapping
        ``port``, ``secret`` and ``token`` of the call.
    """
    from pyspark import SparkContext, SparkFiles
    from pyspark.sql import SparkSession

    owners = ((SparkContext, _CONTEXT), (SparkSession, _SESSION), (SparkFiles, ("_sc",)))
    before = [
        (owner, name, getattr(owner, name, None)) for owner, names in owners for name in names
    ]
    environment, path = dict(os.environ), list(sys.path)
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    gateway = _connect(driver)
    context = None
    try:
        session = _entered(gateway, driver["token"])
        context = _context(gateway, session)
        # Without this, pyspark would make the session the default of the whole JVM.
        placeholder = SimpleNamespace(_sc=SimpleNamespace(_jsc=True))
        SparkSession._instantiatedSession = placeholder  # type: ignore[assignment]
        spark = SparkSession(context, session)
        SparkSession._instantiatedSession = SparkSession._activeSession = spark
        yield spark
    finally:
        # The connection may be lost already.
        with suppress(Exception):
            _release(context)
        with suppress(Exception):
            gateway.shutdown_callback_server()
        with suppress(Exception):
            gateway.close()
        for owner, name, value in before:
            setattr(owner, name, value)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        if is_main:
            signal.signal(signal.SIGINT, handler)


def _connect(driver: Mapping[str, Any]) -> Any:
    """Connect as pyspark does, which reads the address from variables of the environment."""
    from pyspark.java_gateway import launch_gateway

    values = (str(driver["port"]), driver["secret"])
    os.environ.update(zip(_VARIABLES, values, strict=True))
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in _VARIABLES:
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


def call_argument(spark: Any, driver: Mapping[str, Any]) -> Any:
    """Return the object of the JVM that is the argument of a call."""
    return _called(spark.sparkContext._gateway, "argument", driver["token"])


def give_back(spark: Any, driver: Mapping[str, Any], value: Any) -> None:
    """Return an object of the JVM from a call."""
    _called(spark.sparkContext._gateway, "giveBack", driver["token"], value)


def _entered(gateway: Any, token: str) -> Any:
    """Prepare the thread of the JVM for jobs, and return the session in Java."""
    session = _called(gateway, "enter", token)
    classes.use_loader(gateway, _loader(gateway))
    return session


def _called(gateway: Any, method: str, *values: Any) -> Any:
    """Call a static method of `DrivingCall`, whose parameters are objects."""
    jvm = gateway.jvm
    forName = jvm.java.lang.Class.forName  # noqa: N806 - a Java method
    owner = forName(f"{classes.PACKAGE}.DrivingCall", True, _loader(gateway))
    types = gateway.new_array(jvm.java.lang.Class, len(values))
    arguments = gateway.new_array(jvm.java.lang.Object, len(values))
    for number, value in enumerate(values):
        types[number] = forName("java.lang.Object")
        arguments[number] = value
    return owner.getMethod(method, types).invoke(None, arguments)


def _loader(gateway: Any) -> Any:
    return gateway.jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()


def _context(gateway: Any, session: Any) -> Any:
    from pyspark import SparkConf, SparkContext

    context = gateway.jvm.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    made = SparkContext(gateway=gateway, jsc=context, conf=conf)
    folder = gateway.jvm.java.lang.System.getProperty(startup.PROPERTY)
    if folder:
        # Tasks of its jobs start as the other processes of this format do.
        paths = filter(None, [made.environment.get("PYTHONPATH"), folder])
        made.environment["PYTHONPATH"] = os.pathsep.join(paths)
    return made


def _release(context: Any) -> None:
    """Free what a context made: a server for accumulators, and a folder."""
    if context is None:
        return
    # The server ends when the last connection has waited for a second: nobody waits for that.
    threading.Thread(target=context._accumulatorServer.shutdown, daemon=True).start()
    shutil.rmtree(context._temp_dir, ignore_errors=True)
