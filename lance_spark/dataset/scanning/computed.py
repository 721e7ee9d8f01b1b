"""Columns of a scan that are expressions of the table's columns.

The language of the expressions is that of filters: Spark's SQL, and functions of pylance. The name
of a column alone is the column itself, of any type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.predicates.tree import Column

if TYPE_CHECKING:
    from lance_spark.scan.predicates.expressions.node import Expression


@dataclass(frozen=True, slots=True)
class ComputedColumns:
    """Columns by their names, each with the value of its rows.

    Attributes
    ----------
    values : mapping of str to Column or Expression
    """

    values: Mapping[str, Column | Expression]

    @property
    def read(self) -> list[str]:
        """The top-level columns that are read, in the order in which they are first named."""
        names: dict[str, None] = {}
        for value in self.values.values():
            columns: Iterable[Column] = [value] if isinstance(value, Column) else value.columns()
            names.update(dict.fromkeys(column.path[0].name for column in columns))
        return list(names)

    def fields(self) -> list[pa.Field]:
        """Return the Arrow fields of the columns."""
        return [
            value.field.to_arrow().with_name(name)
            if isinstance(value, Column)
            else pa.field(name, value.dtype)
            for name, value in self.values.items()
        ]

    def of_batch(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns for the rows of a batch.

        Parameters
        ----------
        batch : pa.RecordBatch
            The columns of `read`, and others.
        schema : pa.Schema
            Of the result: the columns, and others of the batch.
        """
        arrays = [
            column_at(batch, [node.name for node in value.path])
            if isinstance(value, Column)
            else value.evaluate(batch)
            for value in self.values.values()
        ]
        others = [batch.column(name) for name in schema.names[len(arrays) :]]
        if not schema.names:
            return batch.select([])
        return pa.RecordBatch.from_arrays([*arrays, *others], schema=schema)

    def of_table(self, table: pa.Table) -> pa.Table:
        """Return the columns for the rows of a table, which has the columns of `read`."""
        schema = pa.schema(self.fields())
        batches = table.combine_chunks().to_batches()
        return pa.Table.from_batches([self.of_batch(batch, schema) for batch in batches], schema)


def parse_computed(columns: Mapping[str, str], schema: Schema) -> ComputedColumns:
    """Parse the columns of a scan.

    Parameters
    ----------
    columns : mapping of str to str
        Expressions by the names of the results.
    schema : Schema
        Of the table, with blobs as they are read.

    Raises
    ------
    InvalidInputError
        An expression is not valid, or a column does not exist.
    """
    from lance_spark.scan.predicates.sql import parse_value

    known = row_meta.with_all(schema)
    names = set(known.names)
    values: dict[str, Column | Expression] = {}
    for name, text in columns.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidInputError(
                f"columns must map names to expressions, both strings, not {name!r} to {text!r}"
            )
        if text in names:
            values[name] = Column(known.path(text))
            continue
        try:
            values[name] = parse_value(text, known)
        except LanceError as error:
            message = str(error).removeprefix("filter ")
            raise InvalidInputError(f"column {name!r}: {message}") from None
    return ComputedColumns(values)


def with_others(computed: ComputedColumns, others: Sequence[pa.Field]) -> pa.Schema:
    """Return the schema of computed columns and others after them.

    Raises
    ------
    InvalidInputError
        Two columns have the same name.
    """
    fields = [*computed.fields(), *others]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"two columns of the scan have the same name: {', '.join(names)}")
    return pa.schema(fields)
