"""Documents that have the tokens of a phrase in order.

The relative position of a token is its position in the document minus that in the phrase. Without
slop, all tokens must have the same relative position. With slop, each token may be up to that many
steps after the one before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.text.files.index import TokenPostings

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

    Parameters
    ----------
    postings : TokenPostings
        With positions.
    phrase : sequence of (tuple of int, int)
        Numbers of tokens in the postings, one of which must be at a position of the phrase, and
        this position.
    slop : int
    is_flat : bool
        Whether the documents have no index. With slop, a search in an index finds fewer documents.
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
