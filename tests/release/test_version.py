"""The version, the changelog, the tag of a commit and the metadata say the same."""

from __future__ import annotations

import re
import tomllib

import pytest

from hatch_build import page_of, urls_of
from lance_spark.indexes.text.parameters import stop_words
from tests.release.__main__ import MINORS, ROOT, read_repository, read_version, version_faults

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNRELEASED = "# Changelog\n\n## 1.2.3 (unreleased)\n\n## 1.2.2 (2026-01-01)\n"
RELEASED = UNRELEASED.replace("unreleased", "2026-02-01")
REPOSITORY = "https://example.com/lance-spark"


@pytest.mark.parametrize(
    ("changelog", "tags", "changes", "fault"),
    [
        (UNRELEASED, [], " M README.md\n", ""),
        (RELEASED, ["v1.2.3", "nightly"], "", ""),
        (RELEASED.replace("1.2.3", "1.2.4"), [], "", 'begin with the section "## 1.2.3 (DATE)"'),
        (RELEASED, ["v1.2.4"], "", "['v1.2.4'], and the package the version 1.2.3"),
        (UNRELEASED, ["v1.2.3"], "", 'says "unreleased"'),
        (RELEASED, ["v1.2.3"], " M README.md\n", "changes that are not in the tag"),
    ],
)
def test_a_version_that_contradicts(
    changelog: str, tags: list[str], changes: str, fault: str
) -> None:
    faults = version_faults("1.2.3", changelog, tags, changes, REPOSITORY)
    assert [fault in text for text in faults] == [True] * bool(fault)


def test_the_version_of_this_commit() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert version_faults(read_version(), changelog, [], "", read_repository()) == []


def test_a_release_needs_a_repository() -> None:
    (fault,) = version_faults("1.2.3", RELEASED, ["v1.2.3"], "", "")
    assert "has no repository" in fault


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_links_of_the_page_on_pypi(repository: str) -> None:
    readme = (ROOT / "README.md").read_text()
    page = page_of(readme, repository, "1.2.3")
    targets = re.findall(r"\]\(([^)]*)\)", page)
    assert targets
    assert all(target.startswith("https://") for target in targets)
    assert ("quickstart.md)" in page) == bool(repository)
    assert "Quickstart" in page
    if repository:
        # The links are those of README.md.
        files = f"{REPOSITORY}/blob/v1.2.3/"
        assert page.replace(files, "") == readme
        named = [url.partition("/v1.2.3/")[2] for url in urls_of(repository, "1.2.3").values()]
        assert all((ROOT / path).exists() for path in named)
    else:
        assert urls_of(repository, "1.2.3") == {}


def test_the_origin_of_each_list_of_stop_words_is_stated() -> None:
    text = (ROOT / "NOTICE").read_text()
    assert "Snowball" in text
    assert set(re.findall(r"\w+", text)) >= stop_words().keys()
    assert {"LICENSE", "NOTICE"} == set(PROJECT["license-files"])


def test_classifiers_name_the_releases_of_python() -> None:
    named = {int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", str(PROJECT["classifiers"]))}
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert named <= set(MINORS)
    assert min(named) == min(MINORS) == oldest
