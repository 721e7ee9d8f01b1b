"""Snapshots: executors open a version of a table themselves, so tasks carry no manifests."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lance_spark.errors import VersionNotFoundError
from lance_spark.table.bases import TargetBases
from lance_spark.table.open import OpenTable, open_table

#: Most tables that a process keeps open.
_KEPT = 2
_lock = threading.Lock()
_opened: OrderedDict[tuple[str, int, int, str], OpenTable] = OrderedDict()


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """Identifies a version of a table, so that executors can open it.

    Attributes
    ----------
    uri : str
        Root of the table, or of a branch.
    version : int
    storage_options : mapping, not shown by `repr`
    written : int
        Timestamp of the version in nanoseconds: a recreated table has the same version numbers.
    target_bases : TargetBases
        Base paths of new data files.
    """

    uri: str = field(repr=False)
    version: int
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    written: int = 0
    target_bases: TargetBases = field(default_factory=TargetBases)

    def open(self) -> OpenTable:
        """Open the table; the process caches the last two.

        Raises
        ------
        VersionNotFoundError
            The version was removed, or the table was recreated.
        CorruptTableError, StorageError
        """
        options = json.dumps(dict(self.storage_options), sort_keys=True, default=repr)
        key = (self.uri, self.version, self.written, options)
        with _lock:
            result = _opened.pop(key, None)
            if result is None:
                result = open_table(
                    self.uri, version=self.version, storage_options=self.storage_options or None
                )
            if result.manifest.timestamp_ns != self.written:
                raise VersionNotFoundError(
                    f"{result.store.display}: version {self.version} is not the version on which "
                    "the change was planned, because the table was recreated; run the change again"
                )
            _opened[key] = result
            while len(_opened) > _KEPT:
                _opened.popitem(last=False)
        if result.target_bases == self.target_bases:
            return result
        return replace(result, target_bases=self.target_bases)


def snapshot_of(table: OpenTable) -> TableSnapshot:
    """Return the snapshot of an open table."""
    manifest, store = table.manifest, table.store
    return TableSnapshot(
        store.uri, table.version, store.options, manifest.timestamp_ns, table.target_bases
    )
