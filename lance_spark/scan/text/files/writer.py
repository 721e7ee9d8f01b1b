"""Write the files of a segment of an INVERTED index; see `index`.

A part that reaches the limit of memory is written, and
the next one begins.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.scan.text.files import layout
from lance_spark.scan.text.files.part_writer import Form, PartWriter, write_file
from lance_spark.scan.text.files.stored_parts import StoredPart
from lance_spark.scan.text.json_documents import tokenizer_of
from lance_spark.table.rows.u64_segments import UInt64Array

#: Bytes of memory of a part, by default and at most. Documents have numbers of 32 bits.
DEFAULT_MEMORY, MAX_MEMORY = 256 << 20, 4096 << 20


class IndexWriter:
    """Writes a segment.

    Parameters
    ----------
    segment : SegmentWriter
    form : Form
    memory_limit : int
        Bytes of memory of a part, about.

    Raises
    ------
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.
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

        Parameters
        ----------
        texts : pa.Array
            Strings, lists of strings, or JSONB, as the parameters have it.
        row_ids : uint64 array
            Row id of each text.

        Raises
        ------
        InvalidInputError
            A text is not UTF-8.
        StorageError
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

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
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
        columns = {layout.DELETED_FRAGMENTS: deleted}
        write_file(self._segment, layout.METADATA_FILE, [columns], metadata)

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
