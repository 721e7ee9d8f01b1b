"""The command line: `python -m lance_spark`.

| command | effect |
| --- | --- |
| `conf [DIR]` | writes the files that turn push-down on in every Spark session |
| `inspect PATH` | prints a report about a table: versions, fragments, files, columns, encodings |
| `validate PATH` | checks a version of a table; exit status 1 if it is damaged |
"""

from __future__ import annotations

import argparse
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lance_spark._version import __version__
from lance_spark.errors import InvalidOptionError, LanceError

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset

FRAGMENT = """\
# Push-down for format("lance") in every session.
# Written by `python -m lance_spark conf`, lance_spark {version}.
# If two lines set the same key, only the last one counts: put other extensions into the same line,
# separated by commas, and other jars into the same class path, separated by colons.
spark.sql.extensions             {extension}
spark.driver.extraClassPath      {jar}

# Plans, the event log and the web interface show the options of a table, but not its secrets.
{redaction} {pattern}
{job_redaction} {job_pattern}
"""

NEXT = """\
wrote {jar}
wrote {fragment}

Only the driver needs the jar, at that path. Next, use one of
  spark-submit --properties-file {fragment} --load-spark-defaults job.py
  spark-submit --jars {jar} --conf spark.sql.extensions={extension} job.py
  cat {fragment} >> $SPARK_HOME/conf/spark-defaults.conf
If you have other extensions, list all of them in one value, separated by commas, in any order:
  spark.sql.extensions             your.Extension,{extension}
Class paths are separated by colons. Then `lance_spark.is_enabled(spark)` is True, and EXPLAIN shows
"lance pushdown".
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status."""
    options = make_parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of columns can have characters that the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(_run(options))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe: the flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (LanceError, OSError) as error:
        print(f"lance_spark: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser("python -m lance_spark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    conf = commands.add_parser(
        "conf", help="write the jar of the push-down rule and a fragment of spark-defaults.conf"
    )
    conf.add_argument(
        "folder",
        nargs="?",
        default=".",
        metavar="DIR",
        help="folder of the files (default: current folder)",
    )
    _add_inspect(commands.add_parser("inspect", help="print a report about a table"))
    _add_validate(commands.add_parser("validate", help="check a version of a table"))
    return parser


def _run(options: argparse.Namespace) -> str:
    """Run a command and return its output."""
    if options.command == "inspect":
        return inspect(options)
    return validate(options) if options.command == "validate" else write_conf(Path(options.folder))


def _add_validate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a version of a table: its manifest, and the files that the manifest names. Reads "
        "the ends of data files, deletion files, and row ids and row versions, but no values of "
        "columns. Changes nothing."
    )
    _add_table(parser)


def _add_table(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select a version of a table."""
    parser.add_argument("path", metavar="PATH", help="path or URI of the table")
    version = parser.add_mutually_exclusive_group()
    version.add_argument(
        "--version", type=int, metavar="N", help="number of the version (default: the newest)"
    )
    version.add_argument("--tag", metavar="NAME", help="a tag of the version")
    parser.add_argument("--branch", metavar="NAME", help="branch of the version")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a storage option, such as the region; can be repeated",
    )


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a report about a version of a table: versions, fragments, data files, and for each "
        "column its bytes, pages and encodings. Reads only manifests and the ends of data files. "
        "Changes nothing."
    )
    _add_table(parser)
    parser.add_argument(
        "--fragment",
        type=int,
        action="append",
        metavar="N",
        help="report only data files of this fragment, with all pages; can be repeated",
    )
    parser.add_argument(
        "--columns", metavar="A,B.C", help="report only these columns or nested fields"
    )
    # The defaults are those of `facts_of`, which is not imported for other commands.
    parser.add_argument(
        "--files",
        type=int,
        metavar="N",
        help="maximum number of data files to read, spread over the table (default: 64)",
    )
    parser.add_argument(
        "--versions",
        type=int,
        metavar="N",
        help="maximum number of versions to list, newest first (default: 20)",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write an HTML page with plots instead of text"
    )


def inspect(options: argparse.Namespace) -> str:
    """Return the text report about a table, or write the HTML report."""
    from lance_spark.inspect import as_html, as_text, facts_of

    limits: dict[str, Any] = {"versions": options.versions, "files": options.files}
    facts = facts_of(
        _open(options),
        fragments=options.fragment,
        columns=options.columns.split(",") if options.columns else None,
        **{name: limit for name, limit in limits.items() if limit is not None},
    )
    if options.html is None:
        return as_text(facts, pages=options.fragment is not None)
    Path(options.html).write_text(as_html(facts), encoding="utf-8")
    return f"wrote {options.html}\n"


def validate(options: argparse.Namespace) -> str:
    """Check a version of a table, and return a line that says that it is valid.

    Raises
    ------
    CorruptTableError
        The version is damaged.
    """
    dataset = _open(options)
    dataset.validate()
    return f"{dataset._table.store.display}: version {dataset.version} is valid\n"


def _open(options: argparse.Namespace) -> Dataset:
    from lance_spark.dataset.dataset import open_dataset

    storage_options = {}
    for option in options.option:
        key, separator, value = option.partition("=")
        if not key or not separator:
            # Without the value, which may be a secret.
            raise InvalidOptionError(f"--option must have the form KEY=VALUE, not {key!r}")
        storage_options[key] = value
    return open_dataset(
        options.path,
        version=options.version,
        branch=options.branch,
        tag=options.tag,
        storage_options=storage_options,
    )


def write_conf(folder: Path) -> str:
    """Write the rule's jar and `lance-spark-defaults.conf` to a folder; return instructions."""
    from lance_spark.spark.jvm import enable
    from lance_spark.spark.jvm.classes import EXTENSION, write_jar

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
            redaction=enable.REDACTION_CONF,
            pattern=enable.REDACTION_FOR_CLUSTERS,
            job_redaction=enable.JOB_REDACTION_CONF,
            job_pattern=enable.JOB_REDACTION_FOR_CLUSTERS,
        )
    )
    return NEXT.format(jar=jar, fragment=fragment, extension=EXTENSION)


if __name__ == "__main__":
    sys.exit(main())
