"""Settings of sessions of tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

PUSHDOWN = "spark.lance.pushdown.enabled"
LOCAL = "spark.lance.pushdown.local"
#: For plans that run once over a few rows: compiling them takes longer than running them.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def restored(spark: Any, *names: str) -> Iterator[None]:
    """Give settings the values that they had before, also those that were not set."""
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Give settings values, and restore the earlier ones at the end."""
    with restored(spark, *values):
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
