"""Fields of file version 2.0, and their columns.

Every node of a field's tree has a column, depth first:

==================================  ==============================================================
node                                column
==================================  ==============================================================
struct                              a header whose pages say `SimpleStruct` and hold nothing;
                                    structs cannot be null
list, large list                    where the items of each list end (see `lists`); its rows are
                                    lists, rows of the columns below are items
packed struct, fixed-size list,     one column with the values; nothing below has any
dictionary, blob, everything else
string, binary                      the same; early releases wrote two, see `lists`
==================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_packed
from lance_spark.encoding.meta import (
    ColumnMeta,
    FieldReader,
    PageLocation,
    StructReader,
    total_rows,
)
from lance_spark.encoding.v2_0.columns import (
    PagedColumnReader,
    Wrapped,
    check_header,
    open_blob,
    storage_type,
)
from lance_spark.encoding.v2_0.lists import ByteLists, ListReader
from lance_spark.encoding.v2_1.leaf_columns import child_fields, is_blob, storage_field
from lance_spark.errors import CorruptFileError, UnsupportedTypeError

#: Maximum number of rows, far above that of any file: products of row numbers must fit into 64
#: bits.
_MOST_ROWS = 1 << 48


def is_leaf(field: pa.Field) -> bool:
    """Return whether no field below a field (of storage type) has a column."""
    dtype = field.type
    if pat.is_struct(dtype):
        return is_packed(field) or is_blob(field)
    return not (pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_map(dtype))


def count_columns(field: pa.Field) -> int:
    """Return the number of columns of a field."""
    field = storage_field(field)
    if is_leaf(field):
        return 1
    return 1 + sum(count_columns(child) for child in child_fields(field))


def open_field(
    field: pa.Field,
    columns: Sequence[ColumnMeta],
    file: str,
    byte_columns: Mapping[int, ColumnMeta] | None = None,
) -> FieldReader:
    """Return the reader of a field.

    - `field`: Its type selects what to read: a struct may lack children that the file has, a blob
      is read as its ``struct<position: uint64, size: uint64>`` or as its bytes.
    - `columns`: The columns of `field`, depth first.
    - `file`: Name of the file, for errors.
    - `byte_columns`: The columns with the bytes of strings that are stored as lists, by the index
      of their list in `columns`; see `lists`.

    Raises CorruptFileError: the columns do not match the field, or contradict each other. Raises
    UnsupportedTypeError: File version 2.0 cannot store the type.
    """
    expected = count_columns(field)
    if len(columns) != expected:
        raise CorruptFileError(
            f"{file}: field {field.name!r} has {len(columns)} columns where its type needs "
            f"{expected}"
        )
    bytes_of = byte_columns or {}
    pairs = ((column, bytes_of.get(i)) for i, column in enumerate(columns))
    reader, _ = _open(field, "", pairs, file)
    return reader


def _open(
    field: pa.Field,
    prefix: str,
    columns: Iterator[tuple[ColumnMeta, ColumnMeta | None]],
    file: str,
    *,
    in_list: bool = False,
) -> tuple[FieldReader, int]:
    # Returns the reader and its number of rows.
    stored = storage_field(field)
    dtype = stored.type
    location = PageLocation(file, f"{prefix}.{field.name}" if prefix else field.name, 0)
    column, octets = next(columns)
    rows = total_rows(column.pages)
    if rows > _MOST_ROWS:
        raise CorruptFileError(f"{file}, column {location.column!r}: the pages claim {rows} values")
    reader: FieldReader
    if pat.is_map(dtype):
        raise UnsupportedTypeError(
            f"{file}, column {location.column!r}: file version 2.0 cannot store maps; use 2.2 or "
            "later"
        )
    if is_leaf(stored):
        plain = storage_type(dtype)
        if is_blob(stored):
            reader = open_blob(plain, column, location)
        elif octets is not None:
            reader = ByteLists(plain, column, octets, location)
        else:
            reader = PagedColumnReader(plain, column, location)
        return (reader if plain == field.type else Wrapped(reader, field.type)), rows
    is_struct = pat.is_struct(dtype)
    below_list = in_list or not is_struct
    opened = [
        _open(child, location.column, columns, file, in_list=below_list)
        for child in child_fields(stored)
    ]
    if is_struct:
        check_header(column, location)
        if in_list and opened:
            # A compaction of pylance that copies pages gives this column as many rows as the file.
            rows = opened[0][1]
        for _, child_rows in opened:
            if child_rows != rows:
                raise CorruptFileError(
                    f"{file}, column {location.column!r}: {rows} structs, "
                    f"but a child has {child_rows} values"
                )
        reader = StructReader(dtype, [child for child, _ in opened])
    else:
        ((items, num_items),) = opened
        reader = ListReader(dtype, column, items, num_items, location)
    return (reader if stored is field else Wrapped(reader, field.type)), rows
