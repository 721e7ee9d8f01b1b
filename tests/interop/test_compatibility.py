"""The cells of `docs/reference/compatibility.md`, checked again.

All cells without a hint are checked, and of the hints that several versions have every sixth cell:
each type is checked in every version, and with every other hint in one of the versions.
`make test-long` checks all of them.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from tests.interop.compatibility import (
    HINTS,
    HINTS_OF,
    NO_HINT,
    PAGE,
    STRUCTS_ONLY,
    TYPES,
    VERSIONS,
    check,
    parse,
)
from tests.support.cells import ALL_CELLS

RELEASE, CELLS = parse(PAGE.read_text())
#: The cells with a hint of which one is checked, and the versions that have such a hint.
PART, SEVERAL = 6, 3


def types_of(version: str, hint: str) -> list[str]:
    """Return the types to check with a hint in a version."""
    versions = [name for name, hints in HINTS_OF.items() if hint in hints]
    if ALL_CELLS or hint in (NO_HINT, *STRUCTS_ONLY) or len(versions) < SEVERAL:
        return list(TYPES)
    shift = 2 * VERSIONS.index(version) + list(HINTS).index(hint)
    return [name for number, name in enumerate(TYPES) if (number + shift) % PART == 0]


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("version", "hint"), [(version, hint) for version, hints in HINTS_OF.items() for hint in hints]
)
def test_the_page_equals_the_measured_cells(version: str, hint: str, tmp_path: Path) -> None:
    names = types_of(version, hint)
    result = check(version, hint, tmp_path, names)
    if lance.__version__ != RELEASE:
        # Another release may write or read more types. Its results were compared above.
        return
    page_cells = CELLS[version, hint]
    measured_cells = {name: str(cell) for name, cell in result.cells.items()}
    assert measured_cells == {name: page_cells[name] for name in names if page_cells[name]}
    assert page_cells.keys() == TYPES.keys()
