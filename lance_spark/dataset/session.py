"""`Session`, and the reads that fill its cache."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from lance_spark.errors import InvalidInputError
from lance_spark.scan.indexes import bitmap, btree, btree_search, ngram, rtree
from lance_spark.scan.indexes.cache import CACHE
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.zoned import bloom_filter
from lance_spark.scan.pruning import zone_maps
from lance_spark.scan.text.files.first_format import FirstFormatPart
from lance_spark.scan.text.files.segment import open_index
from lance_spark.scan.vectors.files.segment import open_segment
from lance_spark.table.indexes import sections
from lance_spark.table.open import OpenTable

#: Partitions, and tokens, that are read at once.
_PARTITIONS = 64
_TOKENS = 1 << 16


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
        if index_type not in _READERS:
            raise InvalidInputError(
                f"index {name!r} has the type {index_type}, whose files are not cached"
            )
        _READERS[index_type](IndexFiles(table.paths, segment))


def _read_btree(files: IndexFiles) -> None:
    pages = btree.cached_pages(files)
    if pages is None:
        return
    for number in range(len(pages.low)):
        btree_search.page_of(files, pages, number)


def _read_text(files: IndexFiles) -> None:
    for part in open_index(files)[1]:
        _ = part.documents, part.tokens
        if isinstance(part, FirstFormatPart):
            continue
        rows = np.arange(len(part.token_lengths))
        for start in range(0, len(rows), _TOKENS):
            part.blocks_of(rows[start : start + _TOKENS])


def _read_vectors(files: IndexFiles) -> None:
    segment = open_segment(files)
    if segment is None:
        return
    count = len(segment.ivf.lengths)
    for start in range(0, count, _PARTITIONS):
        numbers = range(start, min(start + _PARTITIONS, count))
        segment.partitions(numbers)
        if segment.graphs is not None:
            segment.graphs.open(numbers)


#: Reads what the cache keeps of a segment, by the type of the index. Sets of rows are not kept.
_READERS: Mapping[str, Callable[[IndexFiles], object]] = {
    "BTREE": _read_btree,
    "BITMAP": bitmap.cached_keys,
    "LABEL_LIST": bitmap.cached_keys,
    "NGRAM": ngram.cached_trigrams,
    "RTREE": rtree.cached_pages,
    "ZONEMAP": zone_maps.cached_zones,
    "BLOOMFILTER": bloom_filter.cached_file,
    "INVERTED": _read_text,
    "VECTOR": _read_vectors,
}
