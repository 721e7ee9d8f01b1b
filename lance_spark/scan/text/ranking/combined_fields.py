"""Scores of several columns that are searched as if they were one: BM25F.

The frequency of a token in a row, and the length of its text, are the sums over the columns of the
frequency and the length there, times the factor of the column. The score of a row is that of
`scoring`, with each token counted once, and with

| number | over the columns |
| --- | --- |
| documents | the greatest number |
| documents with a token | the greatest number |
| mean length | the sum of all tokens, times the factor of the column, divided by the documents |

All rows have the same statistics, also those that no index covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.scan.indexes.moved_rows import in_fragments
from lance_spark.scan.text.files.index import TokenPostings
from lance_spark.scan.text.ranking.hits import Hits
from lance_spark.scan.text.ranking.scoring import ScoredPart, Statistics, Terms, term_scores
from lance_spark.table.rows.u64_segments import UInt64Array


@dataclass(frozen=True, slots=True)
class FieldRows:
    """The rows of a column, and how often they have the tokens of a query.

    Attributes
    ----------
    statistics : Statistics
    addresses, lengths : list of array
        Of each row, and the tokens of its text.
    tokens, rows, frequencies : list of array
        Of each posting: number of the token, address of the row, and how often it has the token.
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

    Parameters
    ----------
    fields : sequence of FieldRows
        Of the same tokens.
    factors : sequence of float
        Of each column.
    fragments : BitMap
        The fragments of the rows.
    needs_all : bool
        Whether rows must have all tokens.
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
