"""Compilation of the optimizer rule: the Java sources in `java/`, by the compiler that Spark ships.

    Extension               the class that spark.sql.extensions names
    PushDownRule            replaces the Python table in a plan by a RequestTable
    RequestTable            the table in the plan of one query; makes the scan builder
    RequestScanBuilder      receives columns, filters, aggregates and limit from Spark
      ExpressionScanBuilder, Expressions    filters of Spark 4.1 and later
      PredicateScanBuilder, Predicates      filters of Spark 4.0
    RequestScan, PlanReply  send the request to the Python reader, and parse its reply
    DriverRowsScan, Rows    hold the rows that came with the reply
    DriverRowsStrategy      renames their columns without a job
    PackedStrategy, PackedScan, Packing     read arrays of numbers as bytes
    Snapshot                one version of each table per query
    Settings, Writes        settings of the session, for predicates in the text of options
    Conditions              conditions of changes, for `lance_spark.spark.table.conditions`
    Metrics, Fragments*     counters of the web interface
    Versions                differences between versions of Spark
    Forms                   the JSON of requests
    Log                     warnings

The compiler is Janino, which has no lambdas and no type arguments.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = "org.lancespark"
EXTENSION = f"{PACKAGE}.Extension"

_FOLDER = Path(__file__).parent / "java"
#: The earliest time that a zip file can hold: equal sources make equal jars.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def compile_rule(jvm: Any, loader: Any, files: Collection[str] | None = None) -> Any:
    """Compile the sources in a JVM that has Spark's jars.

    Parameters
    ----------
    jvm : py4j JVMView
    loader : java.lang.ClassLoader
        Finds Spark's classes.
    files : collection of str, optional
        Names of the files to compile; all files by default.

    Returns
    -------
    java.util.Map
        From names of class files (`org/lancespark/Extension.class`) to their bytes.
    """
    names = sorted(files or (path.name for path in _FOLDER.glob("*.java")))
    resource = jvm.org.codehaus.commons.compiler.util.resource
    base = jvm.java.lang.Class.forName(
        "org.codehaus.commons.compiler.util.resource.Resource", True, loader
    )
    sources = jvm.java.lang.reflect.Array.newInstance(base, len(names))
    for index, name in enumerate(names):
        text = (_FOLDER / name).read_text(encoding="utf-8")
        sources[index] = resource.StringResource(f"{PACKAGE.replace('.', '/')}/{name}", text)
    classes = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(resource.MapResourceCreator(classes))
    compiler.compile(sources)
    return classes


def write_jar(path: Path) -> None:
    """Compile the sources in a new JVM, and write their classes to a jar, with the same bytes each
    time.
    """
    with _bare_jvm() as jvm:
        classes = compile_rule(jvm, jvm.java.lang.ClassLoader.getSystemClassLoader())
        files = {str(name): bytes(classes.get(name)) for name in classes}
    with zipfile.ZipFile(path, "w") as jar:
        for name in sorted(files):
            jar.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED)


@contextmanager
def _bare_jvm() -> Iterator[Any]:
    """Start a JVM with Spark's jars. A whole Spark would take ten times as long to start."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from pyspark.find_spark_home import _find_spark_home

    jars = Path(_find_spark_home()) / "jars"
    port, token = launch_gateway(
        jarpath=str(next(jars.glob("py4j*.jar"))),
        classpath=f"{jars}/*",
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
