"""The order of a sorted table, as a scan reports it to Spark.

Spark then does not sort the rows of a task again. What is recorded (`lance_spark.table.sort_order`)
is reported only for columns that the scan returns, in the type by whose order the rows were sorted:
a user's schema may read a column as another type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql.types import StructType

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.logical_types import EXTENSION_NAME
from lance_spark.proto import table_pb2
from lance_spark.spark.pushdown.request import SortOrder
from lance_spark.spark.read.projection import find
from lance_spark.spark.types.mapping import spark_type_of
from lance_spark.table.sort_order import SortedColumn, order_of

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
    names = [field.name for field in fields]
    # Columns are found in the table by the names of the scan, which may differ in case.
    scanned = {find(names, field.name): field for field in wanted}
    order = []
    for column in columns:
        field = by_id.get(column.field)
        if field is None or type_name(field) != column.type:
            break
        read = scanned.get(find(names, field.name))
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
