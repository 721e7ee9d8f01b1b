"""docs/reference/pylance.md has a row for each public name of the installed pylance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from docs.generated import completed
from lance_spark.arguments import pylance_keywords
from tests.support.pylance_names import page
from tests.support.pylance_names.names import Name
from tests.support.pylance_names.signatures import differences

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "pylance.md"


def test_each_name_has_a_decision() -> None:
    """A new release of pylance fails here with its new names."""
    assert page.rows()[1] == []


def test_decisions_are_needed() -> None:
    assert page.stale_decisions() == []


def test_named_places_exist() -> None:
    assert page.missing_places() == []


def test_the_site_has_the_names() -> None:
    text = completed(PAGE.read_text())
    assert "| `head` | same |" in text
    assert "<!--" not in text


def test_a_new_method_of_pylance_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance.LanceDataset, "brand_new", lambda self: None, raising=False)
    assert page.rows()[1] == ["lance.LanceDataset.brand_new"]


def test_a_method_that_is_added_here_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(page.DECISIONS, "lance.LanceDataset.head", (None, "not yet"))
    assert page.stale_decisions() == ["lance.LanceDataset.head: the same name is here"]


def test_a_parameter_of_pylance_that_is_missing_shows() -> None:
    remarks = {row.name.path: row.remark for row in page.rows()[0]}
    assert "without `row_id_meta`" in remarks["lance.FragmentMetadata"]
    assert "refused: `data_storage_version`" in remarks["lance.LanceDataset.update"]


def _theirs(rows: object, uri: str, /, mode: str = "create", *, lock: object = None) -> None: ...


def _same(rows: object, uri: str, mode: str = "create", *, lock: object = None) -> None: ...


def _moved(rows: object, mode: str, uri: str = "x", lock: object = 1) -> None: ...


def _other(rows: object, uri: str, *, mode: str = "append", more: int) -> None: ...


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (_same, []),
        (_moved, ["by name: `uri`, `mode`", "by default `mode` is needed, `lock` is `1`"]),
        (
            _other,
            [
                "without `lock`",
                "by name: `mode`",
                "needs `more`",
                "by default `mode` is `'append'`",
            ],
        ),
    ],
)
def test_differences_of_parameters(own: Callable[..., None], expected: list[str]) -> None:
    assert list(differences(Name("f", "", _theirs), own)) == expected


#: Classes whose objects `Fragment.from_json` and `LanceFileSession.open_writer` make in full.
_WITHOUT = {"lance.FragmentMetadata", "lance.lance.LanceFileWriter"}


def test_each_parameter_is_taken_or_refused_by_name() -> None:
    """`lance_spark.arguments.pylance_keywords` takes those that a function does not have."""
    lacking = {row.name.path for row in page.rows()[0] if "without `" in row.remark}
    assert lacking == _WITHOUT


@pylance_keywords(renamed={"uri": "path"}, unused=("mode",), refused={"lock": ((), "no locks")})
def _with_keywords(rows: object, path: str) -> None: ...


def test_keywords_are_no_missing_parameters() -> None:
    expected = ["no effect: `mode`", "refused: `lock`"]
    assert list(differences(Name("f", "", _theirs), _with_keywords)) == expected
