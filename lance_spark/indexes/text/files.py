"""The files of a segment of an INVERTED index: its parts, tokens, documents and blocks."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_spark.encoding.rows import RowNumbers
from lance_spark.encoding.v2_1.codec import ranges
from lance_spark.errors import CorruptFileError, MissingFileError, UnsupportedFeatureError
from lance_spark.file.open import DataFileReader
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.files import IndexFiles, named, number_in, read_columns
from lance_spark.indexes.registry import TYPES
from lance_spark.indexes.text import postings as positions
from lance_spark.indexes.text.fst import TokenGraph
from lance_spark.indexes.text.packing import gathered
from lance_spark.indexes.text.parameters import TextParameters
from lance_spark.indexes.text.postings import (
    FIXED,
    VARINT,
    Blocks,
    PostingFormat,
    Postings,
    blocks_of,
    decoded,
    truncated,
)
from lance_spark.proto import index_old_pb2
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The tokens of a part of an INVERTED index.
#
# | `token_set_format` | columns of `part_<n>_tokens.lance` |
# | --- | --- |
# | `arrow` | _token (string), _token_id (uint32): a row for each token, in order |
# | `fst` | _token_fst_bytes, _token_next_id, _token_total_length: one row, see `fst` |

ARROW, FST = "arrow", "fst"
TOKEN, TOKEN_ID = "_token", "_token_id"
FST_BYTES, FST_COUNT, FST_LENGTH = "_token_fst_bytes", "_token_next_id", "_token_total_length"


class TokenSet(Protocol):
    """Finds the numbers of tokens."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        ...

    def find(self, token: bytes) -> int | None:
        """Return the number of a token; None if it is missing."""
        ...

    def starting_with(self, prefix: bytes, most_bytes: int) -> tuple[list[bytes], RowNumbers]:
        """Return the tokens of at most some bytes that start with others, and their numbers."""
        ...


class _Sorted(Sequence[bytes]):
    """A sorted array, for `bisect`."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | Sequence[bytes]:
        value: bytes = self._array[number].as_py()
        return value

    def __len__(self) -> int:
        return len(self._array)


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Tokens in the order of their bytes.

    - `tokens`: Large binary, increasing.
    - `numbers`: Int64 array.
    """

    tokens: pa.Array
    numbers: RowNumbers

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.tokens.nbytes + self.numbers.nbytes)

    def find(self, token: bytes) -> int | None:
        """Return the number of a token; None if it is missing."""
        position = bisect_left(_Sorted(self.tokens), token)
        if position == len(self.tokens) or self.tokens[position].as_py() != token:
            return None
        return int(self.numbers[position])

    def starting_with(self, prefix: bytes, most_bytes: int) -> tuple[list[bytes], RowNumbers]:
        """Return the tokens of at most some bytes that start with others, and their numbers."""
        import pyarrow.compute as pc

        keys = _Sorted(self.tokens)
        # No byte of UTF-8 is 255.
        first, last = bisect_left(keys, prefix), bisect_left(keys, prefix + b"\xff")
        tokens = self.tokens.slice(first, last - first)
        fits = pc.less_equal(pc.binary_length(tokens), most_bytes)
        kept = fits.to_numpy(zero_copy_only=False)
        return tokens.filter(fits).to_pylist(), self.numbers[first:last][kept]


