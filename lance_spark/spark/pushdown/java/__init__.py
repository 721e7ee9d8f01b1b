"""The optimizer rule that has Spark ask for what a query needs: Java sources, compiled by the
compiler that Spark ships.

    PushDownRule          puts a RequestTable in the place of the Python table
    RequestTable          makes the scan builder below; part of the plan of one query
    RequestScanBuilder    is told columns, filters, aggregates and limit by Spark
      ExpressionScanBuilder, Expressions    filters as Spark 4.1 and later hand them over
      PredicateScanBuilder, Predicates      filters as Spark 4.0 does
    RequestScan, Answer   ask the reader in Python, once, and make partitions of what it answers
    FoundScan, Rows       have the rows, if they came with the answer
    FoundStrategy         renames their columns without a job
    PackedStrategy, PackedScan, Packing   read arrays of numbers as bytes
    Snapshot              one version of each table per query
    Settings, Writes      settings of the session, for texts of predicates among options
    Conditions            conditions of changes, for `lance_spark.spark.table.conditions`; no part of a query
    Metrics, Fragments*   what the web interface shows
    Extension             what spark.sql.extensions names
    Versions, Forms, Log  where versions of Spark differ; parts of a request; warnings

The compiler is Janino: no lambdas, no type arguments.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = "org.lancespark"
EXTENSION = f"{PACKAGE}.Extension"

_FOLDER = Path(__file__).parent
#: The first time that a zip file can name.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def compile_rule(jvm: Any, loader: Any, files: Collection[str] | None = None) -> Any:
    """Compile the sources in a JVM that has Spark's jars.

    Parameters
    ----------
    jvm : py4j JVMView
    loader : java.lang.ClassLoader
        Finds Spark's classes.
    files : collection of str, optional
        Names of the files to compile; all by default.

    Returns
    -------
    java.util.Map
        Names of class files (`org/lancespark/Extension.class`) and their bytes.
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
    """Compile the sources in a JVM of its own, and write their classes to a jar: the same bytes
    every time.
    """
    with _bare_jvm() as jvm:
        classes = compile_rule(jvm, jvm.java.lang.ClassLoader.getSystemClassLoader())
        files = {str(name): bytes(classes.get(name)) for name in classes}
    with zipfile.ZipFile(path, "w") as jar:
        for name in sorted(files):
            jar.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED)


@contextmanager
def _bare_jvm() -> Iterator[Any]:
    """A JVM with Spark's jars and without Spark, which takes ten times as long to start."""
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
