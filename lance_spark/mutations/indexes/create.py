"""Creation of indexes: tasks write one segment each, and the driver commits them together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError, UnsupportedTypeError
from lance_spark.file.schema.field import Field
from lance_spark.indexes import registry
from lance_spark.indexes.builds import MODEL, Builder, builder_of, target_of, value_type
from lance_spark.indexes.files import delete_segment_files
from lance_spark.mutations.commits import (
    after_failure,
    at_version,
    check_writable,
    commit_operation,
    retry_on_conflict,
)
from lance_spark.mutations.indexes.task import IndexTask, MergedSegment, undo_of
from lance_spark.proto import table_pb2
from lance_spark.runner import Runner, runner_for
from lance_spark.scan.plan import select_fragments
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.indexes import CreateIndex

#: Rows that a segment has at most by default, if fragments are not larger.
_MAX_SEGMENT_ROWS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """A type of index and its parameters, in place of the type and options of a call.

    Attributes
    ----------
    index_type : str
        In any case, such as ``json``.
    parameters : mapping of str to object
        Options of the type.

    Examples
    --------
    >>> IndexConfig("json", {"target_index_type": "btree", "path": "$.user.id"})
    IndexConfig(index_type='json', parameters={'target_index_type': 'btree', 'path': '$.user.id'})
    """

    index_type: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRequest:
    """An index to create.

    - `column`: Name of a column, or dotted path of a child of structs.
    - `index_type`: Such as ``BTREE``; in any case.
    - `name`: ``<column>_idx`` by default.
    - `replace`: Whether an index of the same name is replaced.
    - `train`: Whether the index covers the rows of the version; else it is empty.
    - `fragment_ids`: The fragments to cover; None for all.
    - `num_segments`: Most segments. Each is written by one task.
    - `options`: Parameters of the type.
    """

    column: str
    index_type: str
    name: str | None = None
    replace: bool = True
    train: bool = True
    fragment_ids: Collection[int] | None = None
    num_segments: int = 1
    options: Mapping[str, Any]


def config_of(index_type: object, options: Mapping[str, Any]) -> IndexConfig:
    """Return the type and options of a call; the type may be a configuration.

    Raises InvalidInputError: options are given beside a configuration, or the type is neither a
    string nor one.
    """
    if isinstance(index_type, str):
        return IndexConfig(index_type, options)
    # pylance has such a class, too.
    name, parameters = (
        getattr(index_type, attribute, None) for attribute in ("index_type", "parameters")
    )
    if not isinstance(name, str) or not isinstance(parameters, Mapping):
        raise InvalidInputError(
            f"index_type must be a string or an IndexConfig, not {type(index_type).__name__}"
        )
    if options:
        raise InvalidInputError(
            f"option {min(options)!r}: give options in the parameters of the IndexConfig"
        )
    return IndexConfig(name, parameters)


def create_index(
    table: OpenTable,
    request: IndexRequest,
    options: CommitOptions,
    runner: Runner | None = None,
) -> OpenTable:
    """Create an index; see `Dataset.create_scalar_index`."""
    builder_of(request.index_type).parameters(request.options)
    check_least("num_segments", request.num_segments, 1)

    def change(current: OpenTable) -> Manifest:
        tasks = plan_index(current, request)
        segments = runner_for(current, runner).run(tasks, IndexTask.run, undo_of(tasks))
        return commit_index(current, request, segments, options)

    return at_version(table, retry_on_conflict(table, change, options))


def plan_index(table: OpenTable, request: IndexRequest) -> list[IndexTask]:
    """Return the tasks that write the segments of an index.

    Raises InvalidInputError: the column or a fragment does not exist, or an index has the name and
    is not replaced. Raises UnsupportedTypeError: indexes of the type do not take the column.
    """
    check_writable(table)
    builder = builder_of(request.index_type)
    path = _indexed_path(table, request.column, builder)
    _removed(table, request, path[-1].id)
    fragments = current_fragments(table) if request.train else ()
    selected = select_fragments(fragments, request.fragment_ids)
    parameters = {**builder.parameters(request.options), **builder.of_column(path[-1])}
    selected, parameters = trained(table, builder, path, selected, parameters)
    target = target_of(builder, parameters)
    is_stable = table.manifest.flags.stable_row_ids
    if (
        is_stable
        and target is not builder
        and not (registry.type_built_as(target.type_name).in_stable_documents)
    ):
        # pylance refuses BTREE, and loses rows by the others after it compacted the table.
        raise UnsupportedFeatureError(
            f"{table.store.display}: the table has stable row ids, with which other clients do not "
            f"read JSON indexes of type {target.type_name}; choose BITMAP as target_index_type"
        )
    return segment_tasks(table, builder, path, selected, parameters, request.num_segments)


def trained(
    table: OpenTable,
    builder: Builder,
    path: tuple[Field, ...],
    fragments: Sequence[Fragment],
    parameters: dict[str, Any],
) -> tuple[Sequence[Fragment], dict[str, Any]]:
    """Return the fragments that a new index covers, and parameters with what it learned from them.

    There are no fragments if there is nothing to learn from: the index is empty.

    - `path`: The fields from the top-level field to the column.
    - `fragments`: Those that the index is to cover.
    - `parameters`: As `Builder.parameters` returns them.
    """
    if builder.train is None:
        return fragments, parameters
    parameters = builder.train(table, path, fragments, parameters)
    return fragments if parameters[MODEL] is not None else (), parameters


def current_fragments(table: OpenTable) -> Sequence[Fragment]:
    """Return the fragments of a version with their row counts.

    Raises CorruptFileError, StorageError. Raises CorruptTableError: two fragments have the same id.
    """
    fragments = counted_fragments(table.paths, table.manifest)
    check_unique(fragments, table.manifest.name)
    return fragments


def segment_tasks(
    table: OpenTable,
    builder: Builder,
    path: tuple[Field, ...],
    fragments: Sequence[Fragment],
    parameters: Mapping[str, Any],
    num_segments: int,
    merged: Sequence[MergedSegment] = (),
) -> list[IndexTask]:
    """Return tasks that together cover fragments and segments; one task if there are none.

    - `num_segments`: Most tasks.
    - `merged`: Existing segments. If a task would only copy one segment, there is no such task.
    """
    manifest = table.manifest
    return [
        IndexTask(
            uri=table.store.uri,
            fragments=tuple(piece for piece in group if isinstance(piece, Fragment)),
            base_paths=manifest.base_paths,
            storage_options=table.store.options or {},
            path=path,
            index_type=builder.type_name,
            parameters=parameters,
            version=manifest.data_storage_version,
            stable_row_ids=manifest.flags.stable_row_ids,
            merged=tuple(piece for piece in group if isinstance(piece, MergedSegment)),
        )
        for group in _groups([*merged, *fragments], num_segments)
        if not (len(group) == 1 and isinstance(group[0], MergedSegment))
    ]


def default_segments(table: OpenTable, index_type: str, parallelism: int) -> int:
    """Return a number of segments: one for each task that runs at once, and none too large."""
    rows = sum(fragment.physical_rows for fragment in table.manifest.fragments)
    return max(parallelism, least_segments(builder_of(index_type), rows))


def least_segments(builder: Builder, rows: int) -> int:
    """Return the least number of segments of some rows together, so that none is too large."""
    return max(-(-rows // (builder.max_rows or _MAX_SEGMENT_ROWS)), 1)


def commit_index(
    table: OpenTable,
    request: IndexRequest,
    segments: Sequence[table_pb2.IndexMetadata],
    options: CommitOptions,
) -> Manifest:
    """Commit the segments of an index, in place of an index of the same name.

    If the commit fails, the files of the segments are deleted.

    - `table`: The version that the segments were planned on.
    - `segments`: As the tasks return them. They get the name and the version.

    Raises LanceError: errors of `commit`.
    """
    name = request.name or f"{request.column}_idx"
    for segment in segments:
        segment.name = name
    removed = _removed(table, request, segments[0].fields[0])
    return commit_segments(table, segments, removed, options)


def commit_segments(
    table: OpenTable,
    segments: Sequence[table_pb2.IndexMetadata],
    removed: Sequence[table_pb2.IndexMetadata],
    options: CommitOptions,
) -> Manifest:
    """Commit segments, which have their names, in place of others.

    If the commit fails, the files of the segments are deleted.

    - `table`: The version that the segments were planned on.
    - `segments`: New segments. They get the version.
    - `removed`: Segments that the new ones replace. Cleanup deletes their files.

    Raises LanceError: errors of `commit`.
    """
    for segment in segments:
        segment.dataset_version = table.version

    def discard() -> None:
        for segment in segments:
            delete_segment_files(table.paths, segment)

    with after_failure(discard):
        return commit_operation(table, CreateIndex(tuple(segments), tuple(removed)), options)


def _removed(
    table: OpenTable, request: IndexRequest, field_id: int
) -> tuple[table_pb2.IndexMetadata, ...]:
    """Return the segments that an index replaces."""
    name = request.name or f"{request.column}_idx"
    if name in indexes.SYSTEM_NAMES or not name:
        raise InvalidInputError(f"{table.store.display}: an index cannot have the name {name!r}")
    existing = [index for index in indexes.section_of(table.manifest).indices if index.name == name]
    if existing and not request.replace:
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} exists; replace it, or choose another name"
        )
    if existing and list(existing[0].fields) != [field_id]:
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} exists on another column; drop it first, or "
            "choose another name"
        )
    return tuple(existing)


def _indexed_path(table: OpenTable, column: str, builder: Builder) -> tuple[Field, ...]:
    path = table.schema.path(column)
    check_column(table, path, builder)
    return path


def check_column(table: OpenTable, path: tuple[Field, ...], builder: Builder) -> None:
    """Raise an error if indexes of a type do not take a column.

    Raises InvalidInputError, UnsupportedTypeError.
    """
    column = ".".join(node.name for node in path)
    if any(node.logical_type != "struct" for node in path[:-1]):
        raise InvalidInputError(
            f"{table.store.display}: column {column!r} is inside a list or map; index the column "
            "itself"
        )
    dtype = path[-1].arrow_field.type if builder.plain_only else value_type(path[-1])
    is_taken = builder.supports(dtype) and builder.supports_field(path[-1])
    is_json = path[-1].logical_type == "json"
    is_taken &= is_json is builder.json_columns or (is_json and builder.json_too)
    if path[-1].has_blobs or not is_taken:
        raise UnsupportedTypeError(
            f"{table.store.display}: a {builder.type_name} index does not take column {column!r} "
            f"of type {path[-1].arrow_field.type}"
        )


def _groups(
    pieces: Sequence[Fragment | MergedSegment], count: int
) -> list[list[Fragment | MergedSegment]]:
    """Return consecutive pieces in at most `count` groups of about equally many rows."""
    total = sum(map(_rows_of, pieces))
    groups: list[list[Fragment | MergedSegment]] = [[]]
    rows = 0
    for piece in pieces:
        if groups[-1] and len(groups) < count and rows * count >= total * len(groups):
            groups.append([])
        groups[-1].append(piece)
        rows += _rows_of(piece)
    return groups


def _rows_of(piece: Fragment | MergedSegment) -> int:
    return piece.physical_rows if isinstance(piece, Fragment) else piece.num_rows