def read_tokens(files: IndexFiles, file: str, form: str, num_tokens: int) -> TokenSet:
    """Read the tokens of a part.

    - `file`: Name of the file.
    - `form`: `token_set_format`.
    - `num_tokens`: Posting lists of the part.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    import pyarrow.compute as pc

    with closing(files.open(file)) as reader:
        name = reader.source.name
        if form == FST:
            fields = {FST_BYTES: pa.large_binary(), FST_COUNT: pa.uint32()}
            row = read_columns(reader, fields).to_pylist()
            if len(row) != 1 or None in row[0].values() or row[0][FST_COUNT] != num_tokens:
                raise _error(name)
            return TokenGraph.parse(row[0][FST_BYTES], num_tokens, name)
        dtype = named(reader, TOKEN).arrow_field.type
        columns = read_columns(reader, {TOKEN: None, TOKEN_ID: pa.uint32()})
    if dtype not in (pa.string(), pa.large_string()):
        raise _error(name)
    tokens, ids = columns.column(0), columns.column(1)
    if tokens.null_count or ids.null_count or len(tokens) != num_tokens:
        raise _error(name)
    tokens = tokens.cast(pa.large_binary())
    numbers = ids.to_numpy().astype(np.int64)
    if not pc.all(pc.less(tokens[:-1], tokens[1:])).as_py():
        order = pc.array_sort_indices(tokens)
        tokens, numbers = tokens.take(order), numbers[order.to_numpy()]
    if not np.array_equal(np.sort(numbers), np.arange(num_tokens)):
        raise _error(name)
    return TokenTable(tokens, numbers)


def _error(name: str) -> CorruptFileError:
    return CorruptFileError(f"{name}: the tokens do not match the postings; rebuild the index")


# --------------------------------------------------------------------------------------------------
# The content of `metadata.lance` of a segment of an INVERTED index.
#
# The parameters are in the metadata of the schema, the numbers of the parts too.
#
# Specification: table/index/scalar/fts.md.

METADATA_FILE = "metadata.lance"
#: Files that only the first format has.
_FIRST_TOKENS, _FIRST_POSTINGS = "tokens.lance", "invert.lance"
#: Stands for the first format, which has no number.
FIRST_FORMAT = 0
DELETED_FRAGMENTS = "deleted_fragments"
#: Versions of the index. They are those of its format, or 0 if segments with token dictionaries in
#: the form `arrow` were merged; the files record their format.
VERSIONS = TYPES["INVERTED"].versions
_MAX_PARTS = 1 << 16

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Layout:
    """The content of `metadata.lance`.

    - `parts`: Numbers of the parts.
    """

    parameters: TextParameters
    parts: tuple[int, ...]
    format_version: int
    token_form: str
    posting_format: PostingFormat


def layout_of(files: IndexFiles) -> Layout:
    """Return the content of `metadata.lance` of a segment; see `open_index`."""
    _check_granularity(files)
    content = files.cached(METADATA_FILE, _read_layout, lambda _: 1024)
    return required(files, METADATA_FILE, content)


def _check_granularity(files: IndexFiles) -> None:
    """Raise an error about an index with several documents in a row; the manifest alone says so."""
    details = index_old_pb2.InvertedIndexDetails()
    with suppress(DecodeError):
        details.ParseFromString(files.segment.index_details.value)
    if details.document_granularity:
        raise UnsupportedFeatureError(
            f"index {files.segment.name!r} has a document for each item of a list, which this "
            "release does not read; create an index whose document_granularity is row"
        )


def _has_first_format(files: IndexFiles) -> bool:
    """Return whether a segment has the files of the first format."""
    if files.segment.files:
        return any(file.path == _FIRST_TOKENS for file in files.segment.files)
    # Old releases list no files.
    store, path = files.locate(_FIRST_TOKENS)
    return store.exists(path)


def required(files: IndexFiles, file: str, content: _T | None) -> _T:
    """Return the content of a file of a segment.

    Raises MissingFileError: the content is None: the file is missing.
    """
    if content is None:
        raise MissingFileError(
            f"index {files.segment.name!r}: file {file}, or a file that it needs, not found; "
            "rebuild the index"
        )
    return content


def _read_layout(files: IndexFiles) -> Layout:
    if _has_first_format(files):
        return _read_first_layout(files)
    with closing(files.open(METADATA_FILE)) as file:
        name, metadata = file.source.name, file.schema.metadata
        block_size = number_in(file, "posting_block_size", 128)
        version = number_in(file, "format_version", 1)
    parameters = TextParameters.of_json(metadata.get("params", b""), name)
    try:
        parts = json.loads(metadata.get("partitions", b"null"))
    except (ValueError, RecursionError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) > _MAX_PARTS
        or not all(isinstance(part, int) and 0 <= part < 1 << 64 for part in parts)
        or len(set(parts)) < len(parts)
    ):
        raise damaged(name, "partitions must be a list of distinct numbers")
    tail = _text(metadata, "posting_tail_codec", FIXED)
    form = _text(metadata, "token_set_format", ARROW)
    if version not in VERSIONS[1:]:
        raise UnsupportedFeatureError(
            f"{name}: format_version {version} is not supported; this release reads 1 to 3"
        )
    if block_size not in (128, 256) or tail not in (FIXED, VARINT) or form not in (ARROW, FST):
        raise UnsupportedFeatureError(
            f"{name}: postings of {block_size} documents, {tail!r}, {form!r} are not supported; "
            "create the index again"
        )
    return Layout(parameters, tuple(parts), version, form, PostingFormat(block_size, tail))


def _read_first_layout(files: IndexFiles) -> Layout:
    """Return what `metadata.lance` would have, from the files of the first format."""
    with closing(files.open(_FIRST_TOKENS)) as file:
        name, text = file.source.name, file.schema.metadata.get("tokenizer", b"{}")
    with closing(files.open(_FIRST_POSTINGS)) as file:
        with_position = any(stored.name == "_position" for stored in file.schema.fields)
    parameters = replace(TextParameters.of_json(text, name), with_position=with_position)
    return Layout(parameters, (0,), FIRST_FORMAT, ARROW, PostingFormat(tail=FIXED))


def _text(metadata: Mapping[str, bytes], key: str, default: str) -> str:
    return metadata.get(key, default.encode()).decode("ascii", "replace")


def damaged(name: str, problem: str) -> CorruptFileError:
    """Return the error about a damaged file."""
    return CorruptFileError(f"{name}: {problem}; rebuild the index")


# --------------------------------------------------------------------------------------------------
# Stored blocks of the postings of tokens, with the first document and the greatest score of each.
#
# A search for the best documents decodes only the blocks that may have one.


@dataclass(frozen=True, slots=True)
class TokenBlocks:
    """Blocks of the postings of tokens.

    - `firsts` (int64 array): The first document of each block.
    - `scores` (float32 array): The greatest score of each block, with the statistics of the part
      when it was written.
    - `form`: Its blocks have scores.
    - `num_documents`: Documents of the part.
    - `name`: Name of the file, for errors.
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

        Raises CorruptFileError: a block is truncated, or first documents do not increase or do not
        exist.
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

        Raises CorruptFileError: a block is damaged.
        """
        blocks = self.blocks
        if numbers is not None:
            blocks = blocks.select(numbers, self.form.block_size)
        return decoded(blocks, self.form, self.num_documents, self.name)


# --------------------------------------------------------------------------------------------------
# The files of a segment of an INVERTED index.
#
# | file | columns | content |
# | --- | --- | --- |
# | `metadata.lance` | deleted_fragments | parameters, in the metadata of the schema |
# | `part_<n>_docs.lance` | _rowid (uint64), _num_tokens (uint32) | a row for each document |
# | `part_<n>_tokens.lance` | see `tokens` | the number of each token |
# | `part_<n>_invert.lance` | _posting, _length (uint32), positions | a row for each token |
#
# A document is a row of the table with one token or more. Its number is that of its row in
# `part_<n>_docs.lance`. Parts have their own numbers of documents and tokens.
#
# Specification: table/index/scalar/fts.md.

ROW_IDS, NUM_TOKENS, TOTAL_TOKENS = "_rowid", "_num_tokens", "total_tokens"
POSTING, LENGTH, MAX_SCORE, IMPACTS = "_posting", "_length", "_max_score", "_impacts"
POSITION_LISTS, POSITION_STREAM = "_position", "_compressed_position"
POSITION_STARTS = "_position_block_offset"
BLOCKS = pa.list_(pa.large_binary())
_LENGTH_BITS = 4

#: Documents and frequencies of a token.
PostingList = tuple[RowNumbers, npt.NDArray[np.integer[Any]]]


@dataclass(frozen=True, slots=True)
class TokenPostings:
    """The documents of some tokens, one token after the other.

    - `bounds` (int64 array): First posting of each token, and the number of postings.
    - `documents`: Int64 array.
    - `frequencies`: Integer array.
    - `positions` (int64 array or None): As many for each posting as its frequency, increasing; None
      if they are not wanted.
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

    - `row_ids`: Uint64 array.
    - `lengths` (uint32 array): Tokens of each document.
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

    - `num_documents`, `num_tokens`: Documents, and tokens of all documents.
    - `lengths` (uint32 array): Documents of each token, by its number.
    - `has_scores`: Whether each block of postings has the greatest score of its documents.
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
    """A part of a segment."""

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

        Raises CorruptFileError, MissingFileError, StorageError.
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

        - `tokens`: Distinct tokens.

        Raises CorruptFileError, MissingFileError, StorageError. Raises UnsupportedFeatureError: the
        index has no positions.
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

        Raises CorruptFileError, MissingFileError, StorageError.
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

        Raises CorruptFileError, MissingFileError, StorageError.
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

        - `name`: What it is; unlike the names of files.
        - `make`: Computes it, given the place of a token, unless the cache has it.
        - `size`: Returns its bytes.
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


# --------------------------------------------------------------------------------------------------
# Segments of INVERTED indexes in the first format, which pylance wrote before 0.30.
#
# | file | columns | content |
# | --- | --- | --- |
# | `tokens.lance` | _token (string), _token_id (uint32) | a row for each token |
# | `docs.lance` | _rowid (uint64), _num_tokens (uint32) | a row for each document, in any order |
# | `invert.lance` | _rowid (uint64), _frequency (float), _position (list of int32) | the postings |
#
# The parameters are JSON in the metadata `tokenizer` of `tokens.lance`; see `layout`. The postings
# of token n begin at row `offsets[n]` of `invert.lance`: these numbers are JSON in its metadata. A
# segment has one part. The format is read, and not written.

_FREQUENCY, _OFFSETS = "_frequency", "offsets"


@dataclass(frozen=True)
class FirstFormatPart(TextIndexPart):
    """The part of a segment. Documents are numbered in the order of their row ids."""

    def read_postings(self, rows: RowNumbers, *, with_positions: bool) -> TokenPostings:
        """Return the documents of tokens by their numbers; see `TextIndexPart.read_postings`."""
        with closing(self.open("invert")) as file:
            name = file.source.name
            starts, lengths = _places(file)
            counts = lengths[rows]
            fields = [named(file, ROW_IDS, pa.uint64()), named(file, _FREQUENCY, pa.float32())]
            if with_positions:
                if POSITION_LISTS not in {stored.name for stored in file.schema.fields}:
                    raise without_positions(name)
                fields.append(named(file, POSITION_LISTS, pa.list_(pa.int32())))
            columns = file.read(fields, ranges(starts[rows], counts))
        if any(column.null_count for column in columns):
            raise damaged(name, "a posting is null")
        row_ids, amounts = (column.to_numpy() for column in columns[:2])
        if not ((amounts >= 1) & (amounts < 1 << 24)).all():
            raise damaged(name, "a token is less than once, or too often, in a document")
        known = self.documents.row_ids
        documents = np.searchsorted(known, row_ids)
        if not np.array_equal(known[np.minimum(documents, len(known) - 1)], row_ids):
            raise damaged(name, "a token is in an unknown document")
        tokens = np.repeat(np.arange(len(rows)), counts)
        order = np.lexsort((documents, tokens))
        frequencies = amounts.astype(np.int64)[order]
        positions = None
        if with_positions:
            lists = columns[2].take(pa.array(order))
            if not np.array_equal(np.diff(lists.offsets.to_numpy()), frequencies):
                raise damaged(name, "positions do not match the documents")
            positions = lists.flatten().to_numpy().astype(np.int64)
        bounds = np.append(0, np.cumsum(counts))
        return TokenPostings(bounds, documents[order], frequencies, positions)

    def _read_documents(self) -> Documents:
        documents = super()._read_documents()
        order = np.argsort(documents.row_ids, kind="stable")
        return Documents(documents.row_ids[order], documents.lengths[order])

    def _read_counts(self) -> Counts:
        with closing(self.open("invert")) as file:
            _, lengths = _places(file)
        documents = self.documents
        num_tokens = int(documents.lengths.sum(dtype=np.int64))
        return Counts(len(documents.row_ids), num_tokens, lengths.astype(np.uint32), False)

    def _name(self, file_type: str) -> str:
        return f"{file_type}.lance"


