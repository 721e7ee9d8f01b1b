"""Parts of INVERTED indexes that become parts of a new segment, without the text of their rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.scan.text.files import index
from lance_spark.scan.text.files.index import TextIndexPart, TokenPostings
from lance_spark.scan.text.files.part_writer import (
    CHUNK_TOKENS,
    TOKEN_BYTES,
    Form,
    part_memory,
    write_documents,
    write_tokens,
)
from lance_spark.scan.text.files.postings import PostingFormat
from lance_spark.table.rows.u64_segments import UInt64Array

#: More than the bytes of any token.
_ANY_SIZE = (1 << 31) - 1
#: Most tokens of a document whose postings are decoded.
_MAX_LENGTH = 1 << 24


@dataclass(frozen=True, slots=True)
class TokensOfDocuments:
    """Some documents of a part.

    Attributes
    ----------
    words : int64 array
        Place of each token among the words that are given with it.
    numbers : int64 array
        Document of each token, numbered from 0 on. The documents of each word increase.
    positions : int64 array
    row_ids : uint64 array
    lengths : int64 array
        Tokens of each document.
    """

    words: RowNumbers
    numbers: RowNumbers
    positions: RowNumbers
    row_ids: UInt64Array
    lengths: RowNumbers


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part, and what becomes of its documents.

    Attributes
    ----------
    part : TextIndexPart
    row_ids : uint64 array
        The new row id of each document.
    is_kept : bool array
        Whether each document is kept.
    """

    part: TextIndexPart
    row_ids: UInt64Array
    is_kept: npt.NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the documents take in a part that is written, about."""
        lengths = self.part.documents.lengths[self.is_kept]
        return part_memory(int(lengths.sum(dtype=np.int64)), len(lengths), 0)

    def has_form(self, form: Form) -> bool:
        """Return whether all documents are kept, and the postings have a form."""
        layout = self.part.layout
        if not self.is_kept.all() or layout.posting_format != PostingFormat():
            return False
        with closing(self.part.open("invert")) as file:
            metadata = file.schema.metadata
        names = ("format_version", "positions_layout", "positions_codec")
        return all(
            metadata.get(name, b"") == form.metadata.get(name, "").encode() for name in names
        )

    def copy(self, segment: SegmentWriter, number: int, token_form: str) -> None:
        """Write the part with the same postings, as a part of another segment.

        The token dictionary gets a form.

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        """
        part = self.part
        file_types = ["invert"]
        if part.layout.token_form == token_form:
            file_types.append("tokens")
        else:
            words = pa.array(all_words(part), pa.binary()).cast(pa.string())
            write_tokens(segment, number, words, token_form)
        if np.array_equal(self.row_ids, part.documents.row_ids):
            file_types.append("docs")
        else:
            write_documents(segment, number, self.row_ids, part.documents.lengths)
        for file_type in file_types:
            name, new_name = (
                index.part_file(part.number, file_type),
                index.part_file(number, file_type),
            )
            segment.copy(part.files, name, new_name)

    def read(self, memory: int) -> Iterator[tuple[list[str], TokensOfDocuments]]:
        """Yield some documents after the other, and the words that they have.

        Parameters
        ----------
        memory : int
            Bytes of memory of the documents in a part that is written, about.

        Raises
        ------
        CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
        """
        words = all_words(self.part)
        lengths = self.part.documents.lengths.astype(np.int64)
        if lengths[self.is_kept].max(initial=0) > _MAX_LENGTH:
            raise UnsupportedFeatureError(
                f"index {self.part.files.segment.name!r}: a document has more than {_MAX_LENGTH} "
                "tokens; extend the index with retrain=True"
            )
        # Documents whose sum of tokens is about that of a step.
        step = np.cumsum(np.where(self.is_kept, lengths, 0)) // max(1, memory // TOKEN_BYTES)
        bounds = [0, *(np.flatnonzero(np.diff(step)) + 1).tolist(), len(lengths)]
        for start, stop in itertools.pairwise(bounds):
            kept = np.flatnonzero(self.is_kept[start:stop]) + start
            if not len(kept):
                continue
            ids, documents, places = self._tokens(kept, lengths[kept])
            # The tokens come in the order of their numbers.
            is_first = np.diff(ids, prepend=-1) != 0
            of_token = np.cumsum(is_first) - 1
            yield (
                [words[number].decode() for number in ids[is_first].tolist()],
                TokensOfDocuments(of_token, documents, places, self.row_ids[kept], lengths[kept]),
            )

    def _tokens(
        self, kept: RowNumbers, lengths: RowNumbers
    ) -> tuple[RowNumbers, RowNumbers, RowNumbers]:
        """Return the number, the document and the position of each token of some documents."""
        new = np.full(self.part.num_documents, -1)
        new[kept] = np.arange(len(kept))
        remaining = lengths.copy()
        pieces = []
        for first, postings in all_postings(self.part):
            documents = new[postings.documents]
            is_kept = documents >= 0
            ids = np.repeat(np.arange(len(postings.bounds) - 1) + first, np.diff(postings.bounds))
            frequencies = postings.frequencies[is_kept]
            # Few bytes can have any frequency.
            np.subtract.at(remaining, documents[is_kept], frequencies)
            if (remaining < 0).any():
                raise CorruptFileError(
                    f"index {self.part.files.segment.name!r}: the postings of a document are more "
                    "than its tokens; rebuild the index"
                )
            if postings.positions is None:
                places = np.zeros(int(frequencies.sum()), np.int64)
            else:
                places = postings.positions[np.repeat(is_kept, postings.frequencies)]
            pieces.append(
                (
                    np.repeat(ids[is_kept], frequencies).astype(np.int32),
                    np.repeat(documents[is_kept], frequencies).astype(np.int32),
                    places.astype(np.int32),
                )
            )
        empty = np.empty(0, np.int32)
        ids, documents, places = (
            np.concatenate([empty, *(chunk[column] for chunk in pieces)]) for column in range(3)
        )
        return ids, documents, places


def all_words(part: TextIndexPart) -> list[bytes]:
    """Return the tokens of a part by their numbers.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    words, numbers = part.tokens.starting_with(b"", _ANY_SIZE)
    if not np.array_equal(np.sort(numbers), np.arange(len(words))):
        raise CorruptFileError(
            f"{part.files.segment.name}: two tokens have one number; rebuild the index"
        )
    return [words[place] for place in np.argsort(numbers).tolist()]


def all_postings(part: TextIndexPart) -> Iterator[tuple[int, TokenPostings]]:
    """Yield the postings of some tokens after the other, with the number of the first token.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    with_positions = part.layout.parameters.with_position
    for start, stop in token_ranges(part):
        yield start, part.read_postings(np.arange(start, stop), with_positions=with_positions)


def token_ranges(part: TextIndexPart) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number, plus one, of tokens that are read together.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    counts = part.token_lengths
    before = np.append(0, np.cumsum(counts, dtype=np.int64))
    start = 0
    while start < len(counts):
        stop = int(np.searchsorted(before, before[start] + CHUNK_TOKENS, "right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop
