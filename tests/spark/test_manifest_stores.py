"""Spark on tables whose manifests are kept in a database, named by the URI or by an option."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.support.stores.aws import BUCKET, KEY, REGION, SECRET, Aws, serving
from tests.table.manifest.test_external import NAMED, InSqlite


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with serving() as server:
        server.create_table("manifests")
        yield server


def test_dynamodb(spark: Any, aws: Aws) -> None:
    uri = f"s3+ddb://{BUCKET}/spark?ddbTableName=manifests"
    options = {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": REGION,
        "aws_endpoint": aws.endpoint,
        "dynamodb_endpoint": aws.endpoint,
    }
    lance.write_dataset(pa.table({"x": [1, 2]}), uri, storage_options=aws.theirs)
    rows = spark.createDataFrame([(3,), (4,)], "x long")
    rows.write.format("lance").options(**options).mode("append").save(uri)
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    assert sorted(theirs.to_table()["x"].to_pylist()) == [1, 2, 3, 4]
    assert theirs.version == 2
    frame = spark.read.format("lance").options(**options).load(uri)
    assert sorted(row.x for row in frame.collect()) == [1, 2, 3, 4]
    old = spark.read.format("lance").options(**options, version="1").load(uri)
    assert sorted(row.x for row in old.collect()) == [1, 2]


def test_a_store_of_a_user(spark: Any, tmp_path: Path) -> None:
    uri, database = str(tmp_path / "t"), str(tmp_path / "manifests.db")
    options = {"manifest_store": NAMED, "storage_options.database": database}
    rows = spark.createDataFrame([(1,), (2,)], "x long")
    rows.write.format("lance").options(**options).mode("append").save(uri)
    rows.write.format("lance").options(**options).mode("append").save(uri)
    newest = InSqlite(database).latest(uri)
    assert newest is not None
    assert newest.version == 2
    frame = spark.read.format("lance").options(**options).load(uri)
    assert sorted(row.x for row in frame.collect()) == [1, 1, 2, 2]
    given = {"manifest_store": NAMED, "database": database}
    assert lance_spark.open_dataset(uri, storage_options=given).count_rows() == 4
