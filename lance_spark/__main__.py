"""The command line: `python -m lance_spark`.

| command | effect |
| --- | --- |
| `conf [DIR]` | writes files that give every Spark session push-down and tables by name |
| `check-index PATH NAME` | compares an index with its column; exit status 1 if it is wrong |
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

from lance_spark.errors import CorruptTableError, InvalidOptionError, LanceError
from lance_spark.progress import reporting

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status."""
    options = make_parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of columns can have characters that the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    try:
        with reporting(options.command):
            output = _run(options)
        sys.stdout.write(output)
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
    _add_conf(commands.add_parser("conf", help="write the jar and settings of Spark"))
    _add_inspect(commands.add_parser("inspect", help="print a report about a table"))
    _add_validate(commands.add_parser("validate", help="check a version of a table"))
    _add_check_index(commands.add_parser("check-index", help="compare an index with its column"))
    return parser


def _run(options: argparse.Namespace) -> str:
    """Run a command and return its output."""
    if options.command == "inspect":
        return inspect(options)
    if options.command == "check-index":
        return check_index(options)
    return validate(options) if options.command == "validate" else write_conf(options)


def _add_conf(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write the jar of this package, and a fragment of spark-defaults.conf that turns push-down "
        "on and defines a catalog of tables by name."
    )
    parser.add_argument(
        "folder",
        nargs="?",
        default=".",
        metavar="DIR",
        help="folder of the files (default: current folder)",
    )
    parser.add_argument(
        "--catalog", default="lance", metavar="NAME", help="name of the catalog (default: lance)"
    )
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        help="folder or URI of the catalog's tables (default: warehouse folder of the session)",
    )
    _add_options(parser, "an option of the catalog, such as storage.region")
    parser.add_argument(
        "--session-catalog",
        action="store_true",
        help="let CREATE TABLE ... USING lance of spark_catalog make tables that can be changed",
    )


def _add_options(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{meaning}; can be repeated",
    )


def _add_validate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a version of a table: its manifest, and the files that the manifest names. Reads "
        "the ends of data files, deletion files, and row ids and row versions, but no values of "
        "columns. Changes nothing."
    )
    _add_table(parser)


def _add_check_index(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare an index of a table with its column, in both directions. Reads the index, and the "
        "column of all fragments that it covers. Changes nothing."
    )
    _add_table(parser)
    parser.add_argument("name", metavar="NAME", help="name of the index")


def _add_table(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select a version of a table."""
    parser.add_argument("path", metavar="PATH", help="path or URI of the table")
    version = parser.add_mutually_exclusive_group()
    version.add_argument(
        "--version", type=int, metavar="N", help="number of the version (default: the newest)"
    )
    version.add_argument("--tag", metavar="NAME", help="a tag of the version")
    parser.add_argument("--branch", metavar="NAME", help="branch of the version")
    _add_options(parser, "a storage option, such as the region")


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
    # The defaults equal the defaults of `facts_of`, which is not imported for other commands.
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


def check_index(options: argparse.Namespace) -> str:
    """Compare an index with its column, and return a line that says that it is valid.

    Raises
    ------
    CorruptTableError
        The index is wrong.
    """
    dataset = _open(options)
    result = dataset.check_index(options.name)
    label = f"{dataset._table.store.display}: index {result.name} ({result.index_type})"
    if result.is_valid:
        return f"{label} is valid: {result.num_rows:,} rows, {result.stale:,} stale entries\n"
    problems = "".join(f"\n  {problem}" for problem in result.problems)
    raise CorruptTableError(
        f"{label} is not valid: {result.missing:,} rows are missing, {result.wrong:,} entries are "
        f"wrong; create it again{problems}"
    )


def _open(options: argparse.Namespace) -> Dataset:
    from lance_spark.dataset.dataset import open_dataset

    return open_dataset(
        options.path,
        version=options.version,
        branch=options.branch,
        tag=options.tag,
        storage_options=_key_values(options.option),
    )


def _key_values(options: list[str]) -> dict[str, str]:
    """Return the values of `--option` by name."""
    values = {}
    for option in options:
        key, separator, value = option.partition("=")
        if not key or not separator:
            # Without the value, which may be a secret.
            raise InvalidOptionError(f"--option must have the form KEY=VALUE, not {key!r}")
        values[key] = value
    return values


def write_conf(options: argparse.Namespace) -> str:
    """Write the jar and the settings of Spark, and return instructions."""
    from lance_spark.spark.jvm import enable as configuration

    settings = _key_values(options.option)
    if options.root is not None:
        local = "://" not in options.root
        settings["root"] = os.path.abspath(options.root) if local else options.root
    return configuration.write_conf(
        Path(options.folder), options.catalog, session_catalog=options.session_catalog, **settings
    )


if __name__ == "__main__":
    sys.exit(main())
