"""Checks NGRAM indexes: the rows of each token."""

from __future__ import annotations

import numpy as np
import pyarrow.types as pat
from pyroaring import BitMap64

from lance_spark.errors import CorruptFileError
from lance_spark.mutations.indexes.checks.rows import CoveredRows, Findings
from lance_spark.scan.indexes import ngram
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.table.rows.index import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

#: Tokens that are read at once.
_BATCH_TOKENS = 512


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment with its rows.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    if not (pat.is_string(rows.values.type) or pat.is_large_string(rows.values.type)):
        raise CorruptFileError(
            f"index {files.segment.name!r}: the column is {rows.values.type}, and has no texts; "
            "drop the index"
        )
    expected = ngram.postings_of(rows.values, rows.words)
    tokens = ngram.read_tokens(files)
    possible = _known_rows(rows)
    missing, wrong = BitMap64(), BitMap64()
    for start in range(0, len(tokens), _BATCH_TOKENS):
        part = tokens[start : start + _BATCH_TOKENS]
        postings = ngram.read_postings(files, np.arange(start, start + len(part)))
        for token, posting in zip(part.tolist(), postings, strict=True):
            position, is_live = rows.find(_words(posting & possible))
            position = position[is_live]
            findings.stale += len(posting) - len(position)
            stored = BitMap64(np.sort(rows.words[position]), optimize=False)
            expected_rows = expected.pop(token, BitMap64())
            lacking, surplus = expected_rows - stored, stored - expected_rows
            missing |= lacking
            wrong |= surplus
            _describe(rows, lacking, f"the index does not have {_shown(token)}", findings)
            _describe(rows, surplus, f"the index has {_shown(token)}", findings)
    for token, lacking in sorted(expected.items()):
        missing |= lacking
        _describe(rows, lacking, f"the index does not have {_shown(token)}", findings)
    findings.missing += len(missing - wrong)
    findings.wrong += len(wrong)


def _known_rows(rows: CoveredRows) -> BitMap64:
    """Return all rows that an index can have; a set of few bytes can have any number of others."""
    rows_of_index = BitMap64(rows.words, optimize=False)
    for digest in () if rows.moved is None else rows.moved.old_fragments():
        first = digest.id << OFFSET_BITS
        rows_of_index.add_range(first, first + min(digest.physical_rows, 1 << OFFSET_BITS))
    return rows_of_index


def _words(rows: BitMap64) -> UInt64Array:
    return np.frombuffer(rows.to_array(), np.uint64)


def _describe(rows: CoveredRows, words: BitMap64, text: str, findings: Findings) -> None:
    findings.add(
        rows.problem(int(np.searchsorted(rows.words, np.uint64(word))), text) for word in words
    )


def _shown(token: int) -> str:
    return "the row as null" if token == ngram.NULL_TOKEN else f"the row with token {token}"
