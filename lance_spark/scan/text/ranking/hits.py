"""Rows that match a query, with their scores, and how queries of several parts combine them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import distinct
from lance_spark.table.rows.u64_segments import UInt64Array

Scores = npt.NDArray[np.float64]
#: Scores of a group, of which only the greatest is compared at first.
_GROUP = 64


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
        # Infinite scores have no difference: such rows are the last.
        scores = np.fmax(self.scores.astype(np.float32), np.float32(-np.inf))
        addresses = self.addresses
        if limit is not None and limit < len(scores):
            chosen = greatest(scores, limit, keeps_ties=keeps_ties)
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


def joined(hits: Sequence[Hits]) -> Hits:
    """Return the rows of several results, in which they can be in any order.

    Rows have one document, as a rule. Of several ones, the greatest score counts.
    """
    addresses = np.concatenate([np.empty(0, np.uint64), *(part.addresses for part in hits)])
    scores = np.concatenate([np.empty(0, np.float64), *(part.scores for part in hits)])
    order = np.argsort(addresses)
    addresses, scores = addresses[order], scores[order]
    if (addresses[1:] == addresses[:-1]).any():
        addresses, first = np.unique(addresses, return_index=True)
        scores = np.maximum.reduceat(scores, first)
    return Hits(addresses, scores)


def combined(hits: Sequence[Hits], combine: np.ufunc) -> Hits:
    """Return the rows of any of several results."""
    addresses = distinct(np.concatenate([np.empty(0, np.uint64), *(h.addresses for h in hits)]))
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


def greatest(
    scores: npt.NDArray[np.float32], limit: int, *, keeps_ties: bool
) -> npt.NDArray[np.int64]:
    """Return the positions of the greatest scores, increasing; of equal scores the first.

    Parameters
    ----------
    scores : float32 array
        At least as many as the limit, without NaN.
    limit : int
    keeps_ties : bool
        Whether all scores that equal the last one are chosen, too.
    """
    if not limit:
        return np.empty(0, np.int64)
    # So many groups have a score as great as the last of the greatest groups, at least.
    groups = scores[: len(scores) // _GROUP * _GROUP].reshape(_GROUP, -1).max(axis=0)
    least = _last_of(groups, limit) if len(groups) >= limit else -np.inf
    chosen = np.flatnonzero(scores >= least)
    last = _last_of(scores[chosen], limit)
    chosen = chosen[scores[chosen] >= last]
    if keeps_ties or len(chosen) == limit:
        return chosen
    equal = chosen[scores[chosen] == last]
    return np.setdiff1d(chosen, equal[limit - len(chosen) :], assume_unique=True)


def _last_of(scores: npt.NDArray[np.float32], limit: int) -> np.float32:
    """Return the least of the greatest scores."""
    place = len(scores) - limit
    last: np.float32 = np.partition(scores, place)[place]
    return last
