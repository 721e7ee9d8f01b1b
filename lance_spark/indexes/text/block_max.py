"""The best documents of a query, by the greatest score of each token in ranges of documents.

A range has eight documents. The sum over the tokens of the greatest score there, times the weight
of the token, bounds the scores in a range. Ranges are searched in the order of these bounds, in
several rounds, until no bound is as great as the score of the last of the best documents.

The greatest scores of a token are computed once, and kept beside its decoded postings, with a bit
for each document that has the token: the ranges without a document that matches are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.indexes.text.files import PostingList, TextIndexPart, TokenPostings
from lance_spark.indexes.text.scoring import (
    Scores,
    Statistics,
    Terms,
    greatest,
    scored,
    term_scores,
)

#: Documents of a range, as a power of two: a byte has a bit for each.
_SHIFT = 3
_LAST = (1 << _SHIFT) - 1
#: The bits that are set in a byte.
_COUNTS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
#: With fewer postings than this, all documents are scored at once.
_FEW_POSTINGS = 1 << 13
#: A token has a number for each range of a part, if there is a posting for so many ranges.
_SPARSE = 4
#: Ranges of the first round, besides some for each document that is wanted, and the factor from
#: each round to the next.
_FIRST_ROUND, _RANGES_OF_BEST, _GROWTH = 128, 4, 3
#: If more than this part of the ranges may have one of the best documents, all are scored.
_MOST = 0.4
#: More than the errors of 32 bits.
_TOLERANCE = 1 + 1e-6

_Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BlockMaxima:
    """The postings of a token by ranges of documents.

    - `ranges` (int64 array or None): The ranges that have the token, increasing; None for all
      ranges of the part.
    - `scores` (float32 array): The greatest score of each range; 0 without the token.
    - `bits` (uint8 array): Which documents of each range have the token.
    - `firsts` (uint32 array): The first posting of each range, and the number of postings.
    """

    ranges: RowNumbers | None
    scores: npt.NDArray[np.float32]
    bits: _Bits
    firsts: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, part: TextIndexPart, postings: PostingList) -> BlockMaxima:
        """Return the maxima of a token that documents have, with the mean length of the part."""
        documents, frequencies = postings
        own = term_scores(frequencies, part.score_lengths(documents), part.num_tokens / _size(part))
        own *= _TOLERANCE
        num_ranges = _num_ranges(part)
        if len(documents) * _SPARSE < num_ranges:
            numbers = documents >> _SHIFT
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            firsts = np.append(starts, len(documents))
            bits = np.bitwise_or.reduceat(1 << (documents & _LAST), starts)
            most = np.maximum.reduceat(own, starts)
            return cls(
                numbers[starts],
                most.astype(np.float32),
                bits.astype(np.uint8),
                firsts.astype(np.uint32),
            )
        has_token = np.zeros(num_ranges << _SHIFT, np.bool_)
        has_token[documents] = True
        bits = np.packbits(has_token, bitorder="little")
        every = np.zeros(num_ranges << _SHIFT, np.float32)
        every[documents] = own
        # Faster than the maximum of each row of a matrix.
        for _ in range(_SHIFT):
            every = np.maximum(every[::2], every[1::2])
        firsts = np.zeros(num_ranges + 1, np.uint32)
        np.cumsum(_COUNTS[bits], out=firsts[1:])
        return cls(None, every, bits, firsts)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        ranges = 0 if self.ranges is None else self.ranges.nbytes
        return int(self.scores.nbytes + self.bits.nbytes + self.firsts.nbytes + ranges)

    @property
    def rows(self) -> RowNumbers | slice:
        """The ranges, each of which is there once."""
        return slice(None) if self.ranges is None else self.ranges

    def postings_in(self, ranges: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
        """Return the postings in some ranges, which increase, and the place of the range of each.

        A place is that among the given ranges. Both are numbers.
        """
        own, places = ranges, np.arange(len(ranges))
        if self.ranges is not None:
            insertions = np.minimum(np.searchsorted(self.ranges, ranges), len(self.ranges) - 1)
            places = np.flatnonzero(self.ranges[insertions] == ranges)
            own = insertions[places]
        starts = self.firsts[own].astype(np.int64)
        counts = self.firsts[own + 1] - starts
        bounds = np.append(0, np.cumsum(counts))
        postings = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], counts)
        return postings, np.repeat(places, counts)


def best_scored(
    part: TextIndexPart, terms: Terms, statistics: Statistics, boost: float, best: int
) -> tuple[RowNumbers, Scores]:
    """Return the documents that match with the greatest scores; see `scored`.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    lists = part.posting_lists(terms.tokens)
    if best and sum(len(documents) for documents, _ in lists) >= _FEW_POSTINGS:
        result = _BlockMaxSearch(part, lists, terms, statistics, boost).best(best)
        if result is not None:
            return result
    return scored(part, TokenPostings.of(lists), terms, statistics, boost, best)


