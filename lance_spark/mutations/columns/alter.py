"""Columns that go, get another name or another type, or may or may not be null.

Names, nullability and dropping change the schema alone (`Project`). Another type is another field:
a new id, and new data files with the values cast (`Merge`); the files of before lose the column. Of
a struct, only the children that are named change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.schema.arrow_fields import field_parts
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.logical_types import EXTENSION_NAME
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.add import renumbered
from lance_spark.mutations.columns.fill import Computation
from lance_spark.mutations.commits import change_schema
from lance_spark.mutations.commits import check_names as check_name_list
from lance_spark.mutations.mem_wal import check_droppable, check_no_mem_wal
from lance_spark.mutations.retry import at_version, retry_on_conflict
from lance_spark.mutations.runner import Runner
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.predicates.literals import check_exact
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.schema_changes import max_field_id
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata.project import Project
from lance_spark.table.rows.ids import check_names

_KEYS = frozenset({"path", "name", "nullable", "data_type"})
_PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Alteration:
    """What becomes of a column.

    Attributes
    ----------
    path : str
        Its name; names of children follow after dots.
    name : str, optional
    nullable : bool, optional
    data_type : pa.DataType, optional
    """

    path: str
    name: str | None = None
    nullable: bool | None = None
    data_type: pa.DataType | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Alteration:
        """Check what a caller gives.

        Raises
        ------
        InvalidInputError
        """
        if not isinstance(given, Mapping) or not {"path"} <= set(given) <= _KEYS:
            raise InvalidInputError(
                f"an alteration has a path, and a name, nullable or data_type, not {given!r}"
            )
        one = cls(**given)
        if (one.name, one.nullable, one.data_type) == (None, None, None):
            raise InvalidInputError(
                f"the alteration of {one.path!r} says nothing: give a name, nullable or data_type"
            )
        if one.name is not None and (not one.name or "." in one.name):
            raise InvalidInputError(f"column {one.path!r} cannot be renamed to {one.name!r}")
        return one


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts columns to other types.

    Attributes
    ----------
    schema : pa.Schema
        What becomes of the columns.
    read : pa.Schema
        Those columns as they are, without children that stay as they are; rows may have these too.
    """

    schema: pa.Schema
    read: pa.Schema

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the types of the schema.

        Raises
        ------
        InvalidInputError
            A value does not fit.
        """
        columns = []
        for array, old, wanted in zip(rows.columns, self.read, self.schema, strict=True):
            try:
                columns.append(_cast(_pruned(array, old.type), wanted.type))
            except (pa.ArrowException, ValueError) as error:
                raise InvalidInputError(f"column {wanted.name!r}: {error}") from None
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)


def drop_columns(
    table: OpenTable,
    columns: Sequence[str],
    options: CommitOptions,
) -> OpenTable:
    """Drop columns; see `Dataset.drop_columns`."""
    names = check_name_list(columns, "columns")

    def plan(current: OpenTable) -> Project:
        dropped = [current.schema.field(name) for name in names]
        check_droppable(current, {node.id for item in dropped for node in item.walk()})
        gone = {item.id for item in dropped}
        left = tuple(
            kept for kept in (_without(item, gone) for item in current.schema.fields) if kept
        )
        if not left:
            raise InvalidInputError("all columns cannot be dropped: a table has at least one")
        schema = replace(current.schema, fields=left)
        return Project(tuple(schema.to_protos()), preserves_nullability=True)

    return change_schema(table, plan, options)


def reorder_columns(
    table: OpenTable,
    columns: Sequence[str],
    options: CommitOptions,
) -> OpenTable:
    """Put top-level columns first; the others follow in the order that they have.

    Parameters
    ----------
    table : OpenTable
    columns : sequence of str
    options : CommitOptions

    Raises
    ------
    InvalidInputError
        There is no such column, or one is named twice.
    LanceError
        What `change_schema` raises.
    """
    names = check_name_list(columns, "columns")
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(f"name each column that comes first once, not {names!r}")

    def plan(current: OpenTable) -> Project:
        by_name = {field.name: field for field in current.schema.fields}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise InvalidInputError(
                f"{current.store.display} has no column {unknown[0]!r}; it has {', '.join(by_name)}"
            )
        ordered = [by_name.pop(name) for name in names]
        schema = replace(current.schema, fields=(*ordered, *by_name.values()))
        return Project(tuple(schema.to_protos()), preserves_nullability=True)

    return change_schema(table, plan, options)


def alter_columns(
    table: OpenTable,
    alterations: Iterable[Mapping[str, Any]],
    options: CommitOptions,
    runner: Runner | None = None,
) -> OpenTable:
    """Alter columns; see `Dataset.alter_columns`. The runner is this machine by default."""
    parsed = [Alteration.parse(item) for item in alterations]
    if not parsed:
        raise InvalidInputError("there is no alteration")
    if all(one.data_type is None for one in parsed):
        return change_schema(table, lambda current: _projection(current, parsed), options)

    def change(current: OpenTable) -> Manifest:
        altered, preserves = _altered(current, parsed)
        paths = [item.path for item in parsed if item.data_type is not None]
        _check_casts(current, paths)
        schema, written = _with_types(current, altered, parsed)
        # Rows that others write for the columns of before have no values for these.
        cast = {current.schema.field(path).id for path in paths}
        required = any(item.id in cast and not item.nullable for item in altered.walk())
        cast_ones = current.schema.select(paths)
        return computation.commit(
            current,
            _with_known_nulls(current, cast_ones),
            written,
            Cast(written.to_arrow(), cast_ones.to_arrow()),
            schema.to_protos(),
            preserves_nullability=preserves and not required,
            options=options,
        )

    with Computation(runner) as computation:
        return at_version(table, retry_on_conflict(table, change, options.conflict_retries))


def _projection(table: OpenTable, alterations: Sequence[Alteration]) -> Project:
    schema, preserves = _altered(table, alterations)
    return Project(tuple(schema.to_protos()), preserves_nullability=preserves)


def _altered(table: OpenTable, alterations: Sequence[Alteration]) -> tuple[Schema, bool]:
    """Return the schema with other names and nullability, and whether rows written for the one of
    before stay valid.
    """
    changes: dict[int, Alteration] = {}
    preserves = True
    for item in alterations:
        node = table.schema.path(item.path)
        field = node[-1]
        if field.id in changes:
            raise InvalidInputError(f"column {item.path!r} is altered twice")
        changes[field.id] = item
        if item.name is not None and len(node) == 1:
            check_names([item.name])
        if item.nullable is False and field.nullable:
            preserves = False
            check_no_mem_wal(table, f"column {item.path!r} cannot be made not nullable")
            _check_no_nulls(table, item.path)
        if item.nullable and any(_PRIMARY_KEY in part.metadata for part in node):
            raise InvalidInputError(f"column {item.path!r} is a primary key, and cannot be null")
    fields = tuple(_apply(item, changes) for item in table.schema.fields)
    _check_names(fields, "the table")
    return replace(table.schema, fields=fields), preserves


def _apply(field: Field, changes: Mapping[int, Alteration]) -> Field:
    change = changes.get(field.id)
    field = replace(field, children=tuple(_apply(item, changes) for item in field.children))
    if change is None:
        return field
    return replace(
        field,
        name=change.name if change.name is not None else field.name,
        nullable=change.nullable if change.nullable is not None else field.nullable,
    )


def _with_types(
    table: OpenTable, altered: Schema, alterations: Sequence[Alteration]
) -> tuple[Schema, Schema]:
    """Return the schema with other types, and that of the new data files."""
    next_id = max_field_id(table.manifest.to_proto()) + 1
    new: dict[int, Field] = {}
    for item in alterations:
        if item.data_type is None:
            continue
        old = table.schema.field(item.path)
        dtype = old.to_arrow().type
        if not is_castable(dtype, item.data_type):
            raise InvalidInputError(
                f"column {item.path!r} cannot be cast from {dtype} to {item.data_type}: only to a "
                "type of the same kind"
            )
        target = altered.field_by_id(old.id)
        assert target is not None
        arrow = pa.field(target.name, item.data_type, target.nullable)
        parts = field_parts(arrow)
        fresh = Field.from_arrow(arrow, next_id)
        metadata = {**target.metadata, **parts.metadata}
        new[old.id], next_id = renumbered(
            replace(fresh, metadata=metadata), next_id, target.parent_id
        )
    fields = tuple(_replaced(item, new) for item in altered.fields)
    ids = {item.id for item in new.values()}
    written = tuple(kept for kept in (_only(item, ids) for item in fields) if kept)
    # The transform reads columns in the order they are named in.
    order = [
        table.schema.path(item.path)[0].id for item in alterations if item.data_type is not None
    ]
    places = {item.id: position for position, item in enumerate(altered.fields)}
    tops = list(dict.fromkeys(places[number] for number in order))
    by_name = {item.name: item for item in written}
    return (
        replace(altered, fields=fields),
        Schema(tuple(by_name[altered.fields[position].name] for position in tops)),
    )


def _replaced(field: Field, new: Mapping[int, Field]) -> Field:
    if field.id in new:
        return new[field.id]
    return replace(field, children=tuple(_replaced(item, new) for item in field.children))


def _only(field: Field, ids: set[int]) -> Field | None:
    """Return the field with nothing but the new ones in it; None if there are none."""
    if field.id in ids:
        return field
    children = tuple(kept for kept in (_only(item, ids) for item in field.children) if kept)
    return replace(field, children=children) if children else None


def _without(field: Field, gone: set[int]) -> Field | None:
    """Return the field without some below it; None if nothing is left of it."""
    if field.id in gone:
        return None
    children = tuple(kept for kept in (_without(item, gone) for item in field.children) if kept)
    if field.children and not children:
        return None
    if len(children) < len(field.children) and field.logical_type != "struct":
        # A list is nothing without its items, a map without its keys.
        return None
    return replace(field, children=children)


def is_castable(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether a column can be cast: to another size or precision of the same kind of
    values.
    """
    for of_kind in (pat.is_integer, pat.is_floating, pat.is_boolean, pat.is_decimal, _is_temporal):
        if of_kind(old):
            return bool(of_kind(new))
    if pat.is_string(old) or pat.is_large_string(old):
        return bool(pat.is_string(new) or pat.is_large_string(new))
    if pat.is_binary(old) or pat.is_large_binary(old):
        return bool(pat.is_binary(new) or pat.is_large_binary(new))
    if _is_list(old) and _is_list(new):
        return is_castable(old.value_type, new.value_type)
    return bool(old == new)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_fixed_size_list(dtype))


