"""What `python -m lance_spark conf` writes: the jar, and settings of push-down and of a catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from lance_spark._version import __version__
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.jvm import enable
from lance_spark.spark.jvm.classes import CATALOG_CLASS, EXTENSION, write_jar

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
    folder: Path, catalog: str = enable.CATALOG, *, session_catalog: bool = False, **options: str
) -> str:
    """Write the jar and `lance-spark-defaults.conf` to a folder; return instructions.

    Parameters
    ----------
    folder : Path
        Is created if it is missing.
    catalog : str
        Name of the catalog that the settings define.
    session_catalog : bool
        Whether the settings extend the catalog of the session.
    **options : str
        Options of the catalog.

    Raises
    ------
    InvalidOptionError
        A name or a value cannot stand in a file of settings.
    """
    values = _catalog_settings(catalog, options)
    if session_catalog:
        values |= enable.session_catalog_settings(options)
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
            filled_fields="\n".join(_setting(name, "true") for name in enable.FILLED_FIELDS),
            redaction=enable.REDACTION_CONF,
            pattern=enable.REDACTION_FOR_CLUSTERS,
            job_redaction=enable.JOB_REDACTION_CONF,
            job_pattern=enable.JOB_REDACTION_FOR_CLUSTERS,
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
