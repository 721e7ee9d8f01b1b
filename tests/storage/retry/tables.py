"""Faults, and a table behind a proxy that injects them."""

from __future__ import annotations

import itertools
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.support.stores import proxy as faults
from tests.support.stores.aws import BUCKET, Aws

NUMBERS = itertools.count()
KINDS = {
    "slow down": faults.SLOW_DOWN,
    "internal error": faults.INTERNAL_ERROR,
    "too many": faults.TOO_MANY,
    "reset": faults.RESET,
    "lost answer": faults.LOST,
    "denied after": faults.DENIED_AFTER,
    "truncated": faults.TRUNCATED,
}
every_kind = pytest.mark.parametrize("fault", KINDS.values(), ids=KINDS)
#: One fault of each sort: refused before it is done, refused although done, never received, done
#: without an answer.
_SOME = ("slow down", "denied after", "reset", "lost answer")
some_kinds = pytest.mark.parametrize("fault", [KINDS[name] for name in _SOME], ids=_SOME)
#: The manifest of any version.
MANIFEST = r"^PUT .*/_versions/[0-9d]+\.manifest"


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


class Table:
    """A table behind the proxy. pylance reads it without the proxy."""

    def __init__(self, aws: Aws, options: dict[str, Any], key: str) -> None:
        self.uri = f"s3://{BUCKET}/{key}"
        self.aws, self.options, self.key = aws, options, key

    def write(self, *values: int, mode: str = "append") -> lance_spark.Dataset:
        return lance_spark.write_dataset(
            rows(*values),
            self.uri,
            mode,
            storage_options=self.options,  # type: ignore[arg-type]
        )

    def open(self) -> lance_spark.Dataset:
        return lance_spark.open_dataset(self.uri, storage_options=self.options)

    def seen(self) -> tuple[int, list[int]]:
        """Return what pylance finds: the number of the newest version, and its rows."""
        dataset = lance.dataset(self.uri, storage_options=self.aws.theirs)
        assert [version["version"] for version in dataset.versions()] == [
            *range(1, dataset.version + 1)
        ]
        return dataset.version, sorted(dataset.to_table()["x"].to_pylist())
