"""`python -m lance_spark conf [DIR]`: what Spark needs to have push-down on in every session, without a line of code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lance_spark import __version__
from lance_spark.errors import LanceError

FRAGMENT = """\
# Push-down for format("lance"), in every session. Written by `python -m lance_spark conf`, lance_spark {version}.
# Of two lines that set the same, the last one holds alone: other extensions are named in the same line, with commas between,
# and other jars in the same class path, with colons.
spark.sql.extensions             {extension}
spark.driver.extraClassPath      {jar}
"""

NEXT = """\
wrote {jar}
wrote {fragment}

Only the driver needs the jar, at that path. Next, one of
  spark-submit --properties-file {fragment} --load-spark-defaults job.py
  spark-submit --jars {jar} --conf spark.sql.extensions={extension} job.py
  cat {fragment} >> $SPARK_HOME/conf/spark-defaults.conf
If you have extensions already, name all of them in the one value, with commas between, in any order:
  spark.sql.extensions             your.Extension,{extension}
A class path is joined by colons in the same way. Then `lance_spark.is_enabled(spark)` is True, and EXPLAIN shows "lance
pushdown".
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return the exit status."""
    parser = argparse.ArgumentParser("python -m lance_spark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    conf = commands.add_parser(
        "conf", help="write the rule's jar and a fragment of spark-defaults.conf"
    )
    conf.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", help="where to (default: here)"
    )
    chosen = parser.parse_args(arguments)
    try:
        print(write_conf(Path(chosen.folder)), end="")
    except (LanceError, OSError) as error:
        print(f"lance_spark: {error}", file=sys.stderr)
        return 1
    return 0


def write_conf(folder: Path) -> str:
    """Write `lance-spark-rule-<version>.jar` and `lance-spark-defaults.conf`, and return what to do with them."""
    from lance_spark.spark.rule import EXTENSION, write_jar

    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"lance-spark-rule-{__version__}.jar"
    fragment = folder / "lance-spark-defaults.conf"
    write_jar(jar)
    fragment.write_text(FRAGMENT.format(version=__version__, extension=EXTENSION, jar=jar))
    return NEXT.format(jar=jar, fragment=fragment, extension=EXTENSION)


if __name__ == "__main__":
    sys.exit(main())
