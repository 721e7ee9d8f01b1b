"""The estimated size in Spark of the rows of a scan, from the manifest alone.

The driver reads what it takes to be small. The estimate is therefore rather too large than too
small:

| column | bytes of a value |
| --- | --- |
| numbers, dates, decimals, booleans | the size in Spark |
| vectors | the number of elements times the size of one |
| strings, bytes, lists, maps | 8, or thrice their bytes in the data files if that is more: each |
| | such column counts for an equal share of the bytes of a row |
| blobs | unknown: they are stored in other files |

Each row takes 8 bytes more.

Spark's optimizer broadcasts tables that it takes to be small, and knows Parquet tables by the bytes
of their files, which are compressed. A table in Lance must not be shuffled where the same table in
Parquet is broadcast. So the scan reports the share of the files' bytes that its columns have by
their default sizes in Spark, as scans of files do, if that is less than this estimate. It reports
at least a third of the estimate: what compresses well can be too large for a broadcast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql.types import StructType

from lance_spark.file.blobs.fields import has_bytes
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import EXTENSION_NAME
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment.column_reader import INFLATION
from lance_spark.spark.pushdown.request import SortOrder
from lance_spark.spark.read.projection import Finder, find
from lance_spark.spark.types.mapping import spark_type_of
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.sort_order import SortedColumn, order_of

# --------------------------------------------------------------------------------------------------
# The order of a sorted table, as a scan reports it to Spark.
#
# Spark then does not sort the rows of a task again. What is recorded
# (`lance_spark.table.sort_order`) is reported only for columns that the scan returns, in the type
# by whose order the rows were sorted: a user's schema may read a column as another type.

#: Types whose values Spark orders by the values alone, and reads in one way.
_ORDERED = {
    "bigint",
    "binary",
    "boolean",
    "date",
    "double",
    "float",
    "int",
    "smallint",
    "string",
    "timestamp",
    "timestamp_ntz",
    "tinyint",
}


def sorted_columns(fields: Sequence[Field], names: Iterable[str]) -> tuple[SortedColumn, ...]:
    """Return the columns to record after a sort in ascending order, nulls first.

    - `fields`: Top-level columns of the table.
    - `names`: Names of the sort keys, as Spark finds them.

    Returns the first keys, up to one whose type is not reported.
    """
    columns: list[SortedColumn] = []
    for name in names:
        index = find([field.name for field in fields], name)
        dtype = type_name(fields[index]) if index >= 0 else None
        if dtype is None:
            break
        columns.append(SortedColumn(fields[index].id, dtype))
    return tuple(columns)


def reported_order(
    manifest: table_pb2.Manifest, fields: Sequence[Field], wanted: StructType
) -> tuple[SortOrder, ...]:
    """Return the order of the rows of a version, by columns of a scan.

    - `fields`: Top-level columns of the table.
    - `wanted`: Columns of the scan, some of which may be columns of every table.

    Empty if the version is not known to be sorted.
    """
    columns = order_of(manifest)
    if not columns:
        return ()
    lower = [field.name.lower() for field in wanted]
    if len(set(lower)) < len(lower):
        # Spark would not know which column is meant.
        return ()
    by_id = {field.id: field for field in fields}
    found = Finder([field.name for field in fields])
    # Columns are found in the table by the names of the scan, which may differ in case.
    scanned = {found(field.name): field for field in wanted}
    order = []
    for column in columns:
        field = by_id.get(column.field)
        if field is None or type_name(field) != column.type:
            break
        read = scanned.get(found(field.name))
        if read is None or read.dataType.simpleString() != column.type:
            break
        order.append(SortOrder((read.name,), column.descending, column.nulls_first))
    return tuple(order)


def type_name(field: Field) -> str | None:
    """Return Spark's name of the type of a column; None if its order is not reported."""
    arrow = field.to_arrow()
    if field.children or field.is_blob or EXTENSION_NAME.encode() in (arrow.metadata or {}):
        return None
    name = spark_type_of(arrow).simpleString()
    return name if name in _ORDERED or name.startswith("decimal(") else None


# --------------------------------------------------------------------------------------------------
# The estimated size in Spark of the rows of a scan, from the manifest alone.

_ROW_OVERHEAD = 8
_VARIABLE_WIDTH = 8.0
#: Spark's default size of a string.
_DEFAULT_WIDTH = 20.0
#: How many times smaller than the estimate the reported size can be.
_MOST_COMPRESSED = 3
#: Fragments whose file sizes are added up, spread evenly over all fragments.
_SAMPLE = 1_000


