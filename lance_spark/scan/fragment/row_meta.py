"""Columns that tables have of themselves: where a row is, its id, and the versions it was created and last changed in.

| column | type | value |
| --- | --- | --- |
| `_rowid` | uint64 | stable row id; the row address in tables without them |
| `_rowaddr` | uint64 | fragment id << 32 | offset among the physical rows of the fragment |
| `_rowoffset` | uint64 | position in the table's order, deleted rows not counted |
| `_row_created_at_version` | uint64 | 1 where it is not noted, as in pylance |
| `_row_last_updated_at_version` | uint64 | 1 where it is not noted |
| `_fragid` | int32 | id of the fragment; other connectors for Spark have it |

They are read if they are named, and not part of a table's schema: among the fields that are read they stand as fields whose
negative ids no table gives; those that can be hidden columns of data files have the ids that the specification has for these.
A column of the table itself that has such a name (no release of pylance writes one any more) is read instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.fragment.assemble import FieldPart
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment, check_unique

if TYPE_CHECKING:
    # Planning needs the names of these columns, and nothing of how they are read.
    from lance_spark.table.paths import TablePaths
    from lance_spark.table.rows.sequences import RowIds
    from lance_spark.table.rows.u64_segments import Offsets, Words

ROW_ID = Field("_rowid", Lineage.ROW_IDS.field_id, "uint64")
CREATED_AT = Field("_row_created_at_version", Lineage.CREATED.field_id, "uint64")
UPDATED_AT = Field("_row_last_updated_at_version", Lineage.UPDATED.field_id, "uint64")
ROW_ADDRESS = Field("_rowaddr", -1001, "uint64")
ROW_OFFSET = Field("_rowoffset", -1002, "uint64")
FRAGMENT_ID = Field("_fragid", -1003, "int32")
#: By name.
META_FIELDS = {
    field.name: field
    for field in (ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT, FRAGMENT_ID)
}
#: Number of the "file" that computed values come from.
COMPUTED = -1
#: What rows without a noted version were created and changed in.
_NO_VERSION = 1
_MAX_INT = 2**31 - 1

_LINEAGE = {kind.field_id: kind for kind in Lineage}


def select(
    schema: Schema,
    columns: Sequence[str] | None,
    *,
    with_row_id: bool = False,
    with_row_address: bool = False,
) -> Schema:
    """Return the fields that a read has.

    Parameters
    ----------
    schema : Schema
        Of the table.
    columns : sequence of str, optional
        Names and dotted paths of columns, and names of columns about rows; all columns of the table by default.
    with_row_id, with_row_address : bool
        Whether `_rowid` and `_rowaddr` follow as the last columns, in that order; they are left out before.

    Raises
    ------
    InvalidInputError
        There is no such column, or one is selected twice.
    """
    flags = [f for f, wanted in ((ROW_ID, with_row_id), (ROW_ADDRESS, with_row_address)) if wanted]
    own = set(schema.names)
    for field in flags:
        if field.name in own:
            raise InvalidInputError(f"the table has a column {field.name!r} of its own")
    if columns is None:
        return replace(schema, fields=schema.fields + tuple(flags)) if flags else schema
    if all(name in own or name not in META_FIELDS for name in columns):
        chosen = schema.select(columns)
        return replace(chosen, fields=chosen.fields + tuple(flags)) if flags else chosen
    plain = [name for name in columns if name in own or name not in META_FIELDS]
    chosen = schema.select(plain)
    by_name = {field.name: field for field in chosen.fields}
    ordered: dict[str, Field] = {}
    for name in columns:
        if name in own or name not in META_FIELDS:
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
    """Return a table's schema with all columns about rows, for names to be looked up in."""
    own = set(schema.names)
    more = tuple(field for field in META_FIELDS.values() if field.name not in own)
    return replace(schema, fields=schema.fields + more)


def of_take(schema: Schema) -> Schema:
    """Return the fields as rows that are taken by position have them: pylance knows then that an offset is never null."""
    if all(field is not ROW_OFFSET for field in schema.fields):
        return schema
    never_null = replace(ROW_OFFSET, nullable=False)
    fields = tuple(never_null if field is ROW_OFFSET else field for field in schema.fields)
    return replace(schema, fields=fields)


def without_repeats(columns: Sequence[str] | None) -> Sequence[str] | None:
    """Return names of columns, each once; see `with_repeats`."""
    if columns is None or isinstance(columns, str):
        return columns
    return list(dict.fromkeys(columns))


