"""A REST namespace as a catalog: a query sends one request to it. `test_secrets` looks for its secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance_spark
from tests.support.stores.aws import BUCKET
from tests.support.stores.namespaces import NamespaceTables, Request
from tests.support.stores.namespaces import serving as serve_namespace


@contextmanager
def namespace(
    options: Mapping[str, str], folder: str = f"s3://{BUCKET}/rest"
) -> Iterator[tuple[str, list[Request]]]:
    """Serve a namespace with tables in a folder; yield its URI, and its requests."""
    tables = NamespaceTables(lambda name: f"{folder}/{name}.lance", lambda: options)
    with serve_namespace(tables.reply) as uri:
        yield uri, tables.requests


def test_a_query_by_name_loads_the_table_once(spark: Any, tmp_path: Path) -> None:
    """As many Python steps as a query by path: one for the table, one for the scan."""
    with namespace({}, str(tmp_path)) as (uri, requests):
        lance_spark.enable(spark, "counted", impl="rest", uri=uri)
        spark.sql("CREATE TABLE counted.t AS SELECT id FROM range(3)")
        for options in ({}, {"batch_size": "2"}, {"filter": "id < 9"}):
            requests.clear()
            assert spark.read.options(**options).table("counted.t").count() == 3
            assert len(requests) == 1, options
        frame = spark.table("counted.t")
        spark.sql("INSERT INTO counted.t VALUES (3)")
        requests.clear()
        assert frame.count() == 4
        assert not requests
