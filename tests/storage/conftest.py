"""Servers in place of the clouds, and a proxy before S3 that injects faults, one of each for a
module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lance_spark.storage import retry
from lance_spark.storage.store import ObjectStore
from tests.support.stores import azurite as azurite_server
from tests.support.stores import gcs as gcs_server
from tests.support.stores.aws import Aws, serving
from tests.support.stores.azurite import Azurite
from tests.support.stores.gcs import Gcs
from tests.support.stores.proxy import FaultProxy, spoiling


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    with azurite_server.serving() as server:
        yield server


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    with gcs_server.serving(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture
def store(root: str, options: dict[str, Any]) -> ObjectStore:
    """Uses the fixtures `root` and `options` of a module."""
    return ObjectStore.from_uri(root, options)


@pytest.fixture(scope="module")
def running(aws: Aws) -> Iterator[FaultProxy]:
    with spoiling(aws.endpoint) as made:
        yield made


@pytest.fixture
def proxy(running: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Injects no faults yet. Failed requests are repeated without delay."""
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.002)
    running.clear()
    yield running
    running.clear()
