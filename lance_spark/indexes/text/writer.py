"""Write the files of a segment of an INVERTED index; see `index`.

A part that reaches the limit of memory is written, and
the next one begins.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.indexes.files import SegmentWriter
from lance_spark.indexes.text import files
from lance_spark.indexes.text import fst as fst_writer
from lance_spark.indexes.text import postings as positions
from lance_spark.indexes.text import postings as posting_write
from lance_spark.indexes.text.files import TextIndexPart, TokenPostings
from lance_spark.indexes.text.parameters import BLOCK_SIZE, CODE, TextParameters
from lance_spark.indexes.text.postings import VARINT, PostingFormat
from lance_spark.indexes.text.tokenizer import tokenizer_of
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Write a part of a segment of an INVERTED index; see `index`.
#
# The number, the document and the position of each token are collected in memory. When the part is
# written, they are sorted, and the postings of some tokens are encoded after the other.

#: Bytes of memory of a token and of a document while a part is written, and of a distinct token.
TOKEN_BYTES, _DOCUMENT_BYTES, _WORD_BYTES = 48, 64, 320
_BATCH_ROWS = 1 << 14
#: Tokens whose postings are encoded at once.
CHUNK_TOKENS = 1 << 17
_DOCUMENT_BITS = 32
_K1, _B = 1.2, 0.75
_POSITIONS = {"positions_layout": positions.LAYOUT, "positions_codec": positions.CODEC}

Ints = npt.NDArray[np.int32]


#: The greatest format version that is written.
MAX_FORMAT = 3


def default_format(parameters: TextParameters) -> int:
    """Return the least format version that has the tokenizer."""
    return 3 if parameters.base_tokenizer == CODE else 2


@dataclass(frozen=True, slots=True)
class Form:
    """What the files of a segment have in common.

    - `format_version`: 2, or 3, whose files differ from it in this number only.
    - `token_form`: Form of the token dictionaries; see `tokens`.
    """

    parameters: TextParameters
    format_version: int
    token_form: str = files.FST

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of `metadata.lance` and of the posting lists."""
        return {
            "format_version": str(self.format_version),
            "posting_tail_codec": VARINT,
            "posting_block_size": str(BLOCK_SIZE),
            **(_POSITIONS if self.parameters.with_position else {}),
        }


