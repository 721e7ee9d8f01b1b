"""The terms of a query: the tokens that are looked for, and what a document must have of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lance_spark.scan.text import fuzzy
from lance_spark.scan.text.files.index import TextIndexPart
from lance_spark.scan.text.queries import FullTextOperator, MatchQuery, PhraseQuery
from lance_spark.scan.text.ranking.scoring import Terms


def is_fuzzy(query: MatchQuery | PhraseQuery) -> bool:
    """Return whether a query is about similar words, too."""
    return isinstance(query, MatchQuery) and bool(query.fuzziness)


def terms_of(
    query: MatchQuery | PhraseQuery, words: list[str], positions: list[int], *, is_flat: bool
) -> Terms:
    """Return the terms of a query without similar words.

    Substrings have all the same position, and are alternatives. A token counts once at a position.
    Without an index, it counts each time, and a phrase needs all tokens.
    """
    tokens = list(dict.fromkeys(words))
    number = {token: place for place, token in enumerate(tokens)}
    pairs = list(zip(words, positions, strict=True))
    weights = [0] * len(tokens)
    groups: dict[int, list[int]] = {}
    for word, position in pairs if is_flat else dict.fromkeys(pairs):
        weights[number[word]] += 1
        groups.setdefault(position, []).append(number[word])
    terms = Terms(tuple(tokens), tuple(weights), is_flat=is_flat)
    alternatives = tuple(tuple(group) for group in groups.values())
    if isinstance(query, PhraseQuery):
        phrase = tuple(zip(alternatives, groups, strict=True))
        if is_flat:
            phrase = tuple(((number[word],), position) for word, position in pairs)
        return replace(terms, phrase=phrase, slop=query.slop)
    if query.operator is FullTextOperator.AND:
        return replace(terms, groups=alternatives)
    return terms


def expanded_terms(
    query: MatchQuery, words: Sequence[tuple[str, int]], parts: Sequence[TextIndexPart]
) -> Terms:
    """Return the terms of a query with the similar words of an index in place of each word.

    Parameters
    ----------
    query : MatchQuery
    words : sequence of (str, int)
        The words, and how many characters at the beginning of each are the same in similar words.
    parts : sequence of TextIndexPart
    """
    assert query.fuzziness is not None
    numbers: dict[str, int] = {}
    weights: list[int] = []
    groups = []
    remaining = query.max_expansions
    for word, start in words:
        prefix = word[: start + query.prefix_length].encode()
        size = fuzzy.most_bytes(word, query.fuzziness)
        similar: set[bytes] = set()
        for part in parts:
            candidates, _ = part.tokens.starting_with(prefix, size)
            near = fuzzy.within(candidates, word, query.fuzziness)
            similar.update(candidates[place] for place in near.tolist())
        chosen = sorted(similar)[:remaining]
        remaining -= len(chosen)
        group = []
        for token in chosen:
            number = numbers.setdefault(token.decode(errors="replace"), len(weights))
            if number == len(weights):
                weights.append(0)
            weights[number] += 1
            group.append(number)
        groups.append(tuple(group))
    needs_all = query.operator is FullTextOperator.AND
    return Terms(tuple(numbers), tuple(weights), tuple(groups) if needs_all else None)
