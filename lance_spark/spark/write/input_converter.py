"""Converts the batches of Spark for a writer of the table.

Names in Spark have the case of the query, timestamps have the zone of the session, and lists may
lack their offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lance_spark.errors import SchemaMismatchError
from lance_spark.file.blobs.fields import with_blobs_as_in
from lance_spark.file.offsets import with_offsets
from lance_spark.spark.types.convert import BatchConverter


class InputConverter:
    """Converts the batches of one task.

    Parameters
    ----------
    target : pyarrow.Schema
        Columns of the writer; columns that are not in `names` are left out.
    names : sequence of str
        Target column of each column of the batches.

    Raises
    ------
    SchemaMismatchError
        A target column does not exist.
    """

    def __init__(self, target: pa.Schema, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in target.names]
        if missing:
            raise SchemaMismatchError(
                f"column {missing[0]!r} not found in the target, which has "
                f"{', '.join(target.names)}"
            )
        self._target = target
        self._names = list(names)
        self._source: pa.Schema | None = None
        self._convert: BatchConverter | None = None

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch, as one or more batches.

        Raises
        ------
        SchemaMismatchError
            The type of a column cannot be converted.
        InvalidInputError
            A value does not fit the type of the table.
        """
        if self._convert is None or self._source is None:
            self._source = pa.schema(
                field.with_name(name) for field, name in zip(batch.schema, self._names, strict=True)
            )
            wanted = set(self._names)
            target = pa.schema([item for item in self._target if item.name in wanted])
            target = with_blobs_as_in(target, self._source)
            self._convert = BatchConverter(self._source, target, reading=False)
        columns = [with_offsets(column) for column in batch.columns]
        yield from self._convert(pa.RecordBatch.from_arrays(columns, schema=self._source))
