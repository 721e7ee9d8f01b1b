"""Extension types of Arrow, such as UUIDs, JSON and tensors, for the rows that a `Dataset` returns.

Files have the stored type of a column, and the metadata of its field names the extension type. This
package works with stored types. A column that leaves it has the extension type, if Arrow knows one
of this name: pyarrow's own types, and those that other packages have registered, such as
`lance.bfloat16` of pylance. Otherwise the column keeps its stored type and the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lance_spark.file.schema.logical_types import EXTENSION_NAME

_NAME = EXTENSION_NAME.encode()


def extended_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with extension types in place of the stored types that name them."""
    if not _names_any(schema):
        return schema
    # Arrow makes extension types from metadata where data comes in by its C interface.
    return pa.Schema._import_from_c_capsule(schema.__arrow_c_schema__())


def extended_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield record batches of one schema with extension types. No values are copied."""
    names_any: bool | None = None
    for batch in batches:
        if names_any is None:
            names_any = _names_any(batch.schema)
        if names_any:
            yield pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())
        else:
            yield batch


def extended_table(table: pa.Table) -> pa.Table:
    """Return a table with extension types. No values are copied."""
    if not _names_any(table.schema):
        return table
    return pa.RecordBatchReader._import_from_c_capsule(table.__arrow_c_stream__()).read_all()


def _names_any(fields: Iterable[pa.Field]) -> bool:
    for field in fields:
        if field.metadata is not None and _NAME in field.metadata:
            return True
        dtype = field.type
        if dtype.num_fields and _names_any(dtype.field(n) for n in range(dtype.num_fields)):
            return True
    return False
