"""Each case gives the same with both packages, or what `expected` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.shadow.cases import CASES
from tests.interop.shadow.expected import EXPECTED
from tests.interop.shadow.outcomes import FINE, SAME, Case, compare


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, tmp_path: Path) -> None:
    result, theirs, own = compare(case, tmp_path)
    wanted, _ = EXPECTED.get(str(case), (SAME, ""))
    is_expected = result == wanted or (wanted == SAME and result in FINE)
    assert is_expected, f"{result}: pylance {theirs}, here {own}"


def test_expected_cases_exist() -> None:
    assert EXPECTED.keys() <= set(map(str, CASES))


def test_names_are_unique() -> None:
    assert len(set(map(str, CASES))) == len(CASES)
