"""What a type of index tells of its segments: type, numbers, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lance_spark.indexes import registry
from lance_spark.indexes.files import IndexFiles
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import sections as indexes

#: Reads what the cache keeps of a segment.
Prewarm = Callable[[IndexFiles], object]


@dataclass(frozen=True, slots=True)
class Described:
    """What a type of index tells of its segments.

    - `type_of`: Returns the type as pylance names it, if segments differ.
    - `statistics`: Returns numbers about the files of a segment, in the form of pylance: for
      partitions ``metric_type``, ``partitions`` with the ``size`` of each, and ``loss``.
    - `meaning`: Returns what all segments of an index must have in common, besides the type. Other
      parameters, such as the rows of a zone, change no answer.
    """

    type_of: Callable[[table_pb2.IndexMetadata], str] | None = None
    statistics: Callable[[IndexFiles], dict[str, Any]] | None = None
    meaning: Callable[[IndexFiles], dict[str, Any]] | None = None


def index_type_of(index: table_pb2.IndexMetadata) -> str:
    """Return the type of an index as pylance names it.

    Raises CorruptTableError: the details of the index cannot be decoded.
    """
    index_type = registry.TYPES.get(indexes.type_of_index(index))
    if index_type is None:
        return indexes.type_of_index(index)
    described = described_of(index)
    if described is not None and described.type_of is not None:
        return described.type_of(index)
    return index_type.title


def described_of(index: table_pb2.IndexMetadata) -> Described | None:
    """Return what the type of a segment tells of it; None if it tells nothing."""
    described: Described | None = registry.part_of(indexes.type_of_index(index), "described")
    return described
