"""Check after a slow commit: was its version number used before?

The store cannot refuse a version number that another client committed and cleanup removed. A commit
that was delayed for so long creates this version again. Then the version is part of the history,
but newer versions do not contain its change. So a slow writer lists the versions after its commit:

| listing | the version number |
| --- | --- |
| no newer version | is new |
| the next version was written earlier, by the store's clock | was used before |
| the next version was written later | is new |
| the times are equal or unknown, and the previous version exists | is new: cleanup that removes a \
version also removes the versions before it, unless a tag or branch keeps them |
| anything else | is unknown |

The times come from the store, because the clocks of writers differ. Object stores return the time
at which an object was created, S3 and Azure in whole seconds. On a local disk, `LocalCommit` sets
the time at which the file got its name. HDFS returns the time at which the file was written under
another name. This can be before other clients committed, so on HDFS the previous version must
exist.
"""

from __future__ import annotations

from enum import Enum

from lance_spark.errors import MissingFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions

#: Two commits and a cleanup, some twenty successive requests, take longer than so many seconds.
_SHORT_SECONDS = 0.5
#: The same on a local disk.
_SHORT_SECONDS_LOCAL = 0.002
#: Stores whose file times do not change when a file gets its final name.
_TIMES_BEFORE_RENAME = frozenset({"hdfs", "viewfs"})


class VersionSlot(Enum):
    """Whether a version number was used before."""

    NEW = "no earlier version had the number"
    UNKNOWN = "an earlier version may have had the number"
    REUSED = "an earlier version had the number, and cleanup removed it"


def check_slot(store: ObjectStore, version: int, seconds: float) -> VersionSlot:
    """Tell whether the number of a version was used before by a version that cleanup removed.

    Parameters
    ----------
    store : ObjectStore
    version : int
        An existing version.
    seconds : float
        The time between the listing of the versions before it and its commit. A short time makes
        the check needless.

    Raises
    ------
    StorageError
    """
    # A manifest store keeps the entries of removed versions, and so refuses their numbers.
    limit = _SHORT_SECONDS_LOCAL if store.is_local else _SHORT_SECONDS
    if store.manifest_store is not None or seconds < limit:
        return VersionSlot.NEW
    paths = {
        location.version: location.path
        for location in versions.list_since(store, max(version - 1, 1))
    }
    if paths and max(paths) == version:
        return VersionSlot.NEW
    if version not in paths or version + 1 not in paths:
        return VersionSlot.UNKNOWN
    try:
        time, next_time = store.modified(paths[version]), store.modified(paths[version + 1])
    except MissingFileError:
        return VersionSlot.UNKNOWN
    if time is not None and next_time is not None:
        if next_time < time:
            return VersionSlot.REUSED
        if next_time > time and store.scheme not in _TIMES_BEFORE_RENAME:
            return VersionSlot.NEW
    return VersionSlot.NEW if version == 1 or version - 1 in paths else VersionSlot.UNKNOWN
