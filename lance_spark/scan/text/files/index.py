"""The files of a segment of an INVERTED index.

| file | columns | content |
| --- | --- | --- |
| `metadata.lance` | deleted_fragments | parameters, in the metadata of the schema |
| `part_<n>_docs.lance` | _rowid (uint64), _num_tokens (uint32) | a row for each document |
| `part_<n>_tokens.lance` | see `tokens` | the number of each token |
| `part_<n>_invert.lance` | _posting, _length (uint32), positions | a row for each token |

A document is a row of the table with one token or more. Its number is that of its row in
`part_<n>_docs.lance`. Parts have their own numbers of documents and tokens.

Specification: table/index/scalar/fts.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.open import DataFileReader
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.files import IndexFiles, named, number_in, read_columns
from lance_spark.scan.text.files import positions
from lance_spark.scan.text.files.layout import Layout, damaged, required
from lance_spark.scan.text.files.postings import blocks_of, decoded
from lance_spark.scan.text.files.token_blocks import TokenBlocks
from lance_spark.scan.text.files.tokens import TokenSet, read_tokens
from lance_spark.table.rows.u64_segments import UInt64Array

ROW_IDS, NUM_TOKENS, TOTAL_TOKENS = "_rowid", "_num_tokens", "total_tokens"
POSTING, LENGTH, MAX_SCORE, IMPACTS = "_posting", "_length", "_max_score", "_impacts"
POSITION_LISTS, POSITION_STREAM = "_position", "_compressed_position"
POSITION_STARTS = "_position_block_offset"
BLOCKS = pa.list_(pa.large_binary())
_LENGTH_BITS = 4

_T = TypeVar("_T")
#: Documents and frequencies of a token.
PostingList = tuple[RowNumbers, npt.NDArray[np.integer[Any]]]


@dataclass(frozen=True, slots=True)
class TokenPostings:
    """The documents of some tokens, one token after the other.

    Attributes
    ----------
    bounds : int64 array
        First posting of each token, and the number of postings.
    documents : int64 array
    frequencies : integer array
    positions : int64 array or None
        As many for each posting as its frequency, increasing; None if they are not wanted.
    """

    bounds: RowNumbers
    documents: RowNumbers
    frequencies: npt.NDArray[np.integer[Any]]
    positions: RowNumbers | None = None

    @classmethod
    def of(cls, lists: Sequence[PostingList]) -> TokenPostings:
        """Return the postings of tokens whose documents and frequencies are given."""
        bounds = np.append(0, np.cumsum([len(numbers) for numbers, _ in lists], dtype=np.int64))
        if len(lists) == 1:
            return cls(bounds, *lists[0])
        none = np.empty(0, np.int64), np.empty(0, np.uint32)
        documents, frequencies = zip(none, *lists, strict=True)
        return cls(bounds, np.concatenate(documents), np.concatenate(frequencies))


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a part.

    Attributes
    ----------
    row_ids : uint64 array
    lengths : uint32 array
        Tokens of each document.
    """

    row_ids: UInt64Array
    lengths: npt.NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.row_ids.nbytes + self.lengths.nbytes)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of a part that scores depend on.

    Attributes
    ----------
    num_documents, num_tokens : int
        Documents, and tokens of all documents.
    lengths : uint32 array
        Documents of each token, by its number.
    has_scores : bool
        Whether each block of postings has the greatest score of its documents.
    """

    num_documents: int
    num_tokens: int
    lengths: npt.NDArray[np.uint32]
    has_scores: bool

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.lengths.nbytes)


@dataclass(frozen=True)
class TextIndexPart:
    """A part of a segment.

    Attributes
    ----------
    files : IndexFiles
    number : int
    layout : Layout
    """

    files: IndexFiles
    number: int
    layout: Layout
    _loaded: dict[str, object] = field(default_factory=dict, compare=False)

    @property
    def documents(self) -> Documents:
        """The documents."""
        return self._cached("docs", self._read_documents, lambda content: content.nbytes)

    @property
    def tokens(self) -> TokenSet:
        """The tokens."""
        return self._cached("tokens", self._read_tokens, lambda content: content.nbytes)

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return self._counts.num_documents

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents."""
        return self._counts.num_tokens

    @property
    def token_lengths(self) -> npt.NDArray[np.uint32]:
        """Documents of each token, by its number."""
        return self._counts.lengths

    @property
    def has_scores(self) -> bool:
        """Whether each block of postings has the greatest score of its documents."""
        return self._counts.has_scores

    def document_counts(self, tokens: Sequence[str]) -> RowNumbers:
        """Return how many documents have each token.

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        """
        rows = self.rows_of(tokens)
        counts = np.zeros(len(rows), np.int64)
        counts[rows >= 0] = self._counts.lengths[rows[rows >= 0]]
        return counts

    def score_lengths(self, documents: RowNumbers) -> npt.NDArray[np.uint32]:
        """Return the tokens of documents as scores count them."""
        lengths = self.documents.lengths[documents]
        return rounded(lengths) if self.layout.posting_format.block_size > 128 else lengths

    def postings(self, tokens: Sequence[str], *, with_positions: bool = False) -> TokenPostings:
        """Return the documents of tokens; a missing token has none.

        Parameters
        ----------
        tokens : sequence of str
            Distinct tokens.
        with_positions : bool

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        UnsupportedFeatureError
            The index has no positions.
        """
        if not with_positions:
            return TokenPostings.of(self.posting_lists(tokens))
        rows = self.rows_of(tokens)
        wanted = np.unique(rows[rows >= 0])
        read = self.read_postings(wanted, with_positions=True)
        # The postings in the order of the tokens.
        place = np.searchsorted(wanted, rows)
        sizes = np.append(np.diff(read.bounds), 0)
        counts = np.where(rows >= 0, sizes[place], 0)
        bounds = np.append(0, np.cumsum(counts))
        starts = np.append(read.bounds[:-1], 0)[place]
        order = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], counts)
        frequencies = read.frequencies[order]
        ordered = None
        if read.positions is not None:
            first = np.append(0, np.cumsum(read.frequencies))[order]
            of_posting = np.append(0, np.cumsum(frequencies))
            offsets = np.repeat(first - of_posting[:-1], frequencies)
            ordered = read.positions[np.arange(of_posting[-1]) + offsets]
        return TokenPostings(bounds, read.documents[order], frequencies, ordered)

    def token_blocks(self, tokens: Sequence[str]) -> list[TokenBlocks]:
        """Return the blocks of distinct tokens that the part has, if blocks have scores.

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        """
        return self.blocks_of(self.rows_of(tokens))

    def has_decoded(self, tokens: Sequence[str]) -> bool:
        """Return whether the cache has the decoded postings of all tokens that the part has."""
        rows = self.rows_of(tokens)
        return self.files.has_parts(self._name("invert"), rows[rows >= 0].tolist())

    def blocks_of(self, rows: RowNumbers) -> list[TokenBlocks]:
        """Return the blocks of tokens by their numbers; see `token_blocks`."""

        def read(wanted: Sequence[int]) -> list[TokenBlocks]:
            numbers = ~np.array(wanted, np.int64)
            order = np.argsort(numbers)
            with closing(self.open("invert")) as file:
                fields = [named(file, POSTING, BLOCKS), named(file, LENGTH, pa.uint32())]
                columns = file.read(fields, numbers[order])
                blocks = blocks_of(columns[0], columns[1], form.block_size, file.source.name)
                sorted_blocks = TokenBlocks.of(blocks, form, self.num_documents, file.source.name)
            return [sorted_blocks.of_token(place) for place in np.argsort(order).tolist()]

        form = self.layout.posting_format
        # The cache has decoded postings by the numbers from 0 on.
        name, numbers = self._name("invert"), (~rows).tolist()
        return self.files.cached_parts(name, numbers, read, lambda own: own.nbytes)

    def posting_lists(self, tokens: Sequence[str]) -> list[PostingList]:
        """Return the documents of distinct tokens; a missing token has none.

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        """

        def read(wanted: Sequence[int]) -> list[PostingList]:
            numbers = np.array(wanted, np.int64)
            if self.has_scores:
                read = TokenBlocks.joined(self.blocks_of(numbers)).decoded()
                postings = TokenPostings(read.bounds, read.documents, read.frequencies)
            else:
                postings = self.read_postings(numbers, with_positions=False)
            if len(wanted) == 1:
                return [(postings.documents, postings.frequencies)]
            columns = postings.documents, postings.frequencies
            pieces = [np.split(column, postings.bounds[1:-1]) for column in columns]
            # Copies: an array of all tokens must not stay as long as one of them.
            return [(a.copy(), b.copy()) for a, b in zip(*pieces, strict=True)]

        rows = self.rows_of(tokens)
        wanted = np.unique(rows[rows >= 0]).tolist()
        lists = self.files.cached_parts(
            self._name("invert"), wanted, read, lambda both: both[0].nbytes + both[1].nbytes
        )
        by_row = dict(zip(wanted, lists, strict=True))
        none = np.empty(0, np.int64), np.empty(0, np.uint32)
        return [by_row.get(row, none) for row in rows.tolist()]

    def kept_by_token(
        self,
        name: str,
        tokens: Sequence[str],
        make: Callable[[int], _T],
        size: Callable[[_T], int],
    ) -> list[_T | None]:
        """Return what is computed for each of distinct tokens; None for a token without documents.

        Parameters
        ----------
        name : str
            What it is; unlike the names of files.
        tokens : sequence of str
        make : callable
            Computes it, given the place of a token, unless the cache has it.
        size : callable
            Returns its bytes.
        """
        rows = self.rows_of(tokens).tolist()
        lengths = self._counts.lengths
        places = {row: place for place, row in enumerate(rows) if row >= 0 and lengths[row]}
        contents = self.files.cached_parts(
            self._name(name), list(places), lambda some: [make(places[row]) for row in some], size
        )
        by_row = dict(zip(places, contents, strict=True))
        return [by_row.get(row) for row in rows]

    @property
    def _counts(self) -> Counts:
        return self._cached("invert", self._read_counts, lambda content: content.nbytes)

    def rows_of(self, tokens: Sequence[str]) -> RowNumbers:
        """Return the numbers of tokens; -1 for a missing token."""
        numbers = [self.tokens.find(token.encode("utf-8", "surrogatepass")) for token in tokens]
        return np.array([-1 if number is None else number for number in numbers], np.int64)

    def read_postings(self, rows: RowNumbers, *, with_positions: bool) -> TokenPostings:
        """Return the documents of tokens by their numbers, which increase; see `postings`."""
        empty = np.empty(0, np.int64)
        if not len(rows):
            return TokenPostings(
                np.zeros(1, np.int64), empty, empty, empty if with_positions else None
            )
        with closing(self.open("invert")) as file:
            name = file.source.name
            fields = [named(file, POSTING, BLOCKS), named(file, LENGTH, pa.uint32())]
            names = {stored.name for stored in file.schema.fields}
            is_stream = POSITION_STREAM in names
            if with_positions and is_stream:
                self._check_positions(file)
                fields.append(named(file, POSITION_STREAM, pa.large_binary()))
                fields.append(named(file, POSITION_STARTS, pa.list_(pa.uint32())))
            elif with_positions and POSITION_LISTS in names:
                fields.append(named(file, POSITION_LISTS, pa.list_(BLOCKS)))
            elif with_positions:
                raise without_positions(name)
            columns = file.read(fields, rows)
        form = self.layout.posting_format
        blocks = blocks_of(columns[0], columns[1], form.block_size, name)
        read = decoded(blocks, form, self.num_documents, name)
        if not with_positions:
            return TokenPostings(read.bounds, read.documents, read.frequencies)
        frequencies = read.frequencies.astype(np.int64)
        if is_stream:
            counts = blocks.counts(form.block_size)
            places = positions.read_stream(columns[2], columns[3], frequencies, counts, name)
        else:
            lists = columns[2].flatten()
            if columns[2].null_count or len(lists) != len(read.documents):
                raise damaged(name, "positions do not match the documents")
            places = positions.read_lists(lists, frequencies, name)
        return TokenPostings(read.bounds, read.documents, frequencies, places)

    def _read_documents(self) -> Documents:
        with closing(self.open("docs")) as file:
            name = file.source.name
            columns = read_columns(file, {ROW_IDS: pa.uint64(), NUM_TOKENS: pa.uint32()})
        row_ids, lengths = columns.columns
        if row_ids.null_count or lengths.null_count:
            raise damaged(name, "a document is null")
        return Documents(row_ids.to_numpy(), lengths.to_numpy())

    def _read_counts(self) -> Counts:
        with closing(self.open("invert")) as file:
            (lengths,) = read_columns(file, {LENGTH: pa.uint32()}).columns
            if lengths.null_count:
                raise damaged(file.source.name, "the documents of a token are not counted")
            # Scores of releases without impacts are not relied on: those of 0.33 are less.
            has_impacts = any(stored.name == IMPACTS for stored in file.schema.fields)
        with closing(self.open("docs")) as file:
            num_documents = len(all_rows(file))
            is_counted = TOTAL_TOKENS in file.schema.metadata
            num_tokens = number_in(file, TOTAL_TOKENS) if is_counted else None
        if num_tokens is None:
            num_tokens = int(self.documents.lengths.sum(dtype=np.int64))
        most = int(lengths.to_numpy().max(initial=0))
        if most > num_documents or (num_documents and not num_tokens):
            raise damaged(self._name("invert"), "the tokens do not match the documents")
        has_scores = has_impacts and self.layout.posting_format.score_bytes > 0
        return Counts(num_documents, num_tokens, lengths.to_numpy(), has_scores)

    def _read_tokens(self) -> TokenSet:
        num_tokens = len(self._counts.lengths)
        return read_tokens(self.files, self._name("tokens"), self.layout.token_form, num_tokens)

    def _check_positions(self, file: DataFileReader) -> None:
        metadata = file.schema.metadata
        layout, codec = (
            metadata.get(key, b"").decode("ascii", "replace")
            for key in ("positions_layout", "positions_codec")
        )
        if (layout, codec) != (positions.LAYOUT, positions.CODEC):
            raise UnsupportedFeatureError(
                f"{file.source.name}: positions are stored as {layout!r}, {codec!r}; this release "
                f"reads {positions.LAYOUT!r}, {positions.CODEC!r}"
            )

    def _cached(self, file_type: str, read: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        # A query needs the content several times; large contents are not in the shared cache.
        if file_type not in self._loaded:
            self._loaded[file_type] = required(
                self.files,
                self._name(file_type),
                self.files.cached(self._name(file_type), lambda _: read(), size),
            )
        content: _T = self._loaded[file_type]  # type: ignore[assignment]
        return content

    def open(self, file_type: str) -> DataFileReader:
        """Open a file of the part, as `part_file` names it."""
        return self.files.open(self._name(file_type))

    def _name(self, file_type: str) -> str:
        return part_file(self.number, file_type)


def without_positions(name: str) -> UnsupportedFeatureError:
    """Return the error about a phrase."""
    return UnsupportedFeatureError(
        f"{name}: the index has no positions, which phrases need; create it with with_position=True"
    )


def part_file(number: int, file_type: str) -> str:
    """Return the name of a file of a part: ``docs``, ``tokens`` or ``invert``."""
    return f"part_{number}_{file_type}.lance"


def rounded(lengths: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return lengths with the upper four bits only.

    Indexes with blocks of 256 documents store the lengths for scores in a byte.
    """
    _, bits = np.frexp(lengths.astype(np.float64))
    dropped = np.maximum(bits - _LENGTH_BITS, 0).astype(np.uint32)
    result: npt.NDArray[np.uint32] = (lengths >> dropped) << dropped
    return result