def with_repeats(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Return rows that were taken with columns about rows as often as they were named, as pylance gives them.

    Parameters
    ----------
    table : pyarrow.Table
        Has each column once.
    columns : sequence of str, optional
        The names as they were given.
    """
    if columns is None or len(columns) == len(set(columns)):
        return table
    places: list[int] = []
    for name in columns:
        # A dotted path names a part of a column.
        at = table.schema.get_field_index(name)
        if at < 0:
            at = table.schema.get_field_index(name.split(".")[0])
        if at not in places or name in META_FIELDS:
            places.append(at)
    fields = [table.schema.field(at) for at in places]
    return pa.Table.from_arrays(
        [table.column(at) for at in places], schema=pa.schema(fields, table.schema.metadata)
    )


def needs(fields: Sequence[Field], wanted: Field) -> bool:
    """Whether a column about rows is among some fields."""
    return any(field.id == wanted.id for field in fields)


def first_positions(fragments: Sequence[Fragment]) -> dict[int, int]:
    """Return for each fragment, by id, the position of its first live row in the table's order.

    Raises
    ------
    CorruptTableError
        An id occurs twice.
    """
    check_unique(fragments, fragments[0].source if fragments else "")
    ends = np.cumsum([0, *(fragment.num_rows for fragment in fragments)], dtype=np.int64)
    return {
        fragment.id: start for fragment, start in zip(fragments, ends[:-1].tolist(), strict=True)
    }


def check_row_ids(fragments: Sequence[Fragment], fields: Sequence[Field]) -> None:
    """Refuse fragments without row ids, in a table that has stable ones, if they are among the fields that are read.

    Raises
    ------
    CorruptTableError
    """
    if not needs(fields, ROW_ID):
        return
    for fragment in fragments:
        if not fragment.has_lineage(Lineage.ROW_IDS):
            raise CorruptTableError(
                f"{fragment.name} has no row ids, but the table has stable row ids"
            )


def light(fragments: Sequence[Fragment], fields: Sequence[Field]) -> Sequence[Fragment]:
    """Return fragments for tasks that read some fields: without long sequences that none of the fields needs."""
    wanted = {field.id for field in fields}
    spared = [kind for kind in Lineage if kind.field_id not in wanted]
    return [fragment.without_lineage(spared) for fragment in fragments] if spared else fragments


class RowMeta:
    """Values of the columns about the rows of one fragment.

    Parameters
    ----------
    fragment : Fragment
    first_position : int, optional
        Position of its first live row in the table's order; for `_rowoffset`.
    deleted : callable
        Returns the offsets of deleted rows, increasing.
    paths : TablePaths
        Of the table: ids and versions may be in a file.
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
        self._versions: dict[int, tuple[Words, Offsets]] = {}

    def locate(self, field: Field) -> list[FieldPart] | None:
        """Return where the values of a field are: a hidden column of a data file, or computed; None if it is no such field."""
        if field.id >= -1 or field.name not in META_FIELDS:
            return None
        kind = _LINEAGE.get(field.id)
        if kind is not None and self._fragment.has_lineage_column(kind):
            from lance_spark.table.rows.ids import file_with

            return [FieldPart(file_with(self._fragment, kind), field)]
        return [FieldPart(COMPUTED, field)]

    def array(self, field: Field, rows: Rows) -> pa.Array:
        """Return the values of a computed field.

        Parameters
        ----------
        field : Field
        rows : Rows
            Physical rows of the fragment, deleted ones too.

        Raises
        ------
        CorruptTableError
            What the table says of the rows cannot be read.
        CorruptFileError, MissingFileError, StorageError
        """
        if field.id == FRAGMENT_ID.id:
            if self._fragment.id > _MAX_INT:
                raise InvalidInputError(
                    f"{self._fragment.name}: its id is past {_MAX_INT}, which {FRAGMENT_ID.name} holds"
                )
            return pa.array(np.full(len(rows), self._fragment.id, np.int32))
        return pa.array(self._words(field.id, rows))

    def _words(self, field_id: int, rows: Rows) -> Words:
        if field_id == ROW_OFFSET.id:
            return self._offsets(rows)
        if field_id in (CREATED_AT.id, UPDATED_AT.id):
            return self._version_of(field_id, rows)
        if field_id == ROW_ID.id and (found := self._stable_ids(rows)) is not None:
            return found
        from lance_spark.table.rows.addresses import first_address

        return _numbers(rows).astype(np.uint64) + np.uint64(first_address(self._fragment))

    def _offsets(self, rows: Rows) -> Words:
        if self._first_position is None:
            raise InvalidInputError(
                f"{ROW_OFFSET.name} is known in reads of a whole table, not of a fragment alone"
            )
        deleted, numbers = self._deleted(), _numbers(rows)
        if len(deleted):
            numbers = numbers - np.searchsorted(deleted, numbers)
        return (numbers + self._first_position).astype(np.uint64)

    def _stable_ids(self, rows: Rows) -> Words | None:
        if self._row_ids is None:
            from lance_spark.table.rows.ids import sequence_of

            found = sequence_of(self._fragment, self._paths, Lineage.ROW_IDS)
            if found is None:
                return None
            from lance_spark.table.rows.sequences import parse_row_ids

            self._row_ids = parse_row_ids(*found, self._fragment.physical_rows or None)
        if isinstance(rows, range):
            return self._row_ids.slice(rows.start, rows.stop)
        return self._row_ids.take(rows)

    def _version_of(self, field_id: int, rows: Rows) -> Words:
        found = self._versions.get(field_id)
        if found is None:
            from lance_spark.table.rows.ids import sequence_of

            noted = sequence_of(self._fragment, self._paths, _LINEAGE[field_id])
            if noted is None:
                return np.full(len(rows), _NO_VERSION, np.uint64)
            from lance_spark.table.rows.sequences import parse_versions

            data, name = noted
            versions, counts = parse_versions(data, self._fragment.physical_rows, name)
            found = self._versions[field_id] = versions, np.cumsum(counts)
        versions, ends = found
        if len(versions) == 1:
            return np.full(len(rows), versions[0], np.uint64)
        return versions[np.searchsorted(ends, _numbers(rows), "right")]


def _numbers(rows: Rows) -> RowNumbers:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