def estimated_size(
    fragments: Sequence[Fragment],
    rows: int,
    read: Schema,
    table: Schema,
    *,
    in_one_column: bool = False,
) -> int | None:
    """Return the bytes that rows take in Spark; None if a size is unknown.

    - `fragments`: All fragments of the table.
    - `rows`: Number of rows that the scan returns.
    - `read`: Columns that the scan returns.
    - `in_one_column`: Whether one of these columns may have all bytes of a row.
    """
    if any(node.is_blob and has_bytes(node) for field in read.fields for node in field.walk()):
        return None
    widths = [_width(field.to_arrow().type) for field in read.fields]
    fixed = _ROW_OVERHEAD + sum(width for width, is_fixed in widths if is_fixed)
    varying = [width for width, is_fixed in widths if not is_fixed]
    if not varying:
        return int(rows * fixed)
    stored = _stored_row_bytes(fragments, table.fields)
    if stored is None:
        return None
    if not in_one_column:
        every = sum(not _width(field.to_arrow().type)[1] for field in table.fields)
        stored *= len(varying) / max(every, len(varying))
    return int(rows * (fixed + max(sum(varying), INFLATION * stored)))


def reported_size(
    size: int, fragments: Sequence[Fragment], rows: int, read: Schema, table: Schema
) -> int:
    """Return the bytes of rows that a scan reports to Spark.

    - `size`: Their estimated bytes in Spark.
    - `fragments`, `rows`, `read`, `table`: As of `estimated_size`.
    """
    stored = _file_bytes(fragments)
    if stored is None:
        return size
    share = _default_row_bytes(read) / _default_row_bytes(table)
    return min(size, max(int(rows * stored * share), size // _MOST_COMPRESSED))


def _default_row_bytes(schema: Schema) -> float:
    widths = [_width(field.to_arrow().type) for field in schema.fields]
    return _ROW_OVERHEAD + sum(width if fixed else _DEFAULT_WIDTH for width, fixed in widths)


def _width(dtype: pa.DataType) -> tuple[float, bool]:
    """Return the bytes of a value, and whether all values have that width."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _width(dtype.storage_type)
    if pat.is_struct(dtype):
        children = [_width(dtype.field(i).type) for i in range(dtype.num_fields)]
        return sum(width for width, _ in children), all(fixed for _, fixed in children)
    if pat.is_fixed_size_list(dtype):
        width, fixed = _width(dtype.value_type)
        return width * dtype.list_size, fixed
    if pat.is_decimal(dtype):
        return (8.0 if dtype.precision <= 18 else 16.0), True
    if pat.is_fixed_size_binary(dtype):
        return float(dtype.byte_width), True
    if pat.is_dictionary(dtype):
        return _width(dtype.value_type)
    if pat.is_null(dtype):
        return 0.0, True
    if pat.is_nested(dtype):
        return _VARIABLE_WIDTH, False
    try:
        width = max(1.0, dtype.bit_width / 8)
    except ValueError:
        return _VARIABLE_WIDTH, False
    # Spark reads unsigned integers, half floats and short times of day as types twice as wide.
    narrow = pat.is_unsigned_integer(dtype) or pat.is_float16(dtype) or pat.is_time32(dtype)
    return min(8.0, width * 2) if narrow else width, True


def _stored_row_bytes(fragments: Sequence[Fragment], fields: Sequence[Field]) -> float | None:
    """Return the bytes of a row in the data files, without vectors; None if a size is unknown."""
    stored = _file_bytes(fragments)
    if stored is None:
        return None
    vectors = sum(_vector_bytes(field) for field in fields)
    # Compressed or null vectors take less than their width: the share of the others is unknown.
    return stored - vectors if stored > vectors else stored


def _file_bytes(fragments: Sequence[Fragment]) -> float | None:
    """Return the bytes of a row in the data files; None if a size is unknown."""
    sample = fragments[:: max(1, len(fragments) // _SAMPLE)]
    files = [file for fragment in sample for file in fragment.files]
    rows = sum(fragment.physical_rows for fragment in sample)
    if any(file.file_size_bytes <= 0 for file in files) or not rows:
        return None
    return sum(file.file_size_bytes for file in files) / rows


def _vector_bytes(field: Field) -> float:
    dtype = field.to_arrow().type
    if not (pat.is_fixed_size_list(dtype) and pat.is_floating(dtype.value_type)):
        return 0.0
    return float(dtype.list_size * dtype.value_type.bit_width // 8)
