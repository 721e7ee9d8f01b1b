"""Pages of the documentation: their blocks, and runs of the blocks in a session of any deployment.

docs/develop/testing.md describes how a page marks setup, output and blocks that cannot be run.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.spark.versions import SPARK

ROOT = Path(__file__).parents[2]
#: The page whose statements run in all deployments of Spark.
SQL_PAGE = ROOT / "docs" / "reference" / "sql.md"

#: A block, also in a tab, and what stands before it; or setup.
FENCE = re.compile(
    r"(?: *<!-- not run: (?P<reason>[^\n]+?) -->\n)?(?: *<!-- Spark (?P<since>\d\.\d) -->\n)?"
    r"(?: *<!-- with (?P<tool>\w+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$"
    r"|<!-- setup\n(?P<setup>.*?)-->",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, or setup code that the page does not show.

    Attributes
    ----------
    since : tuple of int
        The version of Spark that the block needs.
    tool : str, optional
        The tool of `tests/tools` whose tests run the block.
    """

    line: int
    language: str
    code: str
    reason: str | None
    output: str | None = None
    since: tuple[int, ...] = ()
    tool: str | None = None


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order; an output block is part of the block before it."""
    text = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        indent = match["indent"] or ""
        code = re.sub(f"^{indent}", "", match["code"] or "", flags=re.MULTILINE)
        if match["setup"] is not None:
            blocks.append(Block(line, "python", match["setup"], None))
        elif 'title="Output"' in match["info"]:
            assert not text[end : match.start()].strip(), f"{page}:{line}: text before an output"
            blocks.append(replace(blocks.pop(), output=code))
        else:
            since = tuple(int(part) for part in (match["since"] or "").split(".") if part)
            language, reason, tool = match["language"], match["reason"], match["tool"]
            blocks.append(Block(line, language, code, reason, since=since, tool=tool))
        end = match.end()
    return blocks


def trimmed(text: str) -> list[str]:
    """Return the lines of a text without spaces and empty lines at their ends."""
    return [line.rstrip() for line in text.strip().splitlines()]


def run_python(code: str, place: str, namespace: dict[str, Any]) -> str:
    """Run a block, and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, place, "exec"), namespace)
    return printed.getvalue()


def run_sql(code: str, spark: Any) -> str:
    """Run the statements of a block, and return the result of the last one as Spark shows it."""
    for statement in filter(str.strip, re.sub(r"--[^\n]*", "", code).split(";")):
        result = spark.sql(statement)
    return str(result._show_string(20, True)) if result.columns else ""


def run_page(
    page: Path,
    namespace: dict[str, Any],
    folder: Path | str,
    tool: str | None = None,
    checkpoints: Path | str | None = None,
) -> None:
    """Run the blocks of a page, and compare what they print with the page.

    Parameters
    ----------
    namespace : dict
        The names that the page may use, the session `spark` among them.
    folder : Path or str
        Stands for the folder `/data/` of the page.
    tool : str, optional
        Run the blocks of this tool alone.
    checkpoints : Path or str, optional
        Stands for the folder of the checkpoints: `folder` by default.
    """
    folders = {"/data/checkpoint": f"{checkpoints or folder}/checkpoint", "/data/": f"{folder}/"}
    for block in blocks_of(page):
        if block.language not in ("python", "sql") or block.since > SPARK:
            continue
        place = f"{page.relative_to(ROOT)}:{block.line}"
        code = block.code
        for name, path in folders.items():
            code = code.replace(name, path)
        if block.reason is not None or block.tool != tool:
            if block.language == "python":
                compile(code, place, "exec")
            continue
        try:
            if block.language == "sql":
                printed = run_sql(code, namespace["spark"])
            else:
                printed = run_python(code, place, namespace)
        except Exception as error:
            error.add_note(f"in {place}")
            raise
        if block.output is not None:
            assert trimmed(printed) == trimmed(block.output), (place, printed)
