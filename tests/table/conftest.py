from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stores.aws import Aws, serving


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    """S3 with a table of DynamoDB for the manifests."""
    with serving() as server:
        server.create_table("lock")
        yield server
