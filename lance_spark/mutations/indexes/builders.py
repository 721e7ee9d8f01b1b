"""The builders of indexes.

| type | index version | rows in its files |
| --- | --- | --- |
| BTREE | 0 | row ids |
| BITMAP | 0 | row ids |
| LABEL_LIST | 1 | row ids |
| NGRAM | 0 | row ids |
| ZONEMAP | 0 | row addresses |
| BLOOMFILTER | 0 | row addresses |
| INVERTED | 2; 3 for code | row ids |
| JSON | 0 | as its target |
| RTREE | 0 | row ids |
| IVF_FLAT and others of vectors | 1; 2 for IVF_RQ | row ids |

pylance 14 writes BTREE of version 1, with row addresses, in tables with stable row ids. Releases 4
to 13 do not read it: releases 4 to 11 drop it at the next change, and 12 and 13 let it cover rows
that it does not have (`lance_spark.scan.pruning.coverage`). All releases read version 0, which also
stays right when other columns of a row are updated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.errors import InvalidInputError
from lance_spark.indexes import registry
from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.described import index_type_of
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.search import documents_of
from lance_spark.table.indexes import sections as indexes


def builder_of(index_type: str) -> Builder:
    """Return the builder of a type.

    Raises
    ------
    InvalidInputError
        No index of the type can be created.
    """
    builder: Builder | None = None
    if isinstance(index_type, str):
        builder = registry.builder_named(index_type.upper())
    if builder is None:
        raise InvalidInputError(
            f"index type {index_type!r} cannot be created; the types are "
            f"{', '.join(registry.CREATED)}"
        )
    return builder


def builder_of_segment(segment: table_pb2.IndexMetadata) -> Builder | None:
    """Return the builder of the type of a segment; None if it cannot be created."""
    index_type = registry.TYPES.get(indexes.type_of_index(segment))
    if index_type is None or not index_type.builders:
        return None
    name = index_type.name
    if name not in index_type.builders:
        name = index_type_of(segment)
    return registry.builder_named(name) if name in index_type.builders else None


def target_of(builder: Builder, parameters: Mapping[str, Any]) -> Builder:
    """Return the builder whose files an index has: itself, but for JSON indexes."""
    return builder if builder.target_of is None else builder.target_of(parameters)


def can_extend(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether an index can get more segments like one of its segments.

    Raises
    ------
    CorruptFileError
        The details of a JSON index cannot be parsed.
    """
    documents = documents_of(indexes.type_of_index(segment))
    if documents is not None:
        return documents.target_of(segment).type_name in registry.CREATED_IN_DOCUMENTS
    return builder_of_segment(segment) is not None
