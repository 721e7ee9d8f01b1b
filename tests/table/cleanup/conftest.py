"""Tables with all cases for cleanup, and a server with a lock table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tables.cleanup import write_everything


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "t"
    write_everything(path)
    return path
