"""Segments of indexes that are built without a commit, merged, and committed together.

Programs that distribute the build of an index themselves use these steps:

| step | where | what |
| --- | --- | --- |
| `build_segment` | each worker | writes a segment over some fragments |
| `merge_segments` | anywhere | writes one segment in place of several |
| `commit_built` | driver | commits segments as an index, or as a part of one |
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from pyroaring import BitMap

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    MissingFileError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from lance_spark.indexes.builds import builder_of_segment
from lance_spark.indexes.coverage import checked_section
from lance_spark.indexes.details import described_of
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.mutations.commits import at_version, check_writable, commit_operation
from lance_spark.mutations.indexes.create import (
    IndexRequest,
    current_fragments,
    plan_index,
    segment_tasks,
)
from lance_spark.mutations.indexes.optimize import (
    can_merge,
    covered_by,
    moved_rows,
    path_of,
    pieces_of,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.parallel import read_all
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.history import transaction_of
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.operations.base import Conflict
from lance_spark.table.operations.indexes import CreateIndex
from lance_spark.table.paths import INDICES, TablePaths


def build_segment(table: OpenTable, request: IndexRequest) -> table_pb2.IndexMetadata:
    """Write one segment over some fragments; no version refers to its files.

    Raises InvalidInputError: the fragments are not given, or there is no vector to train with.
    Raises LanceError: errors of `plan_index` and of the task.
    """
    if request.fragment_ids is None:
        raise InvalidInputError(
            f"{table.store.display}: give the fragments of the segment, fragment_ids"
        )
    # The commit decides whether the segment takes the place of others.
    (task,) = plan_index(table, replace(request, num_segments=1, replace=True))
    if request.train and request.fragment_ids and not task.fragments:
        # pylance reads the files of all segments: one without files would end its searches.
        raise InvalidInputError(
            f"{table.store.display}: too few rows of the fragments {sorted(request.fragment_ids)} "
            f"have a vector in column {request.column!r} to train an index with; leave these "
            "fragments out, or build their segment together with others"
        )
    segment = task.run()
    segment.name = request.name or f"{request.column}_idx"
    segment.dataset_version = table.version
    return segment


def merge_segments(
    table: OpenTable, segments: Sequence[table_pb2.IndexMetadata]
) -> table_pb2.IndexMetadata:
    """Write one segment with the rows of several.

    They are merged from their files if that is possible; else the rows are read again.

    Raises InvalidInputError: no segment is given, they are of several columns, types, metrics or
    tokenizers, or a compaction has moved their rows. Raises LanceError: errors of the task.
    """
    if not segments:
        raise InvalidInputError(f"{table.store.display}: give at least one segment of an index")
    first = segments[0]
    kinds = {(tuple(part.fields), part.index_details.type_url) for part in segments}
    builder = builder_of_segment(first)
    path = path_of(table, first)
    if len(kinds) > 1 or path is None or builder is None:
        raise InvalidInputError(
            f"{table.store.display}: the segments must be of one column of the table, and of one "
            "type of index that this release builds"
        )
    _check(table, segments)
    _check_alike(table, segments)
    fragments = current_fragments(table)
    moved = moved_rows(table)
    _check_not_moved(table, segments, moved)
    parameters = builder.parameters_of(IndexFiles(table.paths, first))
    pieces = pieces_of(table, segments, moved, fragments)
    merged = [piece for piece in pieces if can_merge(table, builder, path, parameters, piece)]
    read_ids = {part.id for piece in pieces if piece not in merged for part in piece.fragments}
    read = [fragment for fragment in fragments if fragment.id in read_ids]
    tasks = segment_tasks(table, builder, path, read, parameters, 1, merged)
    if not tasks:
        # One segment is as it is.
        return merged[0].segment
    segment = tasks[0].run()
    segment.name = first.name
    segment.dataset_version = min(part.dataset_version for part in segments)
    return segment


def commit_built(
    table: OpenTable,
    name: str,
    column: str,
    segments: Sequence[table_pb2.IndexMetadata],
    options: CommitOptions,
) -> OpenTable:
    """Commit segments under one name, in place of the segments over the same fragments.

    Raises InvalidInputError: no segment is given, they cover a fragment twice, they are of another
    column, their files are not in the table, the name is that of an index of another column, or the
    segments of the index would give other answers than each other. Raises LanceError: errors of
    `commit`.
    """
    check_writable(table)
    field_id = table.schema.path(column)[-1].id
    if not segments:
        raise InvalidInputError(f"{table.store.display}: give at least one segment of an index")
    if name in indexes.SYSTEM_NAMES or not name:
        raise InvalidInputError(f"{table.store.display}: an index cannot have the name {name!r}")
    named = []
    for segment in segments:
        if list(segment.fields) != [field_id]:
            raise InvalidInputError(
                f"{table.store.display}: segment {indexes.uuid_of(segment)} is of the fields "
                f"{list(segment.fields)}, not of column {column!r}"
            )
        copy = table_pb2.IndexMetadata()
        copy.CopyFrom(segment)
        copy.name = name
        named.append(copy)
    covered = _check(table, named)
    moved = moved_rows(table)
    removed: list[table_pb2.IndexMetadata] = []
    kept: list[table_pb2.IndexMetadata] = []
    for existing in checked_section(table.paths, table.manifest).indices:
        if existing.name != name:
            continue
        if list(existing.fields) != [field_id]:
            raise InvalidInputError(
                f"{table.store.display}: index {name!r} exists on another column; drop it first, "
                "or choose another name"
            )
        own = covered_by(existing, moved)
        # An empty segment, of an index without rows, may have no files, which pylance needs.
        (removed if not own or own & covered else kept).append(existing)
    operation = CreateIndex(tuple(named), tuple(removed))
    built_on = min(segment.dataset_version for segment in named)
    base = _planned_on(table, operation, built_on)
    _check_files(table, named)
    _check_alike(table, [*kept, *named])
    return at_version(table, commit_operation(base, operation, options))


def _planned_on(table: OpenTable, operation: CreateIndex, built_on: int) -> OpenTable:
    """Return the version that the commit of segments is planned on.

    It is the open version if no change since the segments were built concerns them; else the
    version that they were built on, so that the commit meets the changes.
    """
    store = table.store
    try:
        for version in range(built_on + 1, table.version + 1):
            transaction = transaction_of(store, version)
            # Segments of the same index over other fragments do not matter.
            if transaction is not None and transaction.operation.name == operation.name:
                continue
            if transaction is None or (
                operation.conflict(transaction.operation) is not Conflict.COMPATIBLE
            ):
                return open_table(store.uri, version=built_on, storage_options=store.options)
    except VersionNotFoundError as error:
        raise CommitConflictError(
            f"{store.display}: cleanup has removed versions since the segments were built on "
            f"version {built_on}, so a change of their rows cannot be excluded; build them again",
            retryable=False,
        ) from error
    return table


def _check(table: OpenTable, segments: Sequence[table_pb2.IndexMetadata]) -> BitMap:
    """Return the fragments that segments cover; refuse a fragment in two of them."""
    bitmaps = []
    moved = moved_rows(table)
    for segment in segments:
        if any("/" in file.path for file in segment.files):
            raise UnsupportedFeatureError(
                f"{table.store.display}: segment {indexes.uuid_of(segment)} is not finished; "
                "finish it by merge_existing_index_segments of the client that built it"
            )
        bitmaps.append(covered_by(segment, moved))
    covered = BitMap.union(BitMap(), *bitmaps)
    if len(covered) != sum(map(len, bitmaps)):
        raise InvalidInputError(
            f"{table.store.display}: two of the segments cover the same fragment"
        )
    return covered


def _check_not_moved(
    table: OpenTable, segments: Sequence[table_pb2.IndexMetadata], moved: MovedRows | None
) -> None:
    """Refuse segments whose rows a compaction moved: their values may have changed before that.

    A segment over the fragments from before shows this to the commit. One over the fragments from
    after does not.
    """
    for segment in segments:
        named = indexes.fragment_bitmap(segment) or BitMap()
        if moved is not None and moved.fragments(named) != named:
            raise InvalidInputError(
                f"{table.store.display}: segment {indexes.uuid_of(segment)} cannot be merged: a "
                "compaction has moved rows of it to other fragments since it was built; build it "
                "again, or commit the segments, and merge them by optimize_indices"
            )


def _check_files(table: OpenTable, segments: Sequence[table_pb2.IndexMetadata]) -> None:
    """Refuse segments of another table, of another branch, or of which files were deleted."""
    folders = read_all(partial(_sizes, table.paths), segments, local=table.store.is_local)
    for segment, sizes in zip(segments, folders, strict=True):
        files = IndexFiles(table.paths, segment)
        for file in segment.files:
            if sizes.get(file.path) == file.size_bytes:
                continue
            # Some stores list a new file late, or without its size.
            try:
                with closing(files.source(file.path)) as source:
                    size = source.size
            except MissingFileError as error:
                raise InvalidInputError(
                    f"{table.store.display}: segment {files.folder} is not of this table or "
                    f"branch, or was cleaned up: {error}; build it again"
                ) from error
            if size != file.size_bytes:
                raise InvalidInputError(
                    f"{table.store.display}: file {file.path} of segment {files.folder} has {size} "
                    f"bytes, not {file.size_bytes}; build the segment again"
                )


def _sizes(paths: TablePaths, segment: table_pb2.IndexMetadata) -> dict[str, int]:
    """Return the sizes of the files of a segment, by one listing in place of a request for each."""
    files = IndexFiles(paths, segment)
    store, folder = paths.locate(files.base_id, INDICES, files.folder)
    return dict(store.list(folder)) if segment.files else {}


def _check_alike(table: OpenTable, segments: Sequence[table_pb2.IndexMetadata]) -> None:
    """Refuse segments of one index whose answers mean different things."""
    if len(segments) < 2:
        return
    first, *others = [_meaning(table, segment) for segment in segments]
    for segment, other in zip(segments[1:], others, strict=True):
        differing = [name for name in first if first[name] != other.get(name)]
        if differing:
            name = differing[0]
            raise InvalidInputError(
                f"{table.store.display}: segments of index {segment.name!r} must have one {name}, "
                f"but {indexes.uuid_of(segments[0])} has {first[name]!r}, and "
                f"{indexes.uuid_of(segment)} has {other.get(name)!r}; build the segment as the "
                "others, or commit it under another name"
            )


def _meaning(table: OpenTable, segment: table_pb2.IndexMetadata) -> dict[str, Any]:
    """Return what all segments of an index must have in common: the type, and how values compare.

    The other parameters, such as the rows of a zone, change no answer.
    """
    meaning: dict[str, Any] = {"type": indexes.type_of_index(segment)}
    described = described_of(segment)
    if described is not None and described.meaning is not None:
        meaning |= described.meaning(IndexFiles(table.paths, segment))
    return meaning
