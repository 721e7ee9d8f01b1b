"""Rows that versions changed, read as batches: the table's columns, and what happened to each row.

| column | type | value |
| --- | --- | --- |
| `_change_type` | string | "insert", "update_preimage", "update_postimage" or "delete" |
| `_commit_version` | int64 | the version that changed the row |
| `_commit_timestamp` | timestamp of microseconds in UTC | when it was committed |

Columns are those of one version, the last one that is told of. Within the same life of a table a
column is known by its field id, so that a renamed one is itself in older versions too, and one that
there was not yet is null. Overwrites and restores start another life, in which field ids mean other
columns: from there on a column is known by its name. A column that has another type in a version
cannot be told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lance_spark.change_feed.diff import ChangedRows, VersionChanges
from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.fragment.reader import FragmentReader, batches_of
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_OFFSET
from lance_spark.scan.row_size import nulls
from lance_spark.table.blob_dataset import check_columns
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import BasePath, TablePaths

CHANGE_TYPE = pa.field("_change_type", pa.string(), nullable=False)
COMMIT_VERSION = pa.field("_commit_version", pa.int64(), nullable=False)
COMMIT_TIMESTAMP = pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False)
CHANGE_FIELDS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
#: Operations that start another life of a table's columns.
_NEW_LIFE = frozenset({"overwrite", "restore", "clone"})
#: Rows of a task, about.
TARGET_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """How the rows of one version are read.

    Attributes
    ----------
    schema : Schema
        The wanted columns with the field ids of the version; those that it lacks are left out.
    columns : tuple of (int or None)
        For each wanted column its place in `schema`.
    base_paths : mapping of int to BasePath
    """

    schema: Schema
    columns: tuple[int | None, ...]
    base_paths: Mapping[int, BasePath]


@dataclass(frozen=True, slots=True)
class Piece:
    """Changed rows among the physical rows `start` to `stop - 1` of their fragment."""

    rows: ChangedRows
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        """Rows that are read, if those that changed are spread evenly."""
        physical = max(self.rows.fragment.physical_rows, 1)
        return -(-self.rows.num_rows * (self.stop - self.start) // physical)


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """Changed rows that one worker reads. Can be pickled.

    Attributes
    ----------
    uri : str
        Root of the table.
    schema : pa.Schema
        Of the batches.
    version, timestamp_us : int
        The version that changed the rows, and when it was committed, in microseconds since 1970.
    pieces : tuple of Piece
    before, after : Side
        How old and new rows are read.
    storage_options : mapping, not shown by `repr`
    """

    uri: str = field(repr=False)
    schema: pa.Schema
    version: int
    timestamp_us: int
    pieces: tuple[Piece, ...]
    before: Side | None
    after: Side
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def num_rows(self) -> int:
        """Rows that are read, about."""
        return sum(piece.num_rows for piece in self.pieces)

    def batches(self, batch_size: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in batches of at most `batch_size`.

        Raises
        ------
        MissingFileError
            A data file has been cleaned up.
        CorruptTableError, CorruptFileError, UnsupportedEncodingError, StorageError
        """
        for piece in self.pieces:
            side = self.before if piece.rows.is_before else self.after
            assert side is not None
            paths = TablePaths.open(self.uri, self.storage_options, side.base_paths)
            reader = FragmentReader(paths, piece.rows.fragment, side.schema)
            try:
                for read in _rows(reader, piece):
                    for batch in batches_of(read, batch_size):
                        yield self._told(batch, piece.rows.kind, side)
            finally:
                reader.close()

    def _told(self, batch: pa.RecordBatch, kind: str, side: Side) -> pa.RecordBatch:
        rows = batch.num_rows
        columns = [
            nulls(rows, wanted) if position is None else batch.column(position)
            for wanted, position in zip(self.schema, side.columns, strict=False)
        ]
        told = (kind, self.version, self.timestamp_us)
        for wanted, value in zip(CHANGE_FIELDS, told, strict=True):
            columns.append(pa.repeat(pa.scalar(value, wanted.type), rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """The columns of a change feed, and where they are in each version.

    Attributes
    ----------
    manifest : Manifest
        The version whose columns they are.
    fields : tuple of Field
        Top-level columns, and columns about rows.
    blob_handling : str or None
    """

    manifest: Manifest
    fields: tuple[Field, ...]
    blob_handling: str | None = None

    @classmethod
    def of(
        cls, manifest: Manifest, names: Sequence[str] | None = None, handling: str | None = None
    ) -> FeedColumns:
        """Choose columns of a version by their names; all of them by default.

        Raises
        ------
        InvalidInputError
            There is no such column, or the table has one of the name of a feed's.
        """
        own = {item.name: item for item in manifest.schema.fields}
        if taken := [item.name for item in CHANGE_FIELDS if item.name in own]:
            raise InvalidInputError(
                f"{manifest.name}: the table has a column {taken[0]!r}, as a change feed has; "
                "rename it to read the feed"
            )
        known = {**META_FIELDS, **own}
        if ROW_OFFSET.name not in own:
            # What it counts are the rows of one version.
            del known[ROW_OFFSET.name]
        for name in names or ():
            if name not in known:
                raise InvalidInputError(
                    f"{manifest.name}: a change feed has no column {name!r}; there are "
                    f"{', '.join(known)}"
                )
        wanted = list(own) if names is None else names
        fields = tuple(known[name] for name in wanted)
        kept = tuple(
            item for item in fields if _handled(Schema((item,)), manifest, handling).fields
        )
        return cls(manifest, kept, handling)

    def to_arrow(self) -> pa.Schema:
        """Return the columns as batches have them: nullable, as older versions may not have had
        them; the feed's own at the end.
        """
        schema = _handled(Schema(self.fields), self.manifest, self.blob_handling).to_arrow()
        return pa.schema([*(item.with_nullable(True) for item in schema), *CHANGE_FIELDS])

    def side(self, manifest: Manifest, *, same_life: bool) -> Side:
        """Return how the columns are read from a version.

        Parameters
        ----------
        manifest : Manifest
        same_life : bool
            Whether field ids mean the same columns as in the version whose columns these are.

        Raises
        ------
        SchemaMismatchError
            A column has another type there.
        """
        results: list[Field] = []
        columns: list[int | None] = []
        for wanted in self.fields:
            one = self._field(manifest, wanted, same_life)
            columns.append(None if one is None else len(results))
            if one is not None:
                results.append(one)
        check_columns(manifest, results)
        schema = _handled(Schema(tuple(results)), manifest, self.blob_handling)
        return Side(schema, tuple(columns), manifest.base_paths)

    def _field(self, manifest: Manifest, wanted: Field, same_life: bool) -> Field | None:
        if META_FIELDS.get(wanted.name) is wanted:
            return wanted
        named = {one.name: one for one in manifest.schema.fields}.get(wanted.name)
        own = manifest.schema.field_by_id(wanted.id) if same_life else None
        if own is not None:
            if own.logical_type == wanted.logical_type:
                # The children that there are now; files know which of them they have.
                return replace(wanted, nullable=True)
            named = own
        if named is None:
            return None
        if not _alike(named.to_arrow().type, wanted.to_arrow().type):
            raise SchemaMismatchError(
                f"column {wanted.name!r} is {named.to_arrow().type} in version {manifest.version}, "
                "but "
                f"{wanted.to_arrow().type} in version {self.manifest.version}: changes cannot be "
                "told across the two; start "
                "at a later version, or leave the column out"
            )
        return replace(named, nullable=True)


def plan_changes(
    uri: str,
    told: Sequence[VersionChanges],
    columns: FeedColumns,
    storage_options: Mapping[str, Any] | None = None,
    *,
    target_rows: int = TARGET_ROWS,
    same_life: bool = True,
) -> list[ChangeTask]:
    """Cut what versions changed into tasks.

    Parameters
    ----------
    uri : str
        Root of the table.
    told : sequence of VersionChanges
        Oldest first.
    columns : FeedColumns
        Of the last version that is told of, or of a later one.
    storage_options : mapping, optional
    target_rows : int
        Rows of a task, about.
    same_life : bool
        Whether there was no overwrite or restore between the last version that is told of and the
        one that the columns are of.

    Returns
    -------
    list of ChangeTask
        In the order of the versions.

    Raises
    ------
    SchemaMismatchError
        A column has another type in one of the versions.
    """
    schema = columns.to_arrow()
    tasks: list[ChangeTask] = []
    for item in reversed(told):
        after_life = same_life
        if starts_life(item.operation):
            same_life = False
        if not item.changes:
            continue
        before = None
        if item.before is not None and any(rows.is_before for rows in item.changes):
            before = columns.side(item.before, same_life=same_life)
        after = columns.side(item.after, same_life=after_life)
        some = [
            ChangeTask(
                uri,
                schema,
                item.version,
                item.timestamp_us,
                pieces,
                before,
                after,
                dict(storage_options or {}),
            )
            for pieces in _pack(item.changes, target_rows)
        ]
        tasks[:0] = some
    return tasks


def starts_life(kind: str | None) -> bool:
    """Tell whether field ids mean other columns after a change of this kind than before."""
    return not kind or kind in _NEW_LIFE


def _pack(changes: Sequence[ChangedRows], target_rows: int) -> Iterator[tuple[Piece, ...]]:
    current: list[Piece] = []
    rows = 0
    for change in changes:
        physical = change.fragment.physical_rows
        parts = max(1, round(change.num_rows / target_rows))
        size = -(-physical // parts)
        for start in range(0, physical, max(size, 1)):
            current.append(Piece(change, start, min(start + size, physical)))
            rows += current[-1].num_rows
            if rows >= target_rows:
                yield tuple(current)
                current, rows = [], 0
    if current:
        yield tuple(current)


def _rows(reader: FragmentReader, piece: Piece) -> Iterator[pa.RecordBatch]:
    rows = range(piece.start, piece.stop)
    wanted = piece.rows.offsets(rows)
    if wanted is None:
        yield from reader.live(rows)
        return
    window = reader.window_rows()
    for position in range(0, len(wanted), window):
        yield reader.read(wanted[position : position + window])


def _handled(schema: Schema, manifest: Manifest, handling: str | None) -> Schema:
    return handled(schema, Handling.parse(handling), manifest.data_storage_version)


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are the same but for what may be null inside of them."""
    return bool(_nullable(one) == _nullable(other))


def _nullable(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(item.name, _nullable(item.type)) for item in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(_nullable(dtype.key_type), _nullable(dtype.item_type))
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(_nullable(dtype.value_type), dtype.list_size)
    if pa.types.is_large_list(dtype):
        return pa.large_list(_nullable(dtype.value_type))
    if pa.types.is_list(dtype):
        return pa.list_(_nullable(dtype.value_type))
    return dtype
