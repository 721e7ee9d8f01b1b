"""Write a part of a segment of an INVERTED index; see `index`.

The number, the document and the position of each token are collected in memory. When the part is
written, they are sorted, and the postings of some tokens are encoded after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.scan.text.files import index, positions, posting_write, tokens
from lance_spark.scan.text.files.fst import writer as fst_writer
from lance_spark.scan.text.files.postings import VARINT
from lance_spark.scan.text.parameters import BLOCK_SIZE, CODE, TextParameters
from lance_spark.table.rows.u64_segments import UInt64Array

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

    Attributes
    ----------
    parameters : TextParameters
    format_version : int
        2, or 3, whose files differ from it in this number only.
    token_form : str
        Form of the token dictionaries; see `tokens`.
    """

    parameters: TextParameters
    format_version: int
    token_form: str = tokens.FST

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
    """Collects the documents of a part, and writes its files.

    Parameters
    ----------
    form : Form
    """

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

        Parameters
        ----------
        ids, documents, places : int64 array
            Number, document and position of each token. Documents are numbered from 0 on. The
            documents of each number increase, and the positions in each document.
        row_ids : uint64 array
        lengths : int64 array
            Tokens of each document, one or more.
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

        Parameters
        ----------
        segment : SegmentWriter
        number : int
            Of the part.
        vocabulary : sequence of str
            The token of each number; each occurs.
        """
        lengths = np.concatenate(self._lengths)
        write_documents(segment, number, np.concatenate(self._row_ids), lengths)
        write_tokens(segment, number, pa.array(vocabulary, pa.string()), self._form.token_form)
        mean = self.num_tokens / self.num_documents
        norms = _K1 * (1 - _B + _B * lengths.astype(np.float64) / mean)
        lists = self._posting_lists(norms, lengths, len(vocabulary))
        name = index.part_file(number, "invert")
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
                index.POSTING: posting_write.encoded_blocks(postings, greatest),
                index.MAX_SCORE: pa.array(np.maximum.reduceat(greatest, block_bounds[:-1])),
                index.LENGTH: pa.array(np.diff(postings.bounds), pa.uint32()),
                index.IMPACTS: posting_write.encoded_impacts(
                    postings, length_bytes[postings.documents]
                ),
            }
            if place is not None:
                streams, starts = posting_write.encoded_positions(
                    postings, place[tokens_of_chunk].astype(np.int64)
                )
                columns[index.POSITION_STREAM] = streams
                columns[index.POSITION_STARTS] = starts
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
    columns = {index.ROW_IDS: pa.array(row_ids), index.NUM_TOKENS: pa.array(lengths, pa.uint32())}
    metadata = {index.TOTAL_TOKENS: str(lengths.sum(dtype=np.int64))}
    write_file(segment, index.part_file(number, "docs"), [columns], metadata)


def write_tokens(segment: SegmentWriter, number: int, vocabulary: pa.Array, form: str) -> None:
    """Write the tokens of a part, which are in the order of their numbers, in a form."""
    import pyarrow.compute as pc

    values = vocabulary.cast(pa.large_binary())
    order = pc.array_sort_indices(values)
    if form == tokens.FST:
        graph = fst_writer.encoded(values.take(order), order.to_numpy().astype(np.int64))
        num_bytes = pc.sum(pc.binary_length(values), min_count=0)
        columns = {
            tokens.FST_BYTES: pa.array([graph.tobytes()], pa.large_binary()),
            tokens.FST_COUNT: pa.array([len(values)], pa.uint32()),
            tokens.FST_LENGTH: pa.array([num_bytes.as_py()], pa.uint64()),
        }
    else:
        columns = {tokens.TOKEN: vocabulary.take(order), tokens.TOKEN_ID: order.cast(pa.uint32())}
    write_file(segment, index.part_file(number, "tokens"), [columns], {})


def write_file(
    segment: SegmentWriter,
    name: str,
    chunks: Iterable[Mapping[str, pa.Array]],
    metadata: Mapping[str, str],
) -> None:
    """Write a file of a segment.

    Parameters
    ----------
    segment : SegmentWriter
    name : str
    chunks : iterable of mappings of str to array
        The columns, one chunk of rows or more.
    metadata : mapping of str to str
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