class PartWriter:
    """Collects the documents of a part, and writes its files."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._ids: list[Ints] = []
        self._documents: list[Ints] = []
        self._positions: list[Ints] = []
        self._row_ids: list[UInt64Array] = []
        self._lengths: list[RowNumbers] = []
        self.num_documents = 0
        self.num_tokens = 0

    def nbytes(self, num_words: int) -> int:
        """Bytes of memory that writing the part takes, about, with some distinct tokens."""
        return part_memory(self.num_tokens, self.num_documents, num_words)

    def add(
        self,
        ids: RowNumbers,
        documents: RowNumbers,
        places: RowNumbers,
        row_ids: UInt64Array,
        lengths: RowNumbers,
    ) -> None:
        """Add documents.

        - `ids`, `documents`, `places` (int64 array): Number, document and position of each token.
          Documents are numbered from 0 on. The documents of each number increase, and the positions
          in each document.
        - `row_ids`: Uint64 array.
        - `lengths` (int64 array): Tokens of each document, one or more.
        """
        self._ids.append(ids.astype(np.int32))
        self._documents.append((documents + self.num_documents).astype(np.int32))
        if self._form.parameters.with_position:
            self._positions.append(places.astype(np.int32))
        self._row_ids.append(row_ids)
        self._lengths.append(lengths)
        self.num_documents += len(row_ids)
        self.num_tokens += len(ids)

    def write(self, segment: SegmentWriter, number: int, vocabulary: Sequence[str]) -> None:
        """Write the files of one document or more.

        - `number`: Of the part.
        - `vocabulary`: The token of each number; each occurs.
        """
        lengths = np.concatenate(self._lengths)
        write_documents(segment, number, np.concatenate(self._row_ids), lengths)
        write_tokens(segment, number, pa.array(vocabulary, pa.string()), self._form.token_form)
        mean = self.num_tokens / self.num_documents
        norms = _K1 * (1 - _B + _B * lengths.astype(np.float64) / mean)
        lists = self._posting_lists(norms, lengths, len(vocabulary))
        name = files.part_file(number, "invert")
        write_file(segment, name, lists, self._form.metadata)

    def _posting_lists(
        self, norms: npt.NDArray[np.float64], lengths: RowNumbers, num_words: int
    ) -> Iterator[dict[str, pa.Array]]:
        """Yield the columns of the posting lists of some tokens after the other."""
        keys = self._sorted_keys()
        bounds = np.searchsorted(keys, np.arange(num_words + 1) << _DOCUMENT_BITS)
        length_bytes = posting_write.length_byte(lengths)
        with_position = self._form.parameters.with_position
        document, place = (
            (_joined(self._documents), _joined(self._positions)) if with_position else (None, None)
        )
        start = 0
        while start < num_words:
            stop = int(np.searchsorted(bounds, bounds[start] + CHUNK_TOKENS, "right")) - 1
            stop = max(stop, start + 1)
            tokens_of_chunk = keys[bounds[start] : bounds[stop]] & ((1 << _DOCUMENT_BITS) - 1)
            documents = tokens_of_chunk if document is None else document[tokens_of_chunk]
            postings = _postings(documents, bounds[start : stop + 1] - bounds[start])
            scores = _scores(postings, norms)
            blocks, block_bounds = postings.split(BLOCK_SIZE)
            greatest = np.maximum.reduceat(scores, blocks[:-1])
            columns = {
                files.POSTING: posting_write.encoded_blocks(postings, greatest),
                files.MAX_SCORE: pa.array(np.maximum.reduceat(greatest, block_bounds[:-1])),
                files.LENGTH: pa.array(np.diff(postings.bounds), pa.uint32()),
                files.IMPACTS: posting_write.encoded_impacts(
                    postings, length_bytes[postings.documents]
                ),
            }
            if place is not None:
                streams, starts = posting_write.encoded_positions(
                    postings, place[tokens_of_chunk].astype(np.int64)
                )
                columns[files.POSITION_STREAM] = streams
                columns[files.POSITION_STARTS] = starts
            yield columns
            start = stop

    def _sorted_keys(self) -> npt.NDArray[np.int64]:
        """Return a number for each token, by which tokens and their documents are in order.

        The lower half is the document, or the place of the token if positions are needed.
        """
        keys = _joined(self._ids).astype(np.int64)
        keys <<= _DOCUMENT_BITS
        with_position = self._form.parameters.with_position
        keys |= np.arange(len(keys)) if with_position else _joined(self._documents)
        keys.sort()
        return keys


def part_memory(num_tokens: int, num_documents: int, num_words: int) -> int:
    """Return the bytes of memory that a part takes while it is written, about."""
    return num_tokens * TOKEN_BYTES + num_documents * _DOCUMENT_BYTES + num_words * _WORD_BYTES


def write_documents(
    segment: SegmentWriter, number: int, row_ids: UInt64Array, lengths: npt.NDArray[np.integer]
) -> None:
    """Write the documents of a part: their row ids, and numbers of tokens."""
    columns = {files.ROW_IDS: pa.array(row_ids), files.NUM_TOKENS: pa.array(lengths, pa.uint32())}
    metadata = {files.TOTAL_TOKENS: str(lengths.sum(dtype=np.int64))}
    write_file(segment, files.part_file(number, "docs"), [columns], metadata)


def write_tokens(segment: SegmentWriter, number: int, vocabulary: pa.Array, form: str) -> None:
    """Write the tokens of a part, which are in the order of their numbers, in a form."""
    import pyarrow.compute as pc

    values = vocabulary.cast(pa.large_binary())
    order = pc.array_sort_indices(values)
    if form == files.FST:
        graph = fst_writer.encoded(values.take(order), order.to_numpy().astype(np.int64))
        num_bytes = pc.sum(pc.binary_length(values), min_count=0)
        columns = {
            files.FST_BYTES: pa.array([graph.tobytes()], pa.large_binary()),
            files.FST_COUNT: pa.array([len(values)], pa.uint32()),
            files.FST_LENGTH: pa.array([num_bytes.as_py()], pa.uint64()),
        }
    else:
        columns = {files.TOKEN: vocabulary.take(order), files.TOKEN_ID: order.cast(pa.uint32())}
    write_file(segment, files.part_file(number, "tokens"), [columns], {})


def write_file(
    segment: SegmentWriter,
    name: str,
    chunks: Iterable[Mapping[str, pa.Array]],
    metadata: Mapping[str, str],
) -> None:
    """Write a file of a segment.

    - `chunks` (iterable of mappings of str to array): The columns, one chunk of rows or more.
    """
    writer = None
    for columns in chunks:
        batch = pa.record_batch(list(columns.values()), _schema(columns))
        if writer is None:
            writer = segment.create(name, batch.schema)
        for start in range(0, len(batch), _BATCH_ROWS):
            writer.write(batch.slice(start, _BATCH_ROWS))
    assert writer is not None
    for key, value in metadata.items():
        writer.set_metadata(key, value)
    # Its buffers would stay in memory until the segment is complete.
    segment.complete(name)


def _schema(columns: Mapping[str, pa.Array]) -> pa.Schema:
    return pa.schema(
        [pa.field(column, array.type, nullable=False) for column, array in columns.items()]
    )


def _joined(arrays: list[Ints]) -> Ints:
    """Return arrays as one, and release them."""
    result = np.concatenate(arrays)
    arrays.clear()
    return result


def _postings(
    documents: npt.NDArray[np.integer], bounds: RowNumbers
) -> posting_write.SortedPostings:
    """Return the postings of tokens, of which each occurrence is given."""
    is_first = np.ones(len(documents), np.bool_)
    is_first[1:] = documents[1:] != documents[:-1]
    is_first[bounds[:-1]] = True
    starts = np.flatnonzero(is_first)
    return posting_write.SortedPostings(
        bounds=np.searchsorted(starts, bounds),
        documents=documents[starts].astype(np.int64),
        frequencies=np.diff(np.append(starts, len(documents))),
    )


def _scores(
    postings: posting_write.SortedPostings, norms: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return the score of each posting, or a little more; readers skip blocks by these scores."""
    with_token = np.diff(postings.bounds)
    inverse = np.log((len(norms) - with_token + 0.5) / (with_token + 0.5) + 1.0)
    frequencies = postings.frequencies.astype(np.float64)
    saturated = (_K1 + 1) * frequencies / (frequencies + norms[postings.documents])
    scores = (np.repeat(inverse, with_token) * saturated).astype(np.float32)
    greater: npt.NDArray[np.float32] = np.nextafter(scores, np.float32(np.inf))
    return greater