def _is_temporal(dtype: pa.DataType) -> bool:
    return bool(pat.is_temporal(dtype))


def _check_casts(table: OpenTable, paths: Sequence[str]) -> None:
    manifest = table.manifest
    check_no_mem_wal(table, f"column {paths[0]!r} cannot be cast")
    nodes = [table.schema.path(path) for path in paths]
    if manifest.data_storage_version <= (2, 0) and any(len(node) > 1 for node in nodes):
        # The files have a column for the struct too, which would then be in two of them.
        raise UnsupportedFeatureError(
            f"{table.store.display}: children of structs cannot be cast in data files of version "
            "2.0; overwrite the table with "
            "data storage version 2.2"
        )
    cast = {node[-1].id: path for path, node in zip(paths, nodes, strict=True)}
    for path, node in zip(paths, nodes, strict=True):
        around = next((cast[item.id] for item in node[:-1] if item.id in cast), None)
        if around is not None:
            raise InvalidInputError(
                f"columns {around!r} and {path!r} cannot be cast both: one is inside of the other"
            )
        if any(item.is_blob or EXTENSION_NAME in item.metadata for item in node[-1].walk()):
            raise InvalidInputError(f"column {path!r} is of an extension type, and cannot be cast")
    within = {item.id for node in nodes for item in node[-1].walk()}
    section = section_of(manifest)
    names = sorted({item.name for item in section.indices if not within.isdisjoint(item.fields)})
    if names:
        raise InvalidInputError(
            f"column {', '.join(paths)} cannot be cast: the index {', '.join(names)} is made of "
            "its values; drop the index first"
        )


