"""The best documents of a query, without those blocks of postings that have none of them.

Each block of the postings of a token has the greatest score of its documents (`token_blocks`). The
first documents of all blocks divide the documents into intervals, of which each has one block of a
token, at most. The sum of the scores of its blocks bounds the scores in an interval. Intervals are
searched in the order of these bounds, in several rounds, until no bound is as great as the score of
the last of the best documents.

Tokens with few postings are decoded as a whole, so that each document has its own bound.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.indexes.text.files import PostingList, TextIndexPart, TokenBlocks, TokenPostings
from lance_spark.indexes.text.scoring import (
    Scores,
    Statistics,
    Terms,
    greatest,
    scored,
    term_scores,
)

#: Most blocks of a token whose postings are decoded as a whole.
_FEW_BLOCKS = 64
#: Fewest intervals of the first round, and the factor from each round to the next.
_FIRST_ROUND, _GROWTH = 32, 4
#: If more than this part of the intervals may have one of the best documents, all postings are
#: decoded, and kept for the next query.
_MOST = 0.25
#: More than the error of a bound: scores of blocks have 32 bits.
TOLERANCE = 1 + 1e-5


def best_documents(
    part: TextIndexPart, terms: Terms, statistics: Statistics, boost: float, best: int
) -> tuple[RowNumbers, Scores] | None:
    """Return the documents that match with the greatest scores; see `scored`.

    Returns
    -------
    tuple of (int64 array, float64 array), or None
        Documents and scores. None if it takes less time to score all documents, or if the scores of
        blocks are wrong.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    if terms.phrase is not None or not best or not part.has_scores:
        return None
    if part.has_decoded(terms.tokens):
        return None
    counts = part.document_counts(terms.tokens)
    size = part.layout.posting_format.block_size
    is_long = counts > _FEW_BLOCKS * size
    if not is_long.any():
        return None
    search = _WandSearch(part, terms, statistics, is_long)
    return search.best(boost, best)


def score_ratios(part: TextIndexPart, blocks: TokenBlocks, numbers: RowNumbers) -> Scores:
    """Return the score of some blocks, divided by the greatest term score of their documents.

    All blocks of a token have the same ratio.

    - `numbers` (int64 array): Increasing.
    """
    postings = blocks.decoded(numbers)
    lengths = part.score_lengths(postings.documents)
    of_document = term_scores(postings.frequencies, lengths, part.num_tokens / part.num_documents)
    counts = blocks.blocks.counts(blocks.form.block_size)[numbers]
    starts = np.cumsum(counts) - counts
    ratios: Scores = blocks.scores[numbers] / np.maximum.reduceat(of_document, starts)
    return ratios


def _factor(part: TextIndexPart, blocks: TokenBlocks) -> np.float64:
    """Return the ratio of `score_ratios` of a token."""
    return np.float64(score_ratios(part, blocks, np.array([np.argmax(blocks.scores)]))[0])


