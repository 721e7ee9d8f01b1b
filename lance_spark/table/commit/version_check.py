"""Whether a version is where it belongs: right after the one that it is built on, and before those
that are built on it.

Nothing refuses a version that others have committed and cleaned up again. A commit that was held up
for that long makes it once more: it is part of the history then, and no newer version has its
change. So who was slow looks, after the commit, at the versions that there are:

| found | meaning |
| --- | --- |
| nothing newer | it is in its place |
| the next was written earlier, by the store's clock | it is not: that one is built on another |
| the next was written later | it is |
| neither, and the one before is there | it is: a cleanup that removes a version removes those before it, too, unless a name keeps them |
| anything else | nobody knows |

The times are those of the store, as writers have clocks of their own. Object stores tell when an
object came, S3 and Azure in whole seconds. Of a local disk `LocalCommit` makes it the time at which
the file got its name. HDFS tells when it was written, under another name, which can be before
others have committed; so there the one before has to be there.
"""

from __future__ import annotations

from enum import Enum

from lance_spark.errors import MissingFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions

#: Seconds that two commits and a cleanup, some twenty requests one after the other, take longer
#: than, where there is a network.
_SHORT = 0.5
#: The same on a local disk.
_SHORT_LOCAL = 0.002
_WRITTEN_UNNAMED = frozenset({"hdfs", "viewfs"})


class VersionSlot(Enum):
    """What is known of the place of a version."""

    OWN = "its own"
    UNKNOWN = "nobody knows whose"
    ANOTHERS = "that of one that was cleaned up"


def slot_of(store: ObjectStore, version: int, seconds: float) -> VersionSlot:
    """Tell whether a version that there is, or was a moment ago, is in the place of one that has
    been cleaned up.

    Parameters
    ----------
    store : ObjectStore
    version : int
    seconds : float
        Between a look at the versions before it and its commit.

    Raises
    ------
    StorageError
    """
    # A manifest store has an entry of each version that ever was.
    if store.manifest_store is not None or seconds < (_SHORT_LOCAL if store.is_local else _SHORT):
        return VersionSlot.OWN
    result = {item.version: item.path for item in versions.list_since(store, max(version - 1, 1))}
    if result and max(result) == version:
        return VersionSlot.OWN
    if version not in result or version + 1 not in result:
        return VersionSlot.UNKNOWN
    try:
        own, following = store.modified(result[version]), store.modified(result[version + 1])
    except MissingFileError:
        return VersionSlot.UNKNOWN
    if own is not None and following is not None:
        if following < own:
            return VersionSlot.ANOTHERS
        if following > own and store.scheme not in _WRITTEN_UNNAMED:
            return VersionSlot.OWN
    return VersionSlot.OWN if version == 1 or version - 1 in result else VersionSlot.UNKNOWN
