"""Row metadata columns: the address, id and position of a row, and the versions that wrote it.

| column | type | value |
| --- | --- | --- |
| `_rowid` | uint64 | stable row id; the row address in tables without stable row ids |
| `_rowaddr` | uint64 | fragment id << 32 | row offset in the fragment |
| `_rowoffset` | uint64 | position in the table's order, deleted rows not counted |
| `_row_created_at_version` | uint64 | 1 where it is not recorded, as in pylance |
| `_row_last_updated_at_version` | uint64 | 1 where it is not recorded |
| `_fragid` | int32 | id of the fragment; other connectors for Spark have this column |

They are not part of a table's schema and are read if the caller names them. In a list of fields to
read they have negative ids that no table uses. Columns that can be hidden columns of data files
have the ids that the specification gives these. If the table has a column with such a name (no
release of pylance writes one any more), that column is read instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.assemble import FieldPart
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment, check_unique

if TYPE_CHECKING:
    # Planning imports this module for the names of the columns, and is spared the other modules.
    from lance_spark.table.paths import TablePaths
    from lance_spark.table.rows.sequences import RowIds
    from lance_spark.table.rows.u64_segments import Offsets, UInt64Array

ROW_ID = Field("_rowid", Lineage.ROW_IDS.field_id, "uint64")
CREATED_AT = Field("_row_created_at_version", Lineage.CREATED.field_id, "uint64")
UPDATED_AT = Field("_row_last_updated_at_version", Lineage.UPDATED.field_id, "uint64")
ROW_ADDRESS = Field("_rowaddr", -1001, "uint64")
ROW_OFFSET = Field("_rowoffset", -1002, "uint64")
FRAGMENT_ID = Field("_fragid", -1003, "int32")
#: The row metadata columns, by name.
META_FIELDS = {
    field.name: field
    for field in (ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT, FRAGMENT_ID)
}
#: The column of scores of a full-text query. Only such queries have it.
SCORE = Field("_score", -1004, "float")
#: The columns of a vector search: distances, and the number of the query if there are several.
DISTANCE = Field("_distance", -1005, "float")
QUERY_INDEX = Field("query_index", -1006, "int32", nullable=False)
#: Columns that only searches have.
SEARCH_FIELDS = (SCORE, DISTANCE, QUERY_INDEX)
#: The `FieldPart.file` of a computed column.
COMPUTED = -1
#: The version of rows without a recorded version.
_NO_VERSION = 1
_MAX_INT = 2**31 - 1

_LINEAGE = {lineage.field_id: lineage for lineage in Lineage}


def select(
    schema: Schema,
    columns: Sequence[str] | None,
    *,
    with_row_id: bool = False,
    with_row_address: bool = False,
) -> Schema:
    """Return the schema of a read.

    - `schema`: Of the table.
    - `columns`: Names and dotted paths of columns, and names of row metadata columns; all columns
      of the table by default.
    - `with_row_id`, `with_row_address`: Whether `_rowid` and `_rowaddr` are the last columns, in
      that order. If `columns` names them too, they are not repeated.

    Raises InvalidInputError: a column is not found, or is selected twice.
    """
    flags = [
        f for f, included in ((ROW_ID, with_row_id), (ROW_ADDRESS, with_row_address)) if included
    ]
    existing = set(schema.names)
    for field in flags:
        if field.name in existing:
            raise InvalidInputError(
                f"the table has a column named {field.name!r}, so that this row metadata column "
                "cannot be added; name the table's column in the list of columns instead"
            )
    if columns is None:
        return replace(schema, fields=schema.fields + tuple(flags)) if flags else schema
    metadata = META_FIELDS.keys() - existing
    if metadata.isdisjoint(columns):
        chosen = schema.select(columns)
        return replace(chosen, fields=chosen.fields + tuple(flags)) if flags else chosen
    chosen = schema.select([name for name in columns if name not in metadata])
    by_name = {field.name: field for field in chosen.fields}
    ordered: dict[str, Field] = {}
    for name in columns:
        if name not in metadata:
            top = schema.path(name)[0].name
            ordered[top] = by_name[top]
        elif name in ordered:
            raise InvalidInputError(f"column {name!r} is selected twice")
        else:
            ordered[name] = META_FIELDS[name]
    for field in flags:
        ordered.pop(field.name, None)
        ordered[field.name] = field
    return replace(chosen, fields=tuple(ordered.values()))


def with_all(schema: Schema) -> Schema:
    """Return a table's schema with all row metadata columns, to look up names in."""
    existing = set(schema.names)
    added = tuple(field for field in META_FIELDS.values() if field.name not in existing)
    return replace(schema, fields=schema.fields + added)


