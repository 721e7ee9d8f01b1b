"""Scores of documents: BM25 with the statistics of all parts that are searched together.

The score of a document is the sum over the tokens of a query of

    ln((N - n + 0.5) / (n + 0.5) + 1) * 2.2 f / (f + 1.2 (0.25 + 0.75 l / a))

with N documents, n of which have the token; f, how often this one has it; l, its number of tokens;
and a, the mean number of tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.text.files.index import Documents, TextIndexPart, TokenPostings
from lance_spark.scan.text.ranking.hits import Scores, greatest
from lance_spark.scan.text.ranking.phrases import phrase_documents

_K1, _B = 1.2, 0.75
#: Scores are in an array of all documents if at least one posting is for this many documents.
_SPARSE = 16

#: Postings that are scored together. Their arrays fit the cache of a processor.
_STEP = 1 << 15


class ScoredPart(Protocol):
    """Documents with numbers of their own."""

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        ...

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents."""
        ...

    @property
    def documents(self) -> Documents:
        """Ids and lengths."""
        ...

    def score_lengths(self, documents: RowNumbers) -> npt.NDArray[np.uint32]:
        """Return the tokens of documents as scores count them."""
        ...

    def postings(self, tokens: Sequence[str], *, with_positions: bool = False) -> TokenPostings:
        """Return the documents of distinct tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """The tokens of a query.

    Attributes
    ----------
    tokens : tuple of str
        Distinct.
    weights : tuple of int
        How often each token counts.
    groups : tuple of tuple of int, or None
        If set, a document must have a token of each group, which has numbers of tokens.
    phrase : tuple of (tuple of int, int), or None
        If set, groups of tokens, and the position of each, that a document must have in order.
    slop : int
        Most steps between the tokens of the phrase.
    is_flat : bool
        Whether the documents have no index.
    """

    tokens: tuple[str, ...]
    weights: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] | None = None
    phrase: tuple[tuple[tuple[int, ...], int], ...] | None = None
    slop: int = 0
    is_flat: bool = False


@dataclass(frozen=True, slots=True)
class Statistics:
    """What scores depend on besides the document.

    Attributes
    ----------
    num_documents, num_tokens : int
    with_token : int64 array
        Documents that have each token of a query.
    """

    num_documents: int
    num_tokens: int
    with_token: RowNumbers

    @classmethod
    def of(cls, parts: Sequence[TextIndexPart], tokens: Sequence[str]) -> Statistics:
        """Return the sums over parts of indexes."""
        with_token = np.zeros(len(tokens), np.int64)
        for part in parts:
            with_token += part.document_counts(tokens)
        return cls(
            sum(part.num_documents for part in parts),
            sum(part.num_tokens for part in parts),
            with_token,
        )

    def with_part(self, part: ScoredPart, postings: TokenPostings) -> Statistics:
        """Return the sums with another part, whose postings of the tokens are given."""
        return Statistics(
            self.num_documents + part.num_documents,
            self.num_tokens + part.num_tokens,
            self.with_token + np.diff(postings.bounds),
        )

    @property
    def mean_length(self) -> float:
        """The mean number of tokens of a document."""
        return self.num_tokens / max(self.num_documents, 1)

    def weights(self, terms: Terms) -> Scores:
        """Return the factor of the term scores of each token."""
        inverse_frequency = np.log(
            (self.num_documents - self.with_token + 0.5) / (self.with_token + 0.5) + 1.0
        )
        weights: Scores = inverse_frequency * np.array(terms.weights, np.float64) * (_K1 + 1)
        return weights


def term_scores(
    frequencies: npt.NDArray[np.number[Any]], lengths: npt.NDArray[np.number[Any]], mean: float
) -> Scores:
    """Return the part of a score that depends on the document, from 0 to 1.

    Parameters
    ----------
    frequencies : array of numbers
        How often a document has a token.
    lengths : array of numbers
        The tokens of the document, as scores count them.
    mean : float
        The mean number of tokens.
    """
    own = frequencies.astype(np.float64)
    norms = _K1 * (1 - _B + _B * lengths.astype(np.float64) / mean)
    result: Scores = own / (own + norms)
    return result


def scored(
    part: ScoredPart,
    postings: TokenPostings,
    terms: Terms,
    statistics: Statistics,
    boost: float = 1.0,
    best: int | None = None,
) -> tuple[RowNumbers, Scores]:
    """Return the documents of a part that match, and their scores.

    Parameters
    ----------
    part : ScoredPart
    postings : TokenPostings
        Of the tokens of the query in this part.
    terms : Terms
    statistics : Statistics
    boost : float
        Factor of the scores.
    best : int, optional
        If set, documents are left out that have a lesser score, as a 32-bit number, than so many
        others.

    Returns
    -------
    int64 array
        The documents, increasing.
    float64 array
        Their scores.
    """
    pieces = [(np.empty(0, np.int64), np.empty(0, np.float64))]
    count, most, least = 0, 0 if best is None else 2 * best, np.float32(-np.inf)
    for matches, values in _ranges(part, postings, terms, statistics):
        boosted = values if boost == 1.0 else values * boost
        if best is None:
            pieces.append((matches, boosted))
            continue
        kept = np.flatnonzero(boosted.astype(np.float32) >= least)
        pieces.append((matches[kept], boosted[kept]))
        count += len(kept)
        if count > most:
            documents, scores = _concatenated(pieces)
            compared = scores.astype(np.float32)
            kept = greatest(compared, best, keeps_ties=True)
            pieces = [(documents[kept], scores[kept])]
            count, least = len(kept), compared[kept].min(initial=np.inf)
            # Many scores may be equal.
            most = max(most, 2 * count)
    return _concatenated(pieces)


def _concatenated(pieces: Sequence[tuple[RowNumbers, Scores]]) -> tuple[RowNumbers, Scores]:
    documents, scores = zip(*pieces, strict=True)
    return np.concatenate(documents), np.concatenate(scores)


def _ranges(
    part: ScoredPart, postings: TokenPostings, terms: Terms, statistics: Statistics
) -> Iterator[tuple[RowNumbers, Scores]]:
    """Yield the matches in each of several ranges of documents: large arrays take more time."""
    weights, mean = statistics.weights(terms), statistics.mean_length
    in_phrase = None
    if terms.phrase is not None and len(postings.documents):
        in_phrase = phrase_documents(postings, terms.phrase, terms.slop, is_flat=terms.is_flat)
    num_ranges = -(-len(postings.documents) // _STEP)
    edges = np.linspace(0, part.num_documents, num_ranges + 1).astype(np.int64)
    # The first posting of each token in each range.
    firsts = [
        start + np.searchsorted(postings.documents[start:stop], edges)
        for start, stop in itertools.pairwise(postings.bounds.tolist())
    ]
    for number, (first, end) in enumerate(itertools.pairwise(edges.tolist())):
        rows = [slice(own[number], own[number + 1]) for own in firsts]
        documents = np.concatenate([postings.documents[own] for own in rows])
        bounds = np.append(0, np.cumsum([own.stop - own.start for own in rows]))
        frequencies = np.concatenate([postings.frequencies[own] for own in rows])
        own_scores = term_scores(frequencies, part.score_lengths(documents), mean)
        values = np.repeat(weights, np.diff(bounds)) * own_scores
        present = np.flatnonzero(np.diff(bounds)).tolist()
        groups = [group for group in terms.groups or () if not set(present).issubset(group)]
        if len(present) == 1 and not groups and in_phrase is None:
            yield documents, values
            continue
        if len(documents) * _SPARSE < end - first:
            matches, slots = np.unique(documents, return_inverse=True)
        else:
            matches, slots = np.arange(first, end), documents - first
        sums = np.bincount(slots, weights=values, minlength=len(matches))
        kept = np.zeros(len(matches), np.bool_)
        kept[slots] = True
        for group in groups:
            has_token = np.zeros(len(matches), np.bool_)
            for token in group:
                has_token[slots[bounds[token] : bounds[token + 1]]] = True
            kept &= has_token
        if in_phrase is not None:
            own = slice(*np.searchsorted(in_phrase, [first, end]).tolist())
            kept &= np.isin(matches, in_phrase[own])
        chosen = np.flatnonzero(kept)
        yield matches[chosen], sums[chosen].astype(np.float64, copy=False)
