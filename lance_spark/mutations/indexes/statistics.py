"""Numbers about an index, in the form of pylance."""

from __future__ import annotations

from typing import Any

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.indexes.described import described_of
from lance_spark.mutations.indexes.existing import IndexDescription, describe_indices
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.open import OpenTable


def index_statistics(table: OpenTable, name: str) -> dict[str, Any]:
    """Return numbers about an index; see `Dataset.index_statistics`.

    Raises
    ------
    InvalidInputError
        The index does not exist.
    CorruptTableError, CorruptFileError, StorageError
    """
    described = [index for index in describe_indices(table) if index.name == name]
    if not described:
        existing = sorted(index.name for index in describe_indices(table))
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} not found; the indexes are "
            f"{', '.join(existing) or 'none'}"
        )
    (index,) = described
    rows = {item.id: item.num_rows for item in counted_fragments(table.paths, table.manifest)}
    covered = {number for part in index.segments for number in part.fragment_ids or ()}
    covered &= rows.keys()
    return {
        "index_type": index.index_type,
        "name": name,
        "num_indices": index.num_segments,
        "num_indexed_fragments": len(covered),
        "num_indexed_rows": index.num_rows_indexed,
        "num_unindexed_fragments": len(rows) - len(covered),
        "num_unindexed_rows": sum(rows.values()) - index.num_rows_indexed,
        "indices": [
            _of_segment(table, index, segment)
            for segment in indexes.section_of(table.manifest).indices
            if segment.name == name
        ],
    }


def _of_segment(
    table: OpenTable, index: IndexDescription, segment: table_pb2.IndexMetadata
) -> dict[str, Any]:
    result: dict[str, Any] = {"index_type": index.index_type, "uuid": indexes.uuid_of(segment)}
    described = described_of(segment)
    if (
        described is None
        or described.statistics is None
        or not (segment.files and indexes.has_known_version(segment))
    ):
        return result
    return {**result, **described.statistics(IndexFiles(table.paths, segment))}
