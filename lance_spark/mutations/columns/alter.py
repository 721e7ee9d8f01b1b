"""Reorder, rename and cast columns, and change their nullability.

All but casts change only the schema (`Project`). A cast makes a new field: it has a new id and new
data files with the cast values (`Merge`), and the old files lose the column. A cast of a child of a
struct does not change the other children.
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
from lance_spark.file.schema.field import Field, check_name, field_parts
from lance_spark.file.schema.rules import check_fields
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import EXTENSION_NAME
from lance_spark.mutations.columns.add import renumbered
from lance_spark.mutations.columns.fill import Computation
from lance_spark.mutations.commits import at_version, change_schema, retry_on_conflict
from lance_spark.mutations.commits import check_names as check_name_list
from lance_spark.mutations.mem_wal import check_droppable, check_no_mem_wal
from lance_spark.predicates.literals import check_exact
from lance_spark.runner import Runner
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.constraints import constraints_of
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.manifest.manifest import Manifest, max_field_id
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.columns import Project
from lance_spark.table.rows.ids import check_names

_KEYS = frozenset({"path", "name", "nullable", "data_type"})
_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of a column.

    - `path`: Name of the column, or path of a child with dots.
    """

    path: str
    name: str | None = None
    nullable: bool | None = None
    data_type: pa.DataType | None = None

    @classmethod
    def parse(cls, alteration: Mapping[str, Any]) -> Alteration:
        """Parse an alteration of `Dataset.alter_columns`. Raises InvalidInputError."""
        if not isinstance(alteration, Mapping) or not {"path"} <= set(alteration) <= _KEYS:
            raise InvalidInputError(
                "an alteration must have a path, and a name, nullable or data_type, not "
                f"{alteration!r}"
            )
        parsed = cls(**alteration)
        if (parsed.name, parsed.nullable, parsed.data_type) == (None, None, None):
            raise InvalidInputError(
                f"the alteration of {parsed.path!r} changes nothing: give a name, nullable or "
                "data_type"
            )
        if parsed.name is not None:
            check_name(parsed.name, is_column=True)
        return parsed


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts columns to other types.

    - `read`: The old columns, without children that do not change. Rows can have these children
      too.
    """

    schema: pa.Schema
    read: pa.Schema

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the types of the schema.

        Raises InvalidInputError: a value does not fit the new type.
        """
        columns = []
        for array, old, new in zip(rows.columns, self.read, self.schema, strict=True):
            try:
                columns.append(_cast(_pruned(array, old.type), new.type))
            except (pa.ArrowException, ValueError, InvalidInputError) as error:
                raise InvalidInputError(f"column {new.name!r}: {error}") from None
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names)


def reorder_columns(table: OpenTable, columns: Sequence[str], options: CommitOptions) -> OpenTable:
    """Move top-level columns to the front; the order of the others does not change.

    Raises InvalidInputError: a column does not exist, or is named twice. Raises LanceError: errors
    of `change_schema`.
    """
    names = check_name_list(columns, "columns")
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(f"columns must name each column to move first once, not {names!r}")

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
    """Alter columns; see `Dataset.alter_columns`. Tasks run in this process by default."""
    parsed = [Alteration.parse(alteration) for alteration in alterations]
    if not parsed:
        raise InvalidInputError("alterations must not be empty")
    if all(alteration.data_type is None for alteration in parsed):
        return change_schema(table, lambda current: _projection(current, parsed), options)

    def change(current: OpenTable) -> Manifest:
        altered, preserves = _altered(current, parsed)
        paths = [alteration.path for alteration in parsed if alteration.data_type is not None]
        _check_casts(current, paths)
        schema, written = _with_types(current, altered, parsed)
        # Rows that another client writes with the old columns have no values in the new columns.
        cast = {current.schema.field(path).id for path in paths}
        required = any(field.id in cast and not field.nullable for field in altered.walk())
        old = current.schema.select(paths)
        return computation.commit(
            current,
            _with_struct_nulls(current, old),
            written,
            Cast(written.to_arrow(), old.to_arrow()),
            schema.to_protos(),
            preserves_nullability=preserves and not required,
            options=replace(options, checked_constraints=_kept_constraints(current, parsed)),
        )

    with Computation(runner) as computation:
        return at_version(table, retry_on_conflict(table, change, options))


