"""Write the files of a segment of an INVERTED index; see `index`.

Segments have format version 2, with token dictionaries in the form `arrow`. A part has the rows of
about `PART_BYTES` of text, because its postings are sorted in memory.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.scan.text.files import index, positions, posting_write, tokens
from lance_spark.scan.text.files.postings import VARINT
from lance_spark.scan.text.parameters import BLOCK_SIZE, TextParameters
from lance_spark.scan.text.tokenizer import Tokenizer, Tokens
from lance_spark.table.rows.u64_segments import UInt64Array

FORMAT_VERSION = 2
#: Bytes of text of a part.
PART_BYTES = 32 * 1024 * 1024
_BATCH_ROWS = 1 << 14
_K1, _B = 1.2, 0.75
_FORMAT = {
    "format_version": str(FORMAT_VERSION),
    "posting_tail_codec": VARINT,
    "posting_block_size": str(BLOCK_SIZE),
}
_POSITIONS = {"positions_layout": positions.LAYOUT, "positions_codec": positions.CODEC}


def write_index(
    segment: SegmentWriter, texts: pa.Array, row_ids: UInt64Array, parameters: TextParameters
) -> None:
    """Write the files of a segment.

    Parameters
    ----------
    segment : SegmentWriter
    texts : pa.Array
        String or large string.
    row_ids : uint64 array
        Row id of each text, increasing.
    parameters : TextParameters

    Raises
    ------
    InvalidInputError
        A text is not UTF-8.
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.
    StorageError
    """
    bounds = _part_bounds(texts, parameters)
    num_parts = 0
    for start, stop in itertools.pairwise(bounds):
        part = _PartWriter(segment, num_parts, parameters)
        num_parts += part.write(texts.slice(start, stop - start), row_ids[start:stop])
    metadata = {
        "partitions": json.dumps(list(range(num_parts)), separators=(",", ":")),
        "params": parameters.to_json(),
        "token_set_format": tokens.ARROW,
        **_metadata(parameters),
    }
    deleted = pa.array([BitMap().serialize()], pa.binary())
    _write(segment, index.METADATA_FILE, {index.DELETED_FRAGMENTS: deleted}, metadata)


def _part_bounds(texts: pa.Array, parameters: TextParameters) -> list[int]:
    """Return the first row of each part, and the number of rows."""
    import pyarrow.compute as pc

    sizes = pc.binary_length(texts).fill_null(0).to_numpy().astype(np.int64)
    # A byte is in as many substrings as they have lengths; a word has several bytes.
    lengths = parameters.max_ngram_length - parameters.min_ngram_length + 1
    tokens_of_word = 4 * lengths if parameters.base_tokenizer == "ngram" else 1
    part = np.append(0, np.cumsum(sizes))[:-1] // max(1, PART_BYTES // tokens_of_word)
    starts = np.flatnonzero(np.diff(part)) + 1
    return [0, *starts.tolist(), len(texts)]


class _PartWriter:
    """Writes one part."""

    def __init__(self, segment: SegmentWriter, number: int, parameters: TextParameters) -> None:
        self._segment = segment
        self._number = number
        self._parameters = parameters

    def write(self, texts: pa.Array, row_ids: UInt64Array) -> bool:
        """Write the part; return whether it has documents, and is written."""
        import pyarrow.compute as pc

        tokenizer = Tokenizer(self._parameters)
        found = tokenizer.split(texts)
        counts = np.bincount(found.rows, minlength=len(texts))
        # A row without tokens is not a document.
        is_document = counts > 0
        if not is_document.any():
            return False
        lengths = counts[is_document]
        documents = {
            index.ROW_IDS: pa.array(row_ids[is_document]),
            index.NUM_TOKENS: pa.array(lengths, pa.uint32()),
        }
        self._write("docs", documents, {index.TOTAL_TOKENS: str(lengths.sum())})
        vocabulary = pa.array(tokenizer.vocabulary, pa.string())
        order = pc.array_sort_indices(vocabulary.cast(pa.large_binary()))
        dictionary = {
            tokens.TOKEN: vocabulary.take(order),
            tokens.TOKEN_ID: order.cast(pa.uint32()),
        }
        self._write("tokens", dictionary, {})
        numbers = np.cumsum(is_document) - 1
        self._write("invert", *self._postings(found, numbers, lengths, len(vocabulary)))
        return True

    def _postings(
        self, found: Tokens, numbers: RowNumbers, lengths: RowNumbers, num_tokens: int
    ) -> tuple[dict[str, pa.Array], dict[str, str]]:
        """Return the columns of the posting lists, and the metadata of their file."""
        order = np.argsort(found.ids, kind="stable")
        ids, documents = found.ids[order], numbers[found.rows[order]]
        is_first = np.ones(len(ids), np.bool_)
        is_first[1:] = (np.diff(ids) != 0) | (np.diff(documents) != 0)
        starts = np.flatnonzero(is_first)
        postings = posting_write.SortedPostings(
            bounds=np.searchsorted(ids[starts], np.arange(num_tokens + 1)),
            documents=documents[starts],
            frequencies=np.diff(np.append(starts, len(ids))),
        )
        scores = _scores(postings, lengths)
        blocks, block_bounds = postings.split(BLOCK_SIZE)
        greatest = np.maximum.reduceat(scores, blocks[:-1])
        of_token = np.maximum.reduceat(greatest, block_bounds[:-1])
        bytes_of_lengths = posting_write.length_byte(lengths)[postings.documents]
        columns = {
            index.POSTING: posting_write.encoded_blocks(postings, greatest),
            index.MAX_SCORE: pa.array(of_token),
            index.LENGTH: pa.array(np.diff(postings.bounds), pa.uint32()),
            index.IMPACTS: posting_write.encoded_impacts(postings, bytes_of_lengths),
        }
        if self._parameters.with_position:
            places = found.positions[order]
            streams, part_starts = posting_write.encoded_positions(postings, places)
            columns[index.POSITION_STREAM] = streams
            columns[index.POSITION_STARTS] = part_starts
        return columns, _metadata(self._parameters)

    def _write(self, kind: str, columns: dict[str, pa.Array], metadata: dict[str, str]) -> None:
        _write(self._segment, f"part_{self._number}_{kind}.lance", columns, metadata)


def _scores(postings: posting_write.SortedPostings, lengths: RowNumbers) -> npt.NDArray[np.float32]:
    """Return the score of each posting, or a little more; readers skip blocks by these scores."""
    num_documents = len(lengths)
    with_token = np.diff(postings.bounds)
    inverse = np.log((num_documents - with_token + 0.5) / (with_token + 0.5) + 1.0)
    mean = lengths.sum() / num_documents
    norms = _K1 * (1 - _B + _B * lengths / mean)
    frequencies = postings.frequencies.astype(np.float64)
    saturated = (_K1 + 1) * frequencies / (frequencies + norms[postings.documents])
    scores = (np.repeat(inverse, with_token) * saturated).astype(np.float32)
    greater: npt.NDArray[np.float32] = np.nextafter(scores, np.float32(np.inf))
    return greater


def _metadata(parameters: TextParameters) -> dict[str, str]:
    return {**_FORMAT, **(_POSITIONS if parameters.with_position else {})}


def _write(
    segment: SegmentWriter, name: str, columns: dict[str, pa.Array], metadata: dict[str, str]
) -> None:
    fields = [pa.field(column, array.type, nullable=False) for column, array in columns.items()]
    schema = pa.schema(fields)
    writer = segment.create(name, schema)
    table = pa.table(list(columns.values()), schema=schema)
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        writer.write(batch)
    for key, value in metadata.items():
        writer.set_metadata(key, value)