def of_take(schema: Schema) -> Schema:
    """Return the schema of a take: `_rowoffset` is not nullable there, as in pylance."""
    if all(field is not ROW_OFFSET for field in schema.fields):
        return schema
    never_null = replace(ROW_OFFSET, nullable=False)
    fields = tuple(never_null if field is ROW_OFFSET else field for field in schema.fields)
    return replace(schema, fields=fields)


def without_repeats(columns: Sequence[str] | None) -> Sequence[str] | None:
    """Return each name of a list of columns once; `with_repeats` is the inverse."""
    if columns is None or isinstance(columns, str):
        return columns
    return list(dict.fromkeys(columns))


def with_repeats(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Return the result of a take with row metadata columns as often as the caller named them.

    pylance repeats these columns too, but no others.

    - `table`: Has each column once.
    - `columns`: The names that the caller passed.
    """
    if columns is None or len(columns) == len(set(columns)):
        return table
    indices: list[int] = []
    for name in columns:
        index = table.schema.get_field_index(name)
        if index < 0:
            # A dotted path names a part of a column.
            index = table.schema.get_field_index(name.split(".")[0])
        if index not in indices or name in META_FIELDS:
            indices.append(index)
    fields = [table.schema.field(index) for index in indices]
    return pa.Table.from_arrays(
        [table.column(index) for index in indices], schema=pa.schema(fields, table.schema.metadata)
    )


def needs(fields: Sequence[Field], field_needed: Field) -> bool:
    """Return whether a row metadata column is among some fields."""
    return any(field.id == field_needed.id for field in fields)


def first_positions(fragments: Sequence[Fragment]) -> dict[int, int]:
    """Return the position of each fragment's first live row in the table's order, by fragment id.

    Raises CorruptTableError: a fragment id occurs twice.
    """
    check_unique(fragments, fragments[0].source if fragments else "")
    ends = np.cumsum([0, *(fragment.num_rows for fragment in fragments)], dtype=np.int64)
    return {
        fragment.id: start for fragment, start in zip(fragments, ends[:-1].tolist(), strict=True)
    }


def check_row_ids(fragments: Sequence[Fragment], fields: Sequence[Field]) -> None:
    """Refuse fragments without row ids in a table with stable row ids, if `_rowid` is read.

    Raises CorruptTableError.
    """
    if not needs(fields, ROW_ID):
        return
    for fragment in fragments:
        if not fragment.has_lineage(Lineage.ROW_IDS):
            raise CorruptTableError(
                f"{fragment.name} has no row ids, but the table has stable row ids"
            )


def without_unused_lineage(
    fragments: Sequence[Fragment], fields: Sequence[Field]
) -> Sequence[Fragment]:
    """Return the fragments without row ids and versions that a read of `fields` does not need.

    These sequences can be long, and tasks would carry them to executors.
    """
    field_ids = {field.id for field in fields}
    unused = [lineage for lineage in Lineage if lineage.field_id not in field_ids]
    return [fragment.without_lineage(unused) for fragment in fragments] if unused else fragments


class RowMeta:
    """Values of the row metadata columns of one fragment.

    - `first_position`: Position of its first live row in the table's order; for `_rowoffset`.
    - `deleted`: Returns the offsets of deleted rows, increasing.
    - `paths`: Of the table: ids and versions may be in files.
    """

    def __init__(
        self,
        fragment: Fragment,
        first_position: int | None,
        deleted: Callable[[], RowNumbers],
        paths: TablePaths,
    ) -> None:
        self._paths = paths
        self._fragment = fragment
        self._first_position = first_position
        self._deleted = deleted
        self._row_ids: RowIds | None = None
        self._versions: dict[int, tuple[UInt64Array, Offsets]] = {}

    def locate(self, field: Field) -> list[FieldPart] | None:
        """Return the source of a row metadata column; None if the field is another column.

        The source is a hidden column of a data file, or `COMPUTED`.
        """
        if field.id >= -1 or field.name not in META_FIELDS:
            return None
        lineage = _LINEAGE.get(field.id)
        if lineage is not None and self._fragment.has_lineage_column(lineage):
            from lance_spark.table.rows.ids import column_file_index

            return [FieldPart(column_file_index(self._fragment, lineage), field)]
        return [FieldPart(COMPUTED, field)]

    def array(self, field: Field, rows: Rows) -> pa.Array:
        """Return the values of a computed field.

        - `rows`: Physical rows of the fragment, deleted rows included.

        Raises CorruptFileError, MissingFileError, StorageError. Raises CorruptTableError: the row
        ids or versions in the manifest cannot be read.
        """
        if field.id == FRAGMENT_ID.id:
            if self._fragment.id > _MAX_INT:
                raise InvalidInputError(
                    f"{self._fragment.name}: the id is past {_MAX_INT}, the largest value of "
                    f"{FRAGMENT_ID.name}; read {ROW_ADDRESS.name} instead"
                )
            return pa.array(np.full(len(rows), self._fragment.id, np.int32))
        return pa.array(self._values(field.id, rows))

    def _values(self, field_id: int, rows: Rows) -> UInt64Array:
        if field_id == ROW_OFFSET.id:
            return self._offsets(rows)
        if field_id in (CREATED_AT.id, UPDATED_AT.id):
            return self._version_of(field_id, rows)
        if field_id == ROW_ID.id and (ids := self._stable_ids(rows)) is not None:
            return ids
        from lance_spark.table.rows.addresses import first_address

        return _numbers(rows).astype(np.uint64) + np.uint64(first_address(self._fragment))

    def _offsets(self, rows: Rows) -> UInt64Array:
        if self._first_position is None:
            raise InvalidInputError(
                f"{ROW_OFFSET.name} cannot be read of one fragment alone, only of a whole table"
            )
        deleted, numbers = self._deleted(), _numbers(rows)
        if len(deleted):
            numbers = numbers - np.searchsorted(deleted, numbers)
        return (numbers + self._first_position).astype(np.uint64)

    def _stable_ids(self, rows: Rows) -> UInt64Array | None:
        if self._row_ids is None:
            from lance_spark.table.rows.ids import sequence_of

            sequence = sequence_of(self._fragment, self._paths, Lineage.ROW_IDS)
            if sequence is None:
                return None
            from lance_spark.table.rows.sequences import parse_row_ids

            self._row_ids = parse_row_ids(*sequence, self._fragment.physical_rows or None)
        if isinstance(rows, range):
            return self._row_ids.slice(rows.start, rows.stop)
        return self._row_ids.take(rows)

    def _version_of(self, field_id: int, rows: Rows) -> UInt64Array:
        runs = self._versions.get(field_id)
        if runs is None:
            from lance_spark.table.rows.ids import sequence_of

            sequence = sequence_of(self._fragment, self._paths, _LINEAGE[field_id])
            if sequence is None:
                return np.full(len(rows), _NO_VERSION, np.uint64)
            from lance_spark.table.rows.sequences import parse_versions

            data, name = sequence
            versions, counts = parse_versions(data, self._fragment.physical_rows, name)
            runs = self._versions[field_id] = versions, np.cumsum(counts)
        versions, ends = runs
        if len(versions) == 1:
            return np.full(len(rows), versions[0], np.uint64)
        return versions[np.searchsorted(ends, _numbers(rows), "right")]


def _numbers(rows: Rows) -> RowNumbers:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
