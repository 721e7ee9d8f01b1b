"""Java classes of this package in the JVM of a classic session: from a jar, or compiled.

The sources in `java/` and `shims/` are compiled by the compiler that Spark ships. `class_cache`
keeps what it makes for later sessions. `shims/` has what is private in Spark, and what differs
between its releases. The classes in `java/`:

session/
    Extension               the class that spark.sql.extensions names
    StatementParser         statements that Spark does not know
    HiddenColumns           statements that read or assign hidden columns
    PythonCall, Errors      calls of Python functions, and their errors as Spark's exceptions
    PythonSource            the Python data source
    SharedSteps             its steps of planning, in one Python process
    Interpreters            the Python of the driver, and that of tasks
    Snapshot                one version of each table per query
    Settings                settings of the session, for predicates in the text of options
    TimeZones               the zone of the session, for times without an offset
    Constants               names of options, and supported releases, from Python (`constants`)
    SessionRule             a rule of its table, and when Spark applies it
    Reply                   replies of Python, inside of pickles
    Log                     warnings
    JobDescription          what the web interface shows of the jobs of a write
    Probe, Answer           whether a session has the rules, for clients of Spark Connect
    Replacing               base class of what replaces nodes of plans
    Installer               adds all classes to a server of Spark Connect
scan/
    PushDownRule            replaces the Python table in a plan by a RequestTable
    ComputedColumns, ValueForms             columns that a scan computes, for its aggregates
    NullConditions          keeps conditions from Spark that it fails to translate
    RequestTable            the table in the plan of one query; makes the scan builder
    RequestScanBuilder      receives columns, filters, aggregates and limit from Spark
      ExpressionScanBuilder, Expressions    filters of Spark 4.1 and later
      PredicateScanBuilder, Predicates      filters of Spark 4.0
    RequestScan, PlanReply  send the request to the Python reader, and parse its reply
    FreshSources            what a scan reads of a MemWAL
    ScanMarks               facts of the query, from the rule to the builder
    ClusteringColumns       columns by which a query joins, groups or windows rows
    PartitionKeys, KeyedPartition           partitions by values of such columns
    DriverRowsScan, Rows    hold the rows that came with the reply
    ScanStrategy            changes plans just before Spark plans a scan:
      DriverRowsStrategy, DriverRowsExec    order, limit and rename such rows without a job
      KeysStrategy                          gives partitions by buckets their function
      PackedStrategy, PackedScan, Packing   read arrays of numbers as bytes
      SelectiveFilter                       stands for filters of a scan, which decide whether Spark
                                            filters other scans by the keys of its rows
    RuntimeFilters          filters by the keys of the other side of a join
    Writes                  settings of the session among the options of writes
    Conditions              conditions of changes, for `lance_spark.spark.table.conditions`
    Failures                expressions that may raise an error, before which no filter is pushed
    Forms                   the JSON of requests
blobs/
    CopiedBlobs             columns of blobs that a write only copies
    BlobLocators            what stands for their bytes on the way to the write
columns/
    ColumnarFactory, ColumnarReader         readers of columns, which Spark sends to executors
    ColumnarStream          streams whose tasks return columns
    ExecutorClasses         the jar of these classes, for executors
    SharedMemory            memory in which workers write batches
    PackedArray             makes arrays of the bytes of their items, in generated code
    ArrowStreams, Body, Dictionaries        parse a batch
    ArrowColumn, Layout     a column of it
    ColumnarWriterFactory   writers, which Spark sends to executors
    BatchBuilder, ColumnBuilder             put rows into batches
metrics/
    Metrics                 counters of the web interface: a class for each, public
    ReadCounts              what the tasks of a scan have read
    WriteCounts             what the tasks of a write have written
source/
    LanceSource             format("lance"), with all save modes
    PathTable, PathScan, PathWriteBuilder   its tables, their streams, and writes to them
catalog/
    LanceCatalog            the class that spark.sql.catalog.NAME names
    NamespaceCatalog        its namespaces, and its calls of Python
    NamedTable, RowColumn   a table of the catalog, and its hidden columns
    EvolvingTable           the same in Spark 4.2 and later
    NewTable                a table that a statement creates or replaces together with its rows
    OverwriteBuilder, NamedWriteInfo        writes to them
    ReplacedCondition       nulls in the condition of REPLACE WHERE
    ReplacedRowsRule        what PARTITION and REPLACE ... say of the rows that an INSERT replaces
    MissingColumnsRule      columns that an INSERT leaves out, in Spark 4.0
    TablesBeforeFiles       keeps names of tables from Spark's rule for direct queries on files
    DefaultColumns          columns that a write by path or a stream leaves out
    Constraints             constraints of tables, and those that a write has checked, from 4.1 on
    CheckedStreams          checks the rows of streams against them
    StreamedTextRule        columns of char(n) in streams of tables by name
    ColumnScanBuilder       scans in sessions without push-down
    TableChanges            the changes of ALTER TABLE as JSON
    CachedTables            makes Spark read its cached tables again after a change
    TableName               identifiers
metastore/
    LanceSessionCatalog     the class that spark.sql.catalog.spark_catalog names
    SessionPaths            procedures, which get the paths of its tables
    Entries                 entries of the metastore
    NewSessionTable, OtherNewTable          tables that a statement creates or replaces
    NewTableRule            refuses new tables where the catalog of the session is not extended
functions/
    VectorFunctions         the functions of vectors
    VectorDistance, UnitVector              what they compute
    BucketFunction          the buckets of a MemWAL's sharding
changes/
    ChangesFunction         the table function lance_changes
    ChangesTable            what it returns
    Changes                 the same for Spark's clause CHANGES, from 4.2 on
search/
    SearchFunction          the table functions lance_search, lance_vector_search and others
    SearchTable             what they search
    LateralSearchRule, LateralTable         LATERAL lance_vector_search
    NearestJoinRule         joins with APPROX NEAREST BY, which Spark has since 4.2
rows/
    CharKeys, CharComparisons               merges by keys of char(n)
    PaddedDeletes           DELETE from tables with char(n), in Spark 4.0
procedures/
    Procedures, LanceProcedure, Parameter   procedures, as Python describes them
    Values                  values of rows as JSON
    SessionCallback         calls of Python functions that run Spark jobs

The compiler is Janino, which has no lambdas and no type arguments. Code between `/* since 4.2` and
`since 4.2 */` is a comment for earlier versions of Spark, which lack its classes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import tempfile
import time
import zipfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from lance_spark._version import __version__
from lance_spark.spark.jvm import constants
from lance_spark.spark.jvm.shims.pyspark_names import (
    CONNECT,
    bare_jvm,
    gateway_of,
    is_instance,
    is_supported,
    java_error,
    jvm_of,
)
from lance_spark.storage.own_files import HAVE_OWNERS, open_file, open_folder

# --------------------------------------------------------------------------------------------------
# Compiled Java classes, kept in a folder of the user from one session to the next.
#
# Each file of the folder is the jar that some sources compile to. Its name is a digest of all that
# decides what they compile to: the sources, the release of this package, the build of Spark and its
# jars, and the JVM. Its first bytes are a digest of its name and of the rest.
#
# Classes of the folder run with all rights of the user. So a file counts only if the user is the
# owner of the folder and of the file, nobody else may write to them, and the digest is right. In
# all other cases, and after any error, the caller compiles: this module never raises.

#: The folder, or `OFF`. The setting of a session counts before the variable.
SETTING, VARIABLE = "spark.lance.classCache", "LANCE_SPARK_CLASS_CACHE"
OFF = "off"
#: Is part of each name: increase it if the jars of equal sources change.
_FORMAT = 1
#: Class loaders that look for Spark's classes on the class path of the JVM first.
_LOADERS = frozenset(
    {
        "org.apache.spark.util.MutableURLClassLoader",
        "jdk.internal.loader.ClassLoaders$AppClassLoader",
    }
)
_SUFFIX = ".classes"
_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
_LARGEST = 64 << 20
#: Files of releases that were used last. Others are deleted when one is added.
_KEPT = 8
#: Seconds after which a file that was never renamed belongs to a process that died.
_ABANDONED = 3600


def folder_of(spark: Any) -> Path | None:
    """Return the folder of a session; None if the cache is off."""
    return folder(spark.conf.get(SETTING, None))


def folder(setting: str | None = None) -> Path | None:
    """Return the folder that the setting, the environment or the default names; None for none."""
    if not HAVE_OWNERS:
        # Nothing can be checked.
        return None
    named = setting if setting is not None else os.environ.get(VARIABLE)
    if named is not None:
        is_folder = named.strip().lower() != OFF and Path(named).is_absolute()
        return Path(named) if is_folder else None
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):
        caches = os.path.expanduser("~/.cache")
    # A user without a home has the path as it is.
    return Path(caches, "lance_spark", "classes") if os.path.isabs(caches) else None


def name_of(jvm: Any, loader: Any, sources: Mapping[str, str]) -> str | None:
    """Return the name of the file of sources in a JVM; None if no file may stand for them.

    - `loader`: Finds Spark's classes.
    - `sources`: Texts by name, as they are compiled.
    """
    kind = str(loader.getClass().getName())
    if kind not in _LOADERS:
        # It may find other classes than those of the class path.
        return None
    build, system = jvm.org.apache.spark.SparkBuildInfo, jvm.java.lang.System
    properties = ("java.vm.vendor", "java.vm.name", "java.vm.version", "os.arch")
    facts = {
        "format": _FORMAT,
        "release": __version__,
        "spark": [build.spark_version(), build.spark_revision(), build.spark_build_date()],
        "java": [system.getProperty(name) for name in properties],
        "jars": _jars(system.getProperty("java.class.path").split(os.pathsep)),
        "sources": sorted(sources.items()),
    }
    return _DIGEST(json.dumps(facts, default=str).encode()).hexdigest() + _SUFFIX


def _jars(paths: Iterable[str]) -> list[tuple[str, int]]:
    """Return names and sizes of the jars of a class path, in its order."""
    jars = []
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                jars.append((os.path.basename(path), status.st_size))
    return jars


def load(folder: Path, name: str) -> bytes | None:
    """Return the jar of a file; None unless it is certain that this user has written it."""
    try:
        directory = open_folder(folder)
    except (OSError, ValueError):
        return None
    try:
        return _read(directory, name)
    except OSError:
        return None
    finally:
        os.close(directory)


def _read(directory: int, name: str) -> bytes | None:
    descriptor, status = open_file(directory, name)
    with open(descriptor, "rb") as file:
        if status.st_size > _LARGEST:
            return None
        data = file.read(_LARGEST)
        digest, jar = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest != _digest(name, jar):
            return None
        with suppress(OSError):
            # The time of the last use.
            os.utime(file.fileno())
        return jar


def _digest(name: str, jar: bytes) -> bytes:
    return _DIGEST(name.encode() + b"\0" + jar).digest()


def store(folder: Path, name: str, jar: bytes) -> None:
    """Write a jar to a file, in one step. If it fails, there is no file."""
    with suppress(OSError, ValueError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A folder that others may write to gets nothing.
        os.close(open_folder(folder))
        descriptor, path = tempfile.mkstemp(prefix=".", suffix=_SUFFIX, dir=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(_digest(name, jar) + jar)
            os.replace(path, folder / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        _clean(folder)


def _clean(folder: Path) -> None:
    """Delete files of releases that are not used any more, and of processes that died."""
    used = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            used.append((path.stat().st_mtime, path))
    used.sort(reverse=True)
    complete = [path for _, path in used if not path.name.startswith(".")]
    limit = time.time() - _ABANDONED
    abandoned = [path for at, path in used if path.name.startswith(".") and at < limit]
    for path in (*complete[_KEPT:], *abandoned):
        with suppress(OSError):
            path.unlink()


# --------------------------------------------------------------------------------------------------
# Java classes of this package in the JVM of a classic session: from a jar, or compiled.

#: The sources that `Conditions` needs, which compile in a third of the time of all.
_CONDITIONS = (
    *("CharComparisons.java", "Conditions.java", "Expressions.java", "Forms.java", "Log.java"),
    *("Replacing.java", "SparkField.java"),
)

#: The class Extension by the gateway of its JVM.
_extensions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
#: The class Conditions by the gateway of its JVM; None if it is not available.
_conditions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
PACKAGE = "org.lancespark"
EXTENSION = f"{PACKAGE}.Extension"
CATALOG_CLASS = f"{PACKAGE}.LanceCatalog"
#: Spark's own catalog.
SESSION_CATALOG = "spark_catalog"
SESSION_CATALOG_CLASS = f"{PACKAGE}.LanceSessionCatalog"

#: The file of a jar that names data sources, and the class that it names.
_SOURCES = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCE_CLASS = f"{PACKAGE}.LanceSource"

#: The source whose columns say whether a session has the rules.
PROBE = f"{PACKAGE}.Probe"
#: The source that adds the classes to a server, its files, and the jar of the other classes.
INSTALLER = f"{PACKAGE}.Installer"
_INSTALLER_FILES = f"{INSTALLER.replace('.', '/')}"
_INSTALLED_JAR = "lance-spark-classes.jar"
#: Code for a version of Spark and later versions.
_BLOCK = re.compile(r"/\* since (\d+\.\d+)\n(.*?)since \1 \*/", re.DOTALL)

#: Folders of the installed package, or of an archive that has it.
_FOLDER = resources.files(__package__) / "java"
#: What is private in Spark: sources for all releases, and a folder for each release.
_SHIMS = resources.files(__package__) / "shims"
#: The earliest time that a zip file can hold: equal sources make equal jars.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def class_jar(
    jvm: Any, loader: Any, cache: Path | None, files: Collection[str] | None = None
) -> bytes:
    """Return a jar of the sources: from a folder that keeps jars, or compiled in a JVM.

    - `jvm`: Has Spark's jars.
    - `loader`: Finds Spark's classes.
    - `cache`: The folder; without it, the sources are compiled.
    - `files`: Names of the files to compile; all files by default.

    Raises py4j.protocol.Py4JJavaError: they cannot be compiled.
    """
    sources = sources_of(str(jvm.org.apache.spark.SparkBuildInfo.spark_version()), files)
    name = name_of(jvm, loader, sources) if cache else None
    if cache is None or name is None:
        return _compile(jvm, loader, sources)
    jar = load(cache, name)
    if jar is None:
        jar = _compile(jvm, loader, sources)
        store(cache, name, jar)
    return jar


def sources_of(version: str, files: Collection[str] | None = None) -> dict[str, str]:
    """Return the texts of the sources for a version of Spark, by the names of their classes."""
    release = ".".join(version.split(".")[:2])
    folders = (_FOLDER, *_entries(_FOLDER), _SHIMS, _SHIMS / release)
    paths = {
        path.name: path
        for path in chain.from_iterable(map(_entries, folders))
        if path.name.endswith(".java") and (not files or path.name in files)
    }
    replace = partial(_block, version)
    texts = {
        name: _BLOCK.sub(replace, path.read_text(encoding="utf-8"))
        for name, path in sorted(paths.items())
    }
    if not files:
        texts[constants.FILE] = constants.java_source(PACKAGE)
    return {f"{PACKAGE.replace('.', '/')}/{name}": text for name, text in texts.items()}


def _entries(folder: Traversable) -> list[Traversable]:
    """Return the files and folders in a folder; an empty list if it is not a folder."""
    return list(folder.iterdir()) if folder.is_dir() else []


def _block(version: str, match: re.Match[str]) -> str:
    """Return the code of a block, or the comment that it is for an earlier version of Spark."""
    release, since = (tuple(map(int, text.split(".")[:2])) for text in (version, match[1]))
    return match[2] if release >= since else match[0]


def _compile(jvm: Any, loader: Any, sources: Mapping[str, str]) -> bytes:
    """Compile sources in a JVM that has Spark's jars, and return a jar of their classes."""
    resource = jvm.org.codehaus.commons.compiler.util.resource
    base = jvm.java.lang.Class.forName(
        "org.codehaus.commons.compiler.util.resource.Resource", True, loader
    )
    texts = jvm.java.lang.reflect.Array.newInstance(base, len(sources))
    for index, (name, text) in enumerate(sources.items()):
        texts[index] = resource.StringResource(name, text)
    classes = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(resource.MapResourceCreator(classes))
    compiler.compile(texts)
    files = {str(name): bytes(classes.get(name)) for name in classes}
    return _zip({**files, _SOURCES: f"{_SOURCE_CLASS}\n".encode()})


