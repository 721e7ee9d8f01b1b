"""Encodings that the messages can express and no writer makes by default, one page each.

pylance is the oracle where it reads them: a case names the clients that read it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.encoding.v2_1.handmade_cases import CASES
from tests.encoding.v2_1.mini_block_cases import Case
from tests.support.encodings.handmade import (
    file_of,
    ours,
    theirs,
)

Written = tuple[Case, Path]


@pytest.fixture(scope="module", params=CASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    case = CASES[request.param]()
    path = tmp_path_factory.mktemp("f") / "f.lance"
    path.write_bytes(file_of(case.array, case.version, case.make, case.field))
    return case, path


def test_pylance_reads(written: Written, tmp_path: Path) -> None:
    case, path = written
    result = theirs(path)
    if case.reader == case.version:
        assert result is not None
        assert result.equals(case.array)
        return
    assert result is None or not result.equals(case.array)
    if case.reader:
        newer = tmp_path / "f.lance"
        newer.write_bytes(file_of(case.array, case.reader, case.make, case.field))
        result = theirs(newer)
        assert result is not None
        assert result.equals(case.array)


def test_handmade_pages_are_read(written: Written) -> None:
    case, path = written
    rows = len(case.array)
    assert ours(path).equals(case.array)
    for part in (range(1), range(rows - 1, rows), range(rows // 3, rows // 2)):
        assert ours(path, part).equals(case.array.slice(part.start, len(part)))
    some = np.unique(np.random.default_rng(rows).integers(0, rows, 9))
    assert ours(path, some).equals(case.array.take(pa.array(some)))
