"""Enabling push-down in a running session.

A session asks the object `SparkSession.extensions` for its rules once for each query. A rule that
is added there is used from the next query on, in this session and in those that `newSession()`
makes. The setting `spark.lance.pushdown.enabled` (default true) is read for each query too.

Spark finds the format "lance" among the modules `pyspark_*` of the Python of its workers. Without
the module, its error DATA_SOURCE_NOT_FOUND names neither the interpreter nor the setting, and
without a package that this one needs its workers end, as in a checkout, where any Python finds the
module. So `enable` checks that Python.

Spark hides options whose names or values match `spark.redaction.regex` ("secret", "password",
"token" by default) or `spark.sql.redaction.options.regex` ("url") in plans, the event log and the
web interface. Many storage options match neither: `azure_storage_account_key`,
`google_service_account_key`, `key`. `REDACTION_PATTERN` is therefore added to the second setting:
by `enable` for a session, by `spark-conf/spark-defaults.conf` and `python -m lance_spark conf` for
a cluster. The log of events has the settings of a session in the properties of each job, where
Spark applies the first setting alone: it gets a pattern for settings of catalogs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from lance_spark._version import __version__
from lance_spark.errors import InvalidOptionError, UnsupportedError
from lance_spark.spark.jvm import connect, constants, startup
from lance_spark.spark.jvm.classes import (
    CATALOG_CLASS,
    EXTENSION,
    SESSION_CATALOG_CLASS,
    call_static,
    extension_class,
    is_connect,
    loaded_extension,
    takes_jars,
    write_jar,
)
from lance_spark.spark.jvm.shims.pyspark_names import (
    check_supported,
    gateway_of,
    is_supported,
    java_conf,
    java_context,
    java_error,
    java_session,
    jvm_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Name of the catalog by default.
CATALOG = "lance"
#: The setting of the class that extends the catalog of the session.
SESSION_CATALOG = "spark.sql.catalog.spark_catalog"
CONF = "spark.lance.pushdown.enabled"
#: Finds the modules without importing them.
_PROBE = """
import importlib.util, sys
names = ("pyspark_lance", "lance_spark", "pyarrow", "numpy", "pyroaring", "fsspec")
missing = [name for name in names if importlib.util.find_spec(name) is None]
print("lance_spark probe:", ",".join(missing))
"""
_REPLY = "lance_spark probe:"
#: The folder of a module that Python runs first.
_STARTUP = Path(__file__).parent / "startup"
_SECONDS = 30
_VARIABLE = "PYSPARK_PYTHON"
_ADVICE = (
    f"Set {_VARIABLE} in the environment, before Spark starts, to a Python that has the package, "
    f"such as {sys.executable}, or install lance-spark there"
)
#: JVMs whose workers have the package.
_checked: WeakSet[Any] = WeakSet()
REDACTION_CONF = "spark.sql.redaction.options.regex"
_DEFAULT_REDACTION = "(?i)url"
#: Settings of catalogs that may hold secrets: headers of a server, and options.
_OF_CATALOGS = (
    "(?i:^spark[.]sql[.]catalog[.][^/]*[.](?:headers[.].*|[a-z0-9_.-]*(?:account|auth|connection"
    "|credential|key|pass|private|sas|secret|signature|token)[a-z0-9_.-]*)$)"
)
#: The setting for properties of jobs, which have the settings of the session, and its default.
JOB_REDACTION_CONF = "spark.redaction.regex"
_DEFAULT_JOB_REDACTION = "(?i)secret|password|token|access[.]?key|credential"
JOB_REDACTION_FOR_CLUSTERS = f"{_DEFAULT_JOB_REDACTION}|{_OF_CATALOGS}"
#: Names of options that may hold secrets, and URIs with a password, as a Java regular expression.
#: It matches whole names: Spark compares values too, and a path that contains such a word is to be
#: shown. It has no backslash, because properties files would remove it.
REDACTION_PATTERN = (
    "(?i:^[a-z0-9_.]*(?:secret|key|token|passw|passphrase|credential|connection_string"
    "|service_account|storage_options|base_store_params|sas_|bearer|signature)[a-z0-9_.]*$)"
    "|(?i:^storage[.][a-z0-9_.-]*(?:account|auth|connection|credential|key|pass|private|sas"
    "|secret|signature|token)[a-z0-9_.-]*$)"
    f"|{_OF_CATALOGS}"
    "|://[^/@]*:[^/]*@"
)
#: Settings of Spark since 4.1 and 4.2: statements WITH SCHEMA EVOLUTION fill the fields of structs
#: that their query lacks, as those of Delta do. Spark's default is to refuse.
FILLED_FIELDS = (
    "spark.sql.mergeNestedTypeCoercion.enabled",
    "spark.sql.insertNestedTypeCoercion.enabled",
)
#: The value of the setting for a cluster that has no pattern of its own.
REDACTION_FOR_CLUSTERS = f"{_DEFAULT_REDACTION}|{REDACTION_PATTERN}"


def enable(
    spark: SparkSession,
    catalog: str = CATALOG,
    *,
    session_catalog: bool | None = None,
    **options: str,
) -> None:
    """Enable push-down, and a catalog of Lance tables.

    With push-down, ``format("lance")`` reads only the columns, rows and counts of a query. The
    catalog has tables by name, for SQL and for `spark.table`: ``lance.t``, ``lance.db.t``, and
    ``lance.`/path/of/t.lance` ``. Statements that Spark does not know, such as ``OPTIMIZE``, work
    on these tables.

    Applies to all queries that the session, or a session made from it, plans from now on, including
    those over existing frames, views and caches. Plans also stop to show secrets among options. The
    setting ``spark.lance.pushdown.enabled`` turns push-down off ("false") and on again ("true") at
    any time. Further calls can add catalogs.

    Parameters
    ----------
    spark : SparkSession
    catalog : str
        Name of the catalog.
    session_catalog : bool, optional
        Whether to extend the catalog of the session, ``spark_catalog``, too: ``CREATE TABLE t USING
        lance`` makes a table that all statements can change. Tables of other formats stay as they
        are. By default, it is extended unless another class extends it.
    **options : str
        Options of the catalog, as in the settings ``spark.sql.catalog.NAME.OPTION``: ``root`` is
        the folder of the tables, by default the warehouse folder of the session. Spark reads them
        when a statement first uses the catalog, and not again. Options that begin with
        ``storage.`` count for the catalog of the session too.

    Raises
    ------
    InvalidOptionError
        Another class extends the catalog of the session, and `session_catalog` is true.
    UnsupportedError
        The release of Spark is not supported, the JVM cannot compile the classes, the Python of
        Spark's workers lacks this package, or the session is a client of a Spark Connect server
        that takes no classes.

    Examples
    --------
    >>> lance_spark.enable(spark)
    >>> spark.read.format("lance").load(path).where("id = 7").select("name").show()
    >>> spark.sql("CREATE TABLE lance.t AS SELECT 1 AS id")
    """
    check_supported(spark.version)
    extends = session_catalog
    if session_catalog is None:
        extends = _may_extend(spark)
    elif session_catalog:
        _check_session_catalog(spark)
    if is_connect(spark):
        connect.enable_rules(spark)
        _set_catalog(spark, catalog, options)
        if extends:
            _set_session_catalog(spark, options)
        redact(spark)
        _fill_fields(spark)
        return
    redact(spark)
    _fill_fields(spark)
    _set_startup(spark)
    _set_interpreters(spark)
    try:
        extension = extension_class(spark)
    except java_error() as error:
        cause = str(error.java_exception.toString()).splitlines()[0]
        raise UnsupportedError(
            f"push-down is off: Spark {spark.version} cannot compile the rule ({cause})"
        ) from error
    check_worker_python(spark, extension)
    extension.newInstance().apply(java_session(spark).extensions())
    if takes_jars(spark):
        _add_catalog(spark, catalog, options)
        if extends:
            shared = java_conf(spark)
            for key, value in _set_session_catalog(spark, options).items():
                shared.set(key, value)
        call_static(spark, extension, "addTo", java_session(spark))


def _set_startup(spark: Any) -> None:
    """Let Python processes of the format start with the module of the folder `startup`.

    `PythonSource.java` reads the property. Executors that have no such folder start as ever.
    """
    if _STARTUP.is_dir() and os.pathsep not in str(_STARTUP):
        jvm_of(spark).java.lang.System.setProperty(startup.PROPERTY, str(_STARTUP))


def _set_interpreters(spark: Any) -> None:
    """Tell `Interpreters.java` the programs of this driver, and of the tasks of its functions."""
    programs = {constants.DRIVER_PYTHON: sys.executable}
    # Without the variable, pyspark takes python3; settings may name another.
    if _VARIABLE in os.environ:
        programs[constants.TASKS_PYTHON] = spark.sparkContext.pythonExec
    for name, program in programs.items():
        if program:
            jvm_of(spark).java.lang.System.setProperty(name, program)


def _add_catalog(spark: Any, name: str, options: Mapping[str, str]) -> None:
    """Set the settings of a catalog, for the session and for sessions that `newSession()` makes."""
    shared = java_conf(spark)
    for key, value in _set_catalog(spark, name, options).items():
        shared.set(key, value)


def _set_catalog(spark: Any, name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Set the settings of a catalog for a session; return them, none if the name is of another."""
    setting = f"spark.sql.catalog.{name}"
    current = spark.conf.get(setting, None)
    if current not in (None, CATALOG_CLASS):
        if options:
            raise InvalidOptionError(
                f"setting {setting} is {current}: choose another name for the catalog"
            )
        return {}
    values = {f"{setting}.{option}": str(value) for option, value in options.items()}
    values = {setting: CATALOG_CLASS, **values}
    for key, value in values.items():
        spark.conf.set(key, value)
    return values


