"""The map from fields to data files of a fragment, and the assembly of a field from several files.

A fragment may have several data files, each with some of the fields. From version 2.1 on a file
names leaf fields only, so that a struct can have one child in one file and one in another: each
file is read for the part it holds, and the structs are merged. A field that no file names was added
after the fragment was written: it is null there. A field id of -2 in a file marks a column that
another file replaced, and matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lance_spark.encoding.nulls import nulls
from lance_spark.errors import CorruptTableError
from lance_spark.file.schema.field import Field
from lance_spark.table.fragments.fragment import Fragment


@dataclass(frozen=True, slots=True)
class FieldPart:
    """The part of a top-level field that one file holds.

    - `file`: Number of the data file within the fragment; negative for other sources of values.
    - `field`: The field, pruned to the children in that file.
    """

    file: int
    field: Field


class FilesOfFields(dict[int, int]):
    """The number of the data file that holds each field, by field id.

    - `repeated`: What is wrong with fields that several files name, by field id. Files before
      version 2.1 may all name a struct whose children they share.
    """

    __slots__ = ("repeated",)

    def __init__(self) -> None:
        self.repeated: dict[int, str] = {}


def files_of(fragment: Fragment) -> FilesOfFields:
    """Return the data file of each field. If several files name a struct, it is the last one."""
    file_of = FilesOfFields()
    for number, file in enumerate(fragment.files):
        known = [field_id for field_id in file.fields if field_id >= 0]
        if not number:
            file_of.update(dict.fromkeys(known, 0))
            continue
        for field_id in known:
            if file_of.setdefault(field_id, number) != number:
                names = f"{fragment.files[file_of[field_id]].path} and {file.path}"
                file_of.repeated[field_id] = (
                    f"{fragment.name}: field id {field_id} is in two data files, {names}"
                )
                file_of[field_id] = number
    return file_of


def locate(field: Field, file_of: FilesOfFields) -> list[FieldPart]:
    """Find the files that hold a top-level field.

    - `field`: The field as the reader wants it.
    - `file_of`: Data file number for each field id that some file names.

    In file order; empty if no file holds any of it. If no file holds a wanted child of a
    struct, a part may have another child instead, which shows where the struct is null. Raises
    CorruptTableError: two files hold a leaf of the field: nothing says which values are right.
    """
    for leaf in _leaves(field) if file_of.repeated else ():
        if leaf.id in file_of.repeated:
            raise CorruptTableError(file_of.repeated[leaf.id])
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
    """Build the array of a top-level field from the arrays of its parts.

    - `field`: The field as the reader wants it.
    - `parts`, `arrays`: The result of `locate`, and the array read for each part; every array has
      `num_rows` values.

    Raises UnsupportedTypeError: no file holds the field, and its nulls are too wide.
    """
    if not parts:
        return nulls(num_rows, field.to_arrow())
    if len(parts) == 1 and (parts[0].field is field or parts[0].field == field):
        return arrays[0]
    return _merge(field, [(part.field, array) for part, array in zip(parts, arrays, strict=True)])


def _with_witness(field: Field, file_of: Mapping[int, int]) -> Field:
    """Add a stored child to each struct, nested or not, whose wanted children no file holds."""
    if field.logical_type != "struct" or field.is_packed or field.is_blob:
        return field
    children = tuple(_with_witness(child, file_of) for child in field.children)
    if any(new is not old for new, old in zip(children, field.children, strict=True)):
        return replace(field, children=children)
    if field.unread and not any(leaf.id in file_of for leaf in _leaves(field)):
        for child in sorted(field.unread, key=lambda child: len(child.children)):
            witness = _first_stored(child, file_of)
            if witness is not None:
                return replace(field, children=(*field.children, witness))
    return field


def _first_stored(field: Field, file_of: Mapping[int, int]) -> Field | None:
    """Return the field, pruned to its first child that files hold whole; None if they hold none."""
    if field.is_blob:
        return None
    if field.logical_type != "struct" or field.is_packed:
        return field if all(leaf.id in file_of for leaf in _leaves(field)) else None
    stored = (_first_stored(child, file_of) for child in field.children)
    first = next((child for child in stored if child is not None), None)
    return None if first is None else replace(field, children=(first,))


def _leaves(field: Field) -> list[Field]:
    if field.is_leaf:
        return [field]
    return [leaf for child in field.children for leaf in _leaves(child)]


def _prune(field: Field, file: int, file_of: Mapping[int, int]) -> Field | None:
    if not field.children:
        return field if file_of.get(field.id) == file else None
    children = tuple(c for c in (_prune(c, file, file_of) for c in field.children) if c is not None)
    if children:
        return field if children == field.children else replace(field, children=children)
    # A packed struct or a blob is one column: its children have no entries of their own.
    return field if file_of.get(field.id) == file else None


def _merge(field: Field, sources: Sequence[tuple[Field, pa.Array]]) -> pa.Array:
    first, array = sources[0]
    if len(sources) == 1 and first == field:
        return array
    dtype = field.to_arrow().type
    if pa.types.is_struct(dtype):
        children = [_merge_child(child, sources, len(array)) for child in field.children]
        mask = _null_in_all([source for _, source in sources])
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    # Every source of a list has the same lengths; only the items differ.
    child = field.children[0]
    items = [(f.children[0], _items(a)) for f, a in sources]
    merged = _merge(child, items)
    offsets, mask = _offsets(array)
    if pa.types.is_map(dtype):
        keys, values = merged.flatten()
        return pa.MapArray.from_arrays(offsets, keys, values, type=dtype, mask=mask)
    if pa.types.is_fixed_size_list(dtype):
        return pa.FixedSizeListArray.from_arrays(merged, type=dtype, mask=mask)
    array_class = pa.LargeListArray if pa.types.is_large_list(dtype) else pa.ListArray
    return array_class.from_arrays(offsets, merged, type=dtype, mask=mask)


def _merge_child(
    child: Field, sources: Sequence[tuple[Field, pa.Array]], num_rows: int
) -> pa.Array:
    parts = [
        (candidate, array.field(position))
        for field, array in sources
        for position, candidate in enumerate(field.children)
        if candidate.id == child.id
    ]
    return _merge(child, parts) if parts else nulls(num_rows, child.to_arrow())


def _null_in_all(arrays: Sequence[pa.Array]) -> pa.Array | None:
    """Return which structs are null in every file.

    A file that was written for new children alone may have nulls where the struct is not null.
    """
    if not all(array.null_count for array in arrays):
        return None
    # Most scans do without the kernels, and are spared the import.
    import pyarrow.compute as pc

    mask = arrays[0].is_null()
    for array in arrays[1:]:
        mask = pc.and_(mask, array.is_null())
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
