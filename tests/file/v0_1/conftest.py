"""A file of version 0.1 that pylance writes."""

from __future__ import annotations

import pytest

from tests.file.v0_1.legacy_files import FileOf, sample


@pytest.fixture
def data(file_of: FileOf) -> bytes:
    return file_of(sample(), "0.1").read_bytes()
