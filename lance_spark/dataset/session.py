"""`Session`, and the reads that fill its cache."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from lance_spark.errors import InvalidInputError
from lance_spark.indexes import registry
from lance_spark.mutations.indexes.described import Prewarm
from lance_spark.scan.indexes.cache import CACHE
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.table.indexes import sections
from lance_spark.table.open import OpenTable


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