def _kept_constraints(table: OpenTable, alterations: Sequence[Alteration]) -> dict[str, str]:
    """Return the conditions that hold for the cast values, because they hold for the old ones.

    Raises InvalidInputError: a condition names a column whose values would change.
    """
    kept = {}
    display = table.store.display
    for constraint in constraints_of(table.manifest.message.config, display):
        for alteration in alterations:
            nodes = table.schema.path(alteration.path)
            old, new = nodes[-1].to_arrow().type, alteration.data_type
            if new is None or not constraint.names([node.name for node in nodes]):
                continue
            if not _keeps_values(old, new):
                raise InvalidInputError(
                    f"{display}: column {alteration.path!r} cannot be changed from {old} to {new}, "
                    f"because the constraint {constraint.name} (CHECK {constraint.check}) names "
                    "it; drop the constraint first"
                )
        kept[constraint.name] = constraint.check or ""
    return kept


def _keeps_values(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether each value of a type is the same value of another type, of the same kind."""
    if pat.is_decimal(old) and pat.is_decimal(new):
        digits = old.precision - old.scale
        return bool(new.scale >= old.scale and new.precision - new.scale >= digits)
    if pat.is_integer(old) and pat.is_integer(new):
        wider = new.bit_width > old.bit_width
        return bool(wider and (pat.is_unsigned_integer(old) or pat.is_signed_integer(new)))
    if pat.is_floating(old) and pat.is_floating(new):
        return bool(new.bit_width > old.bit_width)
    texts = (pat.is_string, pat.is_large_string, pat.is_string_view)
    return any(is_text(old) for is_text in texts) and any(is_text(new) for is_text in texts)


def _projection(table: OpenTable, alterations: Sequence[Alteration]) -> Project:
    schema, preserves = _altered(table, alterations)
    return Project(tuple(schema.to_protos()), preserves_nullability=preserves)


def _altered(table: OpenTable, alterations: Sequence[Alteration]) -> tuple[Schema, bool]:
    """Return the schema with new names and nullability, and whether old rows stay valid."""
    changes: dict[int, Alteration] = {}
    preserves = True
    for alteration in alterations:
        node = table.schema.path(alteration.path)
        field = node[-1]
        if field.id in changes:
            raise InvalidInputError(f"column {alteration.path!r} is altered twice")
        changes[field.id] = alteration
        if alteration.name is not None and len(node) == 1:
            check_names([alteration.name])
        if alteration.nullable is False and field.nullable:
            preserves = False
            check_no_mem_wal(table, f"column {alteration.path!r} cannot be made not nullable")
            _check_not_in_map(table, alteration.path, node, "made not nullable")
            _check_no_nulls(table, alteration.path)
    fields = tuple(_apply(field, changes) for field in table.schema.fields)
    _check_names(fields, "the table")
    return replace(table.schema, fields=fields), preserves


def _apply(field: Field, changes: Mapping[int, Alteration]) -> Field:
    change = changes.get(field.id)
    field = replace(field, children=tuple(_apply(child, changes) for child in field.children))
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
    """Return the schema with new types, and the schema of the new data files."""
    next_id = max_field_id(table.manifest.to_proto()) + 1
    new: dict[int, Field] = {}
    for alteration in alterations:
        if alteration.data_type is None:
            continue
        old = table.schema.field(alteration.path)
        dtype = old.to_arrow().type
        if not is_castable(dtype, alteration.data_type):
            raise InvalidInputError(
                f"column {alteration.path!r} cannot be cast from {dtype} to "
                f"{alteration.data_type}, only to "
                "another size or precision of the same type, as a dictionary or without one"
            )
        target = altered.field_by_id(old.id)
        assert target is not None
        arrow = pa.field(target.name, alteration.data_type, target.nullable)
        parts = field_parts(arrow)
        fresh = Field.from_arrow(arrow, next_id)
        metadata = {**target.metadata, **parts.metadata}
        new[old.id], next_id = renumbered(
            replace(fresh, metadata=metadata), next_id, target.parent_id
        )
    fields = tuple(_replaced(field, new) for field in altered.fields)
    ids = {field.id for field in new.values()}
    written = tuple(part for part in (_only(field, ids) for field in fields) if part)
    # The transform gets the columns in the order of the alterations.
    order = [
        table.schema.path(alteration.path)[0].id
        for alteration in alterations
        if alteration.data_type is not None
    ]
    positions = {field.id: position for position, field in enumerate(altered.fields)}
    tops = list(dict.fromkeys(positions[number] for number in order))
    by_name = {field.name: field for field in written}
    schema = replace(altered, fields=fields)
    check_fields(schema.to_protos(), table.manifest.message.fields)
    return (
        schema,
        Schema(tuple(by_name[altered.fields[position].name] for position in tops)),
    )


def _replaced(field: Field, new: Mapping[int, Field]) -> Field:
    if field.id in new:
        return new[field.id]
    return replace(field, children=tuple(_replaced(child, new) for child in field.children))


def _only(field: Field, ids: set[int]) -> Field | None:
    """Return a field with only the fields `ids` below it; None if it has none of them."""
    if field.id in ids:
        return field
    children = tuple(part for part in (_only(child, ids) for child in field.children) if part)
    return replace(field, children=children) if children else None


def is_castable(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a column can be cast: to another size or precision of the same type.

    The types of dictionaries are those of their values.
    """
    old, new = _value_type(old), _value_type(new)
    for is_type in (pat.is_integer, pat.is_floating, pat.is_boolean, pat.is_decimal, _is_temporal):
        if is_type(old):
            return bool(is_type(new))
    if pat.is_string(old) or pat.is_large_string(old):
        return bool(pat.is_string(new) or pat.is_large_string(new))
    if pat.is_binary(old) or pat.is_large_binary(old):
        return bool(pat.is_binary(new) or pat.is_large_binary(new))
    if _is_list(old) and _is_list(new):
        return is_castable(old.value_type, new.value_type)
    return bool(old == new)


def _value_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pat.is_dictionary(dtype) else dtype


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_fixed_size_list(dtype))