def _check_names(fields: Sequence[Field], where: str) -> None:
    names = [field.name for field in fields]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidInputError(f"{where} would have two columns {twice[0]!r}")
    for field in fields:
        _check_names(field.children, f"column {field.name!r}")


def _with_known_nulls(table: OpenTable, schema: Schema) -> Schema:
    """Return columns so that reads tell which structs are null: whole, where fragments lack some of
    their children.

    Of a struct none of whose wanted children a fragment has, nothing is known but that it has no
    values.
    """
    wanted = [item for item in schema.fields if item.logical_type == "struct"]
    leaves = {node.id for item in wanted for node in item.walk() if not node.children}
    held = (
        {number for file in fragment.files for number in file.fields}
        for fragment in table.manifest.fragments
    )
    if not wanted or all(leaves <= ids for ids in held):
        return schema
    version = table.manifest.data_storage_version
    whole = {item.id: item for item in handled(table.schema, Handling.DESCRIPTIONS, version).fields}
    return replace(
        schema, fields=tuple(whole[item.id] if item in wanted else item for item in schema.fields)
    )


def _check_no_nulls(table: OpenTable, path: str) -> None:
    wanted = table.schema.select([path])
    schema, kind = _with_known_nulls(table, wanted), wanted.fields[0].to_arrow().type
    for fragment in counted_fragments(table.paths, table.manifest):
        reader = FragmentReader(table.paths, fragment, schema)
        try:
            for batch in reader.scan(range(fragment.physical_rows), _BATCH_ROWS):
                column = _pruned(batch.column(0), kind)
                if _has_nulls(column, len(table.schema.path(path)) - 1):
                    raise InvalidInputError(
                        f"column {path!r} has nulls, and so cannot become one without"
                    )
        finally:
            reader.close()


