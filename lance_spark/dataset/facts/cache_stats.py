"""The counts of what this process keeps of tables."""

from __future__ import annotations

from lance_spark.scan.indexes.cache import CACHE
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.storage.memory import CacheStats


def cache_stats() -> dict[str, CacheStats]:
    """Return what this process keeps of tables, and how often it was used.

    Returns
    -------
    dict of str to CacheStats
        ``"ranges"``: short ranges of files on remote stores, such as footers, lists of pages, and
        deletion files. ``"indexes"``: parsed parts of index files.

    Notes
    -----
    The environment variables `LANCE_SPARK_KEPT_MIB` and `LANCE_SPARK_INDEX_CACHE_MIB` set the
    limits before a process starts; 0 switches a cache off. Each process of Spark has caches of its
    own.

    Examples
    --------
    >>> cache_stats()["ranges"].nbytes
    0
    """
    return {"ranges": KEPT.stats(), "indexes": CACHE.stats()}
