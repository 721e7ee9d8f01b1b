"""A store and a table behind a proxy that injects faults."""

from __future__ import annotations

from typing import Any

import pytest

from lance_spark.storage.store import ObjectStore
from tests.storage.retry.tables import NUMBERS, Table
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import FaultProxy


@pytest.fixture
def options(aws: Aws, proxy: FaultProxy) -> dict[str, Any]:
    return {**aws.ours, "endpoint_url": proxy.endpoint, "client_max_retries": 4}


@pytest.fixture
def key() -> str:
    return f"t{next(NUMBERS)}"


@pytest.fixture
def store(options: dict[str, Any], key: str) -> ObjectStore:
    return ObjectStore.from_uri(f"s3://{BUCKET}/{key}", options)


@pytest.fixture
def table(aws: Aws, options: dict[str, Any], key: str) -> Table:
    made = Table(aws, options, key)
    made.write(0, mode="create")
    return made
