"""The rows that are nearest to queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.table.rows.u64_segments import UInt64Array


@dataclass(frozen=True, slots=True)
class Neighbors:
    """Rows with their distances from queries. Can be pickled.

    Attributes
    ----------
    queries : int32 array
        Numbers of the queries.
    distances : float32 array
        Without NaN.
    ids : uint64 array
        Row ids: stable row ids if the table has them, else addresses.
    addresses : uint64 array
    """

    queries: npt.NDArray[np.int32]
    distances: npt.NDArray[np.float32]
    ids: UInt64Array
    addresses: UInt64Array

    @classmethod
    def none(cls) -> Neighbors:
        """Return no rows."""
        words = np.empty(0, np.uint64)
        return cls(np.empty(0, np.int32), np.empty(0, np.float32), words, words)

    def __len__(self) -> int:
        return len(self.queries)

    def at(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Neighbors:
        """Return some of the rows, by their numbers or a mask."""
        ids = self.ids[rows]
        addresses = ids if self.addresses is self.ids else self.addresses[rows]
        return Neighbors(self.queries[rows], self.distances[rows], ids, addresses)

    def best(self, k: int) -> Neighbors:
        """Return the nearest rows of each query, by query and distance.

        Of rows with equal distances, the row with the least id is first.

        Parameters
        ----------
        k : int
            Most rows of a query.
        """
        order = np.lexsort((self.ids, self.distances, self.queries))
        queries = self.queries[order]
        rank = np.arange(len(order)) - np.searchsorted(queries, queries)
        return self.at(order[rank < k])

    def within(self, lower: float | None, upper: float | None) -> Neighbors:
        """Return the rows with `lower` <= distance < `upper`."""
        if lower is None and upper is None:
            return self
        kept = np.ones(len(self), np.bool_)
        if lower is not None:
            kept &= self.distances >= np.float32(lower)
        if upper is not None:
            kept &= self.distances < np.float32(upper)
        return self.at(kept)


def joined(parts: Sequence[Neighbors]) -> Neighbors:
    """Return the rows of all results."""
    if not parts:
        return Neighbors.none()
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([part.ids for part in parts])
    same = all(part.addresses is part.ids for part in parts)
    return Neighbors(
        np.concatenate([part.queries for part in parts]),
        np.concatenate([part.distances for part in parts]),
        ids,
        ids if same else np.concatenate([part.addresses for part in parts]),
    )


def merged(parts: Sequence[Neighbors], k: int) -> Neighbors:
    """Return the nearest rows of each query among several results of different rows."""
    return joined(parts).best(k)
