"""Words that are similar to a word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers

#: Most bytes of a character in UTF-8.
_CHARACTER_BYTES = 4


def most_bytes(word: str, distance: int) -> int:
    """Return the greatest size of words within a distance of a word."""
    return _CHARACTER_BYTES * (len(word) + distance)


def within(words: Sequence[bytes], word: str, distance: int) -> RowNumbers:
    """Return the positions of the words within a Levenshtein distance of a word.

    Parameters
    ----------
    words : sequence of bytes
        In UTF-8.
    word : str
    distance : int
        Most changed, inserted and removed characters.
    """
    sizes = np.array([len(candidate.decode(errors="replace")) for candidate in words], np.int64)
    near = np.flatnonzero(np.abs(sizes - len(word)) <= distance)
    if not len(near):
        return near
    sizes = sizes[near]
    longest = int(sizes.max())
    texts = [words[position].decode(errors="replace").ljust(longest) for position in near.tolist()]
    encoded = "".join(texts).encode("utf-32-le", "surrogatepass")
    characters = np.frombuffer(encoded, np.uint32).reshape(len(near), longest).T
    # A row for each prefix of the candidates, a column for each candidate.
    costs: npt.NDArray[np.int64] = np.repeat(np.arange(longest + 1)[:, None], len(near), axis=1)
    for number, character in enumerate(word, 1):
        before, costs = costs, np.empty_like(costs)
        costs[0] = number
        changed = before[:-1] + (characters != ord(character))
        best = np.minimum(changed, before[1:] + 1)
        for length in range(1, longest + 1):
            costs[length] = np.minimum(best[length - 1], costs[length - 1] + 1)
    return near[costs[sizes, np.arange(len(near))] <= distance]
