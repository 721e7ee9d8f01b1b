"""The part of the parameters that `make test` tries."""

from __future__ import annotations

import itertools

import pytest

from tests.support import cells


@pytest.mark.parametrize("axes", [(12,), (3, 4), (2, 2, 5), (1, 7)])
@pytest.mark.parametrize("part", [2, 3])
def test_each_value_is_tried(axes: tuple[int, ...], part: int) -> None:
    product = itertools.product(*map(range, axes))
    cases = [{str(axis): value for axis, value in enumerate(case)} for case in product]
    chosen = cells.sample(cases, part, "name")
    assert chosen == sorted(set(chosen)) == cells.sample(cases, part, "name")
    assert len(cases) / part <= len(chosen) < len(cases)
    if len(axes) > 2:
        tried = {value for place in chosen for value in cases[place].items()}
        assert tried == {value for case in cases for value in case.items()}


def test_names_and_seeds_choose_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [{"x": value} for value in range(100)]
    chosen = [cells.sample(cases, 2, "one"), cells.sample(cases, 2, "other")]
    monkeypatch.setattr(cells, "SEED", "1")
    chosen.append(cells.sample(cases, 2, "one"))
    assert len({tuple(places) for places in chosen}) == 3
