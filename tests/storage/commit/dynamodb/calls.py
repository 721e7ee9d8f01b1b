"""Reads and writes of both clients, and the entries of a table in DynamoDB."""

from __future__ import annotations

import itertools
import re
from typing import Any

import lance

import lance_spark
from tests.support.stores.aws import Aws
from tests.support.stores.killed import rows

TABLE = "manifests"
STAGING = re.compile(r"_versions/\d+\.manifest-[0-9a-f-]{36}")
NUMBERS = itertools.count()


def we_write(aws: Aws, uri: str, *values: int, mode: str = "append") -> lance_spark.Dataset:
    return lance_spark.write_dataset(rows(*values), uri, mode, storage_options=aws.ours)  # type: ignore[arg-type]


def they_write(aws: Aws, uri: str, *values: int, mode: str = "append") -> lance.LanceDataset:
    return lance.write_dataset(rows(*values), uri, mode=mode, storage_options=aws.theirs)


def we_read(aws: Aws, uri: str, version: int | None = None) -> list[int]:
    table = lance_spark.open_dataset(uri, version, storage_options=aws.ours).to_table()
    return sorted(table["x"].to_pylist())


def they_read(aws: Aws, uri: str, version: int | None = None) -> list[int]:
    table = lance.dataset(uri, version, storage_options=aws.theirs).to_table()
    return sorted(table["x"].to_pylist())


def entries(aws: Aws, key: str) -> dict[int, dict[str, Any]]:
    items = (item for item in aws.entries(TABLE) if item["base_uri"]["S"] == key)
    return {int(item["version"]["N"]): item for item in items}


def manifest(version: int) -> str:
    return f"_versions/{2**64 - 1 - version}.manifest"
