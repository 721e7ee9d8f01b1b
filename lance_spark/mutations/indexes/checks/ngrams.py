"""Checks NGRAM indexes: the rows of each trigram."""

from __future__ import annotations

import numpy as np
import pyarrow.types as pat
from pyroaring import BitMap64

from lance_spark.errors import CorruptFileError
from lance_spark.mutations.indexes.checks.rows import ColumnCheck, CoveredRows, Findings
from lance_spark.scan.indexes import ngram
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.table.rows.index import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

#: Trigrams that are read at once.
_BATCH_TRIGRAMS = 512


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
    expected = ngram.postings_of(rows.values, rows.row_keys)
    trigrams = ngram.read_trigrams(files)
    possible = _known_rows(rows)
    missing, wrong = BitMap64(), BitMap64()
    for start in range(0, len(trigrams), _BATCH_TRIGRAMS):
        part = trigrams[start : start + _BATCH_TRIGRAMS]
        postings = ngram.read_postings(files, np.arange(start, start + len(part)))
        for trigram, posting in zip(part.tolist(), postings, strict=True):
            position, is_live = rows.find(_words(posting & possible))
            position = position[is_live]
            findings.stale += len(posting) - len(position)
            stored = BitMap64(np.sort(rows.row_keys[position]), optimize=False)
            expected_rows = expected.pop(trigram, BitMap64())
            lacking, surplus = expected_rows - stored, stored - expected_rows
            missing |= lacking
            wrong |= surplus
            _describe(rows, lacking, f"the index does not have {_shown(trigram)}", findings)
            _describe(rows, surplus, f"the index has {_shown(trigram)}", findings)
    for trigram, lacking in sorted(expected.items()):
        missing |= lacking
        _describe(rows, lacking, f"the index does not have {_shown(trigram)}", findings)
    findings.missing += len(missing - wrong)
    findings.wrong += len(wrong)


def _known_rows(rows: CoveredRows) -> BitMap64:
    """Return all rows that an index can have; a set of few bytes can have any number of others."""
    rows_of_index = BitMap64(rows.row_keys, optimize=False)
    for digest in () if rows.moved is None else rows.moved.old_fragments():
        first = digest.id << OFFSET_BITS
        rows_of_index.add_range(first, first + min(digest.physical_rows, 1 << OFFSET_BITS))
    return rows_of_index


def _words(rows: BitMap64) -> UInt64Array:
    return np.frombuffer(rows.to_array(), np.uint64)


def _describe(rows: CoveredRows, row_keys: BitMap64, text: str, findings: Findings) -> None:
    findings.add(
        rows.problem(int(np.searchsorted(rows.row_keys, np.uint64(word))), text)
        for word in row_keys
    )


def _shown(trigram: int) -> str:
    return "the row as null" if trigram == ngram.NULL_TRIGRAM else f"the row with trigram {trigram}"


CHECK = ColumnCheck(check)
