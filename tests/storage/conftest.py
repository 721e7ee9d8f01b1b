"""A server in place of S3, and a proxy before it that spoils requests: one of each for a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lance_spark.storage import retry
from tests.storage.aws import Aws, serving
from tests.storage.proxy import FaultProxy, spoiling


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def running(aws: Aws) -> Iterator[FaultProxy]:
    with spoiling(aws.endpoint) as made:
        yield made


@pytest.fixture
def proxy(running: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Spoils nothing yet; what fails for a while is sent again at once."""
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.002)
    running.clear()
    yield running
    running.clear()
