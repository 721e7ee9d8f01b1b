"""The files of an earlier state, and the session that continues its streams."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.spark.conftest import spark
from tests.upgrade.write import folder_in

__all__ = ["EVERY", "LATER", "folder", "spark"]
#: Archives without those that lack what a later one has.
OTHERS = sorted(
    path.name.removesuffix(".tar.xz") for path in Path(__file__).parent.glob("[0-9]*.tar.xz")
)
EVERY = pytest.mark.parametrize("archive", ["first", *OTHERS])
LATER = pytest.mark.parametrize("archive", OTHERS)


@pytest.fixture
def folder(tmp_path: Path, archive: str) -> Path:
    """Return a folder with the files, for this test to change."""
    folder = folder_in(tmp_path)
    with tarfile.open(Path(__file__).with_name(f"{archive}.tar.xz")) as file:
        file.extractall(folder, filter="data")
    return folder
