"""A server with a table of manifests, and the URI of a table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.commit.dynamodb.calls import NUMBERS, TABLE
from tests.support.stores.aws import BUCKET, Aws, serving


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with serving() as server:
        server.create_table(TABLE)
        yield server


@pytest.fixture
def key() -> str:
    return f"t{next(NUMBERS)}"


@pytest.fixture
def uri(key: str) -> str:
    return f"s3+ddb://{BUCKET}/{key}?ddbTableName={TABLE}"
