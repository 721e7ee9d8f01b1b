"""The Java class with the names of options, made from their declarations."""

from __future__ import annotations

from collections.abc import Iterable

from lance_spark.spark.options.declared import STATE_NAMES, VIEW_NAMES

#: The name of the file that the text would have.
FILE = "OptionNames.java"


def java_source(package: str) -> str:
    """Return the text of the class ``OptionNames``."""
    return f"""package {package};

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** Names of options, in lower case. */
final class OptionNames {{
  /** Options of a query that choose the version or the columns of a table. */
  static final Set STATE = {_set(STATE_NAMES)};

  /** Options of a read that choose rows and columns of a version, not the version. */
  static final Set VIEW = {_set(VIEW_NAMES)};

  private OptionNames() {{}}
}}
"""


def _set(names: Iterable[str]) -> str:
    texts = ", ".join(f'"{name}"' for name in names)
    return f"new HashSet(Arrays.asList(new Object[] {{{texts}}}))"
