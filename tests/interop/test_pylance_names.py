"""docs/reference/pylance.md has a row for each public name of the installed pylance."""

from __future__ import annotations

import lance
import pytest

from tests.support.pylance_names import page


def test_each_name_has_a_decision() -> None:
    """A new release of pylance fails here with its new names."""
    assert page.rows()[1] == []


def test_decisions_are_needed() -> None:
    assert page.stale_decisions() == []


def test_named_places_exist() -> None:
    assert page.missing_places() == []


def test_the_page_is_up_to_date() -> None:
    written = page.PAGE.read_text()
    assert written == page.page(), "run `make pylance-names`"


def test_a_new_method_of_pylance_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance.LanceDataset, "brand_new", lambda self: None, raising=False)
    assert page.rows()[1] == ["lance.LanceDataset.brand_new"]


def test_a_method_that_is_added_here_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(page.DECISIONS, "lance.LanceDataset.head", (None, "not yet"))
    assert page.stale_decisions() == ["lance.LanceDataset.head: the same name is here"]


def test_a_parameter_of_pylance_that_is_missing_shows() -> None:
    remarks = {row.name.path: row.remark for row in page.rows()[0]}
    assert "`retry_timeout`" in remarks["lance.LanceDataset.delete"]
