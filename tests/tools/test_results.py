"""The kept results and the page of tools have each test, and nothing else; this needs no tool."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generated import completed
from tests.support.pages import blocks_of
from tests.tools import results
from tests.tools.__main__ import ENVIRONMENTS


def test_each_tool_has_tests_and_a_table() -> None:
    modules = {path.stem.removeprefix("test_") for path in results.FOLDER.glob("test_*.py")}
    assert modules - {"results"} == set(ENVIRONMENTS)
    tried = {path.stem for path in results.path_of("x").parent.iterdir()}
    assert tried <= set(ENVIRONMENTS)
    text = results.PAGE.read_text()
    assert sorted(re.findall(r"<!-- tests of (\w+) -->", text)) == sorted(ENVIRONMENTS)
    assert completed(text).count(f"| {results.WORKS} |") > len(tried)


@pytest.mark.parametrize("tool", ENVIRONMENTS)
def test_results_are_those_of_the_tests(tool: str) -> None:
    """A run may not have tried an environment yet: the page has no column for it."""
    tests, kept = results.tests_of(tool), results.read(tool)
    assert "" not in tests.values(), "the first sentence of a docstring is a row of the page"
    stale = f"run `make test-tools TOOLS={tool}`, and commit the results"
    assert set(kept) <= {" ".join(environment) for environment in ENVIRONMENTS[tool]}, stale
    for environment in kept.values():
        assert set(environment["tests"]) == set(tests), stale


REPORT = """
<testsuites><testsuite>
<testcase name="test_a" />
<testcase name="test_b[x]" />
<testcase name="test_b[y]"><skipped type="pytest.skip" message="y has none" /></testcase>
<testcase name="test_c"><skipped type="pytest.xfail" message="do it otherwise" /></testcase>
<testcase name="test_d[x]" />
<testcase name="test_d[y]"><skipped type="pytest.xfail" message="not by y" /></testcase>
<testcase name="test_e[x]"><skipped type="pytest.skip" message="Spark has it since 4.2" /></testcase>
</testsuite></testsuites>
"""


def test_outcomes(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert results.outcomes(tmp_path / "report.xml") == {
        "test_a": "works",
        "test_b": "works",
        "test_c": "do it otherwise",
        "test_d": "not by y (`y`)",
        "test_e": "Spark has it since 4.2",
    }


def test_kept_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run replaces the outcomes of its environment, and those that are not declared are dropped."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    (tmp_path / "report.xml").write_text(REPORT)
    old, new, other = ("a==1.*",), ("a==2.*", "b"), ("a==3.*",)
    for environments, run in (((old,), old), ((other, new), new), ((other, new), other)):
        results.keep("a", environments, run, {"a": "x"}, tmp_path / "report.xml")
    assert list(results.read("a")) == ["a==3.*", "a==2.* b"]
    assert results.read("a")["a==3.*"]["versions"] == {"a": "x"}


def test_blocks_of_the_page_are_run() -> None:
    shown = {block.tool for block in blocks_of(results.PAGE)} - {None}
    running = {
        tool for tool in ENVIRONMENTS if "PAGE" in (results.FOLDER / f"test_{tool}.py").read_text()
    }
    assert shown == running
