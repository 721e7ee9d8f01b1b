"""Segments of INVERTED indexes in the first format, which pylance wrote before 0.30.

| file | columns | content |
| --- | --- | --- |
| `tokens.lance` | _token (string), _token_id (uint32) | a row for each token |
| `docs.lance` | _rowid (uint64), _num_tokens (uint32) | a row for each document, in any order |
| `invert.lance` | _rowid (uint64), _frequency (float), _position (list of int32) | the postings |

The parameters are JSON in the metadata `tokenizer` of `tokens.lance`; see `layout`. The postings of
token n begin at row `offsets[n]` of `invert.lance`: these numbers are JSON in its metadata. A
segment has one part. The format is read, and not written.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.encoding.v2_1.fixed_width import ranges
from lance_spark.file.open import DataFileReader
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.files import named
from lance_spark.scan.text.files.index import (
    POSITION_LISTS,
    ROW_IDS,
    Counts,
    Documents,
    TextIndexPart,
    TokenPostings,
    without_positions,
)
from lance_spark.scan.text.files.layout import damaged

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
