"""The session of a statement, for functions that run Spark jobs (`SessionCallback.java`).

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
from typing import Any

from lance_spark.spark.jvm import classes, startup
from lance_spark.spark.jvm.shims import pyspark_names


@contextmanager
def attached_session(driver: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the session of a statement.

    Parameters
    ----------
    driver : mapping
        ``port``, ``secret`` and ``token`` of the call; the program ``python`` and the ``archives``
        of modules for tasks.
    """
    environment, path = dict(os.environ), list(sys.path)
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    with pyspark_names.restored_driver():
        gateway = pyspark_names.connect_to(driver["port"], driver["secret"])
        context = None
        try:
            session = _entered(gateway, driver["token"])
            context = pyspark_names.context_of(gateway, session)
            pyspark_names.set_tasks(context, driver["python"], driver["archives"])
            _set_startup(gateway, context)
            yield pyspark_names.session_of(context, session)
        finally:
            # The connection may be lost already.
            with suppress(Exception):
                _release(context)
            pyspark_names.disconnect(gateway)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            if is_main:
                signal.signal(signal.SIGINT, handler)


def call_argument(spark: Any, driver: Mapping[str, Any]) -> Any:
    """Return the object of the JVM that is the argument of a call."""
    return _called(pyspark_names.gateway_of(spark), "argument", driver["token"])


def give_back(spark: Any, driver: Mapping[str, Any], value: Any) -> None:
    """Return an object of the JVM from a call."""
    _called(pyspark_names.gateway_of(spark), "giveBack", driver["token"], value)


def _entered(gateway: Any, token: str) -> Any:
    """Prepare the thread of the JVM for jobs, and return the session in Java."""
    session = _called(gateway, "enter", token)
    classes.use_loader(gateway, _loader(gateway))
    return session


def _set_startup(gateway: Any, context: Any) -> None:
    """Let the tasks of a context start as the other processes of this format do."""
    folder = gateway.jvm.java.lang.System.getProperty(startup.PROPERTY)
    if folder:
        paths = filter(None, [context.environment.get("PYTHONPATH"), folder])
        context.environment["PYTHONPATH"] = os.pathsep.join(paths)


def _called(gateway: Any, method: str, *values: Any) -> Any:
    """Call a static method of `SessionCallback`, whose parameters are objects."""
    jvm = gateway.jvm
    forName = jvm.java.lang.Class.forName  # noqa: N806 - a Java method
    owner = forName(f"{classes.PACKAGE}.SessionCallback", True, _loader(gateway))
    types = gateway.new_array(jvm.java.lang.Class, len(values))
    arguments = gateway.new_array(jvm.java.lang.Object, len(values))
    for number, value in enumerate(values):
        types[number] = forName("java.lang.Object")
        arguments[number] = value
    return owner.getMethod(method, types).invoke(None, arguments)


def _loader(gateway: Any) -> Any:
    return gateway.jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()


def _release(context: Any) -> None:
    """Free what a context made: a server for accumulators, and a folder."""
    if context is None:
        return
    server, folder = pyspark_names.resources_of(context)
    # The server ends when the last connection has waited for a second: nobody waits for that.
    threading.Thread(target=server.shutdown, daemon=True).start()
    shutil.rmtree(folder, ignore_errors=True)
