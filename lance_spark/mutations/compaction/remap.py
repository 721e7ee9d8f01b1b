"""Indexes rewritten with the row addresses after a compaction: a task for each segment.

The part `remapping` of a type of index (`lance_spark.indexes.registry`) rewrites its segments. A
segment that cannot be rewritten, such as one of a version that this release does not write, covers
none of the new fragments, whose rows are read without it.

A fragment reuse index would have the moves for all indexes. But if a table has one, `BTREE`,
`NGRAM` and `INVERTED` indexes lose rows when pylance or LanceDB compacts it without
`defer_index_remap`, and both cannot search graphs of which rows were deleted. So a table gets one
only if the user asks for it.

The tasks of large segments run where the compaction runs, as executors of Spark: first the graphs
of groups of partitions, and then the files of each segment. The process that commits writes small
segments itself.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from pyroaring import BitMap

from lance_spark import progress
from lance_spark.indexes.address_map import AddressMap, BuiltPart, remapping_of
from lance_spark.indexes.coverage import checked_section
from lance_spark.indexes.files import INDEX_ERRORS, delete_segment_files
from lance_spark.proto import table_pb2
from lance_spark.runner import FragmentTask, LocalRunner, Runner
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import RewrittenIndex, has_old_values, newest_overlays
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import INDICES, TablePaths

_LOG = logging.getLogger(__name__)

#: Bytes of the files of segments that this process writes itself.
_OWN_BYTES = 8 * 1024 * 1024
#: Rows whose graphs a task builds, if partitions are not larger: about ten seconds.
_GRAPH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentTask(FragmentTask):
    """Has a segment and the rows that moved.

    - `moves`: Without their addresses, which follow from the fragments.
    - `left_out`: Old fragments whose rows the segment does not cover, or has old values of. pylance
      would find these rows by old values once another segment covers the new fragments.
    - `version`: File version of the table.
    """

    index: table_pb2.IndexMetadata
    moves: tuple[RemappedRows, ...]
    left_out: tuple[int, ...]
    version: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTask(_SegmentTask):
    """Builds the graphs of some partitions of a segment.

    - `numbers`: Of the partitions.
    """

    numbers: tuple[int, ...]

    def run(self) -> BuiltPart:
        """Write a file with the graphs.

        Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
        """
        remapping = remapping_of(self.index)
        assert remapping is not None
        assert remapping.build_part is not None, "the type has groups"
        paths = self.open_paths()
        address_map = AddressMap(paths, self.moves, self.left_out)
        part: BuiltPart = remapping.build_part(
            paths, self.index, address_map, self.version, self.numbers
        )
        return part

    def undo(self, part: BuiltPart) -> None:
        """Delete the file."""
        delete_segment_files(self.open_paths(), part.segment)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapTask(_SegmentTask):
    """Writes the files of one segment again.

    - `parts`: Its graphs, if they are built already.
    """

    parts: tuple[BuiltPart, ...] = ()

    def run(self) -> RewrittenIndex | None:
        """Write the files; return None if the segment cannot be rewritten, or is damaged.

        Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
        """
        result = self._run()
        progress.advance(unit="segments")
        return result

    def _run(self) -> RewrittenIndex | None:
        remapping = remapping_of(self.index)
        assert remapping is not None, "only such segments are rewritten"
        paths = self.open_paths()
        address_map = AddressMap(paths, self.moves, self.left_out)
        try:
            return remapping.remap(paths, self.index, address_map, self.version, self.parts)
        except INDEX_ERRORS as error:
            # As in scans. The index does not cover the new fragments.
            _LOG.warning("index %r is not written again: %s", self.index.name, error)
            return None

    def undo(self, result: RewrittenIndex | None) -> None:
        """Delete the files of a segment."""
        if result is not None:
            written = table_pb2.IndexMetadata(files=result.details.files)
            written.uuid.uuid = result.new_id
            delete_segment_files(self.open_paths(), written)


def is_rewritten(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment gets the new addresses of rows when a compaction is committed."""
    if not indexes.has_known_version(index):
        return False
    remapping = remapping_of(index)
    if remapping is None:
        return False
    return remapping.can_remap is None or remapping.can_remap(index)