def _is_temporal(dtype: pa.DataType) -> bool:
    return bool(pat.is_temporal(dtype))


def _check_casts(table: OpenTable, paths: Sequence[str]) -> None:
    manifest = table.manifest
    check_no_mem_wal(table, f"column {paths[0]!r} cannot be cast")
    nodes = [table.schema.path(path) for path in paths]
    if manifest.data_storage_version <= (2, 0) and any(len(node) > 1 for node in nodes):
        # Files up to version 2.0 have a column for the struct, which would be in two files then.
        raise UnsupportedFeatureError(
            f"{table.store.display}: children of structs cannot be cast in data files of version "
            "2.0; overwrite the table with data storage version 2.2"
        )
    for path, node in zip(paths, nodes, strict=True):
        _check_not_in_map(table, path, node, "cast")
        _check_not_overlaid(table, path, node)
    cast = {node[-1].id: path for path, node in zip(paths, nodes, strict=True)}
    for path, node in zip(paths, nodes, strict=True):
        parent = next((cast[field.id] for field in node[:-1] if field.id in cast), None)
        if parent is not None:
            raise InvalidInputError(
                f"columns {parent!r} and {path!r} cannot both be cast: one is inside the other"
            )
        if any(field.is_blob or EXTENSION_NAME in field.metadata for field in node[-1].walk()):
            raise InvalidInputError(f"column {path!r} has an extension type, which cannot be cast")
    ids = {field.id for node in nodes for field in node[-1].walk()}
    section = section_of(manifest)
    names = sorted({index.name for index in section.indices if not ids.isdisjoint(index.fields)})
    if names:
        raise InvalidInputError(
            f"column {', '.join(paths)} cannot be cast: the index {', '.join(names)} holds its "
            "values; drop the index first"
        )


