"""Settings of Spark that change the meaning of a predicate's text."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.logger import PySparkLogger

from tests.support.spark.settings import INTERPRETED, settings

ANSI = "spark.sql.ansi.enabled"
ZONE = "spark.sql.session.timeZone"
CASE = "spark.sql.caseSensitive"
ESCAPED = "spark.sql.parser.escapedStringLiterals"
QUOTED = "spark.sql.ansi.doubleQuotedIdentifiers"
TIMESTAMP = "spark.sql.timestampType"
#: Whether Spark casts to and from TIME.
TIME = "spark.sql.timeType.enabled"
#: Settings of all sessions.
QUICK = {
    **INTERPRETED,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.inMemoryColumnarStorage.partitionPruning": "false",
    "spark.sql.adaptive.enabled": "false",
    TIME: "true",
}


@dataclass(frozen=True)
class Session:
    """Settings of a session.

    Attributes
    ----------
    name : str
    conf : dict
    """

    name: str
    conf: dict[str, str] = field(default_factory=dict)

    @property
    def is_default(self) -> bool:
        """Whether texts mean the same without a session, which is in UTC."""
        return not self.conf

    @property
    def zone(self) -> str:
        """The time zone: UTC, unless the settings name another zone."""
        return self.conf.get(ZONE, "UTC")


SESSIONS = (
    Session("default"),
    Session("New York", {ZONE: "America/New_York"}),
    Session("without ANSI", {ANSI: "false", ZONE: "Europe/Berlin"}),
    Session("case-sensitive", {CASE: "true"}),
    Session("escaped strings", {ESCAPED: "true"}),
    Session("quoted identifiers", {QUOTED: "true", ZONE: "Asia/Kathmandu"}),
    Session("without ANSI, escaped strings", {ANSI: "false", ESCAPED: "true"}),
    Session("TIMESTAMP without zone", {TIMESTAMP: "TIMESTAMP_NTZ", ZONE: "America/New_York"}),
)


@contextmanager
def silent_settings(spark: Any, conf: dict[str, str]) -> Iterator[None]:
    """Apply settings to a session, restore the old settings at the end, and log no errors."""
    # The logger prints the stack of each error of the analyzer. Spark's own function creates it: a
    # plain logger of this name does not take Spark's arguments, and each later error would be a
    # TypeError.
    errors = PySparkLogger.getLogger("SQLQueryContextLogger")
    level = errors.level
    errors.setLevel(logging.CRITICAL + 1)
    try:
        with settings(spark, conf):
            yield
    finally:
        errors.setLevel(level)
