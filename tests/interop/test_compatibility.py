"""Every cell of `docs/compatibility.md`, checked again."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from tests.interop.compatibility import HINTS_OF, PAGE, TYPES, check, parse

RELEASE, CELLS = parse(PAGE.read_text())


@pytest.mark.parametrize(
    ("version", "hint"), [(version, hint) for version, hints in HINTS_OF.items() for hint in hints]
)
def test_the_page_says_what_is(version: str, hint: str, tmp_path: Path) -> None:
    found = check(version, hint, tmp_path)
    if lance.__version__ != RELEASE:
        # Another release may write or read more; what it does was compared above.
        return
    said = CELLS[version, hint]
    now = {name: str(cell) for name, cell in found.cells.items()}
    assert now == {name: cell for name, cell in said.items() if cell}
    assert said.keys() == TYPES.keys()
