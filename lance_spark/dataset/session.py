"""`Session`, and the reads that fill its cache."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from lance_spark.errors import InvalidInputError
from lance_spark.indexes import registry
from lance_spark.indexes.cache import CACHE
from lance_spark.indexes.details import Prewarm
from lance_spark.indexes.files import IndexFiles
from lance_spark.storage.disk_ranges import disk_stats
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.storage.memory import CacheStats
from lance_spark.table.indexes import sections
from lance_spark.table.open import OpenTable

# --------------------------------------------------------------------------------------------------
# The counts of what this process keeps of tables.


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


# --------------------------------------------------------------------------------------------------
# `Session`, and the reads that fill its cache.


class Session:
    """The cache of index files. A process has one, which all its tables share.

    The environment variable ``LANCE_SPARK_INDEX_CACHE_MIB`` sets its limit.

    Examples
    --------
    >>> dataset.prewarm_index("id_idx")
    >>> dataset.session().index_cache_size_bytes()
    """

    def size_bytes(self) -> int:
        """Return the bytes in the cache."""
        return CACHE.nbytes

    def index_cache_size_bytes(self) -> int:
        """Return the bytes in the cache, which has only contents of index files."""
        return CACHE.nbytes

    def is_same_as(self, other: Session) -> bool:
        """Return whether both share a cache, which is always true."""
        return isinstance(other, Session)


def prewarm(
    table: OpenTable, name: str, ids: Iterable[str | uuid.UUID] | None, *, with_position: bool
) -> None:
    """Read an index into the cache; see `Dataset.prewarm_index`."""
    segments = [
        segment
        for segment in sections.section_of(table.manifest).indices
        if segment.name == name and not sections.is_system(segment)
    ]
    if not segments:
        raise InvalidInputError(f"{table.store.display}: index {name!r} not found")
    if ids is not None:
        if isinstance(ids, str | uuid.UUID):
            raise InvalidInputError(f"index_segments must be a list of UUIDs, not {ids!r}")
        wanted = {str(segment_id) for segment_id in ids}
        missing = sorted(wanted - {sections.uuid_of(segment) for segment in segments})
        if missing:
            raise InvalidInputError(
                f"{table.store.display}: index {name!r} has no segment {missing[0]!r}"
            )
        segments = [segment for segment in segments if sections.uuid_of(segment) in wanted]
    for segment in segments:
        index_type = sections.type_of_index(segment)
        if with_position and index_type != "INVERTED":
            raise InvalidInputError(
                f"with_position is for indexes of the type INVERTED, and {name!r} is a {index_type}"
            )
        read: Prewarm | None = registry.part_of(index_type, "prewarm")
        if read is None:
            raise InvalidInputError(
                f"index {name!r} has the type {index_type}, whose files are not cached"
            )
        read(IndexFiles(table.paths, segment))
