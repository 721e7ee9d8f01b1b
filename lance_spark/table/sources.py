"""The rows of a write, in any of the forms that users have them in.

| form | rows |
| --- | --- |
| Table, RecordBatch, RecordBatchReader | its batches |
| iterable of RecordBatch | the batches; the first, or the argument `schema`, has the schema |
| Dataset, also of pyarrow; Scanner of pyarrow | a scan of all rows |
| object with `__arrow_c_stream__`: DataFrame of polars, relation of DuckDB | the stream |
| DataFrame of pandas | columns, and the index if it is not a plain range |
| Dataset and IterableDataset of Hugging Face | the rows that it selects, in its order |
| mapping of names to values; list of mappings | columns; rows |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.arrays import holds_matrices, without_sliced_matrices

Rows = tuple[pa.Schema, Iterable[pa.RecordBatch]]

#: Rows at a time of a dataset of Hugging Face: as many as it gives by default.
_ROWS = 1000


def rows_of(data: Any, schema: pa.Schema | None = None) -> Rows:
    """Return the schema and the batches of some rows.

    - `data`: See the docstring of the module.
    - `schema`: The schema of the batches of an iterable, or of the values of pandas and of
      mappings. Data with a schema must have this one.

    Raises InvalidInputError: the data has another form or another schema, or the schema is not
    known.
    """
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidInputError(f"schema must be a pyarrow schema, not {type(schema).__name__}")
    converted = _converted(data, schema)
    if schema is not None and not converted[0].equals(schema):
        raise InvalidInputError(
            f"schema must be equal to the schema of the data, which is not cast: {converted[0]}"
        )
    own, batches = converted
    if any(holds_matrices(field.type) for field in own):
        # Rows are chosen from these batches, for example by merges.
        batches = map(without_sliced_matrices, batches)
    return own, batches


def table_of(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Return rows as a table; see `rows_of`."""
    data_schema, batches = rows_of(data, schema)
    return pa.Table.from_batches(batches, data_schema)


def _converted(data: Any, schema: pa.Schema | None) -> Rows:
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data
    if _is_of("datasets", data) and hasattr(data, "with_format"):
        return _of_hugging_face(data)
    if _is_of("pandas", data) and hasattr(data, "columns"):
        return _converted(_built(pa.Table.from_pandas, data, schema), None)
    if hasattr(data, "to_batches"):
        own = getattr(data, "projected_schema", None) or getattr(data, "schema", None)
        if isinstance(own, pa.Schema):
            return own, data.to_batches()
    if hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except pa.ArrowException as error:
            # For example, integers of 128 bits of polars.
            raise InvalidInputError(f"data cannot be converted to Arrow: {error}") from None
        return reader.schema, reader
    if isinstance(data, Mapping):
        return _converted(_built(pa.RecordBatch.from_pydict, dict(data), schema), None)
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        return _converted(_built(pa.RecordBatch.from_pylist, data, schema), None)
    batches = _iterator(data)
    if schema is not None:
        return schema, _checked(batches, schema)
    first = next(batches, None)
    if first is None:
        raise InvalidInputError("data has no batches, so its schema is unknown: pass `schema`")
    if not isinstance(first, pa.RecordBatch):
        raise _not_a_batch(first)
    return first.schema, chain(iter([first]), _checked(batches, first.schema))


def _iterator(data: Any) -> Iterator[Any]:
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        # That of Ray has the method, and no items.
        with suppress(TypeError):
            return iter(data)
    raise InvalidInputError(
        "data must be a Table, a RecordBatch, a RecordBatchReader, an iterable of RecordBatch, "
        f"a DataFrame or other Arrow data, not {type(data).__module__}.{type(data).__qualname__}"
    )


def _is_of(package: str, data: Any) -> bool:
    # Not imported: an object of the package exists only if the package is loaded.
    return type(data).__module__.partition(".")[0] == package


def _of_hugging_face(data: Any) -> Rows:
    # Its table has all rows, also those that a filter has left out.
    tables = iter(data.with_format("arrow").iter(_ROWS))
    if data.features is not None:
        schema = data.features.arrow_schema
    else:
        first = next(tables, None)
        if first is None:
            raise InvalidInputError("data has no rows, so its schema is unknown: set its features")
        schema, tables = first.schema, chain(iter([first]), tables)
    return schema, (batch for table in tables for batch in table.cast(schema).to_batches())


def _built(make: Any, values: Any, schema: pa.Schema | None) -> Any:
    try:
        return make(values, schema=schema)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"data cannot be converted to Arrow: {error}") from None


def _not_a_batch(item: object) -> InvalidInputError:
    return InvalidInputError(f"data must yield RecordBatch, not {type(item).__name__}")


def _checked(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise _not_a_batch(batch)
        if not batch.schema.equals(schema):
            raise InvalidInputError(
                f"all batches of data must have the same schema: first {schema}, then "
                f"{batch.schema}"
            )
        yield batch