def write_jar(path: Path) -> None:
    """Compile the sources in a new JVM, and write their classes to a jar, with the same bytes each
    time.
    """
    # Other users run it for a long time: it does not come from a folder.
    path.write_bytes(_jar_of_bare_jvm(None))


def installer_jar() -> bytes:
    """Return a jar that adds all classes to the server to which a client sends it.

    It has the class Installer, and the jar of the others as a file.
    """
    files = _unzip(_jar_of_bare_jvm(folder()))
    installer = {name: files.pop(name) for name in list(files) if name.startswith(_INSTALLER_FILES)}
    return _zip({**installer, _INSTALLED_JAR: _zip(files)})


def _jar_of_bare_jvm(cache: Path | None) -> bytes:
    """Return the jar of all sources for a new JVM with Spark's jars."""
    with bare_jvm() as jvm:
        return class_jar(jvm, jvm.java.lang.ClassLoader.getSystemClassLoader(), cache)


def _zip(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as jar:
        for name in sorted(files):
            jar.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED, 9)
    return target.getvalue()


def _unzip(jar: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(jar)) as files:
        return {name: files.read(name) for name in files.namelist()}


def is_connect(spark: Any) -> bool:
    """Return whether a session is a client of Spark Connect, which has no JVM."""
    return type(spark).__module__.startswith(CONNECT)


