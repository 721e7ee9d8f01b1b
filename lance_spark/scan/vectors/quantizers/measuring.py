"""Measures the rows of a partition for the queries that search it.

A few queries measure all rows. Of many, each leaves out the rows that cannot be among its nearest
(`partial`), as soon as it has a limit: the distance of the farthest row that it would keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lance_spark.scan.vectors.ivf import Int64Array, Vectors
from lance_spark.scan.vectors.neighbors import NeighborsCollector
from lance_spark.scan.vectors.quantizers.partial import LEAST_PAIRS
from lance_spark.scan.vectors.quantizers.quantizer import Partition
from lance_spark.table.rows.u64_segments import UInt64Array

#: Queries that are measured at once: their distances from a step of rows stay in the caches.
_QUERIES = 512
#: With more queries than this number, most rows of a partition are left out before.
FEW_QUERIES = 16
#: If a query has too few rows yet, one row of so many is measured first, of at least so many rows.
_SEEDS, _SEEDED_ROWS = 8, 4096


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """The rows of a partition, and the collector that gets those that are near.

    Attributes
    ----------
    collector : NeighborsCollector
    partition : Partition
    vectors : array of shape (queries, dimension)
        All queries of the search; methods get numbers of these.
    ids, places : uint64 arrays
        Of all rows of the partition, as `NeighborsCollector.add` gets them.
    """

    collector: NeighborsCollector
    partition: Partition
    vectors: Vectors
    ids: UInt64Array
    places: UInt64Array

    def collect(self, queries: Int64Array, rows: Int64Array) -> None:
        """Collect rows for queries.

        Parameters
        ----------
        queries : int64 array
            Numbers of queries.
        rows : int64 array
            Numbers of rows of the partition, increasing.
        """
        if len(queries) <= FEW_QUERIES:
            self._collect_all(queries, rows)
            return
        has_limit = np.isfinite(self.collector.limits[queries])
        self._collect_near(queries[has_limit], rows)
        others = queries[~has_limit]
        if len(rows) < _SEEDED_ROWS:
            self._collect_all(others, rows)
            return
        # Some of the rows give the limits by which the others are left out.
        self._collect_all(others, rows[::_SEEDS])
        self._collect_near(others, np.delete(rows, slice(None, None, _SEEDS)))

    def _collect_all(self, queries: Int64Array, rows: Int64Array) -> None:
        """Collect rows by all their distances."""
        ids, places = self.ids, self.places
        chosen = None
        if len(rows) < len(ids):
            chosen, chosen_ids = rows, ids[rows]
            ids, places = chosen_ids, chosen_ids if places is ids else places[rows]
        for first in range(0, len(queries), _QUERIES):
            block = queries[first : first + _QUERIES]
            distances = self.partition.distances(self.vectors[block], chosen)
            self.collector.add(distances, block, ids, places)

    def _collect_near(self, queries: Int64Array, rows: Int64Array) -> None:
        """Collect rows; those that cannot be among the nearest are left out first."""
        decoded = None
        if len(queries) * len(rows) >= LEAST_PAIRS:
            decoded = self.partition.decoded(self.vectors[queries], rows)
        if decoded is not None:
            limits = self.collector.limits
            groups, others = decoded.groups(limits[queries])
            for query, row, distances in decoded.near(groups, lambda some: limits[queries[some]]):
                self.collector.add_pairs(distances, queries[query], row, self.ids, self.places)
            queries = queries[others]
        self._collect_all(queries, rows)