def _places(file: DataFileReader) -> tuple[RowNumbers, RowNumbers]:
    """Return the first posting of each token, and how many it has."""
    name, num_rows = file.source.name, len(all_rows(file))
    try:
        starts = np.array(json.loads(file.schema.metadata.get(_OFFSETS, b"")), np.int64)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise damaged(name, "offsets must be a list of numbers") from None
    if starts.ndim != 1:
        raise damaged(name, "offsets must be a list of numbers")
    lengths = np.diff(starts, append=num_rows)
    if (lengths < 0).any() or (len(starts) and starts[0]) or (num_rows and not len(starts)):
        raise damaged(name, "offsets must increase from 0 to the number of postings")
    return starts, lengths


# --------------------------------------------------------------------------------------------------
# Opens a segment of an INVERTED index, in any format.


def open_index(files: IndexFiles) -> tuple[TextParameters, list[TextIndexPart]]:
    """Return the parameters and the parts of a segment.

    Raises CorruptFileError, MissingFileError, StorageError. Raises UnsupportedFeatureError: the
    segment has a tokenizer, or a format, that this release does not know.
    """
    layout = layout_of(files)
    part = FirstFormatPart if layout.format_version == FIRST_FORMAT else TextIndexPart
    return layout.parameters, [part(files, number, layout) for number in layout.parts]
