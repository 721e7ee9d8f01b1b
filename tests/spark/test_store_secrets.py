"""Secrets among storage options: not in Spark's plans, its event log, its log or what it raises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from lance_spark.spark.pushdown import enable
from lance_spark.storage.errors import is_secret
from lance_spark.storage.options.fsspec_options import KNOWN
from tests.support.stores.aws import BUCKET, serving

ROOT = Path(__file__).parents[2]
MARK = "hunter2"
SHOWN = "seen-without-us"


def test_the_cluster_configuration_has_the_same_pattern() -> None:
    """As Java reads them: a backslash would be lost."""
    lines = (ROOT / "spark-conf/spark-defaults.conf").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(enable.REDACTION_CONF)]
    assert (
        line.split(None, 1)[1]
        == f"(?i)url|{enable.REDACTION_PATTERN}"
        == enable.REDACTION_FOR_CLUSTERS
    )
    assert "\\" not in line


def test_spark_redacts_the_same_options() -> None:
    """Spark's own pattern included. Of what is left, none is a secret: names of hosts and files."""
    patterns = re.compile(f"{enable.REDACTION_PATTERN}|(?i:secret|password|token|access[.]?key)")
    left = {name for name in KNOWN if is_secret(name) and not patterns.search(name)}
    assert {name.rpartition("_")[2] for name in left} == {"host", "id"}, left
    for name in ("base_store_params", "storage_options.base_1.account_key", "base_2.secret"):
        assert patterns.search(name), name
    for name in ("passphrase", "auth", "private", "sas", "pass", "connection", "x-api-key"):
        assert patterns.search(f"storage.{name}"), name
    for shown in ("storage.region", "storage.endpoint", "/data/storage.auth/t", "s3://bucket/key"):
        assert not patterns.search(shown), shown
    assert patterns.search("sftp://me:p@hunter2@host/t")


def test_spark_shows_no_secrets(tmp_path: Path) -> None:
    secret = {
        name: f"{MARK}-{name}"
        for name in (
            "aws_access_key_id",
            "aws_secret_access_key",
            "aws_session_token",
            "azure_storage_account_key",
            "azure_storage_sas_token",
            "azure_storage_connection_string",
            "google_service_account_key",
        )
    }
    with serving() as aws:
        options = {
            **secret,
            "region": "us-east-1",
            "endpoint": aws.endpoint,
            "storage_options": json.dumps({"key": f"{MARK}-key", "secret": f"{MARK}-secret"}),
            "storage_options.base_1.azure_storage_account_key": f"{MARK}-of-a-base",
            "base_store_params": json.dumps({"s3://other/base": {"account_key": f"{MARK}-base"}}),
        }
        script = str(Path(__file__).parent / "secrets_app.py")
        arguments = [f"s3://{BUCKET}/of-spark", str(tmp_path), json.dumps(options), SHOWN]
        ran = subprocess.run(
            [sys.executable, script, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert "rows [1, 2]" in ran.stdout, ran.stderr[-3000:]
    assert "Physical Plan" in ran.stdout
    assert "no version" in ran.stdout
    log = "".join(path.read_text() for path in tmp_path.rglob("events*"))
    assert log.count("Execute CreateViewCommand") >= 2
    # Otherwise there would be nothing to see here.
    assert f"azure_storage_account_key={SHOWN}" in log
    assert f"path=s3://{BUCKET}/of-spark" in log.partition("`after`")[2]
    for text in (ran.stdout, ran.stderr, log):
        position = text.find(MARK)
        assert position < 0, text[max(0, position - 300) : position + 100]
