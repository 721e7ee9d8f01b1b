"""Which file of a fragment holds which field, and how a field that is spread over files becomes one array.

A fragment may have several data files, each with some of the fields. From version 2.1 on a file names leaf fields only, so
that a struct can have one child in one file and one in another: each file is read for the part it holds, and the
structs are zipped. A field that no file names has been added after the fragment was written: it is null there. A field
id of -2 in a file marks a column that another file replaced, and matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lance_spark.file.schema.schema import Field
from lance_spark.scan.row_size import nulls
from lance_spark.table.fragments.fragment import Fragment


@dataclass(frozen=True, slots=True)
class FieldPart:
    """The part of a top-level field that one file holds.

    Attributes
    ----------
    file : int
        Number of the data file within the fragment.
    field : Field
        The field, pruned to the children in that file.
    """

    file: int
    field: Field


def files_of(fragment: Fragment) -> dict[int, int]:
    """Return by the id of each field that some data file names the file's number; the last one has it."""
    return {
        field_id: number
        for number, file in enumerate(fragment.files)
        for field_id in file.fields
        if field_id >= 0
    }


def locate(field: Field, file_of: Mapping[int, int]) -> list[FieldPart]:
    """Find the files that hold a top-level field.

    Parameters
    ----------
    field : Field
        The field as the reader wants it.
    file_of : mapping of int to int
        Data file number for each field id that some file names.

    Returns
    -------
    list of FieldPart
        In file order; empty if no file holds any of it. Of a struct none of whose wanted children is there, a part can
        have another child, which tells where the struct is null.
    """
    field = _with_witness(field, file_of)
    files = sorted({file_of[f.id] for f in _leaves(field) if f.id in file_of})
    if not files and field.id in file_of:
        files = [file_of[field.id]]
    parts = []
    for file in files:
        pruned = _prune(field, file, file_of)
        if pruned is not None:
            parts.append(FieldPart(file, pruned))
    return parts


def assemble(
    field: Field, parts: Sequence[FieldPart], arrays: Sequence[pa.Array], num_rows: int
) -> pa.Array:
    """Build the array of a top-level field from what its files gave.

    Parameters
    ----------
    field : Field
        The field as the reader wants it.
    parts, arrays : sequences of one length
        What `locate` found, and the array read for each; every array has `num_rows` values.
    num_rows : int

    Raises
    ------
    UnsupportedTypeError
        No file holds the field, and its nulls are too wide.
    """
    if not parts:
        return nulls(num_rows, field.to_arrow())
    if len(parts) == 1 and (parts[0].field is field or parts[0].field == field):
        return arrays[0]
    return _merge(field, [(part.field, array) for part, array in zip(parts, arrays, strict=True)])


def _with_witness(field: Field, file_of: Mapping[int, int]) -> Field:
    """Return a struct with a child that files have, if they have none of those that are wanted; so are those inside of it."""
    if field.logical_type != "struct" or field.is_packed or field.is_blob:
        return field
    children = tuple(_with_witness(child, file_of) for child in field.children)
    if any(new is not old for new, old in zip(children, field.children, strict=True)):
        return replace(field, children=children)
    if field.unread and not any(one.id in file_of for one in _leaves(field)):
        for child in sorted(field.unread, key=lambda one: len(one.children)):
            witness = _one_leaf(child, file_of)
            if witness is not None:
                return replace(field, children=(*field.children, witness))
    return field


def _one_leaf(field: Field, file_of: Mapping[int, int]) -> Field | None:
    if field.is_blob:
        return None
    if field.logical_type != "struct" or field.is_packed:
        return field if all(one.id in file_of for one in _leaves(field)) else None
    found = (_one_leaf(child, file_of) for child in field.children)
    leaf = next((one for one in found if one is not None), None)
    return None if leaf is None else replace(field, children=(leaf,))


def _leaves(field: Field) -> list[Field]:
    if not field.children or field.is_blob:
        return [field]
    return [leaf for child in field.children for leaf in _leaves(child)]


def _prune(field: Field, file: int, file_of: Mapping[int, int]) -> Field | None:
    if not field.children:
        return field if file_of.get(field.id) == file else None
    kept = tuple(c for c in (_prune(c, file, file_of) for c in field.children) if c is not None)
    if kept:
        return field if kept == field.children else replace(field, children=kept)
    # A packed struct or a blob is one column: its children have no entries of their own.
    return field if file_of.get(field.id) == file else None


def _merge(field: Field, sources: Sequence[tuple[Field, pa.Array]]) -> pa.Array:
    first, array = sources[0]
    if len(sources) == 1 and first == field:
        return array
    wanted = field.to_arrow().type
    if pa.types.is_struct(wanted):
        children = [_merge_child(child, sources, len(array)) for child in field.children]
        mask = _null_in_all([one for _, one in sources])
        fields = [wanted.field(i) for i in range(wanted.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    # Lists: every source has the same lengths, so that only the items differ.
    child = field.children[0]
    items = [(f.children[0], _items(a)) for f, a in sources]
    merged = _merge(child, items)
    offsets, mask = _offsets(array)
    if pa.types.is_map(wanted):
        keys, values = merged.flatten()
        return pa.MapArray.from_arrays(offsets, keys, values, type=wanted, mask=mask)
    if pa.types.is_fixed_size_list(wanted):
        return pa.FixedSizeListArray.from_arrays(merged, type=wanted, mask=mask)
    kind = pa.LargeListArray if pa.types.is_large_list(wanted) else pa.ListArray
    return kind.from_arrays(offsets, merged, type=wanted, mask=mask)


def _merge_child(
    child: Field, sources: Sequence[tuple[Field, pa.Array]], num_rows: int
) -> pa.Array:
    found = []
    for field, array in sources:
        for position, candidate in enumerate(field.children):
            if candidate.id == child.id:
                found.append((candidate, array.field(position)))
    if not found:
        return nulls(num_rows, child.to_arrow())
    return _merge(child, found)


def _null_in_all(arrays: Sequence[pa.Array]) -> pa.Array | None:
    """Return which structs are null in every file: one that was written for new children alone may know of no others."""
    if not all(one.null_count for one in arrays):
        return None
    # Scans mostly do without the kernels.
    import pyarrow.compute as pc

    mask = arrays[0].is_null()
    for one in arrays[1:]:
        mask = pc.and_(mask, one.is_null())
    return mask


def _items(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.FixedSizeListArray):
        return array.values.slice(
            array.offset * array.type.list_size, len(array) * array.type.list_size
        )
    start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return array.values.slice(start, stop - start)


def _offsets(array: pa.Array) -> tuple[pa.Array | None, pa.Array | None]:
    mask = array.is_null() if array.null_count else None
    if isinstance(array, pa.FixedSizeListArray):
        return None, mask
    offsets = array.offsets
    first = offsets[0]
    if first.as_py():
        import pyarrow.compute as pc

        offsets = pc.subtract(offsets, first)
    return offsets, mask