def _has_nulls(array: pa.Array, depth: int) -> bool:
    """Tell whether a field some structs or lists below is null where the one around it is not."""
    for _ in range(depth):
        if pat.is_struct(array.type):
            array = array.filter(pc.is_valid(array)).field(0)
        else:
            array = array.flatten()
    return bool(array.null_count)


def _pruned(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return structs without the children that a type lacks."""
    if array.type == dtype:
        return array
    if pat.is_struct(dtype):
        children = [_pruned(array.field(child.name), child.type) for child in dtype]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(dtype), mask=mask)
    buffers = array.buffers()[: 1 if pat.is_fixed_size_list(dtype) else 2]
    items = _pruned(array.values, dtype.field(0).type)
    return pa.Array.from_buffers(
        dtype, len(array), buffers, array.null_count, array.offset, children=[items]
    )


def _cast(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if pat.is_struct(dtype):
        # Children may have other names: what Arrow does not find by name becomes null.
        children = [
            _cast(array.field(index), dtype.field(index).type) for index in range(dtype.num_fields)
        ]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(dtype), mask=mask)
    if _is_list(dtype) and _is_list(array.type):
        return _cast_list(array, dtype)
    if pat.is_timestamp(dtype) and dtype.tz is not None and _is_without_zone(array.type):
        # As pylance has it, what has no zone is the time of day in the new one.
        return pc.assume_timezone(array.cast(pa.timestamp(dtype.unit)), dtype.tz)
    cast = array.cast(dtype)
    if pat.is_floating(dtype) and pat.is_floating(array.type):
        check_exact(array, cast)
    return cast


def _cast_list(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    shape = _with_items(dtype, array.type.value_field)
    if shape != array.type:
        array = array.cast(shape)
    buffers = array.buffers()[: 1 if pat.is_fixed_size_list(dtype) else 2]
    items = _cast(array.values, dtype.value_type)
    return pa.Array.from_buffers(
        dtype, len(array), buffers, array.null_count, array.offset, children=[items]
    )


def _with_items(dtype: pa.DataType, item: pa.Field) -> pa.DataType:
    """Return a type of lists of the same kind with other items."""
    if pat.is_fixed_size_list(dtype):
        return pa.list_(item, dtype.list_size)
    return pa.large_list(item) if pat.is_large_list(dtype) else pa.list_(item)


def _is_without_zone(dtype: pa.DataType) -> bool:
    return bool(pat.is_date(dtype) or (pat.is_timestamp(dtype) and dtype.tz is None))
