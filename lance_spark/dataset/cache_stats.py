"""The counts of what this process keeps of tables."""

from __future__ import annotations

from lance_spark.scan.indexes.cache import CACHE
from lance_spark.storage.disk_ranges import disk_stats
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.storage.memory import CacheStats


def cache_stats() -> dict[str, CacheStats]:
    """Return what this process keeps of tables, and how often it was used.

    Returns
    -------
    dict of str to CacheStats
        ``"ranges"``: short ranges of files on remote stores, such as footers, lists of pages, and
        deletion files. ``"disk"``: ranges of such files on the local disk, of all processes that
        use the same folder; the hits and misses are those of this process. ``"indexes"``: parsed
        parts of index files.

    Notes
    -----
    The environment variables `LANCE_SPARK_KEPT_MIB` and `LANCE_SPARK_INDEX_CACHE_MIB` set the
    limits before a process starts; 0 switches a cache off. Each process of Spark has caches of its
    own. The storage options `disk_cache` and `disk_cache_bytes` set the folder and the limit of the
    disk, which the Python workers of a Spark executor share.

    Examples
    --------
    >>> cache_stats()["ranges"].nbytes
    0
    """
    return {"ranges": KEPT.stats(), "disk": disk_stats(), "indexes": CACHE.stats()}
