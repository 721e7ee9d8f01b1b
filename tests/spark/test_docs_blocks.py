"""Every Python and SQL block of the documentation runs and prints what the page says.

docs/develop/testing.md describes how a page marks setup, output and blocks that cannot be run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import lance_spark
from tests.support.pages import FENCE, ROOT, SQL_PAGE, blocks_of, run_page, run_python, trimmed
from tests.support.spark.settings import LOCAL, PUSHDOWN, restored
from tests.support.spark.versions import SPARK

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
#: Blocks that need credentials, a server, a program, or a large package that tests do not have. Raise
#: the number only with such a reason.
NOT_RUN_AT_MOST = 19
#: Languages of blocks that are not checked: output and configuration.
PLAIN = frozenset({"text", "properties", "yaml", "jinja"})
#: Programs that shell blocks may start, besides those that the test looks into.
PROGRAMS = frozenset(
    {
        *("apt-get", "dbt", "git", "mv", "twine"),
        *("spark-pipelines", "spark-sql", "spark-submit"),
        "$SPARK_HOME/sbin/start-connect-server.sh",
    }
)

#: All pages but those whose blocks name the versions of Spark that they need.
newest_spark = pytest.mark.skipif(SPARK < (4, 2), reason="the docs use options of Spark 4.2")

_MAKE = re.compile(r"`make ([a-z][a-z-]*)[^`]*`")


@pytest.fixture
def namespace(spark: Any, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The names that a page may use. Push-down is on; settings and views are removed afterwards."""
    lance_spark.enable(spark)
    with restored(spark, PUSHDOWN, LOCAL, "spark.sql.execution.arrow.maxRecordsPerBatch"):
        spark.conf.set(PUSHDOWN, "true")
        yield {"__name__": "page", "spark": spark, "lance_spark": lance_spark}
    spark.conf.unset("spark.sql.catalog.spark_catalog")
    # Only a case-sensitive session can list a view that a case-sensitive session created.
    spark.conf.set("spark.sql.caseSensitive", "true")
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
        else:
            spark.sql(f"DROP TABLE {table.name}")
    spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    "page",
    [page if page == SQL_PAGE else pytest.param(page, marks=newest_spark) for page in PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_blocks_run(page: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language in ("python", "sql")]
    if any(block.reason is None and block.tool is None for block in blocks):
        run_page(page, request.getfixturevalue("namespace"), tmp_path)


def test_few_blocks_are_skipped() -> None:
    reasons = [block.reason for page in PAGES for block in blocks_of(page) if block.reason]
    assert all(reason.strip() for reason in reasons)
    assert len(reasons) <= NOT_RUN_AT_MOST


def test_each_fence_is_that_of_a_block() -> None:
    """A fence that no pattern matches would leave out its block."""
    for page in PAGES:
        rest = FENCE.sub("", page.read_text(encoding="utf-8"))
        assert "```" not in rest, f"{page.relative_to(ROOT)}: {rest[rest.find('```') :][:80]}"


def test_each_block_names_its_language() -> None:
    languages = {"python", "sql", "bash"} | PLAIN
    unknown = [
        f"{page.relative_to(ROOT)}:{block.line} {block.language!r}"
        for page in PAGES
        for block in blocks_of(page)
        if block.language not in languages
    ]
    assert unknown == []


@newest_spark
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run_and_print_what_they_store(notebook: Path, namespace: dict[str, Any]) -> None:
    """Set LANCE_SPARK_WRITE_NOTEBOOKS to store the outputs instead."""
    stored = json.loads(notebook.read_text(encoding="utf-8"))
    cells = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert cells
    for number, cell in enumerate(cells):
        printed = run_python("".join(cell["source"]), f"{notebook.name}, cell {number}", namespace)
        if "LANCE_SPARK_WRITE_NOTEBOOKS" in os.environ:
            cell["execution_count"] = number + 1
            stream = {"name": "stdout", "output_type": "stream"}
            cell["outputs"] = (
                [{**stream, "text": printed.splitlines(keepends=True)}] if printed else []
            )
            continue
        if "varies" in cell["metadata"].get("tags", ()):
            # Other versions of numpy, pyarrow and PySpark have other docstrings.
            continue
        text = "".join("".join(output["text"]) for output in cell["outputs"])
        assert trimmed(printed) == trimmed(text), f"{notebook.name}, cell {number}"
    if "LANCE_SPARK_WRITE_NOTEBOOKS" in os.environ:
        notebook.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


@cache
def make_targets() -> frozenset[str]:
    """Return the targets of the Makefile that are not files."""
    (phony,) = re.findall(r"^\.PHONY:(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return frozenset(phony.split())


@cache
def extras() -> frozenset[str]:
    """Return the extras of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return frozenset(project["optional-dependencies"])


@cache
def options_of(command: str) -> str:
    """Return the help of a command of `python -m lance_spark`."""
    from lance_spark.__main__ import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    return printed.getvalue()


def mistake_in(line: str) -> str | None:
    """Return names in a line of a shell block that do not exist."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    if not words or words[0] in PROGRAMS:
        return None
    program, arguments = words[0], words[1:]
    checks: dict[str, Callable[[list[str]], str | None]] = {
        "make": _mistake_in_make,
        "pip": _mistake_in_pip,
        "python": _mistake_in_python,
    }
    return checks[program](arguments) if program in checks else f"unknown program {program}"


def _mistake_in_make(arguments: list[str]) -> str | None:
    targets = {word for word in arguments if "=" not in word}
    unknown = targets - make_targets()
    return f"no make target {unknown}" if unknown else None


def _mistake_in_pip(arguments: list[str]) -> str | None:
    for word in arguments:
        named = re.search(r"\[(.+)\]", word)
        unknown = set(named[1].split(",")) - extras() if named else set()
        if "lance-spark" in word and unknown:
            return f"no extra {unknown}"
    return None


def _mistake_in_python(arguments: list[str]) -> str | None:
    if arguments[:2] == ["-m", "lance_spark"]:
        text = options_of(arguments[2])
        unknown = [word for word in arguments[3:] if word[:2] == "--" and word not in text]
        return f"no option {unknown}" if unknown else None
    path = arguments[1].replace(".", "/") if arguments[0] == "-m" else arguments[0]
    result = (ROOT / path).exists() or (ROOT / f"{path}.py").exists()
    return None if result else f"no file {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_shell_blocks_exist(page: Path) -> None:
    mistakes = [
        f"line {block.line}: {mistake}"
        for block in blocks_of(page)
        if block.language == "bash"
        for line in block.code.splitlines()
        if (mistake := mistake_in(line))
    ]
    mistakes += [
        f"no make target {target}"
        for target in _MAKE.findall(page.read_text(encoding="utf-8"))
        if target not in make_targets()
    ]
    assert mistakes == []
