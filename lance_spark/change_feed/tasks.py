"""Tasks of a change feed, which read changed rows as batches.

A batch has columns of the table, and these:

| column | type | value |
| --- | --- | --- |
| `_change_type` | string | "insert", "update_preimage", "update_postimage" or "delete" |
| `_commit_version` | int64 | the version that changed the row |
| `_commit_timestamp` | timestamp of microseconds in UTC | when the version was committed |

A feed has the columns of one version, the last one of the feed. In older versions, a column is
identified by its field id, if all versions in between have this id (`older_fields`): so a column
may have been renamed, and is null where it did not exist yet. After an overwrite, and sometimes
after a restore, field ids may mean other columns (`kept_fields`), so in versions before it a column
is identified by its name. A feed cannot have a column whose type differs between versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lance_spark.change_feed.diff import ChangedRows, VersionChanges
from lance_spark.change_feed.field_mapping import field_ids, same_field, with_children_of
from lance_spark.encoding.blocks import nulls
from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.reader import FragmentReader, batches_of
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_OFFSET
from lance_spark.table.manifest.codec import check_columns
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import BasePath, TablePaths

CHANGE_TYPE = pa.field("_change_type", pa.string(), nullable=False)
COMMIT_VERSION = pa.field("_commit_version", pa.int64(), nullable=False)
COMMIT_TIMESTAMP = pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False)
CHANGE_FIELDS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
#: Approximate number of rows of a task.
TARGET_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """How the columns of a feed are read from one version.

    - `schema`: The columns of the feed that the version has, with its field ids.
    - `columns`: For each column of the feed its index in `schema`; None if the version lacks it.
    """

    schema: Schema
    columns: tuple[int | None, ...]
    base_paths: Mapping[int, BasePath]


@dataclass(frozen=True, slots=True)
class ChangedRange:
    """Changed rows among the row offsets `start` to `stop - 1` of their fragment."""

    rows: ChangedRows
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        """Number of rows that are read if the changed rows are spread evenly."""
        physical = max(self.rows.fragment.physical_rows, 1)
        return -(-self.rows.num_rows * (self.stop - self.start) // physical)


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """Changed rows that one task reads. Can be pickled.

    - `uri`: Root of the table.
    - `schema`: Schema of the batches.
    - `version`, `timestamp_us`: The version that changed the rows, and its commit time in
      microseconds since 1970.
    - `before`, `after`: The columns of the previous version (None if no rows of it are read) and of
      the version.
    """

    uri: str = field(repr=False)
    schema: pa.Schema
    version: int
    timestamp_us: int
    ranges: tuple[ChangedRange, ...]
    before: VersionColumns | None
    after: VersionColumns
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def num_rows(self) -> int:
        """Approximate number of rows that are read."""
        return sum(part.num_rows for part in self.ranges)

    def batches(self, batch_size: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in batches of at most `batch_size` rows.

        Raises CorruptTableError, CorruptFileError, UnsupportedEncodingError, StorageError. Raises
        MissingFileError: Cleanup removed a data file.
        """
        for part in self.ranges:
            columns = self.before if part.rows.is_before else self.after
            assert columns is not None
            paths = TablePaths.open(self.uri, self.storage_options, columns.base_paths)
            with closing(FragmentReader(paths, part.rows.fragment, columns.schema)) as reader:
                for window in _read_windows(reader, part):
                    for batch in batches_of(window, batch_size):
                        yield self._feed_batch(batch, part.rows.change_type, columns)

    def _feed_batch(
        self, batch: pa.RecordBatch, change_type: str, columns: VersionColumns
    ) -> pa.RecordBatch:
        rows = batch.num_rows
        arrays = [
            nulls(rows, field) if index is None else batch.column(index)
            for field, index in zip(self.schema, columns.columns, strict=False)
        ]
        values = (change_type, self.version, self.timestamp_us)
        arrays += [
            pa.repeat(pa.scalar(value, column.type), rows)
            for column, value in zip(CHANGE_FIELDS, values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """The columns of a change feed.

    - `manifest`: The version that the columns are chosen from.
    - `fields`: Top-level columns, and metadata columns of rows. Columns, and fields below them, are
      nullable, as older versions may lack them, or have nulls in them.
    """

    manifest: Manifest
    fields: tuple[Field, ...]
    blob_handling: str | None = None

    @classmethod
    def of(
        cls, manifest: Manifest, names: Sequence[str] | None = None, handling: str | None = None
    ) -> FeedColumns:
        """Choose columns of a version by their names; all of them by default.

        Raises InvalidInputError: a column does not exist, or a column of the table has the name of
        one of the feed.
        """
        table_fields = {field.name: field for field in manifest.schema.fields}
        if reserved := [field.name for field in CHANGE_FIELDS if field.name in table_fields]:
            raise InvalidInputError(
                f"{manifest.name}: the table has a column {reserved[0]!r}, and so has a change "
                "feed; rename the column to read the feed"
            )
        available = {**META_FIELDS, **table_fields}
        if ROW_OFFSET.name not in table_fields:
            # Row offsets differ between versions.
            del available[ROW_OFFSET.name]
        for name in names or ():
            if name not in available:
                raise InvalidInputError(
                    f"{manifest.name}: a change feed has no column {name!r}; choose from "
                    f"{', '.join(available)}"
                )
        chosen = list(table_fields) if names is None else names
        fields = tuple(
            _as_nullable(available[name]) if name in table_fields else available[name]
            for name in chosen
        )
        readable = tuple(
            field for field in fields if _with_blob_handling((field,), manifest, handling).fields
        )
        return cls(manifest, readable, handling)

    def to_arrow(self) -> pa.Schema:
        """Return the schema of batches."""
        schema = _with_blob_handling(self.fields, self.manifest, self.blob_handling).to_arrow()
        return pa.schema([*(field.with_nullable(True) for field in schema), *CHANGE_FIELDS])

    def in_version(self, manifest: Manifest, same_ids: Collection[int]) -> VersionColumns:
        """Return how the columns are read from a version.

        - `same_ids`: Ids of fields that are the same as in `self.manifest`; see
          `older_fields.same_field`.

        Raises SchemaMismatchError: a column has another type in that version.
        """
        fields: list[Field] = []
        indexes: list[int | None] = []
        for feed_field in self.fields:
            field = self._field_in_version(manifest, feed_field, same_ids)
            indexes.append(None if field is None else len(fields))
            if field is not None:
                fields.append(field)
        check_columns(manifest, fields)
        schema = _with_blob_handling(tuple(fields), manifest, self.blob_handling)
        return VersionColumns(schema, tuple(indexes), manifest.base_paths)

    def _field_in_version(
        self, manifest: Manifest, feed_field: Field, same_ids: Collection[int]
    ) -> Field | None:
        if META_FIELDS.get(feed_field.name) is feed_field:
            return feed_field
        stored = same_field(feed_field, manifest.schema.fields, same_ids)
        if stored is None:
            return None
        field = with_children_of(feed_field, stored, same_ids)
        dtype, feed_dtype = field.to_arrow().type, feed_field.to_arrow().type
        if not _equal_except_nullability(dtype, feed_dtype):
            raise SchemaMismatchError(
                f"column {feed_field.name!r} is {stored.to_arrow().type} in version "
                f"{manifest.version}, but {feed_dtype} in version {self.manifest.version}, and a "
                "change feed cannot have both; start at a later version, or leave the column out"
            )
        return replace(field, nullable=True)


def plan_changes(
    uri: str,
    changes: Sequence[VersionChanges],
    columns: FeedColumns,
    storage_options: Mapping[str, Any] | None = None,
    *,
    target_rows: int = TARGET_ROWS,
    same_ids: frozenset[int] | None = None,
) -> list[ChangeTask]:
    """Split the changed rows of versions into tasks.

    - `uri`: Root of the table.
    - `changes`: Oldest version first.
    - `columns`: Chosen from the last of these versions, or from a later one.
    - `target_rows`: Approximate number of rows of a task.
    - `same_ids`: Ids of the fields that the version of `columns` and all versions before it have,
      down to the last of these versions; none if field ids may mean other columns, as after an
      overwrite between them. By default the ids of the version of `columns`.

    In the order of the versions. Raises SchemaMismatchError: a column has another type in
    one of the versions.
    """
    schema = columns.to_arrow()
    tasks: list[ChangeTask] = []
    same_ids = field_ids(columns.manifest) if same_ids is None else same_ids
    for version in reversed(changes):
        same_ids = ids_after = same_ids & field_ids(version.after)
        same_ids &= version.kept_ids
        if version.before is not None:
            same_ids &= field_ids(version.before)
        if not version.changes:
            continue
        before = None
        if version.before is not None and any(rows.is_before for rows in version.changes):
            before = columns.in_version(version.before, same_ids)
        after = columns.in_version(version.after, ids_after)
        tasks[:0] = [
            ChangeTask(
                uri,
                schema,
                version.version,
                version.timestamp_us,
                ranges,
                before,
                after,
                dict(storage_options or {}),
            )
            for ranges in _pack(version.changes, target_rows)
        ]
    return tasks


def _pack(changes: Sequence[ChangedRows], target_rows: int) -> Iterator[tuple[ChangedRange, ...]]:
    current: list[ChangedRange] = []
    rows = 0
    for change in changes:
        physical = change.fragment.physical_rows
        parts = max(1, round(change.num_rows / target_rows))
        size = -(-physical // parts)
        for start in range(0, physical, max(size, 1)):
            current.append(ChangedRange(change, start, min(start + size, physical)))
            rows += current[-1].num_rows
            if rows >= target_rows:
                yield tuple(current)
                current, rows = [], 0
    if current:
        yield tuple(current)


def _read_windows(reader: FragmentReader, part: ChangedRange) -> Iterator[pa.RecordBatch]:
    rows = range(part.start, part.stop)
    offsets = part.rows.offsets(rows)
    if offsets is None:
        yield from reader.live(rows)
        return
    window = reader.window_rows()
    for start in range(0, len(offsets), window):
        yield from reader.pieces_of(offsets[start : start + window])


def _with_blob_handling(
    fields: tuple[Field, ...], manifest: Manifest, handling: str | None
) -> Schema:
    return handled(Schema(fields), Handling.parse(handling), manifest.data_storage_version)


def _as_nullable(table_field: Field) -> Field:
    """Return a field that is nullable, as are the fields below it."""
    if table_field.is_leaf:
        return replace(table_field, nullable=True)
    if table_field.logical_type == "map":
        # Arrow requires that entries and keys are not null.
        children = tuple(
            replace(entry, children=(*entry.children[:1], *map(_as_nullable, entry.children[1:])))
            for entry in table_field.children
        )
    else:
        children = tuple(map(_as_nullable, table_field.children))
    return replace(table_field, nullable=True, children=children)


def _equal_except_nullability(dtype: pa.DataType, other_dtype: pa.DataType) -> bool:
    """Return whether two types differ at most in the nullability of their children."""
    return bool(_nullable(dtype) == _nullable(other_dtype))


def _nullable(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(child.name, _nullable(child.type)) for child in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(_nullable(dtype.key_type), _nullable(dtype.item_type))
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(_nullable(dtype.value_type), dtype.list_size)
    if pa.types.is_large_list(dtype):
        return pa.large_list(_nullable(dtype.value_type))
    if pa.types.is_list(dtype):
        return pa.list_(_nullable(dtype.value_type))
    return dtype