class _BlockMaxSearch:
    """Searches the ranges of a part.

    - `lists` (sequence of (int64 array, integer array)): Documents and frequencies of each token.
    - `terms`: Without a phrase.
    """

    def __init__(
        self,
        part: TextIndexPart,
        lists: Sequence[PostingList],
        terms: Terms,
        statistics: Statistics,
        boost: float,
    ) -> None:
        self._part = part
        self._lists = lists
        self._terms = terms
        self._mean = statistics.mean_length
        self._weights = statistics.weights(terms)
        self._boost = boost
        self._maxima = part.kept_by_token(
            "maxima",
            terms.tokens,
            lambda token: BlockMaxima.of(part, lists[token]),
            lambda maxima: maxima.nbytes,
        )

    def best(self, best: int) -> tuple[RowNumbers, Scores] | None:
        """Return the best documents; None if it takes less time to score all."""
        bounds = self._bounds()
        if bounds is None:
            return None
        documents, scores = np.empty(0, np.int64), np.empty(0, np.float64)
        least, size = np.float32(0), _FIRST_ROUND + _RANGES_OF_BEST * best
        remaining = int(_MOST * len(bounds))
        while True:
            chosen = np.flatnonzero(bounds >= least)
            if not len(chosen):
                break
            if len(chosen) > size:
                greatest_bounds = bounds[chosen].astype(np.float32)
                chosen = chosen[greatest(greatest_bounds, size, keeps_ties=False)]
            remaining -= len(chosen)
            if remaining < 0:
                return None
            bounds[chosen] = -np.inf
            matches, values = self._scored(chosen)
            documents, scores = np.append(documents, matches), np.append(scores, values)
            compared = scores.astype(np.float32)
            if len(scores) >= best:
                kept = greatest(compared, best, keeps_ties=True)
                documents, scores = documents[kept], scores[kept]
                least = compared[kept].min()
            size *= _GROWTH
        by_number = np.argsort(documents)
        return documents[by_number], scores[by_number]

    def _bounds(self) -> Scores | None:
        """Return what no score in a range exceeds; -inf if no document there matches.

        None if there are no such bounds.
        """
        # With a greater mean, documents count as shorter.
        growth = max(1.0, self._mean * _size(self._part) / max(self._part.num_tokens, 1))
        weights = self._weights * (self._boost * growth * _TOLERANCE)
        if not (np.isfinite(weights) & (weights > 0)).all():
            return None
        bounds = np.zeros(_num_ranges(self._part))
        for maxima, weight in zip(self._maxima, weights.tolist(), strict=True):
            if maxima is not None:
                bounds[maxima.rows] += maxima.scores * weight
        bounds[self._matches == 0] = -np.inf
        return bounds

    @cached_property
    def _matches(self) -> _Bits:
        """The bits of the documents that match in each range."""
        groups = self._terms.groups
        if groups is None:
            groups = (tuple(range(len(self._maxima))),)
        matches = np.full(_num_ranges(self._part), 0xFF, np.uint8)
        for group in groups:
            has_token = np.zeros(len(matches), np.uint8)
            for maxima in (self._maxima[token] for token in group):
                if maxima is not None:
                    has_token[maxima.rows] |= maxima.bits
            matches &= has_token
        return matches

    def _scored(self, ranges: RowNumbers) -> tuple[RowNumbers, Scores]:
        """Return the documents that match in some ranges, which increase, and their scores."""
        sums = np.zeros(len(ranges) << _SHIFT)
        for (documents, frequencies), maxima, weight in zip(
            self._lists, self._maxima, self._weights.tolist(), strict=True
        ):
            if maxima is not None:
                postings, places = maxima.postings_in(ranges)
                own = documents[postings]
                lengths = self._part.score_lengths(own)
                # A token has a document once.
                sums[places << _SHIFT | own & _LAST] += weight * term_scores(
                    frequencies[postings], lengths, self._mean
                )
        matches = np.unpackbits(self._matches[ranges], bitorder="little")
        kept = np.flatnonzero(matches)
        scores = sums[kept] if self._boost == 1.0 else sums[kept] * self._boost
        return (ranges[kept >> _SHIFT] << _SHIFT) + (kept & _LAST), scores


def _size(part: TextIndexPart) -> int:
    return max(part.num_documents, 1)


def _num_ranges(part: TextIndexPart) -> int:
    return -(-part.num_documents >> _SHIFT)