def _may_extend(spark: Any) -> bool:
    """Return whether no other class extends the catalog of a session."""
    return _session_catalog_class(spark) in ("builtin", SESSION_CATALOG_CLASS)


def _session_catalog_class(spark: Any) -> str:
    return str(spark.conf.get(SESSION_CATALOG, "builtin"))


def _check_session_catalog(spark: Any) -> None:
    if not _may_extend(spark):
        raise InvalidOptionError(
            f"setting {SESSION_CATALOG} is {_session_catalog_class(spark)}, and only one class can "
            "extend the catalog of the session: leave session_catalog out, and use tables of "
            "another catalog"
        )


def session_catalog_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that extend the catalog of a session, with its settings of stores."""
    stores = {name: str(value) for name, value in options.items() if name.startswith("storage.")}
    return {
        **{f"{SESSION_CATALOG}.{name}": value for name, value in stores.items()},
        SESSION_CATALOG: SESSION_CATALOG_CLASS,
    }


def _set_session_catalog(spark: Any, options: Mapping[str, str]) -> dict[str, str]:
    """Extend the catalog of a session, and return the settings.

    Spark reads them for each statement.
    """
    settings = session_catalog_settings(options)
    for name, value in settings.items():
        spark.conf.set(name, value)
    return settings


def _fill_fields(spark: Any) -> None:
    """Set `FILLED_FIELDS` for the session and for later ones, unless the user has set them."""
    given = spark.conf.getAll
    for name in FILLED_FIELDS:
        if name not in given:
            spark.conf.set(name, "true")
        if not is_connect(spark):
            java_conf(spark).setIfMissing(name, "true")


def is_enabled(spark: SparkSession) -> bool:
    """Return whether push-down is on for the next query of a session."""
    if not is_supported(spark.version) or str(spark.conf.get(CONF, "true")).lower() != "true":
        return False
    if is_connect(spark):
        return connect.is_on_server(spark)
    extension = loaded_extension(spark)
    if extension is None:
        return False
    extensions = java_session(spark).extensions()
    return bool(call_static(spark, extension, "isIn", extensions))


def check_worker_python(spark: Any, extension: Any) -> None:
    """Check that Python workers on the driver can import this package, once for each JVM.

    - `spark`: A classic session, not a client of Spark Connect.
    - `extension`: The class Extension of its JVM.

    Raises UnsupportedError: they cannot. The message names the setting.
    """
    gateway = gateway_of(spark)
    if gateway in _checked:
        return
    names, path = _worker_pythons(spark, extension)
    for name in names:
        python = shutil.which(name)
        if python is None:
            raise UnsupportedError(
                f"Spark's workers run {name!r}, and the program is not found. {_ADVICE}"
            )
        missing = _missing_module(python, path)
        if missing:
            raise UnsupportedError(
                f"Spark's workers run {python}, which has no module {missing}: Spark would not "
                f"find the format lance (DATA_SOURCE_NOT_FOUND), or its workers would end. "
                f"{_ADVICE}"
            )
    _checked.add(gateway)


def _worker_pythons(spark: Any, extension: Any) -> tuple[list[str], str]:
    """Return the programs of Spark's Python workers on this machine, and their PYTHONPATH."""
    context = java_context(spark)
    driver, path, tasks = call_static(spark, extension, "interpreters", context)
    return list(dict.fromkeys(filter(None, (driver, tasks)))), str(path)


