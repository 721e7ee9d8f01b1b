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
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.indexes.row_sets import in_fragments
from lance_spark.indexes.text.files import Documents, TextIndexPart, TokenPostings
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Rows that match a query, with their scores, and how queries of several parts combine them.

Scores = npt.NDArray[np.float64]
#: Scores of a group, of which only the greatest is compared at first.
_GROUP = 64


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that match a query.

    - `addresses` (uint64 array): Increasing.
    - `scores`: Float64 array.
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

        - `limit`: Most rows.
        - `keeps_ties`: Whether all rows with the score of the last row are returned, too.
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

    - `scores` (float32 array): At least as many as the limit, without NaN.
    - `keeps_ties`: Whether all scores that equal the last one are chosen, too.
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


# --------------------------------------------------------------------------------------------------
# Documents that have the tokens of a phrase in order.
#
# The relative position of a token is its position in the document minus that in the phrase. Without
# slop, all tokens must have the same relative position. With slop, each token may be up to that
# many steps after the one before it.

#: A key is a document's number times this, plus a position.
_SPAN = np.int64(1 << 33)


def phrase_documents(
    postings: TokenPostings,
    phrase: Sequence[tuple[tuple[int, ...], int]],
    slop: int,
    *,
    is_flat: bool,
) -> RowNumbers:
    """Return the documents with a phrase, increasing.

    - `postings`: With positions.
    - `phrase` (sequence of (tuple of int, int)): Numbers of tokens in the postings, one of which
      must be at a position of the phrase, and this position.
    - `is_flat`: Whether the documents have no index. With slop, a search in an index finds fewer
      documents.
    """
    groups = dict.fromkeys(tokens for tokens, _ in phrase)
    sets = [
        _distinct(_merged([_documents(postings, token) for token in tokens])) for tokens in groups
    ]
    documents, *others = sorted(sets, key=len)
    for other in others:
        place = np.minimum(np.searchsorted(other, documents), max(len(other) - 1, 0))
        documents = documents[other[place] == documents]
    if not len(documents):
        return documents
    keys = {
        tokens: _merged([_keys(postings, token, documents) for token in tokens])
        for tokens in groups
    }
    first = min(position for _, position in phrase)
    steps = [(keys[tokens], position - first) for tokens, position in phrase]
    numbers = _chained(steps, slop) if is_flat or not slop else _moved(steps, len(documents), slop)
    matches: RowNumbers = documents[numbers]
    return matches


def _merged(arrays: Sequence[RowNumbers]) -> RowNumbers:
    """Return the values of arrays that increase, in order."""
    return arrays[0] if len(arrays) == 1 else np.sort(np.concatenate(arrays))


def _distinct(values: RowNumbers) -> RowNumbers:
    """Return the distinct values of an array in order."""
    distinct: RowNumbers = values[np.diff(values, prepend=-1) != 0]
    return distinct


def _documents(postings: TokenPostings, token: int) -> RowNumbers:
    return postings.documents[postings.bounds[token] : postings.bounds[token + 1]]


def _keys(postings: TokenPostings, token: int, documents: RowNumbers) -> RowNumbers:
    """Return the keys of a token, increasing, by the place of the document among some."""
    assert postings.positions is not None
    start, stop = postings.bounds[token : token + 2].tolist()
    before = int(postings.frequencies[:start].sum())
    frequencies = postings.frequencies[start:stop]
    positions = postings.positions[before : before + int(frequencies.sum())]
    own = postings.documents[start:stop]
    place = np.minimum(np.searchsorted(documents, own), len(documents) - 1)
    is_kept = np.repeat(documents[place] == own, frequencies)
    keys: RowNumbers = np.repeat(place, frequencies)[is_kept] * _SPAN + positions[is_kept]
    return keys


