"""Stored blocks of the postings of tokens, with the first document and the greatest score of each.

A search for the best documents decodes only the blocks that may have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.scan.text.files.packing import gathered
from lance_spark.scan.text.files.postings import (
    Blocks,
    PostingFormat,
    Postings,
    decoded,
    truncated,
)


@dataclass(frozen=True, slots=True)
class TokenBlocks:
    """Blocks of the postings of tokens.

    Attributes
    ----------
    blocks : Blocks
    firsts : int64 array
        The first document of each block.
    scores : float32 array
        The greatest score of each block, with the statistics of the part when it was written.
    form : PostingFormat
        Its blocks have scores.
    num_documents : int
        Documents of the part.
    name : str
        Name of the file, for errors.
    """

    blocks: Blocks
    firsts: RowNumbers
    scores: npt.NDArray[np.float32]
    form: PostingFormat
    num_documents: int
    name: str

    @classmethod
    def of(cls, blocks: Blocks, form: PostingFormat, num_documents: int, name: str) -> TokenBlocks:
        """Return blocks of a file; see the attributes.

        Raises
        ------
        CorruptFileError
            A block is truncated, or first documents do not increase or do not exist.
        """
        data, starts = blocks.data, blocks.starts
        counts = blocks.counts(form.block_size)
        if (blocks.stops - starts < form.least_bytes(counts)).any():
            raise truncated(name)
        full = np.flatnonzero(counts == form.block_size)
        firsts = np.empty(len(counts), np.int64)
        firsts[full] = gathered(data, starts[full] + form.score_bytes, 4).view("<u4")[:, 0]
        tails = np.flatnonzero(counts < form.block_size)
        read = decoded(blocks.select(tails, form.block_size), form, num_documents, name)
        firsts[tails] = read.documents[read.bounds[:-1][np.diff(read.bounds) > 0]]
        increases = np.diff(firsts, prepend=-1) > 0
        increases[blocks.bounds[:-1][np.diff(blocks.bounds) > 0]] = True
        if not increases.all() or firsts.max(initial=-1) >= num_documents:
            raise CorruptFileError(
                f"{name}: documents of posting blocks do not increase or exist; rebuild the index"
            )
        scores = gathered(data, starts, form.score_bytes).view("<f4")[:, 0]
        return cls(blocks, firsts, scores, form, num_documents, name)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        numbers = (self.blocks.starts, self.blocks.stops, self.firsts, self.scores)
        return sum(array.nbytes for array in (self.blocks.data, *numbers))

    def of_token(self, number: int) -> TokenBlocks:
        """Return a copy of the blocks of one token."""
        whole = self.blocks
        own = slice(*whole.bounds[number : number + 2].tolist())
        starts, stops = whole.starts[own], whole.stops[own]
        first, last = (int(starts[0]), int(stops[-1])) if len(starts) else (0, 0)
        blocks = Blocks(
            whole.data[first:last].copy(),
            starts - first,
            stops - first,
            np.array([0, len(starts)]),
            whole.lengths[number : number + 1].copy(),
        )
        return replace(
            self, blocks=blocks, firsts=self.firsts[own].copy(), scores=self.scores[own].copy()
        )

    @classmethod
    def joined(cls, tokens: Sequence[TokenBlocks]) -> TokenBlocks:
        """Return the blocks of several tokens of a part together."""
        if len(tokens) == 1:
            return tokens[0]
        parts = [token.blocks for token in tokens]
        offsets = np.append(0, np.cumsum([len(part.data) for part in parts])).tolist()
        blocks = Blocks(
            np.concatenate([part.data for part in parts]),
            np.concatenate(
                [part.starts + first for part, first in zip(parts, offsets, strict=False)]
            ),
            np.concatenate(
                [part.stops + first for part, first in zip(parts, offsets, strict=False)]
            ),
            np.append(0, np.cumsum([len(part.starts) for part in parts])),
            np.concatenate([part.lengths for part in parts]),
        )
        return replace(
            tokens[0],
            blocks=blocks,
            firsts=np.concatenate([token.firsts for token in tokens]),
            scores=np.concatenate([token.scores for token in tokens]),
        )

    def decoded(self, numbers: RowNumbers | None = None) -> Postings:
        """Return the postings of blocks; of some, if their numbers, which increase, are given.

        Raises
        ------
        CorruptFileError
            A block is damaged.
        """
        blocks = self.blocks
        if numbers is not None:
            blocks = blocks.select(numbers, self.form.block_size)
        return decoded(blocks, self.form, self.num_documents, self.name)
