"""The rows of a MemWAL that a search looks at, or has found, as a table in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import write_json
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, SEARCH_FIELDS
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.predicates.conditions import Condition, matching, top_fields
from lance_spark.scan.task import ScanTask

#: Columns of a result that are not read.
_COMPUTED = {field.id for field in (*SEARCH_FIELDS, ROW_ADDRESS)}


@dataclass(frozen=True, slots=True)
class FreshTable:
    """Rows of SSTables and logs, with the columns of `read_fields`.

    - `rows`: In one piece.
    """

    fields: tuple[Field, ...]
    rows: pa.Table

    @classmethod
    def read(cls, tasks: Sequence[ScanTask], metrics: ScanMetrics) -> FreshTable:
        """Read the rows of tasks, which read the same columns."""
        first = tasks[0]
        batches = [batch for task in tasks for batch in task.batches(metrics)]
        rows = pa.Table.from_batches(batches, first.schema).combine_chunks()
        return cls(first.lance_schema.fields, rows)

    @classmethod
    def empty(cls, tasks: Sequence[ScanTask]) -> FreshTable:
        """Return a table without rows, with the columns that tasks read."""
        return cls(tasks[0].lance_schema.fields, tasks[0].schema.empty_table())

    def of(self, batch: pa.RecordBatch) -> FreshTable:
        """Return a table of other rows of the same columns."""
        return FreshTable(self.fields, pa.Table.from_batches([batch], self.rows.schema))

    def with_rows(self, added: FreshTable, chosen: npt.NDArray[np.bool_]) -> FreshTable:
        """Return some of the rows of this table and of another one after it."""
        rows = pa.concat_tables([self.rows, added.rows]).filter(pa.array(chosen))
        return FreshTable(self.fields, rows.combine_chunks())

    def values(self, path: Sequence[Field]) -> pa.Array | None:
        """Return a column that is searched, by the fields above it and its own; None without rows.

        JSON is as in pages, if the field says so.
        """
        if not self.rows.num_rows:
            return None
        (batch,) = self.rows.to_batches()
        (top,) = [field for field in self.fields if field.id == path[0].id]
        if top.has_json and not path[-1].has_json:
            position = self.fields.index(top)
            pages = write_json(batch.column(position), top, "rows of a MemWAL", 0)
            batch = pa.RecordBatch.from_arrays([pages], names=[top.name])
        return column_at(batch, [node.name for node in path])

    def meet(self, numbers: RowNumbers, conditions: tuple[Condition, ...]) -> npt.NDArray[np.bool_]:
        """Return which of some rows meet conditions."""
        chosen = self.rows.take(pa.array(numbers)).combine_chunks().to_batches()
        return matching(conditions, chosen[0]) if chosen else np.zeros(len(numbers), np.bool_)

    def columns(
        self, schema: Schema, numbers: RowNumbers, computed: Mapping[int, npt.NDArray[Any]]
    ) -> pa.Table:
        """Return the columns of the result of a search, of some rows; row addresses are null.

        - `computed`: The values of computed columns, by the ids of their fields.
        """
        taken = self.rows.take(pa.array(numbers))
        columns = []
        position = 0
        for field in schema.fields:
            if field.id in computed:
                columns.append(pa.chunked_array([pa.array(computed[field.id])]))
            elif field.id == ROW_ADDRESS.id:
                columns.append(pa.chunked_array([pa.nulls(len(numbers), pa.uint64())]))
            else:
                columns.append(taken.column(position))
                position += 1
        return pa.Table.from_arrays(columns, schema=schema.to_arrow())


def together(is_fresh: npt.NDArray[np.bool_], base: pa.Table, fresh: pa.Table | None) -> pa.Table:
    """Return rows of a version and of a MemWAL in one order.

    - `is_fresh`: Which rows of the result are of the MemWAL.
    - `base`, `fresh`: The rows of each, in their order.
    """
    if fresh is None:
        return base
    places = np.empty(len(is_fresh), np.int64)
    places[~is_fresh] = np.arange(base.num_rows)
    places[is_fresh] = base.num_rows + np.arange(fresh.num_rows)
    return pa.concat_tables([base, fresh]).take(pa.array(places))


def read_fields(
    schema: Schema, searched: Iterable[Field], after: tuple[Condition, ...]
) -> tuple[Field, ...]:
    """Return the columns to read of rows of a MemWAL: those of the result come first.

    - `schema`: Of the result of the search.
    - `searched`: The top-level columns that are searched.
    - `after`: Conditions on the rows that are found.

    Raises UnsupportedFeatureError: a condition after the search is about JSON.
    """
    fields = [field for field in schema.fields if field.id not in _COMPUTED]
    for field in top_fields(after):
        if field.has_json:
            raise UnsupportedFeatureError(
                f"column {field.name!r}: a condition on JSON after a search is not supported in a "
                "fresh read; let the condition choose which rows are searched (prefilter)"
            )
    # Searched columns, and those of conditions, as a whole: a column of the result may have some of
    # their children only.
    wanted = {field.id: field for field in fields}
    for field in (*searched, *top_fields(after)):
        if wanted.get(field.id, field) != field:
            raise UnsupportedFeatureError(
                f"column {field.name!r}: a search of a fresh read needs the whole column; name it, "
                "and not its children"
            )
        wanted.setdefault(field.id, field)
    return tuple(wanted.values())