class _WandSearch:
    """Searches the intervals of a part.

    - `is_long` (bool array): Whether not all postings of a token are decoded.
    """

    def __init__(
        self,
        part: TextIndexPart,
        terms: Terms,
        statistics: Statistics,
        is_long: npt.NDArray[np.bool_],
    ) -> None:
        self._part = part
        self._terms = terms
        self._statistics = statistics
        long, short = np.flatnonzero(is_long).tolist(), np.flatnonzero(~is_long).tolist()
        self._long: list[int] = long
        blocks = part.token_blocks([terms.tokens[token] for token in long])
        self._blocks = TokenBlocks.joined(blocks)
        self._of_token = blocks
        postings = part.postings([terms.tokens[token] for token in short])
        none: PostingList = np.empty(0, np.int64), np.empty(0, np.uint32)
        # Of each token; none of a long one.
        self._short = [none] * len(terms.tokens)
        for place, token in enumerate(short):
            own = slice(*postings.bounds[place : place + 2].tolist())
            self._short[token] = postings.documents[own], postings.frequencies[own]
        self._edges = np.unique(np.append(0, self._blocks.firsts))
        # The block of each long token and interval: -1 if there is none.
        bounds = self._blocks.blocks.bounds.tolist()
        self._block_of = np.empty((len(long), len(self._edges)), np.int64)
        for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
            places = np.searchsorted(self._blocks.firsts[start:stop], self._edges, "right") - 1
            self._block_of[number] = np.where(places < 0, -1, places + start)

    def best(self, boost: float, best: int) -> tuple[RowNumbers, Scores] | None:
        """Return the best documents; see `best_documents`."""
        bounds = self._bounds()
        if bounds is None:
            return None
        bounds *= boost * TOLERANCE
        order = np.argsort(-bounds, kind="stable")
        order = order[: np.count_nonzero(bounds > -np.inf)]
        documents, scores = np.empty(0, np.int64), np.empty(0, np.float64)
        least, position, size = np.float32(-np.inf), 0, max(_FIRST_ROUND, best)
        while True:
            may_match = int(np.searchsorted(-bounds[order], -least, "right"))
            if may_match <= position:
                break
            if position and may_match - position > _MOST * len(self._edges):
                return None
            chosen = np.sort(order[position : min(position + size, may_match)])
            matches, values = scored(
                self._part, self._postings(chosen), self._terms, self._statistics, boost, best
            )
            if (values > bounds[self._interval_of(matches)]).any():
                return None
            documents, scores = np.append(documents, matches), np.append(scores, values)
            if len(scores) > best:
                compared = scores.astype(np.float32)
                kept = greatest(compared, best, keeps_ties=True)
                documents, scores = documents[kept], scores[kept]
                least = compared[kept].min()
            position, size = position + len(chosen), size * _GROWTH
        by_number = np.argsort(documents)
        return documents[by_number], scores[by_number]

    def _bounds(self) -> Scores | None:
        """Return what no score in an interval exceeds; -inf if no document there can match.

        None if the scores of blocks are no such bounds.
        """
        terms = self._terms
        weights = self._statistics.weights(terms)
        block_bounds = self._block_bounds(weights[self._long])
        if block_bounds is None:
            return None
        bounds = np.zeros(len(self._edges))
        for own in self._block_of:
            bounds += np.where(own >= 0, block_bounds[own], 0.0)
        documents, scores = scored(
            self._part, TokenPostings.of(self._short), replace(terms, groups=None), self._statistics
        )
        greatest_short = np.zeros(len(bounds))
        np.maximum.at(greatest_short, self._interval_of(documents), scores)
        bounds += greatest_short
        for group in terms.groups or ():
            has_token = np.zeros(len(bounds), np.bool_)
            for token in group:
                has_token[self._interval_of(self._short[token][0])] = True
                if token in self._long:
                    has_token |= self._block_of[self._long.index(token)] >= 0
            bounds[~has_token] = -np.inf
        return bounds

    def _block_bounds(self, weights: Scores) -> Scores | None:
        """Return what no score of a long token in a block exceeds, by the weights of the tokens."""
        part, blocks = self._part, self._blocks
        stored = blocks.scores.astype(np.float64)
        if not (np.isfinite(stored) & (stored > 0)).all():
            return None
        bounds = blocks.blocks.bounds
        # All scores of a token have one factor. A block of each token shows it: other clients
        # compute it with 32 bits.
        factors = part.kept_by_token(
            "factors",
            [self._terms.tokens[token] for token in self._long],
            lambda token: _factor(part, self._of_token[token]),
            lambda factor: factor.nbytes,
        )
        # With a greater mean, documents count as shorter.
        growth = max(1.0, self._statistics.mean_length * part.num_documents / part.num_tokens)
        scales = weights * growth / np.array(factors, np.float64)
        of_block: Scores = stored * np.repeat(scales, np.diff(bounds))
        return of_block

    def _interval_of(self, documents: RowNumbers) -> RowNumbers:
        places: RowNumbers = np.searchsorted(self._edges, documents, "right") - 1
        return places

    def _postings(self, intervals: RowNumbers) -> TokenPostings:
        """Return the postings of all tokens in some intervals, which increase."""
        lists = list(self._short)
        needed = np.unique(self._block_of[:, intervals])
        needed = needed[needed >= 0]
        read = self._blocks.decoded(needed)
        for number, token in enumerate(self._long):
            own = slice(*read.bounds[number : number + 2].tolist())
            lists[token] = read.documents[own], read.frequencies[own]
        is_chosen = np.zeros(len(self._edges), np.bool_)
        is_chosen[intervals] = True
        kept = []
        for documents, frequencies in lists:
            own_kept = np.flatnonzero(is_chosen[self._interval_of(documents)])
            kept.append((documents[own_kept], frequencies[own_kept]))
        return TokenPostings.of(kept)
