"""Versions that one step of an append has read for the next.

Spark appends by path in two steps of Python: the first finds the columns with defaults that the
DataFrame leaves out, and the second plans the write. Both need the newest version. The first keeps
it, under a random key that the JVM hands to the second, so that the statement lists the versions
once. If the steps run in different processes, or with a long time between them, the second lists
the versions itself. The commit compares the version with the newest in any case.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_spark.spark.options.write import WriteOptions
    from lance_spark.table.commit.write_plan import OpenForWrite

#: Versions that a process keeps, and for how many seconds.
_MOST = 4
_SECONDS = 10.0
_opened: OrderedDict[str, tuple[float, OpenForWrite]] = OrderedDict()


def schema_for_append(options: WriteOptions) -> tuple[pa.Schema | None, str | None]:
    """Return the schema of the table, and the key of the version; None if there is no table.

    Raises UnsupportedFeatureError, CorruptTableError, StorageError.
    """
    from lance_spark.table.commit.write_plan import open_for_write

    opened = open_for_write(options.path, options.storage_options or None, options.branch)
    if opened.base is None:
        return None, None
    key = uuid.uuid4().hex
    _opened[key] = time.monotonic(), opened
    while len(_opened) > _MOST:
        _opened.popitem(last=False)
    return opened.base.schema.to_arrow(), key


def take(key: str | None) -> OpenForWrite | None:
    """Return the version of a key, once; None if the process does not keep it, or for too long."""
    since, opened = _opened.pop(key or "", (0.0, None))
    return opened if time.monotonic() - since < _SECONDS else None
