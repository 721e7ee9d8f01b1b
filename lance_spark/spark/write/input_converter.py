"""Batches as Spark hands them over, on their way to a writer.

Spark's names are in the case that the query has them in, its timestamps have the session's zone,
and its lists may lack their offsets: a batch is brought to the columns of the table before it is
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lance_spark.errors import SchemaMismatchError
from lance_spark.file.blobs.fields import given_as
from lance_spark.file.offsets import with_offsets
from lance_spark.spark.types.convert import BatchConverter


class InputConverter:
    """Converts the batches of one task.

    Parameters
    ----------
    target : pyarrow.Schema
        Columns as a writer takes them; those that are not among `names` are left out.
    names : sequence of str
        For each column of Spark's batches, the column that it goes to.

    Raises
    ------
    SchemaMismatchError
        There is no such column.
    """

    def __init__(self, target: pa.Schema, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in target.names]
        if missing:
            raise SchemaMismatchError(
                f"there is no column {missing[0]!r} to write to, only {', '.join(target.names)}"
            )
        self._target = target
        self._names = list(names)
        self._source: pa.Schema | None = None
        self._convert: BatchConverter | None = None

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch, in one or more.

        Raises
        ------
        SchemaMismatchError
            A column cannot be converted, whatever its values.
        InvalidInputError
            A value does not fit the table's type.
        """
        if self._convert is None or self._source is None:
            self._source = pa.schema(
                field.with_name(name) for field, name in zip(batch.schema, self._names, strict=True)
            )
            wanted = set(self._names)
            target = pa.schema([item for item in self._target if item.name in wanted])
            target = given_as(target, self._source)
            self._convert = BatchConverter(self._source, target, reading=False)
        columns = [with_offsets(column) for column in batch.columns]
        yield from self._convert(pa.RecordBatch.from_arrays(columns, schema=self._source))
