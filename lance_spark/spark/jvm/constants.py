"""The Java class with what Python declares: names of options and properties, and the supported
releases.
"""

from __future__ import annotations

from collections.abc import Iterable

from lance_spark.spark.jvm import startup
from lance_spark.spark.jvm.shims.pyspark_names import SUPPORTED
from lance_spark.spark.options.declared import (
    CHANGE_FEED_NAMES,
    STATE_NAMES,
    TIME_SPELLINGS,
    VIEW_NAMES,
)

#: Properties of the JVM that `enable` sets: the program that runs it, and that of tasks.
DRIVER_PYTHON = "org.lancespark.driverPython"
TASKS_PYTHON = "org.lancespark.tasksPython"
#: The name of the file that the text would have.
FILE = "Constants.java"


def java_source(package: str) -> str:
    """Return the text of the class ``Constants``."""
    return f"""package {package};

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** What Python declares. Names of options are in lower case. */
final class Constants {{
  /** Options of a query that choose the version or the columns of a table. */
  static final Set STATE_OPTIONS = {_set(STATE_NAMES)};

  /** Options of a read that choose rows and columns of a version, not the version. */
  static final Set VIEW_OPTIONS = {_set(VIEW_NAMES)};

  /** Spellings of the option of change feeds. */
  static final Set FEED_OPTIONS = {_set(CHANGE_FEED_NAMES)};

  /** Options that have a time. */
  static final Set TIME_OPTIONS = {_set(TIME_SPELLINGS)};

  /** The releases of Spark that are supported. */
  static final String SUPPORTED_SPARK = "{SUPPORTED}";

  /** The property of the JVM that names the folder of `sitecustomize.py`, if there is one. */
  static final String STARTUP = "{startup.PROPERTY}";

  /** The property of the JVM that names the program that has called `enable`. */
  static final String DRIVER_PYTHON = "{DRIVER_PYTHON}";

  /** The property of the JVM that names the program of tasks, if `enable` knows it. */
  static final String TASKS_PYTHON = "{TASKS_PYTHON}";

  private Constants() {{}}
}}
"""


def _set(names: Iterable[str]) -> str:
    texts = ", ".join(f'"{name}"' for name in names)
    return f"new HashSet(Arrays.asList(new Object[] {{{texts}}}))"
