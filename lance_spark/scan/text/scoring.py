"""Scores of documents: BM25 with the statistics of all parts that are searched together.

The score of a document is the sum over the tokens of a query of

    ln((N - n + 0.5) / (n + 0.5) + 1) * 2.2 f / (f + 1.2 (0.25 + 0.75 l / a))

with N documents, n of which have the token; f, how often this one has it; l, its number of tokens;
and a, the mean number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.text.files.index import Documents, TextIndexPart, TokenPostings
from lance_spark.scan.text.phrases import phrase_documents

_K1, _B = 1.2, 0.75
#: Scores are in an array of all documents if at least one posting is for this many documents.
_SPARSE = 16

Scores = npt.NDArray[np.float64]


class Part(Protocol):
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

    @property
    def score_lengths(self) -> npt.NDArray[np.uint32]:
        """Tokens of each document as scores count them."""
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

    def with_part(self, part: Part, postings: TokenPostings) -> Statistics:
        """Return the sums with another part, whose postings of the tokens are given."""
        return Statistics(
            self.num_documents + part.num_documents,
            self.num_tokens + part.num_tokens,
            self.with_token + np.diff(postings.bounds),
        )


def scored(
    part: Part, postings: TokenPostings, terms: Terms, statistics: Statistics
) -> tuple[RowNumbers, Scores]:
    """Return the documents of a part that match, and their scores.

    Parameters
    ----------
    part : Part
    postings : TokenPostings
        Of the tokens of the query in this part.
    terms : Terms
    statistics : Statistics
    """
    documents = postings.documents
    if not len(documents):
        return np.empty(0, np.int64), np.empty(0, np.float64)
    with_token = statistics.with_token
    inverse_frequency = np.log(
        (statistics.num_documents - with_token + 0.5) / (with_token + 0.5) + 1.0
    )
    weights = np.repeat(
        inverse_frequency * np.array(terms.weights, np.float64), np.diff(postings.bounds)
    )
    mean = statistics.num_tokens / statistics.num_documents
    norms = _K1 * (1 - _B + _B * part.score_lengths[documents].astype(np.float64) / mean)
    frequencies = postings.frequencies.astype(np.float64)
    values = weights * (_K1 + 1) * frequencies / (frequencies + norms)
    matches, slots = _slots(documents, part.num_documents)
    sums = np.bincount(slots, weights=values, minlength=len(matches))
    scores: Scores = sums.astype(np.float64)
    kept = np.bincount(slots, minlength=len(matches)) > 0
    for group in terms.groups or ():
        has_token = np.zeros(len(matches), np.bool_)
        for number in group:
            has_token[slots[postings.bounds[number] : postings.bounds[number + 1]]] = True
        kept &= has_token
    if terms.phrase is not None:
        is_in_phrase = np.zeros(len(matches), np.bool_)
        found = phrase_documents(postings, terms.phrase, terms.slop, is_flat=terms.is_flat)
        is_in_phrase[np.searchsorted(matches, found)] = True
        kept &= is_in_phrase
    return matches[kept], scores[kept]


def _slots(documents: RowNumbers, num_documents: int) -> tuple[RowNumbers, RowNumbers]:
    """Return documents, increasing, and the place of each posting among them."""
    if len(documents) * _SPARSE >= num_documents:
        return np.arange(num_documents), documents
    return np.unique(documents, return_inverse=True)
