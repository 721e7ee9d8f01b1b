"""Parts of pages that are made of declarations in the package, in place of a comment in the page.

| comment | what stands in its place |
| --- | --- |
| `<!-- options: CLASS ... -->` | the rows of a table: the options that classes of `declared` have |
| `<!-- procedures -->` | a section for each procedure, as the catalog describes it to Spark |
| `<!-- names of pylance -->` | a row for each public name of the installed pylance |
| `<!-- tests of TOOL -->` | a row for each test of a tool, with its outcome by release |
"""

from __future__ import annotations

import re
from typing import Any

from lance_spark.spark.catalog.procedures.call import PROCEDURES, list_procedures
from lance_spark.spark.options import declared
from lance_spark.table.commit.options import RetryKeywords
from tests.tools.__main__ import ENVIRONMENTS
from tests.tools.results import table

_OPTIONS = re.compile(r"<!-- options: ([\w ]+) -->")
_PROCEDURES = "<!-- procedures -->"
_NAMES = "<!-- names of pylance -->"
_TOOL = re.compile(r"<!-- tests of (\w+) -->")
#: Parameters of many procedures, which have one table.
_SHARED = ("table", *RetryKeywords.__annotations__, "branch", "table_options")


def completed(page: str) -> str:
    """Return the Markdown of a page with its generated parts."""
    if _PROCEDURES in page:
        page = page.replace(_PROCEDURES, procedures())
    if _NAMES in page:
        # pylance takes a second to import.
        from tests.support.pylance_names.page import page as names

        page = page.replace(_NAMES, names())
    page = _TOOL.sub(lambda marker: table(marker[1], ENVIRONMENTS[marker[1]]), page)
    return _OPTIONS.sub(lambda marker: options(*marker[1].split()), page)


def options(*classes: str) -> str:
    """Return rows of options: those that the classes declare themselves."""
    rows = []
    for name in classes:
        cls = getattr(declared, name)
        inherited = {key for base in cls.__bases__ for key in getattr(base, "declared", {})}
        rows += [
            item.row()
            for key, item in cls.declared.items()
            if key not in inherited and not item.is_internal
        ]
    return "\n".join(rows)


def procedures() -> str:
    """Return the table of shared parameters, and the sections of the procedures."""
    described = list_procedures({})["procedures"]
    comments = {row["name"]: row["comment"] for row in described[0]["parameters"]}
    parts = ["| parameter of many procedures | |\n|---|---|\n"]
    parts += (f"| `{name}` | {comments[name]} |\n" for name in _SHARED)
    for item in described:
        parts.append(f"\n## {item['name']}\n\n{_markdown(item['comment'])}")
        procedure = PROCEDURES[item["name"]]
        if procedure.has_jobs:
            parts.append(" Runs Spark jobs.")
        if procedure.aliases:
            parts.append(f" Other names: {', '.join(f'`{name}`' for name in procedure.aliases)}.")
        parts.append("\n\n| parameter | type | |\n|---|---|---|\n")
        rows = item["parameters"]
        parts += (_row(row) for row in rows if row["name"] not in _SHARED[1:])
        also = [f"`{row['name']}`" for row in rows if row["name"] in _SHARED[1:]]
        if also:
            parts.append(f"\nAlso: {', '.join(also)}.\n")
        parts.append(f"\nResult: `{procedure.result}`.\n")
    return "".join(parts)


def _row(parameter: dict[str, Any]) -> str:
    name = f"`{parameter['name']}`"
    if parameter["required"]:
        name = f"**{name}**"
    return f"| {name} | `{parameter['type']}` | {_markdown(parameter['comment'] or '')} |\n"


def _markdown(comment: str) -> str:
    return " ".join(comment.split()).replace("``", "`").replace("|", "\\|")