def remapped(
    paths: TablePaths, manifest: Manifest, moves: Sequence[RemappedRows], runner: Runner
) -> list[RewrittenIndex]:
    """Rewrite the indexes that hold addresses of moved rows, as far as `is_rewritten` says.

    - `manifest`: The newest version.
    - `runner`: Runs the tasks of large segments.
    """
    section = checked_section(paths, manifest)
    # With a fragment reuse index, the addresses in an index can be older than the last compaction.
    if fragment_reuse.find_entry(section) is not None:
        return []
    tasks = []
    for index in section.indices:
        if indexes.fragment_bitmap(index) is None or not is_rewritten(index):
            continue
        left_out = _left_out(manifest, index, moves)
        if all(fragment.id in left_out for move in moves for fragment in move.old):
            continue
        if indexes.holds_addresses(index, manifest.flags.stable_row_ids):
            task = RemapTask(
                uri=paths.store.uri,
                fragments=(),
                base_paths=paths.base_paths,
                storage_options=paths.store.options,
                index=index,
                moves=tuple(replace(move, addresses=b"") for move in moves),
                left_out=tuple(left_out),
                version=manifest.data_storage_version,
            )
            tasks.append(task)
    if not tasks:
        return []
    size = sum(file.size_bytes for task in tasks for file in task.index.files)
    if size <= _OWN_BYTES:
        runner = LocalRunner(paths.store.is_local)
    parts: list[list[BuiltPart]] = [[] for _ in tasks]
    try:
        if not isinstance(runner, LocalRunner):
            parts = _built_graphs(paths, tasks, runner)
            tasks = [
                replace(task, parts=tuple(some)) for task, some in zip(tasks, parts, strict=True)
            ]
        results = runner.run_counted(
            tasks, RemapTask.run, tasks[0].undo, "remap_indexes", len(tasks), "segments"
        )
    finally:
        for part in (part for some in parts for part in some):
            delete_segment_files(paths, part.segment)
    return [result for result in results if result is not None]


def _left_out(
    manifest: Manifest, index: table_pb2.IndexMetadata, moves: Sequence[RemappedRows]
) -> BitMap:
    """Return the old fragments whose rows a segment does not cover, or has old values of."""
    bitmap = indexes.fragment_bitmap(index) or BitMap()
    result = BitMap()
    for move in moves:
        old = BitMap(fragment.id for fragment in move.old)
        overlays = newest_overlays(
            fragment.to_proto() for fragment in move.old if fragment.has_overlays
        )
        result |= old if has_old_values(index, overlays, manifest.message.fields) else old - bitmap
    return result


def _built_graphs(
    paths: TablePaths, tasks: Sequence[RemapTask], runner: Runner
) -> list[list[BuiltPart]]:
    """Return the graphs of each task: none if it has no graphs, or builds all of them itself."""
    parts: list[list[BuiltPart]] = [[] for _ in tasks]
    graph_tasks: list[GraphTask] = []
    owners: list[int] = []
    for number, task in enumerate(tasks):
        remapping = remapping_of(task.index)
        if remapping is None or remapping.groups_of is None:
            continue
        groups = remapping.groups_of(paths, task.index, _GRAPH_ROWS)
        if len(groups) > 1:
            owners += [number] * len(groups)
            names = [field.name for field in fields(_SegmentTask)]
            shared = {name: getattr(task, name) for name in names}
            graph_tasks += [GraphTask(**shared, numbers=group) for group in groups]
    if graph_tasks:
        built = runner.run(graph_tasks, GraphTask.run, graph_tasks[0].undo)
        for number, part in zip(owners, built, strict=True):
            parts[number].append(part)
    return parts


def files_of(index: RewrittenIndex) -> list[str]:
    """Return the paths of the files of a rewritten segment, relative to the table's root."""
    folder = uuid.UUID(bytes=index.new_id)
    return [f"{INDICES}/{folder}/{file.path}" for file in index.details.files]
