"""Tables on S3, by s3fs, against moto's server."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.store_suite import StoreSuite
from tests.support.stores.table_suite import TableSuite


@pytest.fixture
def options(aws: Aws) -> dict[str, Any]:
    return aws.theirs


@pytest.fixture
def root() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class TestFiles(StoreSuite):
    pass


class TestTables(TableSuite):
    pass