# --------------------------------------------------------------------------------------------------
# Parts of INVERTED indexes that become parts of a new segment, without the text of their rows.

#: More than the bytes of any token.
_ANY_SIZE = (1 << 31) - 1
#: Most tokens of a document whose postings are decoded.
_MAX_LENGTH = 1 << 24


@dataclass(frozen=True, slots=True)
class TokensOfDocuments:
    """Some documents of a part.

    - `words` (int64 array): Place of each token among the words that are given with it.
    - `numbers` (int64 array): Document of each token, numbered from 0 on. The documents of each
      word increase.
    - `positions`: Int64 array.
    - `row_ids`: Uint64 array.
    - `lengths` (int64 array): Tokens of each document.
    """

    words: RowNumbers
    numbers: RowNumbers
    positions: RowNumbers
    row_ids: UInt64Array
    lengths: RowNumbers


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part, and what becomes of its documents.

    - `row_ids` (uint64 array): The new row id of each document.
    - `is_kept` (bool array): Whether each document is kept.
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

        Raises CorruptFileError, MissingFileError, StorageError.
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
                files.part_file(part.number, file_type),
                files.part_file(number, file_type),
            )
            segment.copy(part.files, name, new_name)

    def read(self, memory: int) -> Iterator[tuple[list[str], TokensOfDocuments]]:
        """Yield some documents after the other, and the words that they have.

        - `memory`: Bytes of memory of the documents in a part that is written, about.

        Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
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

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    words, numbers = part.tokens.starting_with(b"", _ANY_SIZE)
    if not np.array_equal(np.sort(numbers), np.arange(len(words))):
        raise CorruptFileError(
            f"{part.files.segment.name}: two tokens have one number; rebuild the index"
        )
    return [words[place] for place in np.argsort(numbers).tolist()]


def all_postings(part: TextIndexPart) -> Iterator[tuple[int, TokenPostings]]:
    """Yield the postings of some tokens after the other, with the number of the first token.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with_positions = part.layout.parameters.with_position
    for start, stop in token_ranges(part):
        yield start, part.read_postings(np.arange(start, stop), with_positions=with_positions)


