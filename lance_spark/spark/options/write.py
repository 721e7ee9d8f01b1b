"""The options of a write, parsed and checked as those of a read (`read`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.declared import (
    FILTER_TREE,
    OverwriteFields,
    StreamFields,
    UpsertFields,
    WriteFields,
)
from lance_spark.spark.options.read import naming_path, split_options
from lance_spark.spark.options.values import parsed

NO_PATH_ON_WRITE = (
    "option path is missing: set it to the folder or URI of the table, as in "
    'df.write.format("lance").mode("append").save("/data/t.lance"). For a table of a catalog, use '
    "saveAsTable, insertInto or writeTo, in a session with lance_spark.enable: without it, Spark "
    "does not pass the location of a table of its catalog"
)


@dataclass(frozen=True)
class WriteOptions(WriteFields, StreamFields, UpsertFields):
    """Options of a write.

    - `overwrite`: Options of partial overwrites, schema merging and writes that are made once,
      which `OverwriteOptions` parses.
    - `column_metadata`: Field metadata that options set, by the column's name in lower case.
    - `storage_options`: Arguments of the fsspec file system.
    """

    path: str
    overwrite: Mapping[str, str] = field(default_factory=dict)
    column_metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse Spark's options.

        Raises InvalidOptionError: an option is unknown or only for reads, or its value is invalid.
        """
        with naming_path(options):
            return cls._parse(options)

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> WriteOptions:
        parts = split_options(options)
        plain = parts.plain
        for name in ("version", "tag", "timestamp", "columns", "filter", FILTER_TREE):
            if name in plain:
                raise InvalidOptionError(
                    f"option {name} applies to reads only: a write goes to all columns of the "
                    "newest version; remove the option"
                )
        if parts.path is None:
            raise InvalidOptionError(NO_PATH_ON_WRITE)
        upserts = parsed(UpsertFields, plain)
        if upserts and not upserts.get("upsert", False):
            name = list(upserts)[-1]
            if name != "upsert":
                raise InvalidOptionError(
                    f"option {name} applies only to streams with the option upsert=true"
                )
        return cls(
            parts.path,
            overwrite=_overwrite_options(plain),
            column_metadata=parts.columns,
            storage_options=parts.storage,
            **parsed(WriteFields, plain),
            **parsed(StreamFields, plain),
            **upserts,
        )


def _overwrite_options(plain: Mapping[str, str]) -> dict[str, str]:
    overwrite_options = {name: plain[name] for name in OverwriteFields.declared if name in plain}
    if overwrite_options and "timezone" in plain:
        # The time zone of timestamps in the condition.
        overwrite_options["timezone"] = plain["timezone"]
    return overwrite_options
