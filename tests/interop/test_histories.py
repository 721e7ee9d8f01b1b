"""Random histories of tables that both clients change in turn; pylance and a plain Python model are
the judges.

`python -m tests.support.histories.shrink
SEED [vectors]` shrinks one that fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cells import number_of
from tests.support.histories.run import run

HISTORIES = number_of(3, 1_000)
GROUP = 4


@pytest.mark.parametrize("first", range(0, HISTORIES, GROUP))
def test_histories(tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + GROUP, HISTORIES)):
        run(seed, tmp_path)


@pytest.mark.parametrize("first", range(0, HISTORIES, GROUP))
def test_histories_with_vectors(tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + GROUP, HISTORIES)):
        run(seed, tmp_path, has_vectors=True)