def is_configured(spark: Any) -> bool:
    """Return whether `spark.sql.extensions` names the class Extension."""
    named = str(spark.conf.get("spark.sql.extensions", ""))
    return EXTENSION in [name.strip() for name in named.split(",")]


def loaded_extension(spark: Any) -> Any:
    """Return the class Extension of the session's JVM; None if it is not loaded yet."""
    gateway = gateway_of(spark)
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
    """Return the class Extension of the session's JVM. The first call compiles it, unless compiled
    classes are kept.

    Raises py4j.protocol.Py4JJavaError: it cannot be compiled.
    """
    extension = loaded_extension(spark)
    if extension is None:
        loader = _spark_loader(spark)
        if takes_jars(spark):
            _add_jar(spark, loader)
            extension = loader.loadClass(EXTENSION)
        else:
            extension = _compiled(spark, EXTENSION)
        _extensions[gateway_of(spark)] = extension
    return extension


def use_loader(gateway: Any, loader: Any) -> None:
    """Take the classes of a JVM from a class loader that has them already."""
    _extensions[gateway] = loader.loadClass(EXTENSION)


def takes_jars(spark: Any) -> bool:
    """Return whether classes can be added to the class loader by which Spark finds catalogs.

    It can in all JVMs that spark-submit or pyspark started. A host program of its own may have
    another class loader, which gives push-down only.
    """
    gateway, loader = gateway_of(spark), _spark_loader(spark)
    return is_instance(gateway, loader, "org.apache.spark.util.MutableURLClassLoader")


