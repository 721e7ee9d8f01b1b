"""What works in which environment, as the runs of `python -m tests.tools` found it.

`results/TOOL.json` has a test's outcome by its name: "works", or the reason why it does not. The
first sentence of the test's docstring says what is tried.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "howto" / "other-tools.md"
WORKS = "works"


def path_of(tool: str) -> Path:
    """Return the file of the results of a tool."""
    return FOLDER / "results" / f"{tool}.json"


def read(tool: str) -> dict[str, Any]:
    """Return the environments of a tool, by their requirements."""
    path = path_of(tool)
    return json.loads(path.read_text()) if path.exists() else {}


def keep(
    tool: str,
    environments: tuple[tuple[str, ...], ...],
    requirements: tuple[str, ...],
    versions: dict[str, str],
    report: Path,
) -> None:
    """Keep the outcomes of a run of pytest, in which no test failed, of a report in JUnit's form.

    Outcomes of environments that the tool does not have any more are dropped.
    """
    environment = {"versions": versions, "tests": dict(sorted(outcomes(report).items()))}
    found = {**read(tool), " ".join(requirements): environment}
    names = [" ".join(environment) for environment in environments]
    kept = {name: found[name] for name in names if name in found}
    path_of(tool).parent.mkdir(exist_ok=True)
    path_of(tool).write_text(json.dumps(kept, indent=2) + "\n")


def outcomes(report: Path) -> dict[str, str]:
    """Return the outcome of each test.

    A test with parameters works if it fails with none of them, and is not skipped with all.
    """
    found: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name, _, parameters = case.attrib["name"].partition("[")
        skipped = case.find("skipped")
        cases = found.setdefault(name, [])
        if skipped is None:
            cases.append(WORKS)
        elif skipped.attrib["type"] == "pytest.xfail":
            where = f" (`{parameters.removesuffix(']')}`)" if parameters else ""
            cases.append(skipped.attrib["message"] + where)
        else:
            reasons[name] = skipped.attrib["message"]
    return {
        name: "; ".join(sorted(set(cases) - {WORKS})) or (WORKS if cases else reasons[name])
        for name, cases in found.items()
    }


def tests_of(tool: str) -> dict[str, str]:
    """Return the first sentence of the docstring of each test of a tool."""
    body = ast.parse((FOLDER / f"test_{tool}.py").read_text()).body
    return {
        node.name: first_sentence(ast.get_docstring(node) or "")
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def first_sentence(docstring: str) -> str:
    """Return the first sentence of a docstring, without its stop."""
    text = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    return text.split(". ")[0].removesuffix(".")


def table(tool: str, environments: tuple[tuple[str, ...], ...]) -> str:
    """Return a table of Markdown: what was tried, and the outcome by environment.

    Environments that no run has tried yet have no column. Without any, there is no table.
    """
    found = read(tool)
    names = [" ".join(requirements) for requirements in environments]
    columns = [found[name] for name in names if name in found]
    if not columns:
        return ""
    heads = ["<br>".join(map(" ".join, column["versions"].items())) for column in columns]
    rows = [["", *heads], ["---"] * (len(heads) + 1)]
    for name, sentence in tests_of(tool).items():
        rows.append([sentence, *(_cell(column["tests"][name]) for column in columns)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(outcome: str) -> str:
    return WORKS if outcome == WORKS else f"does not: {outcome}".replace("|", "\\|")