def _chained(steps: Sequence[tuple[RowNumbers, int]], slop: int) -> RowNumbers:
    """Follow the positions of each token that a position of the token before leads to."""
    reached, _ = steps[0]
    for keys, position in steps[1:]:
        # A position before the phrase would have the key of another document.
        relative = keys[keys % _SPAN >= position] - position
        first = np.searchsorted(reached, relative - slop)
        reached = relative[np.searchsorted(reached, relative, "right") > first]
    return _distinct(reached // _SPAN)


def _moved(steps: Sequence[tuple[RowNumbers, int]], num_documents: int, slop: int) -> RowNumbers:
    """Move all tokens of a document forward until they match, for all documents at once.

    This misses documents with a match that needs a step back, as other clients do.
    """
    active = np.arange(num_documents)
    least: RowNumbers | None = None
    matched: list[RowNumbers] = []
    while len(active):
        relative, exists = _relative(steps, active, least)
        active, relative = active[exists], relative[:, exists]
        move_to = np.full(len(active), np.iinfo(np.int64).min)
        matches: npt.NDArray[np.bool_] = np.ones(len(active), np.bool_)
        for last, following in itertools.pairwise(relative):
            target = np.where(last > following, last, np.maximum(last + 1, following - slop))
            move_to = np.where(matches, np.maximum(move_to, target), move_to)
            matches &= (last <= following) & (following <= last + slop)
        matched.append(active[matches])
        active, least = active[~matches], move_to[~matches]
    return np.sort(np.concatenate(matched)) if matched else active


def _relative(
    steps: Sequence[tuple[RowNumbers, int]], active: RowNumbers, least: RowNumbers | None
) -> tuple[RowNumbers, npt.NDArray[np.bool_]]:
    """Return the first relative position of each token from `least` on, for each document.

    Documents where a token has no such position are not marked in the second array.
    """
    relative = np.empty((len(steps), len(active)), np.int64)
    exists = np.ones(len(active), np.bool_)
    for number, (keys, position) in enumerate(steps):
        start = 0 if least is None else np.maximum(least + position, 0)
        place = np.searchsorted(keys, active * _SPAN + start)
        exists &= place < len(keys)
        key = keys[np.minimum(place, len(keys) - 1)]
        exists &= key // _SPAN == active
        relative[number] = key % _SPAN - position
    return relative, exists


# --------------------------------------------------------------------------------------------------
# Scores of documents: BM25 with the statistics of all parts that are searched together.

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

    - `tokens`: Distinct.
    - `weights`: How often each token counts.
    - `groups`: If set, a document must have a token of each group, which has numbers of tokens.
    - `phrase` (tuple of (tuple of int, int), or None): If set, groups of tokens, and the position
      of each, that a document must have in order.
    - `slop`: Most steps between the tokens of the phrase.
    - `is_flat`: Whether the documents have no index.
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

    - `with_token` (int64 array): Documents that have each token of a query.
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

    - `frequencies` (array of numbers): How often a document has a token.
    - `lengths` (array of numbers): The tokens of the document, as scores count them.
    - `mean`: The mean number of tokens.
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


# --------------------------------------------------------------------------------------------------
# Scores of several columns that are searched as if they were one: BM25F.
#
# The frequency of a token in a row, and the length of its text, are the sums over the columns of
# the frequency and the length there, times the factor of the column. The score of a row is that of
# `scoring`, with each token counted once, and with
#
# | number | over the columns |
# | --- | --- |
# | documents | the greatest number |
# | documents with a token | the greatest number |
# | mean length | the sum of all tokens, times the factor of the column, divided by the documents |
#
# All rows have the same statistics, also those that no index covers.


@dataclass(frozen=True, slots=True)
class FieldRows:
    """The rows of a column, and how often they have the tokens of a query.

    - `addresses`, `lengths` (list of array): Of each row, and the tokens of its text.
    - `tokens`, `rows`, `frequencies` (list of array): Of each posting: number of the token, address
      of the row, and how often it has the token.
    """

    statistics: Statistics
    addresses: list[UInt64Array]
    lengths: list[npt.NDArray[np.uint32]]
    tokens: list[RowNumbers]
    rows: list[UInt64Array]
    frequencies: list[npt.NDArray[np.integer[Any]]]

    def add(
        self,
        part: ScoredPart,
        postings: TokenPostings,
        addresses: UInt64Array,
        is_live: npt.NDArray[np.bool_],
    ) -> None:
        """Add the live documents of a part, of which the addresses are given."""
        live = np.flatnonzero(is_live)
        self.addresses.append(addresses[live])
        self.lengths.append(part.score_lengths(live))
        kept = np.flatnonzero(is_live[postings.documents])
        tokens = np.repeat(np.arange(len(postings.bounds) - 1), np.diff(postings.bounds))
        self.tokens.append(tokens[kept])
        self.rows.append(addresses[postings.documents[kept]])
        self.frequencies.append(postings.frequencies[kept])


def combined_fields(
    fields: Sequence[FieldRows],
    factors: Sequence[float],
    fragments: BitMap,
    *,
    needs_all: bool,
) -> Hits:
    """Return the rows that match in any of several columns.

    - `fields`: Of the same tokens.
    - `factors`: Of each column.
    - `fragments`: The fragments of the rows.
    - `needs_all`: Whether rows must have all tokens.
    """
    rows = distinct(np.concatenate([np.empty(0, np.uint64), *(r for f in fields for r in f.rows)]))
    rows = rows[in_fragments(rows, fragments)]
    if not len(rows):
        return Hits.none()
    count = len(fields[0].statistics.with_token)
    frequencies, lengths = np.zeros((count, len(rows))), np.zeros(len(rows))
    num_tokens = 0.0
    for field, factor in zip(fields, factors, strict=True):
        num_tokens += factor * field.statistics.num_tokens
        for addresses, own in zip(field.addresses, field.lengths, strict=True):
            places, present = _places(rows, addresses)
            np.add.at(lengths, places, factor * own[present])
        postings = zip(field.tokens, field.rows, field.frequencies, strict=True)
        for tokens, addresses, own_frequencies in postings:
            places, present = _places(rows, addresses)
            np.add.at(frequencies, (tokens[present], places), factor * own_frequencies[present])
    statistics = Statistics(
        max(field.statistics.num_documents for field in fields),
        0,
        np.max([field.statistics.with_token for field in fields], axis=0),
    )
    mean = num_tokens / max(statistics.num_documents, 1)
    weights = statistics.weights(Terms(("",) * count, (1,) * count))
    scores = np.matmul(weights, term_scores(frequencies, lengths, mean))
    kept = (frequencies > 0).all(axis=0) if needs_all else np.ones(len(rows), np.bool_)
    return Hits(rows[kept], scores[kept])


def _places(rows: UInt64Array, addresses: UInt64Array) -> tuple[RowNumbers, RowNumbers]:
    """Return the places of addresses among rows, and which addresses are there."""
    places = np.minimum(np.searchsorted(rows, addresses), len(rows) - 1)
    present = np.flatnonzero(rows[places] == addresses)
    return places[present], present
