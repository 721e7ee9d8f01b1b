"""Text that no index covers: it is split into tokens, of which those of a query are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.text.files.index import Documents, TokenPostings
from lance_spark.scan.text.tokenizer import DocumentTokenizer
from lance_spark.table.rows.u64_segments import UInt64Array


class FlatPart:
    """Documents without an index, as a part of one.

    Parameters
    ----------
    tokenizer : DocumentTokenizer
    wanted : collection of int
        Numbers of the tokens in the vocabulary of the tokenizer whose postings are kept.
    """

    def __init__(self, tokenizer: DocumentTokenizer, wanted: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._wanted = np.array(sorted(wanted), np.int64)
        # Of each batch: token, document and position of each kept token.
        self._kept: list[tuple[RowNumbers, RowNumbers, RowNumbers]] = []
        self._addresses: list[UInt64Array] = []
        self._lengths: list[RowNumbers] = []
        self.num_documents = 0

    def add(self, texts: pa.Array, addresses: UInt64Array) -> None:
        """Add rows with their addresses."""
        tokens = self._tokenizer.split(texts)
        lengths = np.bincount(tokens.rows, minlength=len(texts))
        # A row without tokens is not a document.
        is_document = lengths > 0
        numbers = np.cumsum(is_document) - 1 + self.num_documents
        kept = np.isin(tokens.ids, self._wanted)
        self._kept.append((tokens.ids[kept], numbers[tokens.rows[kept]], tokens.positions[kept]))
        self._addresses.append(addresses[is_document])
        self._lengths.append(lengths[is_document])
        self.num_documents += int(is_document.sum())

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents."""
        return sum(int(lengths.sum()) for lengths in self._lengths)

    @property
    def documents(self) -> Documents:
        """The documents, with addresses in place of row ids."""
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        addresses = np.concatenate([np.empty(0, np.uint64), *self._addresses])
        return Documents(addresses, lengths.astype(np.uint32))

    def score_lengths(self, documents: RowNumbers) -> npt.NDArray[np.uint32]:
        """Return the tokens of documents."""
        return self.documents.lengths[documents]

    def postings(self, tokens: Sequence[str], *, with_positions: bool = False) -> TokenPostings:
        """Return the documents of tokens, as `TextIndexPart.postings`."""
        empty = np.empty(0, np.int64)
        ids, documents, positions = (
            np.concatenate([empty, *(batch[column] for batch in self._kept)]) for column in range(3)
        )
        # Tokens that no text has are in no vocabulary.
        place = {token: number for number, token in enumerate(tokens)}
        ranks = np.array(
            [place.get(self._tokenizer.vocabulary[number], -1) for number in self._wanted.tolist()],
            np.int64,
        )
        rank = ranks[np.searchsorted(self._wanted, ids)] if len(ids) else empty
        order = np.argsort(rank, kind="stable")
        order = order[rank[order] >= 0]
        rank, documents, positions = rank[order], documents[order], positions[order]
        is_first = np.ones(len(rank), np.bool_)
        is_first[1:] = (np.diff(rank) != 0) | (np.diff(documents) != 0)
        starts = np.flatnonzero(is_first)
        return TokenPostings(
            bounds=np.searchsorted(rank[starts], np.arange(len(tokens) + 1)),
            documents=documents[starts],
            frequencies=np.diff(np.append(starts, len(rank))),
            positions=positions if with_positions else None,
        )
