"""Settings of the session that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PUSHDOWN = "spark.lance.pushdown.enabled"
LOCAL = "spark.lance.pushdown.local"


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
