"""Rows that match a query, with their scores, and how queries of several parts combine them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.scan.text.scoring import Scores
from lance_spark.table.rows.u64_segments import UInt64Array


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that match a query.

    Attributes
    ----------
    addresses : uint64 array
        Increasing.
    scores : float64 array
    """

    addresses: UInt64Array
    scores: Scores

    @classmethod
    def none(cls) -> Hits:
        """Return no rows."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.float64))

    def best(self, limit: int | None, *, keeps_ties: bool = False) -> Hits:
        """Return the rows with the greatest scores, the greatest first.

        Scores are compared as the 32-bit numbers that callers see. Of rows with equal scores, the
        row with the least address is first.

        Parameters
        ----------
        limit : int or None
            Most rows.
        keeps_ties : bool
            Whether all rows with the score of the last row are returned, too.
        """
        scores, addresses = self.scores.astype(np.float32), self.addresses
        if limit is not None and limit < len(scores):
            chosen = _greatest(scores, limit, keeps_ties=keeps_ties)
            scores, addresses = scores[chosen], addresses[chosen]
        order = np.argsort(-scores, kind="stable")
        return Hits(addresses[order], scores[order].astype(np.float64))

    def at(self, addresses: UInt64Array) -> tuple[npt.NDArray[np.bool_], Scores]:
        """Return which rows match, and their scores; 0 for others."""
        if not len(self.addresses):
            return np.zeros(len(addresses), np.bool_), np.zeros(len(addresses))
        place = np.minimum(np.searchsorted(self.addresses, addresses), len(self.addresses) - 1)
        matches = self.addresses[place] == addresses
        return matches, np.where(matches, self.scores[place], 0.0)


def joined(hits: Sequence[Hits], factor: float = 1.0) -> Hits:
    """Return the rows of results that have no row in common, with scores times a factor."""
    addresses = np.concatenate([np.empty(0, np.uint64), *(part.addresses for part in hits)])
    scores = np.concatenate([np.empty(0, np.float64), *(part.scores for part in hits)])
    order = np.argsort(addresses)
    return Hits(addresses[order], scores[order] * factor)


def combined(hits: Sequence[Hits], combine: np.ufunc) -> Hits:
    """Return the rows of any of several results."""
    addresses = np.unique(np.concatenate([np.empty(0, np.uint64), *(h.addresses for h in hits)]))
    scores = np.zeros(len(addresses))
    for result in hits:
        _, own = result.at(addresses)
        scores = combine(scores, own)
    return Hits(addresses, scores)


def boolean(must: Sequence[Hits], should: Sequence[Hits], must_not: Sequence[Hits]) -> Hits:
    """Return the rows of a `BooleanQuery`, by the rows of its clauses."""
    addresses = must[0].addresses if must else combined(should, np.add).addresses
    kept = np.ones(len(addresses), np.bool_)
    scores = np.zeros(len(addresses))
    for result in must:
        matches, own = result.at(addresses)
        kept &= matches
        scores += own
    for result in should:
        scores += result.at(addresses)[1]
    for result in must_not:
        kept &= ~result.at(addresses)[0]
    return Hits(addresses[kept], scores[kept])


def _greatest(
    scores: npt.NDArray[np.float32], limit: int, *, keeps_ties: bool
) -> npt.NDArray[np.int64]:
    """Return the positions of the greatest scores, increasing; of equal scores the first."""
    if not limit:
        return np.empty(0, np.int64)
    last = -np.partition(-scores, limit - 1)[limit - 1]
    equal = np.flatnonzero(scores == last)
    if not keeps_ties:
        equal = equal[: limit - int((scores > last).sum())]
    return np.union1d(np.flatnonzero(scores > last), equal)
