"""The inputs of Spark's golden SQL files, read as Spark's own suite reads them.

A statement ends with a semicolon, or stands between lines that begin with `--QUERY-DELIMITER-START`
and `--QUERY-DELIMITER-END`. Lines that begin with `--` are comments. Some comments say how to run a
file: `--SET` has settings, each `--CONFIG_DIM` some values of settings to choose from, `--IMPORT`
names a file whose statements run before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_START = "--QUERY-DELIMITER-START"
_END = "--QUERY-DELIMITER-END"
_DELIMITER = "--QUERY-DELIMITER"
#: A semicolon that no backslash escapes.
_SEMICOLON = re.compile(r"(?<=[^\\]);")
#: What precedes the statement that makes a view of rows that its text has.
_VIEW = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+VIEW\s+(?P<name>\w+)\s*(?:\([^()]*\))?\s*AS\s+"
    r"\(*\s*(?:SELECT\s+\*\s+FROM\s*\(?\s*)?VALUES\b",
    re.IGNORECASE,
)
_TABLE = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:\w+\.)*(?P<name>\w+)",
    re.IGNORECASE,
)
_ANY_VIEW = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMP(?:ORARY)?\s+)?VIEW\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>\w+)",
    re.IGNORECASE,
)
_DROP_VIEW = re.compile(r"DROP\s+VIEW\s+(?:IF\s+EXISTS\s+)?(?P<name>\w+)\s*$", re.IGNORECASE)
_PARQUET = re.compile(r"(?<=\bUSING\s)(\s*)PARQUET\b|\bPARQUET(?=\.`)", re.IGNORECASE)
_PARTITIONS = re.compile(
    r"^(CREATE\s+TABLE\b.*?)\bPARTITIONED\s+BY\s*\((?:\s*\w+\s*,)*\s*\w+\s*\)",
    re.IGNORECASE | re.DOTALL,
)
_BUCKETS = re.compile(
    r"\bCLUSTERED\s+BY\s*\([^()]*\)(?:\s*SORTED\s+BY\s*\([^()]*\))?\s*INTO\s+\d+\s+BUCKETS\b",
    re.IGNORECASE,
)
_LOCATION = re.compile(r"(\bLOCATION\s+'(?:file:)?)(?=/)", re.IGNORECASE)
_UDF = re.compile(r"\budf\s*\(", re.IGNORECASE)


@dataclass(frozen=True)
class Input:
    """A file of statements.

    - `settings`: Those of `--SET`, and the first of each `--CONFIG_DIM`.
    """

    statements: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)


def read_input(folder: Path, name: str) -> Input:
    """Read a file of the folder `inputs`, with the files that it imports."""
    comments, lines = _comments_and_code((folder / name).read_text())
    imported: list[str] = []
    for comment in comments:
        if comment.startswith("--IMPORT "):
            path = folder / comment.removeprefix("--IMPORT ").strip()
            imported += _comments_and_code(path.read_text())[1]
    return Input(tuple(split_statements(imported + lines)), _settings(comments))


def split_statements(lines: list[str]) -> list[str]:
    """Split lines of code into statements, without comments and semicolons."""
    found: list[str] = []
    others: list[str] = []
    marked: list[str] | None = None
    for line in lines:
        if line.strip().startswith(_START):
            found += _SEMICOLON.split("\n".join(others))
            others, marked = [], []
        elif line.strip().startswith(_END):
            found.append("\n".join(marked or []).removesuffix(";"))
            marked = None
        elif marked is not None:
            marked.append(line)
        else:
            others.append(line)
    found += _SEMICOLON.split("\n".join(others))
    cleaned = (_without_comments(text.strip().removesuffix(";")) for text in found)
    return [text for text in cleaned if text]


def _without_comments(statement: str) -> str:
    kept = (line for line in statement.split("\n") if not line.startswith("--"))
    return "\n".join(kept).strip()


def _comments_and_code(text: str) -> tuple[list[str], list[str]]:
    comments: list[str] = []
    code: list[str] = []
    for line in text.split("\n"):
        start = line.strip()
        is_comment = start.startswith("--") and not start.startswith(_DELIMITER)
        (comments if is_comment else code).append(line)
    return comments, code


def _settings(comments: list[str]) -> dict[str, str]:
    """Return the settings of the first run of a file: it runs once for each choice of dimensions."""
    settings: dict[str, str] = {}
    dimensions: dict[str, str] = {}
    for comment in comments:
        if comment.startswith("--SET "):
            settings |= _pairs(comment.removeprefix("--SET "))
        elif comment.startswith("--CONFIG_DIM"):
            name, _, values = comment.removeprefix("--CONFIG_DIM").partition(" ")
            dimensions.setdefault(name, values)
    for values in dimensions.values():
        settings |= _pairs(values)
    return settings


def _pairs(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs}


def for_source(statement: str, source: str, root: str) -> str:
    """Return a statement with a source in place of Parquet, whose paths are below a folder.

    New tables have no partitions and buckets, also those of Parquet: Lance refuses them. Spark's
    suite registers functions `udf` that return their argument: `coalesce` does so, too.
    """
    statement = _BUCKETS.sub("", _PARTITIONS.sub(r"\1", statement))
    statement = _LOCATION.sub(rf"\g<1>{root}", statement)
    return _UDF.sub("coalesce(", with_source(statement, source))


def with_source(statement: str, source: str) -> str:
    """Return a statement with a source in place of Parquet."""
    return _PARQUET.sub(rf"\g<1>{source}", statement)


def created_table(statement: str) -> str | None:
    """Return the name of the table that a statement creates, without that of its database."""
    match = _TABLE.match(statement)
    return match["name"].lower() if match else None


def view_of_values(statement: str) -> str | None:
    """Return the name of the temporary view that a statement makes of rows in its text."""
    match = _VIEW.match(statement)
    return match["name"].lower() if match else None


def created_view(statement: str) -> str | None:
    """Return the name of the view that a statement creates."""
    match = _ANY_VIEW.match(statement)
    return match["name"].lower() if match else None


def dropped_view(statement: str) -> str | None:
    """Return the name of the view that a statement drops."""
    match = _DROP_VIEW.match(statement)
    return match["name"].lower() if match else None