def _add_jar(spark: Any, loader: Any) -> None:
    """Add the classes of all sources to Spark's class loader.

    Catalogs and data sources are looked up by name in that loader, by any thread of the driver.
    `ExecutorClasses.java` sends the jar to executors.
    """
    jvm = jvm_of(spark)
    file = jvm.java.io.File.createTempFile("lance-spark-", ".jar")
    file.deleteOnExit()
    # A copy of its own: what is in the folder of kept jars may change while this JVM runs.
    jar = class_jar(jvm, loader, folder_of(spark))
    Path(file.getPath()).write_bytes(jar)
    loader.addURL(file.toURI().toURL())


def conditions_class(spark: Any) -> Any:
    """Return the class Conditions of the session's JVM.

    Returns None if this version of Spark is not supported, or cannot compile the class.
    """
    gateway = gateway_of(spark)
    if gateway not in _conditions:
        _conditions[gateway] = _conditions_class(spark)
    return _conditions[gateway]


def call_static(spark: Any, owner: Any, name: str, argument: Any) -> Any:
    """Call a static method by reflection: py4j's class loader does not find compiled classes.

    Raises py4j.protocol.Py4JJavaError: the method raises.
    """
    jvm, gateway = jvm_of(spark), gateway_of(spark)
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = jvm.java.lang.Class.forName("java.lang.Object")
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = argument
    return owner.getMethod(name, types).invoke(None, arguments)


def is_stack_overflow(error: BaseException) -> bool:
    """Return whether an error is an overflow of a stack in the JVM."""
    java = getattr(error, "java_exception", None)
    return java is not None and java.getClass().getName() == "java.lang.StackOverflowError"


def _conditions_class(spark: Any) -> Any:
    if not is_supported(spark.version):
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
    jvm = jvm_of(spark)
    parent = _spark_loader(spark)
    jar = class_jar(jvm, parent, folder_of(spark), sources)
    by_name = jvm.java.util.HashMap()
    for file, content in _unzip(jar).items():
        if file.endswith(".class"):
            by_name.put(file.removesuffix(".class").replace("/", "."), content)
    reflect = jvm.org.codehaus.commons.compiler.util.reflect
    return reflect.ByteArrayClassLoader(by_name, parent).loadClass(name)


def _spark_loader(spark: Any) -> Any:
    return jvm_of(spark).org.apache.spark.util.Utils.getContextOrSparkClassLoader()
