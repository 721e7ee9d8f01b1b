"""Paths and links that the documentation names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/README.md")])
#: Code spans that are paths of this repository.
_PATHS = re.compile(r"`((?:lance_spark|tests|benchmarks|examples|protos|docs)/[\w./-]*)`")
_LINKS = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_and_links_exist(page: Path) -> None:
    text = page.read_text()
    missing = [path for path in _PATHS.findall(text) if not (ROOT / path).exists()]
    missing += [link for link in _LINKS.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_the_specification_page_names_paths() -> None:
    assert len(_PATHS.findall((ROOT / "docs" / "specification.md").read_text())) > 50
