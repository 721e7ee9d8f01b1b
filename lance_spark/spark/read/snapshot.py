"""Versions of tables that executors open for themselves: manifests do not travel with tasks."""

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

#: Tables that a process keeps open.
_KEPT = 2
_lock = threading.Lock()
_opened: OrderedDict[tuple[str, int, int, str], OpenTable] = OrderedDict()


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """What executors open a version of a table by.

    Attributes
    ----------
    uri : str
        Root of the table, or of a branch.
    version : int
    storage_options : mapping, not shown by `repr`
    written : int
        When the version was written, in nanoseconds: a table that is made anew in the place of
        another one has the same numbers.
    target_bases : TargetBases
        Which base paths the data files of the change go to.
    """

    uri: str = field(repr=False)
    version: int
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    written: int = 0
    target_bases: TargetBases = field(default_factory=TargetBases)

    def open(self) -> OpenTable:
        """Open the table; the last two that were opened are kept by the process.

        Raises
        ------
        VersionNotFoundError
            It is gone, or the table has been made anew.
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
                    f"{result.store.display}: version {self.version} is another one than when the "
                    "change was planned: the table "
                    "was made anew meanwhile; run it again"
                )
            _opened[key] = result
            while len(_opened) > _KEPT:
                _opened.popitem(last=False)
        if result.target_bases == self.target_bases:
            return result
        return replace(result, target_bases=self.target_bases)


def snapshot_of(table: OpenTable) -> TableSnapshot:
    """Return what executors open a table at its version by."""
    manifest, store = table.manifest, table.store
    return TableSnapshot(
        store.uri, table.version, store.options, manifest.timestamp_ns, table.target_bases
    )
