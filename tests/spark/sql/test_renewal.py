"""Credentials of a namespace that expire between the plan of a statement and its tasks, and in
tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import lance
import pytest
from pyspark.errors import PySparkException

import lance_spark
from lance_spark.namespace import connect
from tests.support.stores import expiring
from tests.support.stores.expiring import BUCKET, MARK, Expiring

HEADER = f"{MARK}-header"


@pytest.fixture(scope="module")
def servers(spark: Any) -> Iterator[Expiring]:
    with expiring.serving() as servers:
        servers.seconds, servers.offset = 2, 800
        options = {"impl": "rest", "uri": servers.uri, "headers.x-api": HEADER}
        lance_spark.enable(spark, "renewed", **options)
        yield servers


def slow(seconds: float) -> Any:
    """Return a function of batches that takes that long for each."""

    def waits(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return waits


def test_statements_whose_credentials_expire_before_and_in_their_tasks(
    spark: Any, servers: Expiring
) -> None:
    # Tasks write for longer than the credentials of their plan are valid.
    rows = spark.range(0, 40, 1, 2).selectExpr("id", "0 AS v")
    slow_rows = rows.mapInArrow(slow(servers.seconds + 0.5), "id bigint, v int")
    slow_rows.writeTo("renewed.t").create()
    # The last two tasks of four begin when the credentials of their plan have expired.
    issued = servers.issued
    options = {"driver_read_bytes": 0, "target_rows_per_partition": 10}
    frame = spark.read.options(**options).table("renewed.t")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.mapInArrow(slow(servers.seconds), frame.schema).count() == 40
    assert servers.issued > issued + 1
    spark.sql("UPDATE renewed.t SET v = 2 WHERE id IN (SELECT id FROM range(2))")
    rows_found = sorted(tuple(row) for row in spark.table("renewed.t").collect())
    assert rows_found == [(0, 2), (1, 2), *((n, 0) for n in range(2, 40))]
    theirs = lance.dataset(f"s3://{BUCKET}/named/t", storage_options=servers.lasting_options())
    assert sorted(theirs.to_table()["id"].to_pylist()) == list(range(40))
    assert servers.refused == 0
    assert {request.headers["x-api"] for request in servers.namespace.requests} == {HEADER}


def test_a_namespace_that_gives_no_more(spark: Any, servers: Expiring) -> None:
    spark.range(40).writeTo("renewed.down").create()
    properties = {"uri": servers.uri, "headers.x-api": HEADER}
    entry = connect("rest", properties).describe_table(("down",))
    options = {f"storage.{name}": text for name, text in entry.storage_options.items()}
    frame = spark.read.format("lance").options(**options).load(entry.location)
    text = frame._jdf.queryExecution().toString()
    servers.namespace.is_down = True
    time.sleep(servers.seconds)
    try:
        with pytest.raises(PySparkException, match=r"expired at .* could not be renewed") as raised:
            frame.where("id > 1").collect()
    finally:
        servers.namespace.is_down = False
    assert "status 500: down" in str(raised.value)
    for shown in (str(raised.value), text):
        assert MARK not in shown
    assert frame.where("id > 1").count() == 38
    assert servers.refused == 0
