"""No plan, log or message of Spark shows a secret of a store or of a namespace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.spark.sql.test_rest import namespace
from tests.support.spark.processes import environment
from tests.support.stores.aws import BUCKET, Aws, serving

APP = Path(__file__).with_name("secrets_app.py")
MARK = "hunter2"
SHOWN = "seen-without-us"
OF_NAMESPACE = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
OF_OPTIONS = (
    *OF_NAMESPACE,
    "azure_storage_account_key",
    "azure_storage_sas_token",
    "azure_storage_connection_string",
    "google_service_account_key",
)


def _store(aws: Aws, secrets: Mapping[str, str]) -> dict[str, str]:
    return {"region": "us-east-1", "endpoint": aws.endpoint, **secrets}


def _marked(names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"{MARK}-{name}" for name in names}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str, set[str]]:
    """Return the output of a session, its errors and its log, and headers of its requests."""
    folder = tmp_path_factory.mktemp("log")
    # If credentials expire, they have a source with the headers of the namespace.
    given = {**_marked(OF_NAMESPACE), "expires_at_millis": str(4 * 10**12)}
    with serving() as aws, namespace(_store(aws, given)) as (uri, requests):
        options = {
            **_store(aws, _marked(OF_OPTIONS)),
            "storage_options": json.dumps({"key": f"{MARK}-key", "secret": f"{MARK}-secret"}),
            "storage_options.base_1.azure_storage_account_key": f"{MARK}-of-a-base",
            "base_store_params": json.dumps({"s3://other/base": {"account_key": f"{MARK}-base"}}),
        }
        catalog = {"impl": "rest", "uri": uri, "headers.x-api": f"{MARK}-header"}
        catalog["storage.azure_storage_account_key"] = f"{MARK}-storage"
        table = f"s3://{BUCKET}/of-spark"
        arguments = [str(folder), table, json.dumps(options), SHOWN, json.dumps(catalog)]
        ran = subprocess.run(
            [sys.executable, str(APP), *arguments],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    log = "".join(path.read_text() for path in folder.rglob("events*"))
    return ran.stdout, ran.stderr, log, {request.headers["x-api"] for request in requests}


def test_options_are_used(shown: tuple[str, str, str, set[str]]) -> None:
    output, _, log, _ = shown
    assert "rows [1, 2]" in output
    assert "Physical Plan" in output
    assert "no version" in output
    assert log.count("Execute CreateViewCommand") >= 3
    # Otherwise there would be no log to check.
    assert f"azure_storage_account_key={SHOWN}" in log
    assert f"path=s3://{BUCKET}/of-spark" in log.partition("`after`")[2]


def test_a_namespace_is_used(shown: tuple[str, str, str, set[str]]) -> None:
    output, _, log, headers = shown
    assert output.count("rows [(1, 1, None), (2, 0, None), (3, 0, None)]") == 2, output[-3000:]
    assert headers == {f"{MARK}-header"}
    assert "lance UPDATE of version" in output
    assert output.count("error") >= 4
    assert "lance UPDATE of version" in log


def test_no_secret_is_shown(shown: tuple[str, str, str, set[str]]) -> None:
    for text in shown[:3]:
        position = text.find(MARK)
        assert position < 0, text[max(0, position - 300) : position + 100]
