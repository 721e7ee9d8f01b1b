"""Commands of `python -m lance_spark`.

| command | what it does |
| --- | --- |
| `conf [DIR]` | writes what Spark needs to have push-down on in every session, without a line of code |
| `inspect PATH` | tells what a table consists of: versions, fragments, files, columns, encodings |
| `validate PATH` | checks the manifest of a version against itself and the files; exit status 1 if something is wrong |
"""

from __future__ import annotations

import argparse
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from lance_spark import __version__
from lance_spark.errors import InvalidOptionError, LanceError

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset

FRAGMENT = """\
# Push-down for format("lance"), in every session. Written by `python -m lance_spark conf`, lance_spark {version}.
# Of two lines that set the same, the last one holds alone: other extensions are named in the same line, with commas between,
# and other jars in the same class path, with colons.
spark.sql.extensions             {extension}
spark.driver.extraClassPath      {jar}

# Plans, and so the event log and the web interface, tell the options of a table: not those that hold secrets.
{redaction} {pattern}
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
    _add_inspect(commands.add_parser("inspect", help="tell what a table consists of"))
    _add_validate(commands.add_parser("validate", help="check a table"))
    chosen = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of columns can have letters that the terminal does not.
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(_run(chosen))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough; what is still buffered must not fail at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (LanceError, OSError) as error:
        print(f"lance_spark: {error}", file=sys.stderr)
        return 1
    return 0


def _run(chosen: argparse.Namespace) -> str:
    if chosen.command == "inspect":
        return inspect(chosen)
    return validate(chosen) if chosen.command == "validate" else write_conf(Path(chosen.folder))


def _add_validate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a version of a table: its manifest, and the files that the manifest names. The ends of data files, deletion "
        "files, row ids and versions of rows are read, the values of columns are not; nothing is changed."
    )
    _add_version(parser)


def _add_version(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a version of a table."""
    parser.add_argument("path", metavar="PATH", help="path or URI of the table")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, metavar="N", help="this version, not the newest")
    which.add_argument("--tag", metavar="NAME", help="the version that a tag names")
    parser.add_argument("--branch", metavar="NAME", help="of this branch")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the store, such as its region; can be given several times",
    )


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    from lance_spark.inspect import DEFAULT_FILES, DEFAULT_VERSIONS

    parser.description = (
        "Tell what a table consists of: versions, fragments, data files, and for each column its bytes, pages and "
        "encodings. Only manifests and the ends of data files are read; nothing is changed."
    )
    _add_version(parser)
    parser.add_argument(
        "--fragment",
        type=int,
        action="append",
        metavar="N",
        help="only the files of this fragment, with every page; can be given several times",
    )
    parser.add_argument(
        "--columns", metavar="A,B.C", help="only these columns, or fields inside of them"
    )
    parser.add_argument(
        "--files",
        type=int,
        default=DEFAULT_FILES,
        metavar="N",
        help="read the ends of at most N data files, from fragments all over the table (default: %(default)s)",
    )
    parser.add_argument(
        "--versions",
        type=int,
        default=DEFAULT_VERSIONS,
        metavar="N",
        help="tell the newest N versions (default: %(default)s)",
    )
    parser.add_argument("--html", metavar="FILE", help="write one page with plots instead of text")


def inspect(chosen: argparse.Namespace) -> str:
    """Tell what a table consists of, as the command line says, or write it as a page and say so."""
    from lance_spark.inspect.collect import facts_of
    from lance_spark.inspect.html import as_html
    from lance_spark.inspect.text import as_text

    facts = facts_of(
        _open(chosen),
        versions=chosen.versions,
        fragments=chosen.fragment,
        columns=chosen.columns.split(",") if chosen.columns else None,
        files=chosen.files,
    )
    if chosen.html is None:
        return as_text(facts, pages=chosen.fragment is not None)
    Path(chosen.html).write_text(as_html(facts), encoding="utf-8")
    return f"wrote {chosen.html}\n"


def validate(chosen: argparse.Namespace) -> str:
    """Check the version that the command line names, and say that nothing is wrong with it.

    Raises
    ------
    CorruptTableError
        Something is.
    """
    dataset = _open(chosen)
    dataset.validate()
    return f"{dataset._table.store.display}: version {dataset.version} is valid\n"


def _open(chosen: argparse.Namespace) -> Dataset:
    from lance_spark.dataset.dataset import open_dataset

    options = {}
    for one in chosen.option:
        key, separator, value = one.partition("=")
        if not key or not separator:
            # The value may be a secret.
            raise InvalidOptionError(f"--option {key!r} is not of the form KEY=VALUE")
        options[key] = value
    return open_dataset(
        chosen.path,
        version=chosen.version,
        branch=chosen.branch,
        tag=chosen.tag,
        storage_options=options,
    )


def write_conf(folder: Path) -> str:
    """Write `lance-spark-rule-<version>.jar` and `lance-spark-defaults.conf`, and return what to do with them."""
    from lance_spark.spark.options import redaction
    from lance_spark.spark.pushdown.compile_java import EXTENSION, write_jar

    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"lance-spark-rule-{__version__}.jar"
    fragment = folder / "lance-spark-defaults.conf"
    write_jar(jar)
    fragment.write_text(
        FRAGMENT.format(
            version=__version__,
            extension=EXTENSION,
            jar=jar,
            redaction=redaction.CONF,
            pattern=redaction.FOR_CLUSTERS,
        )
    )
    return NEXT.format(jar=jar, fragment=fragment, extension=EXTENSION)


if __name__ == "__main__":
    sys.exit(main())
