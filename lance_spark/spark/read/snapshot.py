"""Versions of tables that executors open themselves, because manifests do not travel with tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lance_spark.errors import VersionNotFoundError
from lance_spark.last_used import LastUsed
from lance_spark.table.bases import TargetBases
from lance_spark.table.open import OpenTable, open_table

if TYPE_CHECKING:
    from lance_spark.table.manifest.manifest import Manifest

#: The tables that a process keeps open.
_OPENED: LastUsed[tuple[str, int, int, str], OpenTable] = LastUsed(2)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A reference to one version of a table, small enough to send to executors.

    - `uri`: Root of the table, or of a branch.
    - `written`: When the version was written, in nanoseconds. A table that was created again at the
      same path has the same version numbers, but other times.
    - `target_bases`: Base paths that the data files of the change go to.
    """

    uri: str = field(repr=False)
    version: int
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    written: int = 0
    target_bases: TargetBases = field(default_factory=TargetBases)

    def open(self) -> OpenTable:
        """Open the table. The process keeps the two tables that were opened last.

        Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the version was cleaned
        up, or the table was created again.
        """
        options = json.dumps(dict(self.storage_options), sort_keys=True, default=repr)
        key = (self.uri, self.version, self.written, options)
        table = _OPENED.get(key)
        if table is None:
            table = open_table(
                self.uri, version=self.version, storage_options=self.storage_options or None
            )
            if table.manifest.timestamp_ns != self.written:
                raise VersionNotFoundError(
                    f"{table.store.display}: version {self.version} is not the version that the "
                    "change was planned on, because the table was created again; run the change "
                    "again"
                )
            table = _OPENED.put(key, table)
        if table.target_bases == self.target_bases:
            return table
        return replace(table, target_bases=self.target_bases)


def snapshot_of(table: OpenTable) -> TableSnapshot:
    """Return the reference by which executors open the version of a table."""
    manifest, store = table.manifest, table.store
    return TableSnapshot(
        store.uri, table.version, store.options, manifest.timestamp_ns, table.target_bases
    )


def identity_text(manifest: Manifest) -> str:
    """Return `Manifest.identity` as a text for the JVM, which returns it with the statement."""
    written, transaction_file = manifest.identity
    return f"{written} {transaction_file or ''}"
