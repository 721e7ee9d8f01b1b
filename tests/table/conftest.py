from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lance_spark.storage.store import ObjectStore
from tests.support.stores.aws import Aws, serving


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    """S3 with a DynamoDB table for the manifests."""
    with serving() as server:
        server.create_table("lock")
        yield server


@pytest.fixture
def repeat_puts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function. After its call, the answer to the first request that creates a file is
    lost, and the request is repeated.
    """
    put = ObjectStore.put_if_absent

    def repeated(self: ObjectStore, *args: Any) -> bool:
        put(self, *args)
        return put(self, *args)

    return lambda: monkeypatch.setattr(ObjectStore, "put_if_absent", repeated)
