"""Vector searches of a version and of the rows of its MemWAL.

The version is searched as without MemWAL, hidden rows left out before. All vectors of SSTables and
logs are measured. If there are any, the rows that an index finds are measured again, so that all
distances can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.scan.predicates.conditions import Condition, matching, top_fields
from lance_spark.scan.vectors.flat import FlatSearch
from lance_spark.scan.vectors.neighbors import Neighbors

if TYPE_CHECKING:
    from lance_spark.file.schema.field import Field
    from lance_spark.scan.search_task import OpenedRows
    from lance_spark.scan.task import ScanTask
    from lance_spark.scan.vectors.search import VectorSearch
    from lance_spark.scan.vectors.task import VectorScanTask


@dataclass(frozen=True, slots=True)
class FreshNearest:
    """A vector search.

    Attributes
    ----------
    search : VectorSearch
    base : VectorScanTask
        Searches the version, without conditions after the search.
    fresh : sequence of ScanTask
        Read the columns of `read_fields` of rows of the MemWAL.
    after : tuple of Condition
        Conditions on the rows that are found.
    """

    search: VectorSearch
    base: VectorScanTask
    fresh: Sequence[ScanTask]
    after: tuple[Condition, ...]

    def rows(self, table: OpenedRows, limit: int | None) -> pa.Table:
        """Return the nearest rows, by query and distance."""
        metrics = ScanMetrics()
        found = self.base.neighbors(metrics, table)
        fields = read_fields(self.base.lance_schema, self.search, self.after)
        schema = Schema(fields).to_arrow()
        rows = pa.Table.from_batches(
            [batch for task in self.fresh for batch in task.batches()], schema
        ).combine_chunks()
        measured = self._measured(rows)
        # Rows of the version are numbered before those of the MemWAL.
        numbers = np.arange(len(found) + len(measured), dtype=np.uint64)
        best = Neighbors(
            np.concatenate([found.queries, measured.queries]),
            np.concatenate([found.distances, measured.distances]),
            numbers,
            numbers,
        ).best(self.search.query.k)
        order = best.ids.astype(np.int64)
        is_fresh = order >= len(found)
        from_base = found.at(order[~is_fresh])
        from_fresh = measured.at(order[is_fresh] - len(found))
        if self.after:
            slices = self.base._slices(np.unique(from_base.addresses))
            passing = self.base._addresses(metrics, table, slices, self.after)
            keep = np.zeros(len(order), np.bool_)
            keep[~is_fresh] = np.isin(from_base.addresses, passing)
            keep[is_fresh] = self._meet_conditions(rows, from_fresh)
            from_base = from_base.at(keep[~is_fresh])
            from_fresh = from_fresh.at(keep[is_fresh])
            is_fresh = is_fresh[keep]
        places = np.empty(len(is_fresh), np.int64)
        places[~is_fresh] = np.arange(len(from_base))
        places[is_fresh] = len(from_base) + np.arange(len(from_fresh))
        both = pa.concat_tables(
            [self.base.rows(from_base, metrics, table), self._taken(rows, from_fresh)]
        )
        return both.take(pa.array(places)).slice(0, limit)

    def _measured(self, rows: pa.Table) -> Neighbors:
        """Return the nearest rows of the MemWAL; their ids are their numbers."""
        search, query = self.search, self.search.query
        if not rows.num_rows:
            return Neighbors.none()
        (batch,) = rows.to_batches()
        vectors = search.dtype.query(query.vectors, search.metric)
        bounds = query.lower_bound, query.upper_bound
        flat = FlatSearch(search.dtype, search.metric, vectors, query.k, *bounds)
        numbers = np.arange(rows.num_rows, dtype=np.uint64)
        flat.add(column_at(batch, [node.name for node in search.path]), numbers, numbers)
        return flat.neighbors()

    def _meet_conditions(self, rows: pa.Table, found: Neighbors) -> np.ndarray:
        chosen = rows.take(pa.array(found.ids.astype(np.int64))).combine_chunks().to_batches()
        return matching(self.after, chosen[0]) if chosen else np.zeros(0, np.bool_)

    def _taken(self, rows: pa.Table, found: Neighbors) -> pa.Table:
        """Return the columns of the result of rows of the MemWAL."""
        computed = {DISTANCE.id: found.distances, QUERY_INDEX.id: found.queries}
        taken = rows.take(pa.array(found.ids.astype(np.int64)))
        columns = []
        position = 0
        for field in self.base.lance_schema.fields:
            if field.id in computed:
                columns.append(pa.chunked_array([pa.array(computed[field.id])]))
            else:
                columns.append(taken.column(position))
                position += 1
        return pa.Table.from_arrays(columns, schema=self.base.schema)


def read_fields(
    schema: Schema, search: VectorSearch, after: tuple[Condition, ...]
) -> tuple[Field, ...]:
    """Return the columns to read of rows of the MemWAL: those of the result come first.

    Raises
    ------
    UnsupportedFeatureError
        A condition after the search is about JSON.
    """
    fields = [field for field in schema.fields if field.id not in (DISTANCE.id, QUERY_INDEX.id)]
    for field in top_fields(after):
        if field.has_json:
            raise UnsupportedFeatureError(
                f"column {field.name!r}: a condition on JSON after a vector search is not "
                "supported in a fresh read; give prefilter=True"
            )
    # The vectors, and the columns of conditions, as a whole: a column of the result may have some
    # of their children only.
    others = (search.path[0], *top_fields(after))
    wanted = {field.id: field for field in fields}
    for field in others:
        if wanted.get(field.id, field) != field:
            raise UnsupportedFeatureError(
                f"column {field.name!r}: a vector search of a fresh read needs the whole column; "
                "name it, and not its children"
            )
        wanted.setdefault(field.id, field)
    return tuple(wanted.values())
