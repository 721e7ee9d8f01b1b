"""Indexes extended to the fragments that they do not cover.

New segments are written from the rows of these fragments. To keep the number of segments small, the
newest segments can be merged with them: the rows of their fragments are then read again. Retrained
indexes are written anew from all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.mutations.commits import at_version, check_writable, retry_on_conflict
from lance_spark.mutations.indexes import text
from lance_spark.mutations.indexes.builders import BUILDERS, Builder
from lance_spark.mutations.indexes.create import (
    IndexTask,
    MergedSegments,
    check_column,
    commit_segments,
    current_fragments,
    segment_tasks,
    undo_of,
)
from lance_spark.mutations.runner import Runner, runner_for
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.pruning.zone_places import is_overlaid
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """Indexes to extend.

    Attributes
    ----------
    names : sequence of str or None
        None for all indexes whose type can be created.
    num_indices_to_merge : int
        Newest segments of each index that are merged with the new rows.
    retrain : bool
        Whether all segments are written anew.
    num_segments : int
        Most new segments of each index.
    """

    names: Sequence[str] | None = None
    num_indices_to_merge: int = 1
    retrain: bool = False
    num_segments: int = 1


@dataclass(frozen=True, slots=True)
class Extension:
    """New segments of one index, and the segments that they replace."""

    name: str
    tasks: tuple[IndexTask, ...]
    removed: tuple[table_pb2.IndexMetadata, ...]


def optimize_indices(
    table: OpenTable,
    request: OptimizeRequest,
    options: CommitOptions,
    runner: Runner | None = None,
) -> OpenTable:
    """Extend indexes; see `Dataset.optimize_indices`."""

    def change(current: OpenTable) -> Manifest:
        return extend(current, request, options, runner_for(current, runner))

    return at_version(table, retry_on_conflict(table, change, options.conflict_retries))


def extend(
    table: OpenTable, request: OptimizeRequest, options: CommitOptions, runner: Runner
) -> Manifest:
    """Write and commit the new segments of indexes; return the new version, if there are any.

    Raises
    ------
    InvalidInputError
        An index does not exist, or its type cannot be created.
    LanceError
        Errors of tasks and of `commit`.
    """
    extensions = plan_extensions(table, request)
    tasks = [task for extension in extensions for task in extension.tasks]
    if not tasks:
        return table.manifest
    segments = runner.run(tasks, IndexTask.run, undo_of(tasks))
    names = [extension.name for extension in extensions for _ in extension.tasks]
    for name, segment in zip(names, segments, strict=True):
        segment.name = name
    removed = [index for extension in extensions for index in extension.removed]
    return commit_segments(table, segments, removed, options)


def plan_extensions(table: OpenTable, request: OptimizeRequest) -> list[Extension]:
    """Return the new segments of indexes that do not cover all fragments.

    Raises
    ------
    InvalidInputError, CorruptTableError, StorageError
    """
    check_writable(table)
    check_least("num_indices_to_merge", request.num_indices_to_merge, 0)
    check_least("num_segments", request.num_segments, 1)
    by_name: dict[str, list[table_pb2.IndexMetadata]] = {}
    for index in indexes.section_of(table.manifest).indices:
        by_name.setdefault(index.name, []).append(index)
    fragments = current_fragments(table)
    extensions = []
    for name in by_name if request.names is None else request.names:
        if name not in by_name:
            raise InvalidInputError(
                f"{table.store.display}: index {name!r} not found; the indexes are "
                f"{', '.join(sorted(by_name)) or 'none'}"
            )
        if indexes.type_of_index(by_name[name][0]) in BUILDERS:
            extension = _extension(table, request, by_name[name], fragments)
            extensions += [] if extension is None else [extension]
        elif request.names is not None:
            raise InvalidInputError(
                f"{table.store.display}: index {name!r} of type "
                f"{indexes.type_of_index(by_name[name][0])} cannot be extended by this release"
            )
    return extensions


def _extension(
    table: OpenTable,
    request: OptimizeRequest,
    segments: Sequence[table_pb2.IndexMetadata],
    fragments: Sequence[Fragment],
) -> Extension | None:
    bitmaps = [indexes.fragment_bitmap(index) or BitMap() for index in segments]
    covered = BitMap.union(*bitmaps)
    uncovered = [fragment for fragment in fragments if fragment.id not in covered]
    if not uncovered and not request.retrain:
        return None
    path = path_of(table, segments[0])
    if path is None:
        return None
    builder = BUILDERS[indexes.type_of_index(segments[0])]
    check_column(table, path, builder)
    removed = segments
    if not request.retrain and builder.write_batches is not None:
        return _merged(table, request, builder, path, segments, fragments)
    if not request.retrain:
        count = min(request.num_indices_to_merge, len(segments))
        removed = segments[len(segments) - count :]
        merged = BitMap.union(BitMap(), *bitmaps[len(segments) - count :])
        uncovered = [
            fragment
            for fragment in fragments
            if fragment.id not in covered or fragment.id in merged
        ]
    tasks = segment_tasks(
        table,
        builder,
        path,
        fragments if request.retrain else uncovered,
        builder.parameters_of(IndexFiles(table.paths, segments[-1])),
        request.num_segments,
    )
    return Extension(segments[0].name, tuple(tasks), tuple(removed))


def _merged(
    table: OpenTable,
    request: OptimizeRequest,
    builder: Builder,
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
    fragments: Sequence[Fragment],
) -> Extension | None:
    """Return an extension whose first task takes over the files of the newest segments."""
    moved = MovedRows.of(table.paths, indexes.section_of(table.manifest))
    count = min(request.num_indices_to_merge, len(segments))
    if any(text.replaces_all(IndexFiles(table.paths, index)) for index in segments):
        count = len(segments)
    removed = segments[len(segments) - count :]
    field_ids = {node.id for node in path}

    def covered(some: Sequence[table_pb2.IndexMetadata]) -> BitMap:
        bitmaps = [moved.fragments(indexes.fragment_bitmap(index) or BitMap()) for index in some]
        return BitMap.union(BitMap(), *bitmaps)

    of_removed = tuple(
        fragment
        for fragment in fragments
        # An overlay replaces values that the index has.
        if fragment.id in covered(removed) and not is_overlaid(fragment, field_ids)
    )
    known = covered(segments[: len(segments) - len(removed)]) | BitMap(
        fragment.id for fragment in of_removed
    )
    uncovered = [fragment for fragment in fragments if fragment.id not in known]
    if not uncovered and not removed:
        return None
    tasks = segment_tasks(
        table,
        builder,
        path,
        uncovered,
        builder.parameters_of(IndexFiles(table.paths, segments[-1])),
        request.num_segments,
    )
    if removed:
        tasks[0] = replace(
            tasks[0],
            merged=MergedSegments(segments=tuple(removed), fragments=of_removed, moved=moved),
        )
    return Extension(segments[0].name, tuple(tasks), tuple(removed))


def path_of(table: OpenTable, index: table_pb2.IndexMetadata) -> tuple[Field, ...] | None:
    """Return the fields from the top-level field to the column; None if it was dropped."""
    parents: dict[int, Field] = {}
    for node in table.schema.walk():
        parents |= {child.id: node for child in node.children}
    field = table.schema.field_by_id(index.fields[0]) if len(index.fields) == 1 else None
    path: list[Field] = []
    while field is not None:
        path.insert(0, field)
        field = parents.get(field.id)
    return tuple(path) or None
