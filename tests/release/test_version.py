"""The version, the changelog, the tag of a commit and the metadata say the same."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.release.__main__ import MINORS, ROOT, read_version, version_faults

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNRELEASED = "# Changelog\n\n## 1.2.3 (unreleased)\n\n## 1.2.2 (2026-01-01)\n"
RELEASED = UNRELEASED.replace("unreleased", "2026-02-01")


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
    faults = version_faults("1.2.3", changelog, tags, changes)
    assert [fault in text for text in faults] == [True] * bool(fault)


def test_the_version_of_this_commit() -> None:
    assert version_faults(read_version(), (ROOT / "CHANGELOG.md").read_text(), [], "") == []


def test_classifiers_name_the_releases_of_python() -> None:
    named = {int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", str(PROJECT["classifiers"]))}
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert named <= set(MINORS)
    assert min(named) == min(MINORS) == oldest
