"""Extension types of Arrow, such as UUIDs, JSON and tensors, for the rows that a `Dataset` returns.

Files have the stored type of a column, and the metadata of its field names the extension type. This
package works with stored types. A column that leaves it has the extension type, if Arrow knows one
of this name: pyarrow's own types, and those that other packages have registered, such as
`lance.bfloat16` of pylance. Otherwise the column keeps its stored type and the metadata; also if
its stored type is not one of the extension type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.schema.logical_types import EXTENSION_NAME

_NAME = EXTENSION_NAME.encode()


def extended_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with extension types in place of the stored types that name them."""
    if not _names_any(schema):
        return schema
    return pa.schema([_extended_field(field) for field in schema], schema.metadata)


def extended_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield record batches of one schema with extension types. No values are copied."""
    extended: pa.Schema | None = None
    for batch in batches:
        # All batches have the schema of the first one.
        if extended is None:
            extended = extended_schema(batch.schema)
        yield batch if extended == batch.schema else _extended_batch(batch, extended)


def extended_table(table: pa.Table) -> pa.Table:
    """Return a table with extension types. No values are copied."""
    schema = extended_schema(table.schema)
    if schema == table.schema:
        return table
    columns = [
        column if new.type == old.type else _extended_column(column, old)
        for column, old, new in zip(table.columns, table.schema, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _extended_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if new.type == old.type else _extended_array(column, old)
        for column, old, new in zip(batch.columns, batch.schema, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# Arrow makes extension types from metadata where data comes in by its C interface. It refuses all
# columns if the stored type of one of them is not a stored type of the extension type.


def _extended_field(field: pa.Field) -> pa.Field:
    if not _names_any([field]):
        return field
    try:
        return _imported(field)
    except Exception:
        # A type that another package has registered may raise any error.
        return field


def _imported(field: pa.Field) -> pa.Field:
    schema = pa.schema([field])
    return pa.Schema._import_from_c_capsule(schema.__arrow_c_schema__()).field(0)


def check_storage(field: pa.Field) -> None:
    """Raise an error for a field whose metadata names another extension type than its values have.

    Only extension types of Arrow itself are checked. Clients that read by Arrow's C interface could
    not read any column. Raises UnsupportedTypeError.
    """
    name = (field.metadata or {}).get(_NAME, b"").decode(errors="replace")
    if not name.startswith("arrow.") or isinstance(field.type, pa.BaseExtensionType):
        return
    try:
        _imported(field)
    except pa.ArrowException as error:
        raise UnsupportedTypeError(
            f"field {field.name!r}: its metadata names the extension type {name}, which its values "
            f"of type {field.type} do not have ({error}); remove the metadata, or cast the values"
        ) from error


def _extended_array(array: pa.Array, field: pa.Field) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))
    return pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__()).column(0)


def _extended_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    stream = pa.Table.from_arrays([column], schema=pa.schema([field])).__arrow_c_stream__()
    return pa.RecordBatchReader._import_from_c_capsule(stream).read_all().column(0)


def _names_any(fields: Iterable[pa.Field]) -> bool:
    for field in fields:
        if field.metadata is not None and _NAME in field.metadata:
            return True
        dtype = field.type
        if dtype.num_fields and _names_any(dtype.field(n) for n in range(dtype.num_fields)):
            return True
    return False
