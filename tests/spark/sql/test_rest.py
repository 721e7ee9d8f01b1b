"""A REST namespace as a catalog: its secrets are not shown, and a query sends one request to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance_spark
from tests.support.stores.aws import BUCKET, Aws, serving
from tests.support.stores.namespaces import NamespaceTables, Request
from tests.support.stores.namespaces import serving as serve_namespace

ROOT = Path(__file__).parents[3]
MARK = "hunter2"


@contextmanager
def namespace(
    options: Mapping[str, str], folder: str = f"s3://{BUCKET}/rest"
) -> Iterator[tuple[str, list[Request]]]:
    """Serve a namespace with tables in a folder; yield its URI, and its requests."""
    tables = NamespaceTables(lambda name: f"{folder}/{name}.lance", lambda: options)
    with serve_namespace(tables.reply) as uri:
        yield uri, tables.requests


def test_spark_shows_no_secrets_of_a_namespace(tmp_path: Path) -> None:
    secret = {
        name: f"{MARK}-{name}"
        for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    }
    # If credentials expire, they have a source with the headers of the namespace.
    secret["expires_at_millis"] = str(4 * 10**12)
    with serving() as aws, namespace(_store(aws, secret)) as (uri, requests):
        options = {"impl": "rest", "uri": uri, "headers.x-api": f"{MARK}-header"}
        options["storage.azure_storage_account_key"] = f"{MARK}-storage"
        ran = subprocess.run(
            [
                sys.executable,
                str(Path(__file__).parent / "rest_app.py"),
                str(tmp_path),
                json.dumps(options),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert ran.stdout.count("rows [(1, 1, None), (2, 0, None), (3, 0, None)]") == 2, (
        ran.stdout[-3000:] + ran.stderr[-3000:]
    )
    assert {request.headers["x-api"] for request in requests} == {f"{MARK}-header"}
    assert "lance UPDATE of version" in ran.stdout
    assert ran.stdout.count("error") >= 4
    log = "".join(path.read_text() for path in tmp_path.rglob("events*"))
    assert "lance UPDATE of version" in log
    for text in (ran.stdout, ran.stderr, log):
        position = text.find(MARK)
        assert position < 0, text[max(0, position - 300) : position + 100]


def _store(aws: Aws, secret: Mapping[str, str]) -> dict[str, str]:
    return {"region": "us-east-1", "endpoint": aws.endpoint, **secret}


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