def _missing_module(python: str, path: str) -> str:
    """Return the name of a module that an interpreter does not find; empty if it finds all."""
    try:
        output = subprocess.run(  # noqa: S603 - the program that Spark runs
            [python, "-c", _PROBE],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        # Spark's own error will say what is wrong with the program.
        return ""
    lines = [line for line in output.splitlines() if line.startswith(_REPLY)]
    return lines[-1].removeprefix(_REPLY).strip().partition(",")[0] if lines else ""


def redact(spark: SparkSession) -> None:
    """Add `REDACTION_PATTERN` to the setting of a session and of sessions that are made from it."""
    current = str(spark.conf.get(REDACTION_CONF, _DEFAULT_REDACTION) or "")
    if REDACTION_PATTERN not in current:
        spark.conf.set(
            REDACTION_CONF, f"{current}|{REDACTION_PATTERN}" if current else REDACTION_PATTERN
        )
    if not is_connect(spark):
        # Spark's log of events reads the setting of the application for each job.
        conf = java_conf(spark)
        current = str(conf.get(JOB_REDACTION_CONF, _DEFAULT_JOB_REDACTION))
        if _OF_CATALOGS not in current:
            conf.set(JOB_REDACTION_CONF, f"{current}|{_OF_CATALOGS}")


# --------------------------------------------------------------------------------------------------
# What `python -m lance_spark conf` writes: the jar, and settings of push-down and of a catalog.

_FRAGMENT = """\
# Push-down for format("lance") in every session, and tables by name in the catalog {catalog}.
# Written by `python -m lance_spark conf`, lance_spark {version}.
# If two lines set the same key, only the last one counts: put other extensions into the same line,
# separated by commas, and other jars into the same class path, separated by colons.
spark.sql.extensions             {extension}
spark.driver.extraClassPath      {jar}

# Tables by name. Without the option root, they are in the warehouse folder of the session.
{settings}

# WITH SCHEMA EVOLUTION: fields of structs that a query lacks are filled, as in Delta.
{filled_fields}

# Plans, the event log and the web interface show the options of a table, but not its secrets.
{redaction} {pattern}
{job_redaction} {job_pattern}
"""

_NEXT = """\
wrote {jar}
wrote {fragment}

Only the driver needs the jar, at that path. Next, use one of
  spark-submit --properties-file {fragment} --load-spark-defaults job.py
  spark-sql --properties-file {fragment} --load-spark-defaults
  start-connect-server.sh --properties-file {fragment} --load-spark-defaults
  cat {fragment} >> $SPARK_HOME/conf/spark-defaults.conf
If you have other extensions, list all of them in one value, separated by commas, in any order:
  spark.sql.extensions             your.Extension,{extension}
Class paths are separated by colons. PYSPARK_PYTHON in the environment of the driver must name a
Python that has this package. Then `SELECT * FROM {catalog}.name` reads a table,
`lance_spark.is_enabled(spark)` is True, and EXPLAIN shows "lance pushdown".
"""


def write_conf(
    folder: Path, catalog: str = CATALOG, *, session_catalog: bool = False, **options: str
) -> str:
    """Write the jar and `lance-spark-defaults.conf` to a folder; return instructions.

    - `folder`: Is created if it is missing.
    - `catalog`: Name of the catalog that the settings define.
    - `session_catalog`: Whether the settings extend the catalog of the session.
    - `**options`: Options of the catalog.

    Raises InvalidOptionError: a name or a value cannot stand in a file of settings.
    """
    values = _catalog_settings(catalog, options)
    if session_catalog:
        values |= session_catalog_settings(options)
    settings = "\n".join(_setting(*item) for item in values.items())
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"lance-spark-rule-{__version__}.jar"
    fragment = folder / "lance-spark-defaults.conf"
    write_jar(jar)
    fragment.write_text(
        _FRAGMENT.format(
            version=__version__,
            catalog=catalog,
            extension=EXTENSION,
            jar=jar,
            settings=settings,
            filled_fields="\n".join(_setting(name, "true") for name in FILLED_FIELDS),
            redaction=REDACTION_CONF,
            pattern=REDACTION_FOR_CLUSTERS,
            job_redaction=JOB_REDACTION_CONF,
            job_pattern=JOB_REDACTION_FOR_CLUSTERS,
        )
    )
    return _NEXT.format(jar=jar, fragment=fragment, extension=EXTENSION, catalog=catalog)


def _catalog_settings(catalog: str, options: Mapping[str, str]) -> dict[str, str]:
    if not re.fullmatch(r"[\w-]+", catalog):
        raise InvalidOptionError(
            f"the name of a catalog must have letters, digits, _ and - only, not {catalog!r}"
        )
    prefix = f"spark.sql.catalog.{catalog}"
    return {prefix: CATALOG_CLASS, **{f"{prefix}.{name}": v for name, v in options.items()}}


def _setting(name: str, value: str) -> str:
    """Return a line of a file of properties, whose values have escapes and lose outer spaces."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise InvalidOptionError(
            f"names of options must have letters, digits, '.', '_' and '-' only, not {name!r}"
        )
    if value != value.strip() or not value.isprintable():
        # Without the value, which may be a secret.
        raise InvalidOptionError(
            f"the value of {name} must not begin or end with spaces, or have control characters"
        )
    escaped = value.replace("\\", "\\\\")
    return f"{name:<32} {escaped}".rstrip()
