"""Paths, links and functions that the documentation names exist."""

import ast
import re
from pathlib import Path

import pytest

from docs import generated
from lance_spark._version import __version__
from lance_spark.spark.options import declared

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[!.]*/README.md")])
#: Code spans that are paths of this repository.
_PATHS = re.compile(r"`((?:lance_spark|tests|benchmarks|examples|protos|docs)/[\w./-]*)`")
_LINKS = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_ANCHORS = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
_FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADINGS = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_and_links_exist(page: Path) -> None:
    text = page.read_text()
    missing = [path for path in _PATHS.findall(text) if not (ROOT / path).exists()]
    missing += [link for link in _LINKS.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub, and the site, make of the headings of a page."""
    headings = _HEADINGS.findall(_FENCES.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_exist(page: Path) -> None:
    missing = [
        f"{path}#{anchor}"
        for path, anchor in _ANCHORS.findall(_FENCES.sub("", page.read_text()))
        if anchor not in anchors_of(page.parent / path if path else page)
    ]
    assert missing == []


#: Pages that a program writes, and the changelog, whose entries are single lines.
_LONG_LINES = {"CHANGELOG.md", "compatibility.md", "conflicts.md"}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in _LONG_LINES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_lines_have_at_most_100_characters(page: Path) -> None:
    text = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->", "", page.read_text())
    # Tables, indented blocks and long links cannot be wrapped.
    lines = [line for line in text.splitlines() if not re.match(r" *\|| {4}| *\S+$", line)]
    assert [line for line in lines if len(line) > 100] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_the_specification_page_names_paths() -> None:
    assert len(_PATHS.findall((ROOT / "docs" / "reference" / "specification.md").read_text())) > 50


#: Code spans that are a module of the package and a name in it: `scan/task.ScanTask.batches`.
_NAMES = re.compile(r"`((?:\w+/)*\w+)\.(\w+(?:\.\w+)?)`")


def _defines(module: Path, name: str) -> bool:
    """Return whether a module defines a function, a class, or a method of a class."""
    body = ast.parse(module.read_text()).body
    for part in name.split("."):
        definitions = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part
        ]
        if not definitions:
            return False
        body = definitions[0].body
    return True


def test_the_map_names_functions_that_exist() -> None:
    path_table = (
        (ROOT / "docs" / "explanation" / "architecture.md")
        .read_text()
        .partition("Imports go one way")[0]
    )
    names = _NAMES.findall(path_table)
    assert len(names) >= 15
    missing = [
        f"{module}.{name}"
        for module, name in names
        if not _defines(ROOT / "lance_spark" / f"{module}.py", name)
    ]
    assert missing == []


def test_the_options_page_has_a_row_for_every_option() -> None:
    page = (ROOT / "docs" / "reference" / "options.md").read_text()
    rows = generated.completed(page)
    spelled = {name.lower().replace("_", "") for name in re.findall(r"^\| `([^`]+)`", rows, re.M)}
    listed = {*declared.READ_NAMES, *declared.WRITE_NAMES} - set(declared.INTERNAL_NAMES)
    assert {name for name in listed if name.replace("_", "") not in spelled} == set()


def test_the_page_of_dbt_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "howto" / "dbt.md").read_text()
    blocks = re.findall(r"^```(?:yaml|jinja)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    files = [
        path.read_text()
        for path in (ROOT / "examples" / "dbt").rglob("*")
        if path.suffix in (".sql", ".yml") and "dbt_packages" not in path.parts
    ]
    assert len(blocks) == 4
    assert [block for block in blocks if not any(block in text for text in files)] == []


def test_the_page_of_pipelines_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "howto" / "pipelines.md").read_text()
    example = ROOT / "examples" / "pipelines"
    files = [example / "spark-pipeline.yml", *example.glob("transformations/*")]
    assert len(files) > 2
    assert [path.name for path in files if path.read_text() not in page] == []


def test_the_macros_of_dbt_have_the_version_of_the_package() -> None:
    project = (ROOT / "dbt" / "dbt_project.yml").read_text()
    assert f"\nversion: {__version__}\n" in project