def _check_not_in_map(table: OpenTable, path: str, node: Sequence[Field], change: str) -> None:
    if any(field.logical_type == "map" for field in node[:-1]):
        raise UnsupportedFeatureError(
            f"{table.store.display}: column {path!r} is in a map, so it cannot be {change}; add a "
            "column with other maps"
        )


def _check_not_overlaid(table: OpenTable, path: str, node: Sequence[Field]) -> None:
    """Raise an error for a field below a column that has overlays.

    A cast writes the field to another data file than the other fields of its struct. pylance then
    reads the fields in another order, and matches the values of an overlay with them by this order:
    pylance would give a field the values of another field.
    """
    if len(node) == 1:
        return
    ids = {field.id for field in node[0].walk()}
    for fragment in table.manifest.fragments:
        if any(not ids.isdisjoint(overlay.data_file.fields) for overlay in fragment.overlays):
            raise UnsupportedFeatureError(
                f"{table.store.display}: column {path!r} cannot be cast, because fragment "
                f"{fragment.id} has overlays of {node[0].name!r}; first compact the table with "
                "max_overlays_per_fragment=0"
            )


def _check_names(fields: Sequence[Field], parent: str) -> None:
    names = [field.name for field in fields]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InvalidInputError(f"{parent} would have two columns {repeated[0]!r}")
    for field in fields:
        _check_names(field.children, f"column {field.name!r}")


def _with_struct_nulls(table: OpenTable, schema: Schema) -> Schema:
    """Return a schema whose reads show which structs and lists are null, and lengths of lists.

    If a fragment has none of the requested children of a struct or list, a read of these children
    does not show this. The struct or list is read with all children then.
    """
    structs = [field for field in schema.fields if field.children]
    leaves = {number for field in structs for number in field.leaf_ids}
    held = (
        {number for file in fragment.files for number in file.fields}
        for fragment in table.manifest.fragments
    )
    if not structs or all(leaves <= ids for ids in held):
        return schema
    version = table.manifest.data_storage_version
    complete = {
        field.id: field for field in handled(table.schema, Handling.DESCRIPTIONS, version).fields
    }
    return replace(
        schema,
        fields=tuple(complete[field.id] if field in structs else field for field in schema.fields),
    )


def _check_no_nulls(table: OpenTable, path: str) -> None:
    selected = table.schema.select([path])
    schema, dtype = _with_struct_nulls(table, selected), selected.fields[0].to_arrow().type
    for fragment in counted_fragments(table.paths, table.manifest):
        reader = FragmentReader(table.paths, fragment, schema)
        try:
            for batch in reader.scan(range(fragment.physical_rows), _BATCH_ROWS):
                column = _pruned(batch.column(0), dtype)
                if _has_nulls(column, len(table.schema.path(path)) - 1):
                    raise InvalidInputError(
                        f"column {path!r} has nulls, so it cannot be made not nullable"
                    )
        finally:
            reader.close()


def _has_nulls(array: pa.Array, depth: int) -> bool:
    """Return whether a field at a depth has a null where the field above it has none."""
    for _ in range(depth):
        if pat.is_struct(array.type):
            array = array.filter(pc.is_valid(array)).field(0)
        else:
            array = array.flatten()
    return bool(array.null_count)


