"""Whether a version is where it belongs: right after the one that it is built on, and before those that are built on it.

Nothing refuses a version that others have committed and cleaned up again. A commit that was held up for that long makes it once more: it is part
of the history then, and no newer version has its change. So who was slow looks, after the commit, at the versions that there are:

| found | meaning |
| --- | --- |
| nothing newer | it is in its place |
| newer ones, and the one before is gone | it may not be: a cleanup that removes a version removes those before it, too, unless a name keeps them |
| newer ones, and it or the next is gone | it may not be |
| the next was written earlier, by the store's clock | it is not: that one is built on another |

The times are those of the store, as writers have clocks of their own. Object stores tell when an object came, S3 and Azure in whole seconds. Of a
local disk `LocalCommit` makes it the time at which the file got its name. HDFS tells when it was written, under another name: what others commit
before it gets its own is not seen by it.
"""

from __future__ import annotations

from lance_spark.errors import MissingFileError, StorageError
from lance_spark.storage.store import ObjectStore
from lance_spark.table import versions

#: Seconds that two commits and a cleanup, some twenty requests one after the other, take longer than, where there is a network.
_SHORT = 0.5
#: The same on a local disk.
_SHORT_LOCAL = 0.002


def check_place(store: ObjectStore, version: int, seconds: float) -> None:
    """Make sure that a version that was just committed is not in the place of one that has been cleaned up.

    Parameters
    ----------
    store : ObjectStore
    version : int
    seconds : float
        Time since the versions before it were listed.

    Raises
    ------
    StorageError
        It may be, or the store failed.
    """
    # A manifest store has an entry of each version that ever was.
    if store.manifest_store is not None or seconds < (_SHORT_LOCAL if store.is_local else _SHORT):
        return
    found = {one.version: one.path for one in versions.list_since(store, max(version - 1, 1))}
    if found and max(found) == version:
        return
    is_between = (version == 1 or version - 1 in found) and version + 1 in found
    if (
        not is_between
        or version not in found
        or _is_earlier(store, found[version + 1], found[version])
    ):
        raise StorageError(f"version {version} may have been there before, and cleaned up")


def _is_earlier(store: ObjectStore, path: str, other: str) -> bool:
    """Tell whether a file was written before another, or one of them has gone meanwhile."""
    try:
        times = store.modified(path), store.modified(other)
    except MissingFileError:
        return True
    return times[0] is not None and times[1] is not None and times[0] < times[1]