def token_ranges(part: TextIndexPart) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number, plus one, of tokens that are read together.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    counts = part.token_lengths
    before = np.append(0, np.cumsum(counts, dtype=np.int64))
    start = 0
    while start < len(counts):
        stop = int(np.searchsorted(before, before[start] + CHUNK_TOKENS, "right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


# --------------------------------------------------------------------------------------------------
# Write the files of a segment of an INVERTED index; see `index`.

#: Bytes of memory of a part, by default and at most. Documents have numbers of 32 bits.
DEFAULT_MEMORY, MAX_MEMORY = 256 << 20, 4096 << 20


class IndexWriter:
    """Writes a segment.

    - `memory_limit`: Bytes of memory of a part, about.

    Raises UnsupportedFeatureError: stems are needed, and the package PyStemmer is missing.
    """

    def __init__(
        self, segment: SegmentWriter, form: Form, memory_limit: int = DEFAULT_MEMORY
    ) -> None:
        self._segment = segment
        self._form = form
        self._limit = min(memory_limit, MAX_MEMORY)
        self._num_parts = 0
        self._begin()

    def add_texts(self, texts: pa.Array, row_ids: UInt64Array) -> None:
        """Add rows.

        - `texts`: Strings, lists of strings, or JSONB, as the parameters have it.
        - `row_ids` (uint64 array): Row id of each text.

        Raises StorageError. Raises InvalidInputError: a text is not UTF-8.
        """
        for first, piece in self._tokenizer.pieces(texts):
            # A new part has another tokenizer.
            tokens = self._tokenizer.split(piece)
            lengths = np.bincount(tokens.rows, minlength=len(piece))
            # A row without tokens is not a document.
            is_document = lengths > 0
            self._part.add(
                tokens.ids,
                (np.cumsum(is_document) - 1)[tokens.rows],
                tokens.positions,
                row_ids[first : first + len(piece)][is_document],
                lengths[is_document],
            )
            self._flush(self._limit)

    def add_part(self, part: StoredPart) -> None:
        """Add the documents of a part of another segment.

        The files of a large part are copied, if they have the form of this segment. Otherwise the
        postings are decoded.

        Raises CorruptFileError, MissingFileError, StorageError.
        """
        if 2 * part.nbytes >= self._limit and part.has_form(self._form):
            part.copy(self._segment, self._num_parts, self._form.token_form)
            self._num_parts += 1
            return
        for words, documents in part.read(self._limit // 2):
            numbers = self._tokenizer.add(words)
            self._part.add(
                numbers[documents.words],
                documents.numbers,
                documents.positions,
                documents.row_ids,
                documents.lengths,
            )
            self._flush(self._limit)

    def finish(self) -> None:
        """Write the last part, and the file that describes all."""
        self._flush(0)
        metadata = {
            "partitions": json.dumps(list(range(self._num_parts)), separators=(",", ":")),
            "params": self._form.parameters.to_json(),
            "token_set_format": self._form.token_form,
            **self._form.metadata,
        }
        deleted = pa.array([BitMap().serialize()], pa.binary())
        columns = {files.DELETED_FRAGMENTS: deleted}
        write_file(self._segment, files.METADATA_FILE, [columns], metadata)

    def _begin(self) -> None:
        self._tokenizer = tokenizer_of(self._form.parameters)
        self._part = PartWriter(self._form)

    def _flush(self, limit: int) -> None:
        """Write the part that is being made, if it takes as much memory as a limit."""
        vocabulary = self._tokenizer.vocabulary
        if self._part.num_documents and self._part.nbytes(len(vocabulary)) >= limit:
            self._part.write(self._segment, self._num_parts, vocabulary)
            self._num_parts += 1
            self._begin()