def _pruned(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return an array without the children of structs that are not in a type."""
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
    if pat.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pat.is_dictionary(dtype):
        return _encoded(_cast(array, dtype.value_type), dtype)
    if pat.is_struct(dtype):
        # Names can differ: Arrow would match children by name, and fill others with nulls.
        children = [
            _cast(array.field(index), dtype.field(index).type) for index in range(dtype.num_fields)
        ]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(dtype), mask=mask)
    if _is_list(dtype) and _is_list(array.type):
        return _cast_list(array, dtype)
    if pat.is_timestamp(dtype) and dtype.tz is not None and _is_without_zone(array.type):
        # As in pylance, a time without a zone is a local time of the new zone.
        return pc.assume_timezone(array.cast(pa.timestamp(dtype.unit)), dtype.tz)
    cast = array.cast(dtype)
    if pat.is_floating(dtype) and pat.is_floating(array.type):
        check_exact(array, cast)
    return cast


def _encoded(values: pa.Array, dtype: pa.DictionaryType) -> pa.Array:
    """Return values as a dictionary array of a type."""
    encoded = values.dictionary_encode()
    try:
        indices = encoded.indices.cast(dtype.index_type)
    except pa.ArrowInvalid:
        raise InvalidInputError(
            f"{len(encoded.dictionary)} distinct values are too many for indices of type "
            f"{dtype.index_type}; use a wider type"
        ) from None
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=dtype.ordered)


def _cast_list(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    shape = _with_items(dtype, array.type.value_field)
    if shape != array.type:
        array = array.cast(shape)
    buffers = array.buffers()[: 1 if pat.is_fixed_size_list(dtype) else 2]
    items = _cast(array.values, dtype.value_type)
    return pa.Array.from_buffers(
        dtype, len(array), buffers, array.null_count, array.offset, children=[items]
    )


def _with_items(dtype: pa.DataType, item_field: pa.Field) -> pa.DataType:
    """Return a list type like `dtype` with other items."""
    if pat.is_fixed_size_list(dtype):
        return pa.list_(item_field, dtype.list_size)
    return pa.large_list(item_field) if pat.is_large_list(dtype) else pa.list_(item_field)


def _is_without_zone(dtype: pa.DataType) -> bool:
    return bool(pat.is_date(dtype) or (pat.is_timestamp(dtype) and dtype.tz is None))


# --------------------------------------------------------------------------------------------------
# Drops columns, and fields below columns. Their values stay in the data files.


def drop_columns(table: OpenTable, columns: Sequence[str], options: CommitOptions) -> OpenTable:
    """Drop columns; see `Dataset.drop_columns`."""
    names = check_name_list(columns, "columns")

    def plan(current: OpenTable) -> Project:
        dropped = [current.schema.field(name) for name in names]
        check_droppable(current, {node.id for field in dropped for node in field.walk()})
        ids = {field.id for field in dropped}
        pruned = (_without(field, ids) for field in current.schema.fields)
        remaining = tuple(field for field in pruned if field)
        if not remaining:
            raise InvalidInputError("cannot drop all columns: a table must have at least one")
        _check_witnesses(current, remaining)
        schema = replace(current.schema, fields=remaining)
        return Project(tuple(schema.to_protos()), preserves_nullability=True)

    return change_schema(table, plan, options)


def _check_witnesses(table: OpenTable, remaining: Sequence[Field]) -> None:
    """Raise an error if a struct or list stays, but not what says where it is null.

    From version 2.1 on, data files hold leaves alone. A fragment without any leaf below a struct
    would have nulls in place of its structs.
    """
    if table.manifest.data_storage_version <= (2, 0):
        return
    before = {node.id: node.leaf_ids for field in table.schema.fields for node in field.walk()}
    remaining_leaves = ((node, node.leaf_ids) for field in remaining for node in field.walk())
    shrunk = [
        (node, before[node.id], leaves)
        for node, leaves in remaining_leaves
        if leaves != before[node.id]
    ]
    if not shrunk:
        return
    for fragment in table.manifest.fragments:
        held = {number for file in fragment.files for number in file.fields}
        for node, old, new in shrunk:
            if held & old and not held & new:
                raise UnsupportedFeatureError(
                    f"{table.store.display}: fragment {fragment.id} has no values of the fields "
                    f"that would remain of {node.name!r}, so that nothing would say where it is "
                    "null; write values of one of them first (Dataset.update with mode='columns')"
                )


def _without(field: Field, dropped: set[int]) -> Field | None:
    """Return a field without the fields `dropped` below it; None if nothing remains."""
    if field.id in dropped:
        return None
    pruned = (_without(child, dropped) for child in field.children)
    children = tuple(child for child in pruned if child)
    if field.children and not children:
        return None
    if len(children) < len(field.children) and field.logical_type != "struct":
        # A list cannot exist without its items, nor a map without its keys.
        return None
    return replace(field, children=children)
