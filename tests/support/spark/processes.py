"""What processes with a Spark of their own are told, and what of the session of this process is kept from them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: A JVM that lives for some tests saves a quarter of its processor time by doing without its second compiler.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a process that finds this checkout and this interpreter, and some more."""
    made = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **more}
    made.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        made.pop(name, None)
    return made
